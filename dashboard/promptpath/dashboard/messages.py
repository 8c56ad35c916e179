"""What a page says when it has nothing to show, and what to do about it."""

from __future__ import annotations

from datetime import timedelta

import streamlit as st

from promptpath.dashboard import data, state
from promptpath.dashboard import format as fmt
from promptpath.dashboard.filters import Chosen

_INSTRUMENT = """\
# in the program that sends prompts, and in your gateway and inference server
import promptpath.auto
"""

_RUN = """\
# or without touching the code
promptpath run -- python app.py

# where spans go, if the collector is on another host
export OTEL_EXPORTER_OTLP_ENDPOINT=http://collector-host:4318
"""


def unreachable(error: Exception) -> None:
    """Storage does not answer."""
    with st.container(key="state-unreachable"):
        st.error(f"**Storage cannot be reached.** {error}", icon=":material/cloud_off:")
        st.markdown("The dashboard reads what the collector serves. Start both, or only the collector, then try again:")
        st.code(
            "promptpath up            # collector, storage and dashboard\npromptpath collector     # the collector only"
        )
        st.caption(f"Asked: `{_without_password(data.storage_url())}` (`PROMPTPATH_STORAGE`)")
        _try_again()


def query_failed(error: Exception) -> None:
    """The database refused the query or gave up on it."""
    with st.container(key="state-failed"):
        st.error(f"**The database could not answer.** {error}", icon=":material/error:")
        st.markdown("Queries are bounded in time and memory: a shorter time range or a narrower filter may do.")
        _try_again()


def empty_store() -> None:
    """No prompt has ever come in."""
    with st.container(key="state-empty", border=True):
        st.subheader("No prompts yet", anchor=False)
        st.markdown("The collector runs and nothing has been sent to it. Make your stack speak:")
        st.code(_INSTRUMENT, language="python")
        st.code(_RUN, language="bash")
        st.markdown(
            "Or watch a small real stack first: `promptpath demo`. Something is off? `promptpath doctor` looks."
        )
        _try_again()


def nothing_found(chosen: Chosen) -> None:
    """The filters take no prompt: says why, and offers the way to those that exist."""
    total, newest_ns = data.newest_prompt()
    if newest_ns is None:
        empty_store()
        return
    with st.container(key="state-nothing", border=True):
        st.subheader("No prompts here", anchor=False)
        now_ns = state.now_ns()
        at = state.local_naive(newest_ns, chosen.tz)
        age = fmt.ago(timedelta(microseconds=max(0, now_ns - newest_ns) // 1000))
        held = f"The store holds {fmt.plural(total, 'prompt')}; the newest began {age} ago ({at:%Y-%m-%d %H:%M:%S})."
        st.markdown(f"No prompt in this time range{' fits the filters' if chosen.narrowed else ''}. {held}")
        with st.container(horizontal=True):
            wider = state.smallest_range_holding(newest_ns, now_ns)
            if wider is not None and not chosen.filters.since_ns <= newest_ns < chosen.filters.until_ns:
                st.button(f"Show the {wider}", on_click=_set, args=("range", wider), key="widen", type="primary")
            if chosen.narrowed:
                st.button("Clear the filters", on_click=_clear, key="clear-filters")


def _try_again() -> None:
    if st.button("Try again", key="retry", icon=":material/refresh:"):
        data.refresh()
        st.rerun()


def _set(name: str, value: object) -> None:
    st.session_state[name] = value


def _clear() -> None:
    for name in ("model", "service", "tenant", "status"):
        st.session_state[name] = []
    for name in ("min_ttft", "max_ttft"):
        if name in st.session_state:
            st.session_state[name] = None


def _without_password(url: str) -> str:
    scheme, found, rest = url.partition("://")
    _, at, host = rest.rpartition("@")
    return f"{scheme}{found}…@{host}" if at else url
