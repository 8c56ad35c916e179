"""Figures as people read them. Missing is "—", never 0."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, tzinfo
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

MISSING: Final = "—"

_NS_UNITS: Final = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"), (1, "ns"))


def duration(ns: float | None) -> str:
    """A duration with three significant figures in the unit that suits it: `842 µs`, `12.3 ms`, `3 min 20 s`."""
    if ns is None:
        return MISSING
    if ns == 0:
        return "0 ms"
    size = abs(ns)
    if size >= 60e9:
        minutes, seconds = divmod(round(size / 1e9), 60)
        return f"{'-' if ns < 0 else ''}{minutes} min {seconds} s"
    for position, (unit_ns, unit) in enumerate(_NS_UNITS):
        if size >= unit_ns or unit_ns == 1:
            text = significant(ns / unit_ns)
            # 999.9 µs rounds to 1000: it is 1 ms.
            if text.lstrip("-") == "1000" and position:
                return f"{'-' if ns < 0 else ''}1 {_NS_UNITS[position - 1][1]}"
            return f"{text} {unit}"
    raise AssertionError("unreachable: the last unit takes all")


def significant(value: float, figures: int = 3) -> str:
    """`value` with so many significant figures (all digits before the point are kept), no exponent."""
    if value == 0:
        return "0"
    whole_digits = len(str(int(abs(value)))) if abs(value) >= 1 else 0
    decimals = max(figures - whole_digits, 0) if whole_digits else figures
    return f"{value:.{decimals}f}"


def step(ns: int) -> str:
    """A round length of time, such as a bucket's: `30 s`, `5 min`, `2 h`, `1 d`."""
    seconds = ns / 1e9
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:g} {unit}"
    return f"{seconds:g} s"


def percent(share: float | None, decimals: int = 1) -> str:
    """A share of one as percent."""
    return MISSING if share is None else f"{share * 100:.{decimals}f} %"


def count(value: float | None) -> str:
    """A count with thousands apart, shortened from a million on: `12,345`, `1.23 M`."""
    if value is None:
        return MISSING
    for size, suffix in ((1e9, "G"), (1e6, "M")):
        if abs(value) >= size:
            return f"{significant(value / size)} {suffix}"
    return f"{round(value):,}"


def rate(per_second: float | None) -> str:
    """Events a second: `12.3 /s`, and `4.2 /min` for what is rarer than once in two seconds."""
    if per_second is None:
        return MISSING
    if 0 < per_second < 0.5:
        return f"{significant(per_second * 60)} /min"
    return f"{significant(per_second) if per_second < 1000 else count(per_second)} /s"


def plural(number: int, one: str, many: str | None = None) -> str:
    """`1 prompt`, `2 prompts`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def zone(name: str | None) -> tzinfo:
    """The viewer's time zone, UTC where the browser says none or one that this host does not know."""
    try:
        return ZoneInfo(name) if name else ZoneInfo("UTC")
    except (ZoneInfoNotFoundError, ValueError):
        return ZoneInfo("UTC")


def clock_time(at: datetime, tz: tzinfo, *, now: datetime | None = None) -> str:
    """`14:03:22.118`, with the date before it unless it is today's (of `now`)."""
    local = at.astimezone(tz)
    text = f"{local:%H:%M:%S}.{local.microsecond // 1000:03d}"
    return text if now is not None and local.date() == now.astimezone(tz).date() else f"{local:%Y-%m-%d} {text}"


def ago(delta: timedelta) -> str:
    """How long ago, roughly: `just now`, `40 seconds`, `3 minutes`, `2 hours`, `5 days`."""
    seconds = int(delta.total_seconds())
    if seconds < 10:
        return "moments"
    for size, one in ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second")):
        if seconds >= size:
            return plural(seconds // size, one)
    raise AssertionError("unreachable: seconds is at least 10")


def axis_unit(largest_ns: float) -> tuple[int, str]:
    """Divisor and name of the unit in which an axis up to `largest_ns` reads best."""
    if largest_ns >= 2_000_000_000:
        return 1_000_000_000, "s"
    if largest_ns >= 2_000_000:
        return 1_000_000, "ms"
    return 1_000, "µs"


def listing(items: Sequence[str], empty: str = MISSING) -> str:
    """Items parted by commas."""
    return ", ".join(items) if items else empty
