"""Chart builders: what their specifications say."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptpath.dashboard import prompt_view
from promptpath.dashboard.charts import base, breakdown, heatmap, latency, throughput, tokens
from promptpath.dashboard.theme import LIGHT, PART_COLOR
from promptpath.semconv import Part

from .examples import MS, prompt

S = 1_000_000_000
#: Ten buckets of 10 s.
BUCKETS = base.Buckets(1_000 * S, 1_100 * S, 10 * S)


def layer_data(chart: base.Chart, mark: str) -> list[dict[str, Any]]:
    """Rows of the first layer that draws with a mark."""
    spec = chart.to_dict()
    layer = next(layer for layer in spec.get("layer", [spec]) if layer["mark"]["type"] == mark)
    rows: list[dict[str, Any]] = spec["datasets"][layer.get("data", spec.get("data"))["name"]]
    return rows


def series_row(bucket: int, **values: Any) -> dict[str, Any]:
    return {
        "bucket": bucket,
        "prompts": 4,
        "streamed": 3,
        "ttft_p50": 40.0 * MS,
        "ttft_p95": 90.0 * MS,
        "ttft_p99": 120.0 * MS,
        **dict.fromkeys(breakdown.PARTS, 5.0 * MS),
        "input_tokens": 100,
        "output_tokens": 50,
        **values,
    }


LINES = {"ttft_p50": "p50", "ttft_p95": "p95", "ttft_p99": "p99"}


def test_percentiles_break_where_nothing_was_measured() -> None:
    chart = latency.percentiles(
        [series_row(0), series_row(1), series_row(5)], BUCKETS, LINES, ink=LIGHT, count="streamed"
    )
    line = [(row["middle_ms"], row["value"]) for row in layer_data(chart, "line") if row["line"] == "p50"]
    assert [value for _, value in line] == [40.0, 40.0, None, None, None, 40.0, None, None, None, None]
    assert line[0][0] == 1_005_000
    # A lone value makes no line: it gets a point.
    assert {row["middle_ms"] for row in layer_data(chart, "point")} == {1_055_000}


def test_percentiles_of_nothing_are_none_not_zero() -> None:
    nothing = series_row(0, ttft_p50=None, ttft_p95=None, ttft_p99=None, streamed=0)
    chart = latency.percentiles([nothing], BUCKETS, LINES, ink=LIGHT, count="streamed")
    assert all(row["value"] is None for row in layer_data(chart, "line"))
    assert layer_data(chart, "rect")[0]["p50"] == "—"


def test_hovering_a_bucket_shows_all_of_its_figures() -> None:
    chart = latency.percentiles([series_row(2)], BUCKETS, LINES, ink=LIGHT, count="streamed")
    (band,) = layer_data(chart, "rect")
    assert band == {
        "start_ms": 1_020_000,
        "end_ms": 1_030_000,
        "p50": "40.0 ms",
        "p95": "90.0 ms",
        "p99": "120 ms",
        "samples": "3",
    }


def test_the_breakdown_over_time_stacks_the_parts_in_order_without_zeros() -> None:
    zeros = dict.fromkeys(breakdown.PARTS, 0.0)
    row = series_row(3, **{**zeros, "queue": 5.0 * MS, "prefill": 20.0 * MS})
    chart = breakdown.over_time([row], BUCKETS, ink=LIGHT)
    assert [(r["part"], r["low"], r["high"]) for r in layer_data(chart, "rect")] == [
        ("queue", 0.0, 5.0),
        ("prefill", 5.0, 25.0),
    ]
    scale = chart.to_dict()["layer"][0]["encoding"]["color"]["scale"]
    assert scale == {"domain": [*Part], "range": [PART_COLOR[part] for part in Part]}


def test_a_bucket_without_a_ttft_has_no_breakdown() -> None:
    chart = breakdown.over_time([series_row(3, ttft_p50=None)], BUCKETS, ink=LIGHT)
    assert layer_data(chart, "rect") == []


def test_a_prompts_bar_reaches_from_0_to_the_ttft() -> None:
    parts = prompt_view.parts_ns(prompt())
    assert parts is not None
    rows = layer_data(breakdown.bar(parts, 100 * MS, ink=LIGHT), "bar")
    assert [row["part"] for row in rows] == ["network", "router", "queue", "prefill", "unattributed"]
    assert (rows[0]["low"], rows[-1]["high"]) == (0.0, 100.0)
    assert [row["label"] for row in rows] == ["network 20 %", "", "queue 25 %", "prefill 40 %", ""]


def test_the_heat_map_has_a_cell_for_each_row_and_tells_a_click_its_bounds() -> None:
    chart = heatmap.ttft([{"bucket": 9, "bin": 80, "prompts": 7}], BUCKETS, 10, ink=LIGHT)
    (cell,) = layer_data(chart, "rect")
    assert (cell["start_ms"], cell["end_ms"]) == (1_090_000, 1_100_000)
    assert (cell["low_ns"], cell["high_ns"]) == (100 * MS, 125_892_542)
    assert cell["prompts"] == 7
    (pick,) = (param for param in chart.to_dict()["params"] if param["name"] == heatmap.SELECTION)
    assert set(pick["select"]["fields"]) == {"start_ms", "end_ms", "low_ns", "high_ns"}


def test_rates_are_0_where_nothing_came_and_leave_out_a_bucket_that_is_not_over() -> None:
    buckets = base.Buckets(1_000 * S, 1_025 * S, 10 * S)
    chart = throughput.rates([series_row(0), series_row(2)], buckets, {"prompts": "prompts"}, ink=LIGHT)
    assert [row["value"] for row in layer_data(chart, "line")] == [0.4, 0.0]


def test_statuses_are_stacked_ok_first_and_unknown_ones_last() -> None:
    rows = [
        {"bucket": 0, "status": "made_up", "prompts": 1},
        {"bucket": 0, "status": "client_abort", "prompts": 2},
        {"bucket": 0, "status": "ok", "prompts": 5},
    ]
    drawn = layer_data(throughput.statuses(rows, BUCKETS, ink=LIGHT), "rect")
    assert [(row["status"], row["low"], row["high"]) for row in drawn] == [
        ("ok", 0, 5),
        ("client_abort", 5, 7),
        ("made_up", 7, 8),
    ]


def test_token_gaps_and_stalls() -> None:
    view = prompt_view.token_timeline(prompt(gaps_us=[10_000] * 20 + [300_000], gap_tokens=[1] * 21))
    assert view is not None
    chart = tokens.timeline(view, end_ns=700 * MS, ink=LIGHT)
    rows = layer_data(chart, "rule")
    assert [(row["gap"], row["kind"]) for row in rows] == [(10.0, "gap")] * 20 + [(300.0, "stall")]
    assert "stall over" in str(chart.to_dict())


@given(st.integers(min_value=1, max_value=20_000), st.integers(min_value=0, max_value=19_999))
def test_however_many_tokens_few_points_are_sent_and_no_stall_is_lost(count: int, stall: int) -> None:
    gaps_us = [10_000] * count
    gaps_us[stall % count] = 900_000
    deliveries = tuple(prompt_view.Delivery(index, gap, 1, gap > 500_000) for index, gap in enumerate(gaps_us))
    kept = tokens.reduce(deliveries, base.POINTS_MAX)
    assert len(kept) <= base.POINTS_MAX
    assert sum(delivery.stall for delivery in kept) == 1


@pytest.mark.parametrize("hours", [1, 24, 24 * 30])
def test_a_chart_over_time_stays_within_the_bound(hours: int) -> None:
    step_ns = hours * 3600 * S // 60
    buckets = base.Buckets(0, hours * 3600 * S, step_ns)
    rows = [series_row(bucket) for bucket in range(60)]
    cells = [{"bucket": b, "bin": 60 + y, "prompts": 1} for b in range(60) for y in range(30)]
    for chart in (
        latency.percentiles(rows, buckets, LINES, ink=LIGHT, count="streamed"),
        breakdown.over_time(rows, buckets, ink=LIGHT),
        heatmap.ttft(cells, buckets, 10, ink=LIGHT),
        throughput.rates(rows, buckets, {"output_tokens": "out", "input_tokens": "in"}, ink=LIGHT),
    ):
        assert base.marks(chart) <= base.POINTS_MAX


@given(
    st.integers(min_value=0, max_value=2 * 10**9),
    st.integers(min_value=1, max_value=400 * 86_400),
    st.sampled_from([0, 3_600, 19_800, -12_600]),
)
def test_ticks_are_few_round_and_within_the_range(since_s: int, span_s: int, offset_s: int) -> None:
    buckets = base.Buckets(since_s * S, (since_s + span_s) * S, S, offset_s)
    ticks = base.time_ticks(buckets)
    assert len(ticks) <= 9
    assert all(since_s * 1000 <= tick <= (since_s + span_s) * 1000 for tick in ticks)
    if len(ticks) > 1:
        step_s = (ticks[1] - ticks[0]) // 1000
        assert all((tick // 1000 + offset_s) % step_s == 0 for tick in ticks)


def test_charts_of_nothing_can_be_drawn() -> None:
    for chart in (
        latency.percentiles([], BUCKETS, LINES, ink=LIGHT, count="streamed"),
        breakdown.over_time([], BUCKETS, ink=LIGHT),
        breakdown.bar({}, 0, ink=LIGHT),
        heatmap.ttft([], BUCKETS, 10, ink=LIGHT),
        throughput.rates([], BUCKETS, {"prompts": "prompts"}, ink=LIGHT),
        throughput.statuses([], BUCKETS, ink=LIGHT),
    ):
        assert chart.to_dict()["$schema"].endswith(".json")
