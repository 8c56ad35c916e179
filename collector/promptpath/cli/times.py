"""Points in time as a person writes them: `15m`, `2h`, `3d`, or ISO 8601."""

from __future__ import annotations

import datetime as dt
import re

import click

_AGO = re.compile(r"(\d+)\s*(s|m|h|d)")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


class Time(click.ParamType[dt.datetime]):
    """A click type: a time in UTC, given as so long ago or as ISO 8601 (UTC unless it says otherwise)."""

    name = "time"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> dt.datetime:
        if isinstance(value, dt.datetime):
            return value
        text = str(value).strip()
        ago = _AGO.fullmatch(text)
        if ago is not None:
            return dt.datetime.now(dt.UTC) - dt.timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        try:
            at = dt.datetime.fromisoformat(text)
        except ValueError:
            self.fail(f"{text!r} is no time: write 15m, 2h, 3d or 2026-01-31T12:00", param, ctx)
        return at if at.tzinfo is not None else at.replace(tzinfo=dt.UTC)
