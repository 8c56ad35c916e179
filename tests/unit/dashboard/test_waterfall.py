"""Rows and pieces of the waterfall, and the chart drawn from them."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from promptpath.dashboard import waterfall
from promptpath.dashboard.charts import base
from promptpath.dashboard.charts import waterfall as chart
from promptpath.dashboard.theme import DARK, LIGHT

from .examples import MS, SEGMENTS, prompt, spans


def spec(built: waterfall.Waterfall, **changes: Any) -> dict[str, Any]:
    options: dict[str, Any] = {"ttft_ns": 100 * MS, "view_ns": (0, 200 * MS), "ink": LIGHT, **changes}
    out: dict[str, Any] = chart.chart(built, **options).to_dict()
    return out


def test_one_row_a_stage_span_nested_as_the_calls_were() -> None:
    built = waterfall.build(prompt(), spans())
    assert [(row.span_id, row.depth, row.label) for row in built.rows] == [
        ("a", 0, "client · client"),
        ("b", 1, "call #1 ✗ 503"),
        ("c", 1, "call → engine #2"),
        ("d", 2, "engine · server"),
        # Their parent, a span of a framework, is no stage: they hang under the nearest that is.
        ("e", 3, "queue"),
        ("f", 3, "prefill · llm_prefill"),
    ]
    assert [row.host for row in built.rows] == ["client-host"] * 3 + ["engine-host"] * 3
    assert [row.heading for row in built.rows] == [True, False, False, True, False, False]


def test_pieces_are_the_segments_and_the_cut_at_the_first_token_stays() -> None:
    built = waterfall.build(prompt(), spans())
    drawn = sorted((built.rows[p.row].span_id, p.start_ns // MS, p.end_ns // MS, p.critical) for p in built.pieces)
    assert drawn == sorted((s[2], s[3], s[3] + s[4], s[5]) for s in SEGMENTS)


def test_neighbours_that_differ_in_nothing_are_one_piece() -> None:
    cut = [("queue", "engine", "e", 30, 5, True), ("queue", "engine", "e", 35, 20, True)]
    rows = [*(s for s in SEGMENTS if s[2] != "e"), *cut]
    names = ("stage", "hop", "span_id", "start_ns", "duration_ns", "critical")
    columns: dict[str, Any] = {f"segments.{name}": [row[i] for row in rows] for i, name in enumerate(names)}
    for name in ("start_ns", "duration_ns"):
        columns[f"segments.{name}"] = [value * MS for value in columns[f"segments.{name}"]]
    built = waterfall.build(prompt(**columns), spans())
    queue = next(index for index, row in enumerate(built.rows) if row.span_id == "e")
    assert [(p.start_ns, p.end_ns) for p in built.pieces if p.row == queue] == [(30 * MS, 55 * MS)]


def test_without_raw_spans_the_rows_stand_flat_in_time() -> None:
    built = waterfall.build(prompt(), [])
    assert [(row.span_id, row.depth) for row in built.rows] == [
        ("a", 0), ("b", 0), ("c", 0), ("d", 0), ("e", 0), ("f", 0)
    ]  # fmt: skip
    assert [row.stage for row in built.rows] == ["client", "router", "call", "server", "queue", "prefill"]


def test_parents_in_a_circle_lose_no_row() -> None:
    raw = spans()
    for span in raw:
        if span["SpanId"] == "d":
            span["ParentSpanId"] = "f"
    built = waterfall.build(prompt(), raw)
    assert {row.span_id for row in built.rows} == {"a", "b", "c", "d", "e", "f"}


def test_a_prompt_of_thousands_of_spans_is_cut_to_those_that_matter_and_says_so() -> None:
    count = 5_000
    ids = ["a", *(f"s{number}" for number in range(1, count))]
    raw = [
        {"SpanId": span_id, "ParentSpanId": "" if span_id == "a" else "a", "SpanName": "queue", "SpanAttributes": []}
        for span_id in ids
    ]
    row = prompt(
        **{
            "segments.stage": ["client"] + ["queue"] * (count - 1),
            "segments.hop": ["client"] * count,
            "segments.span_id": ids,
            "segments.start_ns": list(range(count)),
            "segments.duration_ns": [count * 10, *range(1, count)],
            "segments.critical": [False] + [True] * (count - 1),
        }
    )
    built = waterfall.build(row, raw)
    assert len(built.rows) == waterfall.ROWS_MAX
    assert built.hidden == count - waterfall.ROWS_MAX
    shown = {row.span_id for row in built.rows}
    # The longest critical ones, and the root that they hang under.
    assert "a" in shown
    assert f"s{count - 1}" in shown
    assert "s1" not in shown
    assert base.marks(chart.chart(built, ttft_ns=1, view_ns=(0, count), ink=LIGHT)) <= base.POINTS_MAX


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["queue", "prefill", "transit", "unattributed", "new_stage"]),
            st.integers(0, 12),
            st.integers(-50, 10**9),
            st.integers(0, 10**9),
            st.booleans(),
        ),
        max_size=60,
    )
)
def test_whatever_the_segments_no_time_is_lost(segments: list[tuple[str, int, int, int, bool]]) -> None:
    row = prompt(
        **{
            "segments.stage": [s[0] for s in segments],
            "segments.hop": ["h"] * len(segments),
            "segments.span_id": [f"s{s[1]}" for s in segments],
            "segments.start_ns": [s[2] for s in segments],
            "segments.duration_ns": [s[3] for s in segments],
            "segments.critical": [s[4] for s in segments],
        }
    )
    built = waterfall.build(row, [])
    assert len(built.rows) == len({s[1] for s in segments})
    assert sum(p.end_ns - p.start_ns for p in built.pieces) == sum(s[3] for s in segments)


def test_the_chart_draws_each_piece_solid_or_light_in_its_domains_colour() -> None:
    built = waterfall.build(prompt(), spans())
    drawn = spec(built)
    bars = drawn["layer"][0]
    data = drawn["datasets"][bars["data"]["name"]]
    assert [(d["start"], d["end"]) for d in data] == [(p.start_ns / MS, p.end_ns / MS) for p in built.pieces]
    assert {d["opacity"] for d in data if d["path"] == "critical path"} == {1.0}
    assert {d["opacity"] for d in data if d["path"] != "critical path"} == {0.26}
    by_stage = {d["stage"]: d["domain"] for d in data}
    assert by_stage["transit"] == "Request network"
    assert by_stage["prefill"] == "GPU / inference"
    assert by_stage["queue"] == "CPU"
    assert by_stage["unattributed"] == "Unattributed"
    assert set(bars["encoding"]["color"]["scale"]["domain"]) == set(by_stage.values())
    tooltips = [item["title"] if "title" in item else item["field"] for item in bars["encoding"]["tooltip"]]
    assert tooltips[:5] == ["stage", "span", "hop", "starts at", "lasts"]


def test_pieces_too_short_for_a_bar_are_ticks() -> None:
    built = waterfall.build(prompt(), spans())
    assert [layer["mark"]["type"] for layer in spec(built)["layer"]] == ["bar", "rule", "text"]
    drawn = spec(built, view_ns=(0, 10_000 * MS))
    (ticks,) = (layer for layer in drawn["layer"] if layer["mark"]["type"] == "tick")
    # 20 ms of 10 s is the least that a bar shows.
    assert {row["start"] for row in drawn["datasets"][ticks["data"]["name"]]} == {0, 0.01, 0.02, 0.025, 0.095}


def test_the_chart_zooms_in_time_only_and_leaves_the_bare_wheel_to_the_page() -> None:
    drawn = spec(waterfall.build(prompt(), spans()), view_ns=(0, 108 * MS))
    (zoom,) = (param for param in drawn["params"] if param["name"] == "zoom")
    assert zoom["bind"] == "scales"
    assert zoom["select"]["encodings"] == ["x"]
    assert "ctrlKey" in zoom["select"]["zoom"]
    assert drawn["layer"][0]["encoding"]["x"]["scale"]["domain"] == [0, 108.0]


def test_without_a_first_token_no_line_says_so() -> None:
    built = waterfall.build(prompt(ttft_ns=None), spans())
    assert "first token" in str(spec(built))
    assert "first token" not in str(spec(built, ttft_ns=None))


def test_ink_follows_the_page() -> None:
    built = waterfall.build(prompt(), spans())
    assert DARK.text in str(spec(built, ink=DARK))
    assert DARK.text not in str(spec(built, ink=LIGHT))
