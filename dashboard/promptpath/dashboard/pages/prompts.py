"""The Prompts page: which prompts there are, filtered, sorted, a page at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import streamlit as st

from promptpath.dashboard import data, filters, messages
from promptpath.dashboard import format as fmt
from promptpath.dashboard.components import prompt_table
from promptpath.storage.queries.dashboard import ORDERS, PAGE_ROWS_MAX

_ORDER_LABELS: Final = {
    "start_time": "start",
    "ttft_ns": "TTFT",
    "e2e_ns": "end to end",
    "tpot_ns": "TPOT",
    "itl_p99_ns": "ITL p99",
    "itl_max_ns": "longest gap",
    "output_tokens": "tokens out",
    "input_tokens": "tokens in",
}
_DIRECTIONS: Final = {"desc": "largest first", "asc": "smallest first"}
_SIZES: Final = (25, 50, 100, PAGE_ROWS_MAX)


def page() -> None:
    """Draw the page."""
    st.title("Prompts", anchor=False)
    chosen = filters.bar()
    with st.container(horizontal=True, key="listing", vertical_alignment="bottom", gap="small"):
        least = st.number_input(
            "TTFT from, ms", 0.0, None, None, key="min_ttft", bind="query-params", placeholder="any", width=130
        )
        most = st.number_input(
            "TTFT below, ms", 0.0, None, None, key="max_ttft", bind="query-params", placeholder="any", width=130
        )
        order = st.selectbox(
            "Sort by", ORDERS, format_func=lambda name: _ORDER_LABELS[name], key="sort", bind="query-params", width=150
        )
        direction = st.selectbox(
            "Order", ("desc", "asc"), format_func=_DIRECTIONS.__getitem__, key="dir", bind="query-params", width=150
        )
        size = st.selectbox("Rows", _SIZES, index=1, key="rows", bind="query-params", width=90)
    chosen = replace(
        chosen,
        filters=replace(chosen.filters, min_ttft_ns=round((least or 0) * 1e6), max_ttft_ns=round((most or 0) * 1e6)),
    )

    total = data.count_prompts(chosen.filters)
    if not total:
        messages.nothing_found(chosen)
        return
    number = _page_number(-(-total // size))
    offset = (number - 1) * size
    rows = data.list_prompts(chosen.filters, order, direction == "desc", size, offset)
    st.caption(f"{offset + 1:,}–{offset + len(rows):,} of {fmt.plural(total, 'prompt')}")
    clicked = prompt_table.draw(
        rows, chosen.tz, key="prompts-table", caption=f"Prompts by {_ORDER_LABELS[order]}, {chosen.label.lower()}"
    )
    if clicked:
        st.switch_page(st.session_state["_pages"]["prompt"], query_params={"id": clicked})


def _page_number(pages: int) -> int:
    """The page to show; a page of a link that is no more becomes the last one."""
    if pages == 1:
        return 1
    if int(st.session_state.get("page", 1)) > pages:
        st.session_state["page"] = pages
    number = st.number_input(f"Page of {pages:,}", 1, pages, key="page", bind="query-params", width=140)
    return min(max(int(number), 1), pages)
