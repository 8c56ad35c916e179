"""The Overview page: what is slow, since when, and which part of the way."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import streamlit as st

from promptpath.dashboard import data, filters, messages, state
from promptpath.dashboard import format as fmt
from promptpath.dashboard.charts import base, breakdown, heatmap, latency, throughput
from promptpath.dashboard.filters import Chosen
from promptpath.dashboard.theme import Ink, ink
from promptpath.storage.queries import overview as queries
from promptpath.storage.queries.dashboard import Filters

_BUCKETS_MAX: Final = 60
_HEAT_BUCKETS_MAX: Final = 60


def page() -> None:
    """Draw the page."""
    st.title("Overview", anchor=False)
    chosen = filters.bar()
    head = data.headline(chosen.filters)
    if not head["prompts"]:
        messages.nothing_found(chosen)
        return
    shown = _fit(chosen.filters, head["first_ns"])
    step_ns = state.step_for(shown, _BUCKETS_MAX)
    shown = replace(shown, since_ns=shown.since_ns // step_ns * step_ns)
    buckets = base.Buckets(shown.since_ns, shown.until_ns, step_ns, state.offset_s(shown.until_ns))
    itl = data.itl(shown, step_ns, head["prompts"])

    _headline(chosen, head, itl, shown)
    _charts(shown, buckets, itl, head, ink(st.context.theme.type))


def _fit(chosen: Filters, first_ns: int) -> Filters:
    """A range that begins long before the first prompt begins with it instead, so that the charts show something."""
    return replace(chosen, since_ns=first_ns) if first_ns - chosen.since_ns > chosen.span_ns // 4 else chosen


def _headline(chosen: Chosen, head: dict[str, Any], itl: list[dict[str, Any]], shown: Filters) -> None:
    whole = next((row for row in itl if row["bucket"] == -1), None)
    before = _before(chosen)
    seconds = max(shown.span_ns / 1e9, 1.0)
    failed = head["prompts"] - head["ok"]
    with st.container(horizontal=True, key="headline", gap="small"):
        _metric(
            "Prompts", fmt.count(head["prompts"]), None, f"{fmt.rate(head['prompts'] / seconds)} over the time shown"
        )
        for name, position in (("p50", 0), ("p95", 1), ("p99", 2)):
            value = head["ttft"][position]
            _metric(
                f"TTFT {name}",
                fmt.duration(value),
                _change(value, before["ttft"][position] if before else None),
                f"time to first token, over {fmt.plural(head['streamed'], 'prompt')} that streamed",
            )
        _metric(
            "ITL p50", fmt.duration(whole["itl_p50"] if whole else None), None, "time between tokens, over all tokens"
        )
        _metric(
            "ITL p99", fmt.duration(whole["itl_p99"] if whole else None), None, "time between tokens, over all tokens"
        )
        _metric(
            "TPOT p50",
            fmt.duration(head["tpot"][0]),
            _change(head["tpot"][0], before["tpot"][0] if before else None),
            "time per output token after the first: a prompt's mean; the median over prompts",
        )
        _metric(
            "Tokens out", fmt.rate(head["output_tokens"] / seconds), None, f"{fmt.count(head['output_tokens'])} in all"
        )
        _metric(
            "Not ok",
            fmt.percent(failed / head["prompts"]),
            None,
            f"{fmt.plural(failed, 'prompt')} with an error, a refusal, a timeout or an abort",
        )


def _before(chosen: Chosen) -> dict[str, Any] | None:
    """Headline figures of the equally long range before this one, None where it held too little to compare with."""
    span_ns = chosen.filters.span_ns
    earlier = replace(
        chosen.filters, since_ns=chosen.filters.since_ns - span_ns, until_ns=chosen.filters.until_ns - span_ns
    )
    head = data.headline(earlier)
    return head if head["streamed"] >= 20 else None


def _change(now: float | None, then: float | None) -> str | None:
    if not now or not then:
        return None
    return f"{(now / then - 1) * 100:+.0f} % to the range before"


def _metric(label: str, value: str, delta: str | None, note: str) -> None:
    st.metric(label, value, delta, delta_color="inverse", border=True, help=note, width="stretch")


def _charts(shown: Filters, buckets: base.Buckets, itl: list[dict[str, Any]], head: dict[str, Any], pen: Ink) -> None:
    rows = data.series(shown, buckets.step_ns)
    step = fmt.step(buckets.step_ns)
    left, right = st.columns(2)
    with left:
        chart = latency.percentiles(
            rows, buckets, {"ttft_p50": "p50", "ttft_p95": "p95", "ttft_p99": "p99"}, ink=pen, count="streamed"
        )
        _card("ttft", "Time to first token", f"percentiles per {step}", chart)
        chart = breakdown.over_time(rows, buckets, ink=pen)
        note = "median of each part; medians need not add up to the median TTFT"
        _card("breakdown", "What the TTFT was made of", note, chart)
        chart = throughput.rates(rows, buckets, {"prompts": "prompts"}, ink=pen)
        _card("prompts", "Prompts a second", "by when they began", chart)
        chart = throughput.statuses(data.statuses(shown, buckets.step_ns), buckets, ink=pen)
        _card("status", "How they ended", f"prompts per {step}", chart)
    with right:
        _heat(shown, pen)
        series = [row for row in itl if row["bucket"] >= 0]
        chart = latency.percentiles(
            series, buckets, {"itl_p50": "p50", "itl_p95": "p95", "itl_p99": "p99"}, ink=pen, count="tokens"
        )
        one_in = queries.itl_sample(head["prompts"])
        sampled = "" if one_in == 1 else f", from one prompt in {one_in:,}"
        _card("itl", "Inter-token latency", f"percentiles over tokens per {step}{sampled}", chart)
        chart = throughput.rates(rows, buckets, {"output_tokens": "out", "input_tokens": "in"}, ink=pen)
        _card("tokens", "Tokens a second", "by when their prompt began", chart)
        chart = latency.percentiles(
            rows, buckets, {"tpot_p50": "TPOT p50", "tpot_p95": "TPOT p95"}, ink=pen, count="streamed"
        )
        _card("tpot", "Time per output token", f"a prompt's mean; percentiles over prompts per {step}", chart)


def _heat(shown: Filters, pen: Ink) -> None:
    step_ns = state.step_for(shown, _HEAT_BUCKETS_MAX)
    shown = replace(shown, since_ns=shown.since_ns // step_ns * step_ns)
    buckets = base.Buckets(shown.since_ns, shown.until_ns, step_ns, state.offset_s(shown.until_ns))
    chart = heatmap.ttft(data.heat(shown, step_ns), buckets, queries.HEAT_BINS_PER_DECADE, ink=pen)
    with st.container(border=True, key="card-heat", gap="xsmall"):
        st.markdown("**How TTFTs were spread** :small[a click on a cell leads to its prompts]")
        picked = st.altair_chart(
            chart,
            key="chart-heat",
            on_select="rerun",
            selection_mode=heatmap.SELECTION,
            alt="Heat map of TTFT over time",
        )
    cells = picked.selection.get(heatmap.SELECTION) if picked else None
    if cells:
        _open(cells[0])


def _open(cell: dict[str, Any]) -> None:
    """Go to the prompts of one cell of the heat map."""
    state.hold_absolute_range(round(cell["start_ms"]) * 1_000_000, round(cell["end_ms"]) * 1_000_000)
    low_ms, high_ms = cell["low_ns"] / 1e6, cell["high_ns"] / 1e6
    state.go("prompts", range=state.CUSTOM_RANGE, min_ttft=low_ms, max_ttft=high_ms, sort="TTFT", page=1)


def _card(name: str, title: str, note: str, chart: base.Chart) -> None:
    with st.container(border=True, key=f"card-{name}", gap="xsmall"):
        st.markdown(f"**{title}** :small[{note}]")
        st.altair_chart(chart, key=f"chart-{name}", alt=f"{title}: {note}")
