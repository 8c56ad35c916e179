"""Hosts' clocks."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from promptpath.collector.simulate.clocks import Clock, make

S = 1_000_000_000


def test_offset_and_drift() -> None:
    clock = Clock(start_ns=1000 * S, offset_ns=-7, drift_ppb=50_000)
    assert clock.read(1000 * S, 0) == 1000 * S - 7
    assert clock.read(1001 * S, 0) - clock.read(1000 * S, 0) == S + 50_000


def test_a_step_is_seen_by_requests_that_come_after_it_only() -> None:
    clock = Clock(start_ns=0, step_at_ns=100, step_ns=1000)
    assert clock.read(150, since_ns=90) == 150
    assert clock.read(150, since_ns=100) == 1150


@given(st.integers(-(10**5), 10**5), st.integers(0, 10**13), st.lists(st.integers(0, 10**11), max_size=5))
def test_elapsed_is_the_difference_of_two_readings(drift_ppb: int, begin: int, later: list[int]) -> None:
    clock = Clock(start_ns=0, offset_ns=5, drift_ppb=drift_ppb)
    found = clock.elapsed(begin, np.array([begin + one for one in later], dtype=np.int64))
    read = [clock.read(begin + one, 0) - clock.read(begin, 0) for one in later]
    # Whole nanoseconds: both round down.
    assert all(abs(one - other) <= 1 for one, other in zip(found.tolist(), read, strict=True))


def test_made_within_bounds() -> None:
    rng = random.Random(1)
    for _ in range(100):
        clock = make(rng, 0, 1000, skew_ns=5 * S, drift_ppm=50, step_ns=S)
        assert abs(clock.offset_ns) <= 5 * S
        assert abs(clock.drift_ppb) <= 50_000
        assert abs(clock.step_ns) <= S
        assert 250 <= clock.step_at_ns <= 750
