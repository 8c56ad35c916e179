"""The row of filters that pages share."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import tzinfo

import streamlit as st

from promptpath.dashboard import data, state
from promptpath.dashboard import format as fmt
from promptpath.semconv import Status
from promptpath.storage.queries.dashboard import Filters

_NAMES = ("range", "model", "service", "tenant", "status", "live")
#: Seconds between looks at storage while a page is live.
_LIVE_S = 5
_RANGES = (*state.RANGES, state.CUSTOM_RANGE)


@dataclass(frozen=True, slots=True)
class Chosen:
    """What the filters say: the query, the viewer's zone, and whether the time range moves with the clock."""

    filters: Filters
    tz: tzinfo
    moving: bool
    label: str

    @property
    def narrowed(self) -> bool:
        """Whether anything but time is filtered."""
        chosen = self.filters
        return bool(
            chosen.models
            or chosen.services
            or chosen.tenants
            or chosen.statuses
            or chosen.min_ttft_ns
            or chosen.max_ttft_ns
        )


def bar() -> Chosen:
    """Draw the filters and say what they are. Reads the values that may be chosen, for the time range, from storage."""
    state.arrive(*_NAMES)
    tz = fmt.zone(st.context.timezone)
    with st.container(horizontal=True, key="filters", vertical_alignment="bottom", gap="small"):
        name = st.selectbox(
            "Time",
            _RANGES,
            index=_RANGES.index(state.DEFAULT_RANGE),
            key="range",
            bind="query-params",
            width=170,
        )
        since_ns, until_ns = _range(name, tz)
        values = data.filter_values(since_ns, until_ns)
        models = _pick("Model", "model", values["models"])
        services = _pick("Service", "service", values["services"])
        tenants = _pick("Tenant", "tenant", values["tenants"])
        statuses = _pick("Status", "status", [status.value for status in Status])
        if st.button("Refresh", icon=":material/refresh:", key="refresh", help="Ask storage again"):
            data.refresh()
            st.rerun()
        live = st.toggle("Live", key="live", bind="query-params", help=f"Look for new prompts every {_LIVE_S} s")
    if live:
        st.session_state["_just_drawn"] = True
        _tick()
    filters = Filters(since_ns, until_ns, models, services, tenants, statuses)
    return Chosen(filters, tz, name != state.CUSTOM_RANGE, name)


@st.fragment(run_every=_LIVE_S)
def _tick() -> None:
    """Draws the page anew from time to time; filters, place and scroll position stay."""
    if not st.session_state.pop("_just_drawn", False):
        st.rerun()


def _range(name: str, tz: tzinfo) -> tuple[int, int]:
    if name != state.CUSTOM_RANGE:
        state.drop_absolute_range()
        return state.relative_range(name, state.now_ns())
    since_ns, until_ns = state.absolute_range() or state.relative_range(state.DEFAULT_RANGE, state.now_ns())
    since = st.datetime_input("From", state.local_naive(since_ns, tz), key=f"from-{since_ns}", step=60, width=200)
    until = st.datetime_input("To", state.local_naive(until_ns, tz), key=f"to-{until_ns}", step=60, width=200)
    # The widgets know minutes only: the moment is theirs only where they were changed.
    if since is not None and since != state.local_naive(since_ns, tz).replace(second=0, microsecond=0):
        since_ns = state.from_local_naive(since, tz)
    if until is not None and until != state.local_naive(until_ns, tz).replace(second=0, microsecond=0):
        until_ns = state.from_local_naive(until, tz)
    if since_ns >= until_ns:
        st.error("The range ends before it begins: choose a later end.")
        st.stop()
    state.keep_absolute_range(since_ns, until_ns)
    return since_ns, until_ns


def _pick(label: str, name: str, options: list[str]) -> tuple[str, ...]:
    """A filter by name, left out where there is nothing to choose between; what a link asks for is always kept."""
    asked = st.query_params.get_all(name) or st.session_state.get(name, [])
    known = list(dict.fromkeys([option for option in options if option] + [value for value in asked if value]))
    if len(known) < 2 and not asked:
        return ()
    chosen = st.multiselect(
        label, known, key=name, bind="query-params", placeholder="all", accept_new_options=True, width=200, wrap=False
    )
    return tuple(chosen)
