"""Offsets between hosts: within their own bound, whatever the clocks do."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from promptpath.collector.assemble.offsets import Bounds, ClockPool

S = 1_000_000_000
MS = 1_000_000
T0 = 1_700_000_000 * S


def bounds(rows: list[tuple[int, int, int]], names: tuple[str, str] = ("a", "b")) -> Bounds:
    """Bounds of one pair of hosts: (at, low, high) each."""
    columns = np.array(rows, dtype=np.int64).reshape(-1, 3)
    zero = np.zeros(len(rows), dtype=np.int64)
    return Bounds(list(names), zero, zero + 1, columns[:, 0], columns[:, 1], columns[:, 2])


def exchange(rng: random.Random, at: int, offset: int, least: int = MS, most: int = 40 * MS) -> tuple[int, int, int]:
    """What one request and its answer tell of a true offset; delays differ both ways."""
    there, back = rng.randint(least, most), rng.randint(least, most)
    return at, offset - back, offset + there


def one(pool: ClockPool, at: int, low: int = -S * 100, high: int = S * 100) -> tuple[int, int, bool]:
    offset, error, known = pool.offsets(bounds([(at, low, high)]))
    return int(offset[0]), int(error[0]), bool(known[0])


def test_nothing_known() -> None:
    assert one(ClockPool(), T0)[2] is False


def test_one_exchange_is_its_midpoint() -> None:
    pool = ClockPool()
    pool.add(bounds([(T0, 5 * S - 4 * MS, 5 * S + 2 * MS)]))
    assert one(pool, T0) == (5 * S - MS, 3 * MS, True)


def test_the_tightest_bounds_of_all_count() -> None:
    pool = ClockPool(drift_ppm=0)
    pool.add(bounds([(T0, -10 * MS, MS), (T0 + S, -MS, 20 * MS)]))
    assert one(pool, T0 + S // 2) == (0, MS, True)


def test_the_same_again_changes_nothing() -> None:
    rng = random.Random(1)
    rows = [exchange(rng, T0 + n * S // 10, 7 * MS) for n in range(100)]
    once, twice = ClockPool(), ClockPool()
    once.add(bounds(rows))
    for _ in range(2):
        twice.add(bounds(rows))
    rng.shuffle(rows)
    shuffled = ClockPool()
    shuffled.add(bounds(rows))
    for at in (T0, T0 + 5 * S, T0 + 9 * S):
        assert one(once, at) == one(twice, at) == one(shuffled, at)


@settings(deadline=None, max_examples=60)
@given(
    offset=st.integers(-5 * S, 5 * S),
    drift=st.integers(-100, 100),
    seed=st.integers(0, 10**6),
    count=st.integers(1, 300),
)
def test_drifting_clocks_stay_within_the_bound(offset: int, drift: int, seed: int, count: int) -> None:
    rng = random.Random(seed)
    truth = {}
    for _ in range(count):
        since = rng.randint(0, 60 * S)
        truth[T0 + since] = offset + since * drift // 1_000_000
    pool = ClockPool()
    pool.add(bounds([exchange(rng, at, true) for at, true in truth.items()]))
    for at, true in truth.items():
        found, error, known = one(pool, at)
        assert known
        assert abs(found - true) <= error


def test_pooling_beats_a_single_exchange() -> None:
    rng = random.Random(2)
    pool = ClockPool()
    pool.add(bounds([exchange(rng, T0 + n * MS * 10, 3 * S) for n in range(2000)]))
    errors = [one(pool, T0 + n * S)[1] for n in range(20)]
    assert max(errors) < 3 * MS  # single ones: up to 40 ms


def test_a_clock_that_is_set_opens_a_new_window() -> None:
    rng = random.Random(3)
    jump = T0 + 30 * S
    times = [T0 + n * S // 10 for n in range(600)]
    true = {at: (2 * S if at < jump else 2 * S + 300 * MS) for at in times}
    pool = ClockPool()
    pool.add(bounds([exchange(rng, at, true[at]) for at in times]))
    wrong = [at for at in times if abs(one(pool, at)[0] - true[at]) > one(pool, at)[1]]
    assert wrong == []
    assert one(pool, jump - S)[1] < 5 * MS
    assert one(pool, jump + S)[1] < 5 * MS


def test_one_wrong_pair_is_left_out() -> None:
    rng = random.Random(4)
    rows = [exchange(rng, T0 + n * S // 5, 0) for n in range(100)]
    pool = ClockPool()
    pool.add(bounds([*rows, (T0 + 10 * S + 7, 80 * MS, 80 * MS + 1000)]))
    found, error, _ = one(pool, T0 + 10 * S)
    assert abs(found) <= error < 10 * MS


def test_what_contradicts_the_pool_is_not_answered_by_it() -> None:
    pool = ClockPool()
    pool.add(bounds([(T0, -MS, MS)]))
    assert one(pool, T0, 10 * MS, 20 * MS)[2] is False


def test_pairs_are_kept_apart() -> None:
    pool = ClockPool()
    pool.add(bounds([(T0, -MS, MS)]))
    pool.add(bounds([(T0, S - MS, S + MS)], ("a", "c")))
    assert one(pool, T0)[0] == 0
    assert int(pool.offsets(bounds([(T0, 0, 2 * S)], ("a", "c")))[0][0]) == S


def test_what_is_told() -> None:
    pool = ClockPool()
    pool.add(bounds([(T0 + n * S, 5 * S - MS, 5 * S + MS) for n in range(25)]))

    def told() -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = pool.new().to_pylist()
        return [row | {"at": row["at"].value - T0} for row in rows]

    assert told() == [
        {"host_a": "a", "host_b": "b", "at": at * S, "offset_ns": 5 * S, "error_ns": MS, "pairs": pairs}
        for at, pairs in ((9, 10), (19, 10), (24, 5))
    ]
    assert told() == []
    pool.add(bounds([(T0 + 26 * S, 5 * S - MS // 2, 5 * S + MS // 2)]))
    assert [(row["at"], row["error_ns"]) for row in told()] == [(26 * S, MS // 2)]
