"""The parts of the demo that need neither a model nor a server."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import pytest

from promptpath.cli.demo import gateway, prompts
from promptpath.cli.demo.check import compare, report
from promptpath.cli.demo.openai_format import ChatRequest
from promptpath.cli.demo.relay import _kind_of
from promptpath.cli.demo.router import Deployment
from promptpath.semconv import Part


def test_a_plan_is_the_same_for_the_same_seed_and_has_every_kind() -> None:
    rounds = prompts.plan(150, 7)
    assert rounds == prompts.plan(150, 7)
    assert rounds != prompts.plan(150, 8)
    assert [part.concurrency for part in rounds] == [1, 4, 8]
    questions = [question for part in rounds for question in part.questions]
    assert 140 <= len(questions) <= 200
    kinds = Counter(question.kind for question in questions)
    assert set(kinds) == {"streamed", "long", "whole", "aborted", "bad_key", "rate_limited", "too_long"}
    assert kinds["rate_limited"] > 2  # the trial key lets two pass
    assert {question.model for question in questions} == {prompts.MODEL, prompts.SMALL_MODEL}


@pytest.mark.parametrize("count", [8, 24, 150])
def test_every_plan_has_something_refused_and_something_answered(count: int) -> None:
    kinds = {question.kind for part in prompts.plan(count, 1) for question in part.questions}
    assert {"streamed", "bad_key", "too_long", "rate_limited"} <= kinds


def test_token_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    bucket = gateway.TokenBucket(per_s=2, burst=2)
    assert [bucket.take(), bucket.take(), bucket.take()] == [0.0, 0.0, 0.5]
    now_s += 0.5
    assert [bucket.take(), bucket.take()] == [0.0, 0.5]
    now_s += 60
    assert [bucket.take(), bucket.take(), bucket.take()] == [0.0, 0.0, 0.5]


@pytest.mark.parametrize(
    ("events", "kind"),
    [
        (b"", "nothing yet"),
        (b'data: {"choices":[{"delta":{"role":"assistant","content":""},"finish_reason":null}]}\n\n', "nothing yet"),
        (b'data: {"choices":[{"delta":{"content":"a"}}]}', "nothing yet"),  # half an event
        (b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n', "content"),
        (b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n', "content"),
        (b"data: [DONE]\n\n", "content"),
        (b': comment\n\ndata: {"error":{"message":"gone"}}\n\n', "error"),
    ],
)
def test_what_a_stream_holds_so_far(events: bytes, kind: str) -> None:
    assert _kind_of(events) == kind


def test_deployment() -> None:
    assert Deployment.parse("m@http://h:1/") == Deployment("m", "http://h:1")
    with pytest.raises(ValueError, match="write MODEL@URL"):
        Deployment.parse("http://h:1")


def test_request_shapes() -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}], "stop": "x"}
    request = ChatRequest.model_validate(body)
    assert (request.messages[0].text(), request.stops(), request.temperature) == ("a", ["x"], 0.0)


def record(trace: str, order: int = 0, ttft_ns: int | None = 100_000_000) -> dict[str, Any]:
    return {"kind": "streamed", "trace_id": trace, "order": order, "ttft_ns": ttft_ns}


def row(trace: str, prompt: str, ttft_ns: int | None = 100_000_000, **parts: int) -> dict[str, Any]:
    out: dict[str, Any] = {"trace_id": trace, "prompt_id": prompt, "ttft_ns": ttft_ns, "status": "ok"}
    out |= {f"ttft_{part}_ns": None if ttft_ns is None else 0 for part in Part}
    if ttft_ns is not None:
        out["ttft_prefill_ns"] = ttft_ns - sum(parts.values())
        out |= {f"ttft_{part}_ns": ns for part, ns in parts.items()}
    return out


def test_all_there_and_in_agreement() -> None:
    records = [record("a"), record("b", 1, 50_000_000), record("b", 0), record("c", ttft_ns=None)]
    rows = [
        row("b", "b0", 100_900_000),
        row("a", "a0"),
        row("b", "b1", 50_000_000, unattributed=5_000_000),
        row("c", "c0", None),
    ]
    outcome = compare(records, rows)
    assert outcome.complete
    assert (outcome.streamed, outcome.with_ttft) == (3, 3)
    assert outcome.differences_ns == [0, 900_000, 0]
    assert outcome.disagreeing == []
    assert outcome.unclosed == []
    assert outcome.unattributed_shares == [0, 0, 0.1]
    assert report(outcome)[0] == "4 prompts sent, 4 of them stored"


def test_missing_surplus_disagreeing_unclosed() -> None:
    records = [record("a"), record("b"), record("c"), record("d", ttft_ns=None)]
    wrong = row("b", "b0", 102_000_001) | {"ttft_queue_ns": 1}
    rows = [wrong, row("c", "c0"), row("c", "c1"), row("d", "d0", 5)]
    outcome = compare(records, rows)
    assert not outcome.complete
    assert outcome.missing == [records[0]]
    assert outcome.surplus == 1
    assert outcome.disagreeing == [("b0", 100_000_000, 102_000_001), ("d0", None, 5)]
    assert outcome.unclosed == ["b0"]
    told = "\n".join(report(outcome))
    assert "1 have no row: streamed in trace a" in told
    assert "1 rows more than prompts were sent" in told
    assert "the parts of 1 prompts do not add up: b0" in told


def test_small_ttfts_may_differ_by_a_millisecond_and_large_ones_by_a_hundredth() -> None:
    records = [record("a", ttft_ns=10_000_000), record("b", ttft_ns=500_000_000)]
    rows = [row("a", "a0", 10_999_000), row("b", "b0", 504_000_000)]
    assert compare(records, rows).disagreeing == []
