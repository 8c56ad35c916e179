"""The anchored clock: it agrees with the wall clock, and never runs backwards when that is set."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptpath.instrumentation import clock

MILLISECOND_NS = 1_000_000


def test_it_agrees_with_the_wall_clock() -> None:
    before = time.time_ns()
    now = clock.now_ns()
    after = time.time_ns()
    assert before - MILLISECOND_NS <= now <= after + MILLISECOND_NS
    assert abs(clock.drift_ns()) < MILLISECOND_NS


def test_a_step_of_the_wall_clock_moves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    real = time.time_ns
    before = clock.now_ns()
    monkeypatch.setattr(time, "time_ns", lambda: real() - 3600 * 10**9)
    assert clock.now_ns() >= before
    assert abs(clock.drift_ns() + 3600 * 10**9) < 10 * MILLISECOND_NS


@given(st.lists(st.integers(0, 10**9), min_size=2, max_size=50))
def test_order_and_distance_are_kept(steps: list[int]) -> None:
    at = clock.mono()
    walls = [clock.wall_ns(at := at + step) for step in steps]
    assert walls == sorted(walls)
    assert [b - a for a, b in pairwise(walls)] == steps[1:]


@given(st.integers(0, 10**17))
def test_either_kind_of_time_becomes_monotonic(mono_ns: int) -> None:
    assert clock.mono_ns_of(mono_ns) == mono_ns
    now = clock.mono()
    assert clock.mono_ns_of(clock.wall_ns(now)) == now
