"""vLLM with too little memory for its cache, and its own tracing on: preemptions, and its own numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.vllm import environment
from tests.e2e.vllm.conftest import MS, Stack, duration_of, job, only, parts_add_up, serving, spans_of

pytestmark = pytest.mark.timeout(900)

#: Few, large blocks: more requests are let in than can be finished, so that some are preempted.
_TIGHT = ("--num-gpu-blocks-override", "9", "--block-size", "128", "--max-model-len", "512", "--max-num-seqs", "8")
_COMPLETE = "has(segments.stage, 'decode') AND has(segments.stage, 'server')"


@pytest.fixture(scope="module")
def stack(vllm_environment: environment.Environment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    home = tmp_path_factory.mktemp("tight")
    with serving(vllm_environment, home, *_TIGHT, "--no-enable-prefix-caching", native_tracing=True) as it:
        yield it


@pytest.fixture(scope="module")
def sent(stack: Stack) -> list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]]:
    """What the client saw of each prompt, its row, and the attributes of vLLM's own span."""
    seen = stack.send([job(index, max_tokens=160 + index % 50) for index in range(24)], at_once=12)
    rows = stack.rows(seen, _COMPLETE)
    native = {
        row["TraceId"]: row["SpanAttributes"]
        for row in stack.query("SELECT TraceId, SpanAttributes FROM otel_traces WHERE SpanName = 'llm_request'")
    }
    return [(one, only(rows[one["trace_id"]]), native[one["trace_id"]]) for one in seen]


def test_queue_and_prefill_are_those_of_vllm(sent: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]]) -> None:
    for _, row, native in sent:
        for stage, name in (("queue", "time_in_queue"), ("prefill", "time_in_model_prefill")):
            assert spans_of(row, stage) == 1
            ours_ns = duration_of(row, stage)
            assert abs(ours_ns - float(native[f"gen_ai.latency.{name}"]) * 1e9) < MS


def test_streams(sent: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]]) -> None:
    for one, row, _ in sent:
        assert row["status"] == "ok"
        assert parts_add_up(row)
        assert abs(int(row["ttft_ns"]) - one["at_ns"][0]) < MS
        assert row["output_tokens"] == one["output_tokens"]


def test_preemptions(stack: Stack, sent: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]]) -> None:
    counted = stack.metric("vllm:num_preemptions_total")
    assert counted > 0
    assert sum(row["preemptions"] for _, row, _ in sent) == counted
    [told] = stack.query(
        "SELECT count() AS spans FROM otel_traces WHERE SpanAttributes['promptpath.preempted_us'] NOT IN ('', '[]')"
    )
    assert 0 < told["spans"] <= counted
