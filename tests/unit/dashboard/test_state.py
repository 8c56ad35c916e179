"""Time ranges, buckets and what stands in the address."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptpath.dashboard import state
from promptpath.storage.queries.dashboard import Filters

S = 1_000_000_000
NOW = 1_750_000_003 * S


def test_a_relative_range_ends_on_the_next_five_seconds_so_that_queries_repeat() -> None:
    assert state.relative_range("last 5 min", NOW) == ((1_750_000_005 - 300) * S, 1_750_000_005 * S)
    assert state.relative_range("last 5 min", NOW + S) == state.relative_range("last 5 min", NOW)


def test_an_unknown_range_is_the_default() -> None:
    assert state.relative_range("nonsense", NOW) == state.relative_range(state.DEFAULT_RANGE, NOW)


def test_the_smallest_range_that_reaches_back() -> None:
    assert state.smallest_range_holding(NOW - 200 * S, NOW) == "last 5 min"
    assert state.smallest_range_holding(NOW - 7_200 * S, NOW) == "last 6 hours"
    assert state.smallest_range_holding(NOW - 400 * 86_400 * S, NOW) is None


@given(st.integers(min_value=0, max_value=4_000_000_000_000))
def test_a_moment_survives_the_address_to_the_millisecond(ms: int) -> None:
    assert state.from_url(state.to_url(ms * 1_000_000)) == ms * 1_000_000


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01", "<script>"])
def test_what_is_no_moment_is_none(text: str) -> None:
    assert state.from_url(text) is None


def test_a_link_without_a_zone_is_utc() -> None:
    assert state.from_url("2026-01-01T00:00:00") == state.from_url("2026-01-01T01:00:00+01:00")


@given(st.integers(min_value=1, max_value=500 * 86_400), st.integers(min_value=1, max_value=200))
def test_buckets_are_no_more_than_asked_for(span_s: int, most: int) -> None:
    step_ns = state.step_for(Filters(0, span_s * S), most)
    assert -(-span_s * S // step_ns) <= most
    assert step_ns >= 5 * S


def test_wall_clocks_of_a_zone_and_back() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    at = state.from_local_naive(datetime(2026, 7, 1, 14, 30), berlin)
    assert state.to_url(at) == "2026-07-01T12:30:00.000Z"
    assert state.local_naive(at, berlin) == datetime(2026, 7, 1, 14, 30)
