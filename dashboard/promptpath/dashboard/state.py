"""Filters and the URL. What a person chose stands in the query string, so that a view can be sent as a link.

Most widgets are bound to their query parameter by Streamlit (`bind="query-params"`). The ends of an absolute time range
are kept here instead, because a link has to mean the same moment in every time zone.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, tzinfo
from typing import Any, Final

import streamlit as st

from promptpath.dashboard import format as fmt
from promptpath.storage.queries.dashboard import Filters

#: Relative ranges by their name in the URL: seconds and label.
RANGES: Final[dict[str, tuple[int, str]]] = {
    "5m": (300, "Last 5 minutes"),
    "15m": (900, "Last 15 minutes"),
    "1h": (3_600, "Last hour"),
    "6h": (21_600, "Last 6 hours"),
    "24h": (86_400, "Last 24 hours"),
    "7d": (604_800, "Last 7 days"),
    "30d": (2_592_000, "Last 30 days"),
}
DEFAULT_RANGE: Final = "1h"
CUSTOM_RANGE: Final = "custom"

#: A relative range ends on the next of these, so that queries within the same few seconds are the same query.
_NOW_STEP_NS: Final = 5_000_000_000
_ENDS: Final = ("since", "until")


def relative_range(name: str, now_ns: int) -> tuple[int, int]:
    """Start and end of a relative range in Unix ns; the default range for a name that is none."""
    seconds, _ = RANGES.get(name, RANGES[DEFAULT_RANGE])
    until_ns = -(-now_ns // _NOW_STEP_NS) * _NOW_STEP_NS
    return until_ns - seconds * 1_000_000_000, until_ns


def smallest_range_holding(at_ns: int, now_ns: int) -> str | None:
    """The shortest relative range that reaches back to a moment, None if none does."""
    return next((name for name in RANGES if relative_range(name, now_ns)[0] <= at_ns), None)


def to_url(ns: int) -> str:
    """A moment as it stands in a link: UTC, to the millisecond."""
    at = datetime.fromtimestamp(ns // 1_000_000 / 1e3, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def from_url(text: str) -> int | None:
    """A moment out of a link in Unix ns (UTC where it names no zone), None if it is none."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1_000) * 1_000_000


def absolute_range() -> tuple[int, int] | None:
    """The absolute range of the URL or, after a change of page, of this session; None where there is none."""
    ends = [from_url(st.query_params.get(name, "")) for name in _ENDS]
    if None in ends:
        ends = [st.session_state.get(f"_{name}_ns") for name in _ENDS]
    since_ns, until_ns = ends
    if since_ns is None or until_ns is None or since_ns >= until_ns:
        return None
    return since_ns, until_ns


def keep_absolute_range(since_ns: int, until_ns: int) -> None:
    """Write an absolute range to the URL and the session."""
    for name, ns in zip(_ENDS, (since_ns, until_ns), strict=True):
        st.session_state[f"_{name}_ns"] = ns
        if st.query_params.get(name) != to_url(ns):
            st.query_params[name] = to_url(ns)


def drop_absolute_range() -> None:
    """Take the ends of an absolute range out of the URL; the session keeps them for the next time."""
    for name in _ENDS:
        if name in st.query_params:
            del st.query_params[name]


def link(**parameters: Any) -> dict[str, Any]:
    """Query parameters for another page: the shared filters as they are, then `parameters`; empty ones left out."""
    shared: dict[str, Any] = {
        name: st.query_params.get_all(name) for name in ("range", *_ENDS, "model", "service", "tenant", "status")
    }
    shared.update(parameters)
    return {name: value for name, value in shared.items() if value not in (None, "", [], ())}


def now_ns() -> int:
    """The present in Unix ns."""
    return time.time_ns()


def local_naive(ns: int, tz: tzinfo) -> datetime:
    """A moment as a wall clock of `tz` shows it, for a widget that knows no zones."""
    return datetime.fromtimestamp(ns / 1e9, tz).replace(tzinfo=None)


def from_local_naive(at: datetime, tz: tzinfo) -> int:
    """What a widget that knows no zones holds, in Unix ns."""
    return int(at.replace(tzinfo=tz).timestamp()) * 1_000_000_000


def offset_s(at_ns: int) -> int:
    """How far the viewer's clocks are ahead of UTC at a moment, in seconds."""
    offset = datetime.fromtimestamp(at_ns / 1e9, fmt.zone(st.context.timezone)).utcoffset()
    return int(offset.total_seconds()) if offset else 0


def step_for(filters: Filters, most: int) -> int:
    """Length of a bucket in ns: the shortest round one that cuts the range into at most `most`."""
    for seconds in (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200, 86_400):
        if filters.span_ns <= seconds * 1_000_000_000 * most:
            return seconds * 1_000_000_000
    days = -(-filters.span_ns // (86_400_000_000_000 * most))
    return days * 86_400_000_000_000
