"""Sorting and looking up by several keys at once, in a few passes over packed words instead of one sort a key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from promptpath.collector.assemble.schema import Bools, Ints

Words = npt.NDArray[np.uint64]
Key = npt.NDArray[np.int64] | npt.NDArray[np.uint64]

_NONE: Final = -1
_WORD_BITS: Final = 64
#: So many words tell that most arrays are not in order, without a look at all of them.
_GLANCE: Final = 256
#: Fewer bits of a key than this are left to the comparison of what is equal without them.
_WORTH_BITS: Final = 8
#: Words that are sorted at once: the most for which NumPy has a sorting network.
_BLOCK: Final = 256
#: Odd, without pattern: multiplying by them spreads ids over the high bits.
_SPREAD: Final = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F))
#: After so many steps along a hash table the rest is looked up by sorting: keys made to collide cost no more than that.
_MAX_PROBES: Final = 48


def order_by(*keys: Key) -> Ints:
    """Indices that sort by the first key, then the second and so on, equal ones in the order they have.

    keys: of one shape (n,). What `np.lexsort(keys[::-1])` gives: the keys are packed into one word, as many of their
    bits as fit beside the index, and only what is equal in these is compared further.
    """
    size = len(keys[0])
    if size < 2:
        return np.arange(size, dtype=np.int64)
    index_bits = (size - 1).bit_length()
    room = _WORD_BITS - index_bits
    word: Words | None = None
    rest: list[Key] = []
    for number, key in enumerate(keys):
        if room < _WORTH_BITS and word is not None:
            rest = list(keys[number:])
            break
        low = key.min()
        width = (int(key.max()) - int(low)).bit_length()
        if not width:
            continue
        offset = key.view(np.uint64) - low.view(np.uint64)
        if width > room:
            left = width - room
            rest = [offset & np.uint64((1 << left) - 1), *keys[number + 1 :]]
            if room:
                word = _join(word, offset >> np.uint64(left), room)
            break
        word = _join(word, offset, width)
        room -= width
    if word is None:
        return np.arange(size, dtype=np.int64)
    if _ascending(word[:_GLANCE]) and _ascending(word):
        order = np.arange(size, dtype=np.int64)
    else:
        word = (word << np.uint64(index_bits)) | np.arange(size, dtype=np.uint64)
        _sort(word)
        order = (word & np.uint64((1 << index_bits) - 1)).view(np.int64)
        word >>= np.uint64(index_bits)
    return _settle(order, word, rest) if rest else order


def _sort(word: Words) -> None:
    """Sorts in place; faster than `word.sort()` where words stand near where they belong, as those of one group do
    when the groups are in order.

    Blocks are sorted, then blocks between them: what is no further from its place than half a block is where it
    belongs. A block takes a sorting network and a few ns a word; one sort of all takes several times that, and on some
    processors (AMD Zen 4, whose AVX-512 stores are slow) twenty times.
    """
    if len(word) > 2 * _BLOCK:
        sample = word[::_BLOCK]
        if 8 * np.count_nonzero(sample[1:] < sample[:-1]) > len(sample):
            word.sort()
            return
        for begin in (0, _BLOCK // 2):
            end = begin + (len(word) - begin) // _BLOCK * _BLOCK
            word[begin:end].reshape(-1, _BLOCK).sort(axis=1)
            word[end:].sort()
        if _ascending(word):
            return
    # Merges what is in order already.
    word.sort(kind="stable")


def _ascending(word: Words) -> bool:
    return bool((word[1:] >= word[:-1]).all())


def _join(word: Words | None, offset: Words, width: int) -> Words:
    return offset if word is None else (word << np.uint64(width)) | offset


def _settle(order: Ints, word: Words, rest: list[Key]) -> Ints:
    """`order` with those that are equal in `word`, which is sorted, in the order of `rest`."""
    same: Bools = word[1:] == word[:-1]
    if same.any():
        tied = np.zeros(len(order), dtype=np.bool_)
        tied[1:] = same
        run = np.cumsum(~tied).astype(np.int64)
        tied[:-1] |= same
        at = np.flatnonzero(tied)
        rival = order[at]
        order[at] = rival[order_by(run[at], *(key[rival] for key in rest))]
    return order


def find(groups: Ints, keys: tuple[Words, Words], asked: Ints, wanted: tuple[Words, Words]) -> Ints:
    """Index of each wanted pair among the pairs of its group, -1 where absent; shape of `asked`.

    groups: sorted, and each of 0, 1, ... up to the last occurs; pairs are unique within a group. asked: groups of the
    wanted pairs.
    """
    found = np.full(len(asked), _NONE, dtype=np.int64)
    size = len(groups)
    if size == 0 or len(asked) == 0:
        return found
    # Each group has a stretch of the hash table to itself, four times its size: neighbours stay neighbours there.
    length = np.bincount(groups)
    begin = 4 * (np.cumsum(length) - length)
    table = np.full(4 * size + _MAX_PROBES, _NONE, dtype=np.int32)
    slot = _slots(keys, begin[groups], length[groups])
    pending = np.arange(size, dtype=np.int64)
    for _ in range(_MAX_PROBES):
        free = table[slot] == _NONE
        table[slot[free]] = pending[free]
        left = table[slot] != pending
        pending, slot = pending[left], slot[left] + 1
        if len(pending) == 0:
            break
    slot = _slots(wanted, begin[asked], length[asked])
    asking = np.arange(len(found), dtype=np.int64)
    for _ in range(_MAX_PROBES):
        candidate = table[slot].astype(np.int64)
        here = (candidate != _NONE) & (groups[candidate] == asked[asking])
        for key, want in zip(keys, wanted, strict=True):
            here &= key[candidate] == want[asking]
        found[asking[here]] = candidate[here]
        left = ~here & (candidate != _NONE)
        asking, slot = asking[left], slot[left] + 1
        if len(asking) == 0:
            return found
    if len(pending):
        own = [groups.view(np.uint64), *keys]
        other = [asked.view(np.uint64), *wanted]
        found[asking] = _find_sorted(own, other, pending, asking)
    return found


def _slots(pair: tuple[Words, Words], begin: Ints, length: Ints) -> Ints:
    mixed: Words = pair[0] * _SPREAD[0]
    mixed += pair[1] * _SPREAD[1]
    mixed >>= np.uint64(32)
    mixed *= (4 * length).view(np.uint64)
    mixed >>= np.uint64(32)
    slots = mixed.view(np.int64)
    slots += begin
    return slots


def _find_sorted(keys: Sequence[Words], wanted: Sequence[Words], among: Ints, asking: Ints) -> Ints:
    """`find` of wanted[asking] among keys[among], by sorting both together."""
    columns: list[Words] = [np.concatenate((key[among], want[asking])) for key, want in zip(keys, wanted, strict=True)]
    order = order_by(*columns)
    new = np.zeros(len(order), dtype=np.bool_)
    new[0] = True
    for column in columns:
        ordered = column[order]
        new[1:] |= ordered[1:] != ordered[:-1]
    run = np.empty(len(order), dtype=np.int64)
    run[order] = np.cumsum(new) - 1
    # The first of each run is the key, if there is one: equal triples stand in the order of the concatenation.
    first = order[np.flatnonzero(new)][run[len(among) :]]
    return np.where(first < len(among), among[np.minimum(first, len(among) - 1)], _NONE).astype(np.int64)


def exact_sums(groups: Ints, values: Ints, size: int) -> Ints:
    """Sum of the values of each group 0..size-1, exact as long as a sum of absolute values stays below 2**63."""
    total: Ints = np.bincount(groups, weights=values & 0xFFFFFFFF, minlength=size).astype(np.int64)
    high = values >> 32
    if high.any():
        total += np.bincount(groups, weights=high, minlength=size).astype(np.int64) << 32
    return total


def runs(*columns: Key) -> Ints:
    """Positions at which a new run starts in columns whose equal rows are adjacent."""
    size = len(columns[0])
    new = np.zeros(size, dtype=np.bool_)
    new[:1] = True
    for column in columns:
        new[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(new)
