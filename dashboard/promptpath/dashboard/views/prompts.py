"""The Prompts page: which prompts there are, filtered, sorted, a page at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import streamlit as st

from promptpath.dashboard import data, filters, messages, state
from promptpath.dashboard import format as fmt
from promptpath.dashboard.components import prompt_html, prompt_table
from promptpath.storage.queries.dashboard import PAGE_ROWS_MAX, Order

#: What people read, in the page and in the URL alike.
_ORDERS: Final[dict[str, Order]] = {
    "start": "start_time",
    "TTFT": "ttft_ns",
    "end to end": "e2e_ns",
    "TPOT": "tpot_ns",
    "ITL p99": "itl_p99_ns",
    "longest gap": "itl_max_ns",
    "tokens out": "output_tokens",
    "tokens in": "input_tokens",
}
_NAMES: Final = ("min_ttft", "max_ttft", "sort", "dir", "rows", "page")
_DESCENDING: Final = "largest first"
_DIRECTIONS: Final = (_DESCENDING, "smallest first")
_SIZES: Final = (25, 50, 100, PAGE_ROWS_MAX)


def page() -> None:
    """Draw the page."""
    st.title("Prompts", anchor=False)
    chosen = filters.bar()
    listing = st.container(horizontal=True, key="listing", vertical_alignment="bottom", gap="small")
    state.arrive(*_NAMES)
    with listing:
        least_ms, most_ms = _ttft("TTFT from, ms", "min_ttft"), _ttft("TTFT below, ms", "max_ttft")
        order = st.selectbox("Sort by", tuple(_ORDERS), key="sort", bind="query-params", width=150)
        direction = st.selectbox("Order", _DIRECTIONS, key="dir", bind="query-params", width=150)
        size = st.selectbox("Rows", _SIZES, index=1, key="rows", bind="query-params", width=90)
    narrowed = replace(chosen.filters, min_ttft_ns=round(least_ms * 1e6), max_ttft_ns=round(most_ms * 1e6))
    chosen = replace(chosen, filters=narrowed)

    total = data.count_prompts(chosen.filters)
    if not total:
        messages.nothing_found(chosen)
        return
    with listing:
        number = _page_number(-(-total // size))
    offset = (number - 1) * size
    rows = data.list_prompts(chosen.filters, _ORDERS[order], direction == _DESCENDING, size, offset)
    with st.container(horizontal=True, horizontal_alignment="distribute", vertical_alignment="center"):
        st.caption(f"{offset + 1:,}–{offset + len(rows):,} of {fmt.plural(total, 'prompt')}", width="content")
        st.html(prompt_html.legend(), width="content")
    caption = f"Prompts by {order}, {direction}, {chosen.label}"
    clicked = prompt_table.draw(rows, chosen.tz, key="prompts-table", caption=caption)
    if clicked:
        state.go("prompt", id=clicked)


def _ttft(label: str, name: str) -> float:
    """A bound on TTFT in ms, 0 where none is set."""
    value = st.number_input(label, 0.0, key=name, value=None, bind="query-params", placeholder="any", width=130)
    return float(value or 0)


def _page_number(pages: int) -> int:
    """The page to show; a page of a link that is no more becomes the last one."""
    if pages == 1:
        return 1
    if int(st.session_state.get("page", 1)) > pages:
        st.session_state["page"] = pages
    number = st.number_input(f"Page of {pages:,}", 1, pages, key="page", bind="query-params", width=120)
    return min(max(int(number), 1), pages)
