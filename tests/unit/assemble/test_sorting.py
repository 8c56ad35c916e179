"""Sorting by packed words and looking up by hash give what the plain ways give."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from promptpath.collector.assemble import climb, sorting, texts

_INT64 = st.integers(-(2**63), 2**63 - 1)
_SMALL = st.integers(-3, 3)


@given(data=st.data(), size=st.integers(0, 40), count=st.integers(1, 5))
def test_order_by_is_lexsort(data: st.DataObject, size: int, count: int) -> None:
    values = st.one_of(_SMALL, _INT64, st.sampled_from([0, 1, 2**62, 2**62 + 1, -(2**63), 2**63 - 1]))
    keys = [data.draw(arrays.arrays(np.int64, size, elements=values)) for _ in range(count)]
    assert np.array_equal(sorting.order_by(*keys), np.lexsort(keys[::-1]))


def test_order_by_of_unsigned_words_and_of_many_ties() -> None:
    rng = np.random.default_rng(1)
    wide = rng.integers(0, 2**64, 5_000, dtype=np.uint64)
    group = rng.integers(0, 7, 5_000)
    close = wide & ~np.uint64(0xFFFF) | rng.integers(0, 4, 5_000, dtype=np.uint64)
    for keys in ([group, wide], [group, close, group], [close // np.uint64(2**40), close, wide]):
        assert np.array_equal(sorting.order_by(*keys), np.lexsort(keys[::-1]))


@pytest.mark.parametrize("group_size", [1, 3, 40, 300, 20_000])
@pytest.mark.parametrize("shuffled", [0, 5, 20_000])
def test_order_by_of_groups_that_stand_together(group_size: int, shuffled: int) -> None:
    """What is nearly in order takes another way than what is not; some groups are larger than that way's blocks."""
    rng = np.random.default_rng(group_size + shuffled)
    size = 20_000 + 77
    group = np.arange(size) // group_size
    swapped = rng.integers(0, size, shuffled)
    group[np.sort(swapped)] = group[swapped]
    keys = [group, rng.integers(0, 50, size)]
    assert np.array_equal(sorting.order_by(*keys), np.lexsort(keys[::-1]))
    wide = [group, rng.integers(-(2**62), 2**62, size), rng.integers(0, 3, size)]
    assert np.array_equal(sorting.order_by(*wide), np.lexsort(wide[::-1]))


@given(data=st.data(), size=st.integers(1, 60))
def test_find_is_a_dictionary(data: st.DataObject, size: int) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    groups = np.sort(np.concatenate((np.arange(3), rng.integers(0, 3, size))))
    pairs = rng.permutation(400)[: len(groups)].astype(np.uint64)
    keys = pairs // np.uint64(20), pairs % np.uint64(20)
    asked = rng.integers(0, 3, 80)
    wanted = rng.integers(0, 20, 80).astype(np.uint64), rng.integers(0, 20, 80).astype(np.uint64)
    known = {key: index for index, key in enumerate(zip(groups.tolist(), *(one.tolist() for one in keys), strict=True))}
    expected = [known.get(key, -1) for key in zip(asked.tolist(), *(one.tolist() for one in wanted), strict=True)]
    assert sorting.find(groups, keys, asked, wanted).tolist() == expected


def test_keys_made_to_collide_are_still_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorting, "_slots", lambda pair, begin, length: begin)
    groups = np.repeat(np.arange(2), 500)
    keys = np.arange(1000, dtype=np.uint64), np.zeros(1000, dtype=np.uint64)
    order = np.random.default_rng(2).permutation(1000)
    asked, wanted = groups[order], (keys[0][order], keys[1][order])
    assert sorting.find(groups, keys, asked, wanted).tolist() == order.tolist()
    absent = wanted[0] + np.uint64(1000), wanted[1]
    assert set(sorting.find(groups, keys, asked, absent).tolist()) == {-1}


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-(2**61), 2**61)), max_size=4))
def test_exact_sums_keep_every_nanosecond(pairs: list[tuple[int, int]]) -> None:
    groups = np.array([group for group, _ in pairs], dtype=np.int64)
    values = np.array([value for _, value in pairs], dtype=np.int64)
    expected = [sum(value for group, value in pairs if group == wanted) for wanted in range(4)]
    if all(abs(total) < 2**63 for total in expected):
        assert sorting.exact_sums(groups, values, 4).tolist() == expected


@pytest.mark.parametrize("ids", [["0" * 15 + "a", "f" * 16, "A" * 16], ["a", "b", "ffffffffffffffff"]])
def test_ids_are_equal_where_the_texts_are_and_sort_as_they_do(ids: list[str]) -> None:
    own, named = pa.array(ids), pa.array([ids[1], "", ids[0]])
    words, others, some = texts.ids_of(own, named)
    assert some.tolist() == [True, False, True]
    pairs = words.tolist()
    assert sorted(range(3), key=lambda index: pairs[index]) == sorted(range(3), key=lambda index: ids[index])
    assert others[0].tolist() == pairs[1]
    rows = np.array([2, 0])
    chosen = texts.take_pairs(words, rows)
    assert np.stack(chosen, axis=1).tolist() == [pairs[2], pairs[0]]
    assert texts.texts_of_ids(own, rows, chosen).to_pylist() == [ids[2], ids[0]]
    assert texts.take_ids(own.slice(1), np.array([1, 0, 1])).to_pylist() == [ids[2], ids[1], ids[2]]


@given(st.lists(st.text("0123456789abcdef", min_size=32, max_size=32), max_size=20))
def test_ranks_of_trace_ids(ids: list[str]) -> None:
    distinct = sorted(set(ids))
    assert texts.ranks_of(pa.array(ids, type=pa.string())).tolist() == [distinct.index(one) for one in ids]


def test_two_trace_ids_that_mix_to_one_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "_SPREAD", np.uint64(0))
    ids = ["1" * 24 + "0" * 8, "2" * 24 + "0" * 8, "1" * 24 + "0" * 8]
    assert texts.ranks_of(pa.array(ids)).tolist() == [0, 1, 0]


def test_climbing_a_chain_and_a_comb() -> None:
    size = 5_000
    chain = np.arange(-1, size - 1)
    assert climb.heights(chain)[0].tolist() == list(range(size))
    assert set(climb.outermost(chain).tolist()) == {0}
    stop = np.arange(size) % 1000 == 0
    assert climb.nearest(chain, stop)[4_999] == 4_000
    assert climb.mark_above(chain, np.array([10])).sum() == 10
    comb = np.where(np.arange(size) % 2 == 0, np.arange(size) - 2, np.arange(size) - 1)
    comb[0] = -1
    assert climb.heights(comb)[0].max() == size // 2
    assert [len(level) for level in climb.by_height(climb.heights(comb)[0])[:3]] == [1, 2, 2]
