"""vLLM with nothing but Promptpath installed beside it: every prompt's row against what the client and vLLM saw."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.vllm import environment
from tests.e2e.vllm.conftest import MS, Stack, duration_of, gaps_off, job, only, parts_add_up, serving, spans_of

pytestmark = pytest.mark.timeout(900)

_COMPLETE = "has(segments.stage, 'decode') OR status = 'rejected'"


@pytest.fixture(scope="module")
def stack(vllm_environment: environment.Environment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    home = tmp_path_factory.mktemp("vllm")
    with serving(vllm_environment, home, "--max-model-len", "1024", "--max-num-seqs", "16", native_tracing=False) as it:
        yield it


def test_streams(stack: Stack) -> None:
    before = {name: stack.metric(f"vllm:request_{name}_time_seconds_sum") for name in ("queue", "prefill")}
    seen = stack.send([job(index) for index in range(60)], at_once=8)
    rows = stack.rows(seen, _COMPLETE)
    sums = {"queue": 0, "prefill": 0}
    judged = 0
    for one in seen:
        row = only(rows[one["trace_id"]])
        assert (row["status"], row["ttft_source"], row["model"]) == ("ok", "client", "tiny")
        assert parts_add_up(row)
        assert abs(int(row["ttft_ns"]) - one["at_ns"][0]) < MS
        assert len(row["gaps_us"]) == len(one["at_ns"]) - 1
        off, seen_well = gaps_off(row, one)
        assert off == 0
        judged += seen_well
        assert row["output_tokens"] == one["output_tokens"] == one["job"]["max_tokens"]
        for stage in sums:
            sums[stage] += duration_of(row, stage)
    assert judged > len(seen)
    # vLLM counts the same stretches by its own clock: a millisecond for each of the prompts at the most.
    for stage, total_ns in sums.items():
        theirs_ns = (stack.metric(f"vllm:request_{stage}_time_seconds_sum") - before[stage]) * 1e9
        assert abs(total_ns - theirs_ns) < len(seen) * MS, stage


def test_every_stage_is_there(stack: Stack) -> None:
    seen = stack.send([job(7)], at_once=1)
    row = only(stack.rows(seen, _COMPLETE)[seen[0]["trace_id"]])
    assert set(row["segments.stage"]) >= {
        "client",
        "server",
        "parse",
        "tokenize",
        "queue",
        "prefill",
        "decode",
        "detokenize",
    }
    assert row["preemptions"] == 0
    assert row["hops"] == ["client", "vllm"]


def test_answers_that_are_not_streamed(stack: Stack) -> None:
    seen = stack.send([job(index, stream=False) for index in range(4)], at_once=2)
    rows = stack.rows(seen, _COMPLETE)
    for one in seen:
        row = only(rows[one["trace_id"]])
        assert (row["status"], row["ttft_ns"], row["streaming"]) == ("ok", None, False)
        assert row["output_tokens"] == one["output_tokens"]
        assert int(row["ttft_engine_ns"]) > 0


def test_several_answers_to_one_prompt(stack: Stack) -> None:
    seen = stack.send([job(index, n=2) for index in range(6)], at_once=2)
    rows = stack.rows(seen, _COMPLETE)
    for one in seen:
        row = only(rows[one["trace_id"]])
        assert row["output_tokens"] == one["output_tokens"] == 2 * one["job"]["max_tokens"]
        assert parts_add_up(row)
        assert abs(int(row["ttft_ns"]) - one["at_ns"][0]) < MS
        assert [spans_of(row, stage) for stage in ("queue", "prefill", "decode")] == [1, 1, 2]


def test_clients_that_hang_up(stack: Stack) -> None:
    seen = stack.send([job(index, max_tokens=400, hang_up_after=4) for index in range(6)], at_once=3)
    rows = stack.rows(seen, _COMPLETE)
    for one in seen:
        row = only(rows[one["trace_id"]])
        assert row["status"] == "client_abort"
        assert abs(int(row["ttft_ns"]) - one["at_ns"][0]) < MS
        assert parts_add_up(row)


def test_a_request_that_is_refused(stack: Stack) -> None:
    seen = stack.send([job(1, max_tokens=100_000)], at_once=1)
    assert seen[0]["status"] == 400
    row = only(stack.rows(seen, _COMPLETE)[seen[0]["trace_id"]])
    assert (row["status"], row["error_type"], row["ttft_ns"]) == ("rejected", "400", None)
