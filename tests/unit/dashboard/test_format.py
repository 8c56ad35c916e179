"""Figures as people read them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptpath.dashboard import format as fmt


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (None, "—"),
        (0, "0 ms"),
        (1, "1.00 ns"),
        (950, "950 ns"),
        (12_345, "12.3 µs"),
        (999_999, "1 ms"),
        (1_500_000, "1.50 ms"),
        (842_000_000, "842 ms"),
        (1_520_000_000, "1.52 s"),
        (59_400_000_000, "59.4 s"),
        (200_000_000_000, "3 min 20 s"),
        (-1_500_000, "-1.50 ms"),
    ],
)
def test_durations(ns: float | None, text: str) -> None:
    assert fmt.duration(ns) == text


@given(st.integers(min_value=1, max_value=59_000_000_000))
def test_a_duration_says_its_value_to_half_a_percent(ns: int) -> None:
    number, unit = fmt.duration(ns).split()
    size = {"ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9}[unit]
    assert float(number) * size == pytest.approx(ns, rel=0.0051)


@pytest.mark.parametrize(
    ("value", "text"), [(None, "—"), (0, "0"), (12_345, "12,345"), (1_234_567, "1.23 M"), (4.2e9, "4.20 G")]
)
def test_counts(value: float | None, text: str) -> None:
    assert fmt.count(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(None, "—"), (0, "0 /s"), (0.07, "4.20 /min"), (62.94, "62.9 /s"), (12_345, "12,345 /s")]
)
def test_rates(value: float | None, text: str) -> None:
    assert fmt.rate(value) == text


@pytest.mark.parametrize(("ns", "text"), [(5e9, "5 s"), (60e9, "1 min"), (7.2e12, "2 h"), (86.4e12, "1 d")])
def test_round_steps(ns: float, text: str) -> None:
    assert fmt.step(int(ns)) == text


def test_times_are_those_of_the_zone_with_the_date_unless_it_is_today() -> None:
    at = datetime(2026, 3, 1, 23, 30, 5, 123_999, UTC)
    berlin = ZoneInfo("Europe/Berlin")
    assert fmt.clock_time(at, berlin) == "2026-03-02 00:30:05.123"
    assert fmt.clock_time(at, berlin, now=at + timedelta(hours=1)) == "00:30:05.123"
    assert fmt.clock_time(at, berlin, now=at - timedelta(hours=1)) == "2026-03-02 00:30:05.123"


@pytest.mark.parametrize("name", [None, "", "No/Such", "../etc/passwd"])
def test_an_unknown_zone_is_utc(name: str | None) -> None:
    assert str(fmt.zone(name)) == "UTC"


@pytest.mark.parametrize(
    ("seconds", "text"), [(1, "moments"), (40, "40 seconds"), (61, "1 minute"), (7_300, "2 hours"), (432_000, "5 days")]
)
def test_ago(seconds: int, text: str) -> None:
    assert fmt.ago(timedelta(seconds=seconds)) == text
