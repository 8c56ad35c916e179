"""The Prompt page: where one prompt's time went, from the key press to the last token."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import tzinfo
from typing import Any, Final

import streamlit as st

from promptpath.dashboard import data, prompt_view, state, waterfall
from promptpath.dashboard import format as fmt
from promptpath.dashboard.charts import breakdown as breakdown_chart
from promptpath.dashboard.charts import tokens as tokens_chart
from promptpath.dashboard.charts import waterfall as waterfall_chart
from promptpath.dashboard.components import prompt_html, prompt_table
from promptpath.dashboard.theme import Ink, ink
from promptpath.storage.queries.dashboard import Filters

_WHOLE: Final = "Whole prompt"
_FIRST: Final = "To the first token"
#: A first token that comes earlier than this share of the whole would be a sliver: the view then begins with it.
_SLIVER: Final = 0.25
_TICKS_MAX: Final = 250
_RAW_ROWS_MAX: Final = 200


def page() -> None:
    """Draw the page."""
    state.arrive("id")
    tz = fmt.zone(st.context.timezone)
    with st.container(horizontal=True, vertical_alignment="center", key="prompt-search"):
        st.title("Prompt", anchor=False, width="content")
        asked = st.text_input(
            "Prompt id or trace id",
            key="id",
            bind="query-params",
            placeholder="paste a prompt id or a trace id",
            label_visibility="collapsed",
            icon=":material/search:",
            width=420,
        )
    asked = (asked or "").strip().lower()
    if not asked:
        _choose(tz)
        return
    found = data.find(asked)
    if len(found) > 1:
        _several(asked, found, tz)
        return
    prompt = data.prompt(found[0]) if found else None
    if prompt is None:
        _unknown(asked)
        return
    _show(prompt, tz)


def _choose(tz: tzinfo) -> None:
    st.markdown("Paste an id above, or take one of the slowest of the last day:")
    since_ns, until_ns = state.relative_range("last 24 hours", state.now_ns())
    rows = data.list_prompts(Filters(since_ns, until_ns), "ttft_ns", True, 10, 0)
    if not rows:
        st.info("No prompts in the last 24 hours. The Prompts page shows older ones.", icon=":material/info:")
        return
    _open(prompt_table.draw(rows, tz, key="slowest-table", caption="Slowest prompts of the last 24 hours"))


def _unknown(asked: str) -> None:
    with st.container(key="state-unknown"):
        st.warning(f"**No prompt or trace `{asked[:80].replace('`', '')}`.**", icon=":material/search_off:")
        st.markdown(
            "- A prompt id has 16 hexadecimal digits, a trace id 32; the beginning of one will do.\n"
            "- A prompt appears here a few seconds after its root span has ended.\n"
            "- `promptpath doctor` says whether spans arrive, `promptpath prompts` lists the newest prompts."
        )
        st.page_link(state.page("prompts"), label="All prompts", icon=":material/list:")


def _several(asked: str, found: Sequence[str], tz: tzinfo) -> None:
    st.markdown(f"`{asked}` stands for {fmt.plural(len(found), 'prompt')}: choose one.")
    rows = data.prompts_by_id(tuple(found))
    _open(prompt_table.draw(rows, tz, key="several-table", caption=f"Prompts of {asked}"))


def _open(prompt_id: str | None) -> None:
    if prompt_id:
        state.go("prompt", id=prompt_id)


def _show(prompt: dict[str, Any], tz: tzinfo) -> None:
    pen = ink(st.context.theme.type)
    spans = data.spans(prompt["trace_id"], tuple(prompt["joined_traces"]), prompt["token_tenant"])
    with st.container(key="facts"):
        st.html(prompt_html.facts(prompt, prompt_view.hops(prompt, spans), tz))
    _figures(prompt)
    _waterfall(prompt, spans, pen)
    if prompt["ttft_ns"] is None:
        _no_ttft(prompt)
    else:
        left, right = st.columns([3, 2])
        with left:
            _breakdown(prompt, pen)
        with right:
            _formula(prompt)
    _tokens(prompt, pen)
    _raw(prompt, spans)


def _figures(prompt: dict[str, Any]) -> None:
    source = f"seen at the {prompt['ttft_source']}" if prompt["ttft_source"] else "nobody saw a first token"
    cached = prompt["cached_tokens"]
    figures = (
        ("TTFT", fmt.duration(prompt["ttft_ns"]), f"time to first token, {source}"),
        ("TTFT, engine", fmt.duration(prompt["ttft_engine_ns"]), "from the engine's request start to its first token"),
        ("End to end", fmt.duration(prompt["e2e_ns"]), "from before the request was sent to the last byte read"),
        ("TPOT", fmt.duration(prompt["tpot_ns"]), "time per output token after the first, mean"),
        ("ITL p50", fmt.duration(prompt["itl_p50_ns"]), "time between tokens, median over tokens"),
        ("ITL p99", fmt.duration(prompt["itl_p99_ns"]), "time between tokens, 99th percentile over tokens"),
        ("Stalls", fmt.count(prompt["stalls"]), "gaps over both 4 times the median and 50 ms"),
        (
            "Tokens in",
            fmt.count(prompt["input_tokens"]),
            "tokens of the prompt" + ("" if cached is None else f", {cached:,} of them found in the prefix cache"),
        ),
        ("Tokens out", fmt.count(prompt["output_tokens"]), "as the answer's usage says, else as counted"),
    )
    with st.container(horizontal=True, key="figures", gap="small"):
        for label, value, note in figures:
            st.metric(label, value, border=True, help=note, width="stretch")


def _waterfall(prompt: dict[str, Any], spans: Sequence[dict[str, Any]], pen: Ink) -> None:
    drawn = waterfall.build(prompt, spans)
    if not drawn.rows:
        st.info("This prompt has no stages: only its root was seen.", icon=":material/info:")
        return
    ttft_ns, end_ns = prompt["ttft_ns"], max(drawn.end_ns, int(prompt["e2e_ns"] or 0), 1)
    with st.container(border=True, key="card-waterfall", gap="xsmall"):
        with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
            st.markdown(
                "**Waterfall** :small[solid: the critical path; light: a deeper stage had the time. "
                "Drag to move, Ctrl + wheel to zoom, double click to reset]"
            )
            view = _WHOLE if ttft_ns is None else _view(prompt["prompt_id"], early=ttft_ns < _SLIVER * end_ns)
        begin_ns = min(0, *(piece.start_ns for piece in drawn.pieces))
        view_ns = (begin_ns, max(round(ttft_ns * 1.08), 1)) if view == _FIRST else (begin_ns, end_ns)
        ticks_ns = _deliveries(prompt)
        chart = waterfall_chart.chart(drawn, ttft_ns=ttft_ns, view_ns=view_ns, deliveries_ns=ticks_ns, ink=pen)
        alt = f"Waterfall of {fmt.plural(len(drawn.rows), 'span')} across {fmt.plural(len(prompt['hops']), 'hop')}"
        st.altair_chart(chart, key="chart-waterfall", alt=alt)
        if drawn.hidden:
            st.caption(f"{fmt.plural(drawn.hidden, 'row')} with the least time on the critical path are not drawn.")


def _view(prompt_id: str, *, early: bool) -> str:
    chosen: str = st.segmented_control(
        "Part of the time shown",
        (_FIRST, _WHOLE),
        default=_FIRST if early else _WHOLE,
        key=f"view-{prompt_id}",
        label_visibility="collapsed",
        required=True,
    )
    return chosen


def _deliveries(prompt: dict[str, Any]) -> tuple[int, ...]:
    tokens = prompt_view.token_timeline(prompt)
    if tokens is None or tokens.first_ns is None:
        return ()
    times = (tokens.first_ns, *(delivery.at_ns for delivery in tokens.deliveries))
    return times[:: -(-len(times) // _TICKS_MAX)]


def _no_ttft(prompt: dict[str, Any]) -> None:
    why = "The answer did not stream" if prompt["streaming"] is False else "No hop saw a first token"
    e2e = prompt["e2e_ns"]
    took = "when it began or ended is not known" if e2e is None else f"end to end it took {fmt.duration(e2e)}"
    st.info(f"{why}, so there is no TTFT to break down; {took}.", icon=":material/info:")


def _breakdown(prompt: dict[str, Any], pen: Ink) -> None:
    ttft_ns = int(prompt["ttft_ns"])
    rows = prompt_view.breakdown(prompt)
    with st.container(border=True, key="card-breakdown", gap="xsmall"):
        st.markdown("**What the TTFT was made of** :small[the parts add up to it exactly]")
        parts = {row.part.value: row.ns for row in rows}
        st.altair_chart(breakdown_chart.bar(parts, ttft_ns, ink=pen), key="chart-breakdown", alt="TTFT by part")
        st.html(prompt_html.breakdown(rows, ttft_ns))


def _formula(prompt: dict[str, Any]) -> None:
    with st.container(border=True, key="card-formula", gap="xsmall"):
        st.markdown("**As a sum** :small[the latency model's terms]")
        st.html(prompt_html.terms(prompt_view.white_paper_terms(prompt), int(prompt["ttft_ns"])))
        answer = prompt_view.response(prompt)
        if answer is not None:
            st.html(prompt_html.response(answer))


def _tokens(prompt: dict[str, Any], pen: Ink) -> None:
    tokens = prompt_view.token_timeline(prompt)
    if tokens is None:
        return
    with st.container(border=True, key="card-tokens", gap="xsmall"):
        stalls = fmt.plural(len(tokens.stalls), "stall") if tokens.stalls else "no stalls"
        source = f", seen at the {prompt['gaps_source']}" if prompt["gaps_source"] else ""
        deliveries = fmt.plural(len(tokens.deliveries) + 1, "delivery", "deliveries")
        st.markdown(f"**Tokens** :small[{deliveries}{source}; how long each was waited for; {stalls}]")
        end_ns = max(int(prompt["e2e_ns"] or 0), tokens.deliveries[-1].at_ns)
        chart = tokens_chart.timeline(tokens, end_ns=end_ns, ink=pen)
        st.altair_chart(chart, key="chart-tokens", alt=f"Gaps between deliveries of tokens, {stalls}")


def _raw(prompt: dict[str, Any], spans: Sequence[dict[str, Any]]) -> None:
    with st.expander(f"Raw spans ({len(spans):,})", icon=":material/data_object:", key="raw-spans"):
        if not spans:
            st.info("The raw spans of this trace are no longer stored.", icon=":material/info:")
            return
        shown = spans[:_RAW_ROWS_MAX]
        st.dataframe([_raw_row(span, prompt["start_ns"]) for span in shown], hide_index=True, key="raw-table")
        traces = ", ".join(f"'{one}'" for one in (prompt["trace_id"], *prompt["joined_traces"]))
        query = f"SELECT * FROM otel_traces WHERE TraceId IN ({traces}) ORDER BY Timestamp"
        st.caption(f"{len(shown):,} of {len(spans):,}, as they came; nothing is corrected here. On the command line:")
        st.code(f'promptpath sql "{query}"', language="bash")


def _raw_row(span: dict[str, Any], start_ns: int) -> dict[str, Any]:
    return {
        "starts, ms": (span["StartNs"] - start_ns) / 1e6,
        "lasts, ms": span["Duration"] / 1e6,
        "service": span["ServiceName"],
        "name": span["SpanName"],
        "kind": span["SpanKind"],
        "status": span["StatusCode"],
        "attributes": json.dumps(dict(span["SpanAttributes"] or {}), ensure_ascii=False),
        "resource": json.dumps(dict(span["ResourceAttributes"] or {}), ensure_ascii=False),
        "scope": span["ScopeName"],
        "span": span["SpanId"],
        "parent": span["ParentSpanId"],
        "token gaps, µs": list(span["TokenGapsUs"]),
    }
