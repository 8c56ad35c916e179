"""Whole simulations: what is sent is what the truth says, and the same seed gives the same."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from promptpath.collector.simulate.scenario import TOPOLOGIES, parse_regressions
from promptpath.semconv import Part, Stage, Status

Row = dict[str, Any]
Run = Callable[..., tuple[list[bytes], list[Row]]]
Read = Callable[[list[bytes]], list[Row]]
PARTS = [f"ttft_{part}_ns" for part in Part]


def test_the_same_seed_gives_the_same_bytes(run: Run) -> None:
    one, again, other, later = (
        run(seed=1, prompts=60),
        run(seed=1, prompts=60),
        run(seed=2, prompts=60),
        run(seed=1, prompts=60, start_ns=1_800_000_000_000_000_000),
    )
    assert one == again
    assert one[0] != other[0]
    # At another time the same happens, under other names.
    assert [row["ttft_ns"] for row in later[1]] == [row["ttft_ns"] for row in one[1]]
    assert not {row["prompt_id"] for row in later[1]} & {row["prompt_id"] for row in one[1]}


def test_exactly_as_many_prompts_as_asked_for(run: Run) -> None:
    for topology in ("agent", "full"):
        _, truth = run(prompts=41, topology={topology: 1.0})
        assert len(truth) == len({row["prompt_id"] for row in truth}) == 41


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_spans_form_whole_trees(run: Run, spans_of: Read, topology: str) -> None:
    bodies, truth = run(prompts=150, topology={topology: 1.0}, doubled=0.0)
    spans = spans_of(bodies)
    by_id = {span["id"]: span for span in spans}
    assert len(by_id) == len(spans)
    for span in spans:
        if span["parent"]:
            above = by_id[span["parent"]]
            assert above["trace"] == span["trace"]
            if above["host"] == span["host"]:
                assert span["start"] >= above["start"]
        assert span["end"] >= span["start"]
        if not span["stage"]:
            assert span["name"].startswith(("invoke_agent", "execute_tool"))
    for row in truth:
        root = by_id[row["prompt_id"]]
        assert root["trace"] == row["trace_id"]
        assert root["stage"] == ("gateway" if topology == "headless" else "client")
        assert by_id[root["parent"]]["id"] == row["workflow_id"] if topology == "agent" else root["parent"] == ""
        assert row["prompt_id"] in row["ids"]
    if topology != "agent":
        assert sum(row["spans"] for row in truth) == len(spans)


def test_the_truth_holds_together(run: Run) -> None:
    _, truth = run(
        seed=3, prompts=1500, arrival_rate=70, errors=0.2, aborts=0.2, rejections=0.1, guardrails=0.3, stalls=0.2
    )
    seen = Counter(row["status"] for row in truth)
    assert set(seen) == {str(status) for status in Status}
    for row in truth:
        assert row["whole"]
        assert row["e2e_ns"] > 0
        if row["ttft_ns"] is None:
            assert [row[part] for part in PARTS] == [None] * 9
            assert (row["ttft_source"], row["tpot_ns"]) == ("", None)
        else:
            assert sum(row[part] for part in PARTS) == row["ttft_ns"]
            assert min(row[part] for part in PARTS) >= 0
            assert row["streaming"]
            assert row["retry_ns"] <= row["ttft_router_ns"]
        assert len(row["gaps_ns"]) == len(row["gap_tokens"])
        assert all(gap >= 0 for gap in row["gaps_ns"])
        if row["status"] == "ok" and row["operation"] == "chat" and row["choices"] == 1:
            assert row["first_tokens"] + sum(row["gap_tokens"]) == row["output_tokens"]
        if row["status"] == "ok" and row["gaps_source"] in ("client", "gateway"):
            assert (row["ttft_ns"] or 0) + sum(row["gaps_ns"]) <= row["e2e_ns"]
    assert any(row["retry_ns"] and row["ttft_ns"] for row in truth)
    assert any(row["preemptions"] for row in truth)
    assert any(row["stalls"] for row in truth)
    assert any(row["cached_tokens"] for row in truth)
    assert any(row["attempts"] == 0 for row in truth)
    assert {row["ttft_source"] for row in truth} >= {"", "client", "gateway"}


def test_every_stage_occurs(run: Run, spans_of: Read) -> None:
    bodies, _ = run(prompts=400, guardrails=0.5)
    never = {Stage.TRANSIT, Stage.UNATTRIBUTED, Stage.LOAD, Stage.INGRESS, Stage.HOP, Stage.TRANSFER, Stage.STRUCTURE}
    assert {span["stage"] for span in spans_of(bodies)} - {""} == {str(stage) for stage in Stage if stage not in never}


def test_lost_spans_are_known(run: Run, spans_of: Read) -> None:
    bodies, truth = run(prompts=400, lost=0.02, doubled=0.0, topology={"full": 1.0})
    sent = Counter(span["trace"] for span in spans_of(bodies))
    for row in truth:
        assert row["whole"] == (sent[row["trace_id"]] == row["spans"])
    assert 0 < sum(not row["whole"] for row in truth) < 400


def test_doubled_spans_are_the_same_span(run: Run, spans_of: Read) -> None:
    bodies, truth = run(prompts=200, doubled=0.3, topology={"full": 1.0})
    spans = spans_of(bodies)
    different = {span["id"]: span for span in spans}
    assert all(different[span["id"]] == span for span in spans)
    assert sum(row["spans"] for row in truth) == len(different)
    assert len(spans) - len(different) == pytest.approx(0.3 * len(different), rel=0.15)


def test_spans_of_a_prompt_come_in_several_requests_and_late_ones_later(run: Run, spans_of: Read) -> None:
    def position(late: float) -> tuple[float, float]:
        bodies, truth = run(prompts=300, late=late, topology={"full": 1.0})
        first: dict[str, int] = {}
        last: dict[str, int] = {}
        for number, body in enumerate(bodies):
            for span in spans_of([body]):
                first.setdefault(span["trace"], number)
                last[span["trace"]] = number
        apart = [last[row["trace_id"]] - first[row["trace_id"]] for row in truth]
        return statistics.median(apart), len(bodies)

    prompt, prompt_bodies = position(0.0)
    late, late_bodies = position(0.5)
    assert prompt >= 2
    assert late / late_bodies > 2 * prompt / prompt_bodies


def test_clocks_are_wrong_and_the_truth_is_not(run: Run, spans_of: Read) -> None:
    exact, skewed = (run(prompts=150, seed=5, topology={"full": 1.0}, skew_s=skew) for skew in (0.0, 5.0))
    assert [row["ttft_ns"] for row in exact[1]] == [row["ttft_ns"] for row in skewed[1]]
    assert all(abs(row["clock_offset_ns"]) < 10**6 for row in exact[1] if row["clock_offset_ns"] is not None)
    assert max(abs(row["clock_offset_ns"]) for row in skewed[1] if row["clock_offset_ns"] is not None) > 10**9
    starts = {span["id"]: span["start"] for span in spans_of(skewed[0])}
    assert any(abs(starts[row["prompt_id"]] - row["start"].value) > 10**8 for row in skewed[1])


def test_one_host_has_one_clock(run: Run) -> None:
    _, truth = run(prompts=100, hosts=1, skew_s=5.0)
    assert {host for row in truth for host in row["hosts"]} == {truth[0]["hosts"][0]}
    assert all(row["clock_offset_ns"] is None for row in truth)


@pytest.mark.parametrize(
    ("stage", "part"),
    [("prefill", "prefill"), ("gateway", "gateway"), ("tokenize", "tokenize"), ("transit", "network")],
)
def test_a_regression_shows_in_its_part_from_its_point_on(run: Run, stage: str, part: str) -> None:
    _, truth = run(
        prompts=1600, arrival_rate=10, topology={"full": 1.0}, regressions=parse_regressions(f"stage={stage},factor=2")
    )
    values = [
        row[f"ttft_{part}_ns"] for row in truth if row["status"] == "ok" and row["ttft_ns"] and not row["retry_ns"]
    ]
    half = len(values) // 2
    before, after = statistics.median(values[: half - 50]), statistics.median(values[half + 50 :])
    assert after / before > 1.35


def test_a_regression_of_one_model_leaves_the_others_alone(run: Run) -> None:
    _, truth = run(
        prompts=1600,
        arrival_rate=10,
        topology={"full": 1.0},
        regressions=parse_regressions("stage=prefill,factor=3,model=qwen3-32b,at=0"),
    )
    plain = run(prompts=1600, arrival_rate=10, topology={"full": 1.0})[1]

    def median(rows: list[Row], model: str) -> float:
        return statistics.median(row["ttft_prefill_ns"] for row in rows if row["model"] == model and row["ttft_ns"])

    assert median(truth, "qwen3-32b") / median(plain, "qwen3-32b") > 2
    assert median(truth, "llama-3.1-8b-instruct") / median(plain, "llama-3.1-8b-instruct") < 1.2
