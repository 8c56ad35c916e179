"""`15m`, `2h`, `3d`, or a point in time."""

from __future__ import annotations

import datetime as dt

import click
import pytest

from promptpath.cli.times import Time


@pytest.mark.parametrize(
    ("text", "ago"),
    [
        ("90s", dt.timedelta(seconds=90)),
        ("15m", dt.timedelta(minutes=15)),
        ("2 h", dt.timedelta(hours=2)),
        ("3d", dt.timedelta(days=3)),
    ],
)
def test_ago(text: str, ago: dt.timedelta) -> None:
    before = dt.datetime.now(dt.UTC)
    at = Time().convert(text, None, None)
    assert before - ago <= at <= dt.datetime.now(dt.UTC) - ago


def test_iso_is_utc_unless_it_says_otherwise() -> None:
    assert Time().convert("2026-01-31T12:00", None, None) == dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)
    assert Time().convert("2026-01-31T12:00+02:00", None, None) == dt.datetime(2026, 1, 31, 10, tzinfo=dt.UTC)


@pytest.mark.parametrize("text", ["", "yesterday", "5", "5w", "-3m"])
def test_no_time(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is no time: write 15m, 2h, 3d or 2026-01-31T12:00"):
        Time().convert(text, None, None)
