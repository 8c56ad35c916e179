"""Filters and the URL. What a person chose stands in the query string, so that a view can be sent as a link.

Most widgets are bound to their query parameter by Streamlit (`bind="query-params"`). The ends of an absolute time range
are kept here instead, because a link has to mean the same moment in every time zone.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Final, NoReturn

import streamlit as st

from promptpath.dashboard import format as fmt
from promptpath.storage.queries.dashboard import Filters

#: Relative ranges in seconds. The names are what people read, in the page and in the URL alike.
RANGES: Final[dict[str, int]] = {
    "last 5 min": 300,
    "last 15 min": 900,
    "last hour": 3_600,
    "last 6 hours": 21_600,
    "last 24 hours": 86_400,
    "last 7 days": 604_800,
    "last 30 days": 2_592_000,
}
DEFAULT_RANGE: Final = "last hour"
CUSTOM_RANGE: Final = "from … to …"

#: A relative range ends on the next multiple of this, or of a thousandth of the range where that is more: what is asked
#: again soon after is the same query, and its answer is at hand.
_NOW_STEP_NS: Final = 5_000_000_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ENDS: Final = ("since", "until")


def relative_range(name: str, now_ns: int) -> tuple[int, int]:
    """Start and end of a relative range in Unix ns; the default range for a name that is none."""
    seconds = RANGES.get(name, RANGES[DEFAULT_RANGE])
    step_ns = max(_NOW_STEP_NS, seconds * 1_000_000)
    until_ns = -(-now_ns // step_ns) * step_ns
    return until_ns - seconds * 1_000_000_000, until_ns


def smallest_range_holding(at_ns: int, now_ns: int) -> str | None:
    """The shortest relative range that reaches back to a moment, None if none does."""
    return next((name for name in RANGES if relative_range(name, now_ns)[0] <= at_ns), None)


def to_url(ns: int) -> str:
    """A moment as it stands in a link: UTC, to the millisecond."""
    at = _EPOCH + timedelta(milliseconds=ns // 1_000_000)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def from_url(text: str) -> int | None:
    """A moment out of a link in Unix ns (UTC where it names no zone), None if it is none."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return _ns(at if at.tzinfo else at.replace(tzinfo=UTC))


def _ns(at: datetime) -> int:
    return (at - _EPOCH) // timedelta(milliseconds=1) * 1_000_000


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
    hold_absolute_range(since_ns, until_ns)
    for name, ns in zip(_ENDS, (since_ns, until_ns), strict=True):
        if st.query_params.get(name) != to_url(ns):
            st.query_params[name] = to_url(ns)


def hold_absolute_range(since_ns: int, until_ns: int) -> None:
    """Have the session know an absolute range, for the page that is shown next."""
    for name, ns in zip(_ENDS, (since_ns, until_ns), strict=True):
        st.session_state[f"_{name}_ns"] = ns


def drop_absolute_range() -> None:
    """Take the ends of an absolute range out of the URL; the session keeps them for the next time."""
    for name in _ENDS:
        if name in st.query_params:
            del st.query_params[name]


def register(pages: Mapping[str, Any]) -> None:
    """First thing in a run: say which pages there are, by name, for `go`."""
    st.session_state["_pages"] = dict(pages)
    st.session_state["_bound"] = set()


def page(name: str) -> Any:
    """A page by name, for a link to it."""
    return st.session_state["_pages"][name]


def arrive(*names: str) -> None:
    """Before the widgets that are bound to these query parameters: give them what `go` said."""
    st.session_state["_bound"].update(names)
    arriving = st.session_state.get("_arriving", {})
    for name in names:
        if name in arriving:
            st.session_state[name] = arriving.pop(name)


def go(name: str, **values: Any) -> NoReturn:
    """Lead to a page with some of its widgets set. Filters that are not named stay as they are.

    Streamlit lets nobody write a query parameter while a widget is bound to it: those values wait for `arrive`.
    """
    bound = st.session_state["_bound"]
    st.session_state["_arriving"] = {key: value for key, value in values.items() if key in bound}
    parameters = {key: str(value) for key, value in values.items() if key not in bound}
    st.switch_page(page(name), query_params=parameters)


def now_ns() -> int:
    """The present in Unix ns."""
    return time.time_ns()


def local_naive(ns: int, tz: tzinfo) -> datetime:
    """A moment as a wall clock of `tz` shows it, for a widget that knows no zones."""
    return datetime.fromtimestamp(ns / 1e9, tz).replace(tzinfo=None)


def from_local_naive(at: datetime, tz: tzinfo) -> int:
    """What a widget that knows no zones holds, in Unix ns."""
    return _ns(at.replace(tzinfo=tz))


def offset_s(at_ns: int) -> int:
    """How far the viewer's clocks are ahead of UTC at a moment, in seconds."""
    offset = datetime.fromtimestamp(at_ns / 1e9, fmt.zone(st.context.timezone)).utcoffset()
    return int(offset.total_seconds()) if offset else 0


def step_for(filters: Filters, most: int) -> int:
    """Length of a bucket in ns: the shortest round one that cuts the range into at most `most`."""
    for seconds in (5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200, 86_400):
        if filters.span_ns <= seconds * 1_000_000_000 * most:
            return seconds * 1_000_000_000
    days = -(-filters.span_ns // (86_400_000_000_000 * most))
    return days * 86_400_000_000_000
