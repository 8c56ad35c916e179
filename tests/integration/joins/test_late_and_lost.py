"""Late, lost, doubled, out of order, split over requests: the same rows; and agent runs with parallel calls."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from promptpath.collector.assembler import AssemblerService

Row = dict[str, Any]
SERVER, CLIENT, INTERNAL = 2, 3, 1
MS = 1_000_000
STAGE = "promptpath.stage"
Span = tuple[str, str, tuple[str, int, int, int, Row, Row]]


def ids(span: int, trace: int, parent: int = 0) -> Row:
    return {"id": f"{span:016x}", "trace": f"{trace:032x}"} | ({"parent": f"{parent:016x}"} if parent else {})


def spans(number: int) -> list[Span]:
    """(service, host, span) of a prompt whose engine is in another trace on another host, with an agent around it."""
    at, base, key = number * 30 * MS, 100 * number, f"chatcmpl-{number:x}f"
    ahead = 4_000 * MS
    return [
        ("app", "h1", ("run", INTERNAL, at - 5 * MS, at + 110 * MS, {"gen_ai.operation.name": "invoke_agent"},
                       ids(base + 1, base + 1))),
        ("app", "h1", ("chat", CLIENT, at, at + 100 * MS,
                       {STAGE: "client", "promptpath.token.gaps_us": [60_000, 10_000, 10_000]},
                       ids(base + 2, base + 1, base + 1))),
        ("gw", "h1", ("POST", SERVER, at + 5 * MS, at + 95 * MS, {STAGE: "gateway"},
                      ids(base + 3, base + 1, base + 2))),
        ("gw", "h1", ("POST", CLIENT, at + 10 * MS, at + 90 * MS, {STAGE: "call", "gen_ai.response.id": key},
                      ids(base + 4, base + 1, base + 3))),
        ("engine", "h2", ("llm", SERVER, at + ahead + 15 * MS, at + ahead + 85 * MS,
                          {STAGE: "server", "gen_ai.request.id": key}, ids(base + 5, base + 2))),
        ("engine", "h2", ("queue", INTERNAL, at + ahead + 16 * MS, at + ahead + 20 * MS, {STAGE: "queue"},
                          ids(base + 6, base + 2, base + 5))),
        ("engine", "h2", ("prefill", INTERNAL, at + ahead + 20 * MS, at + ahead + 50 * MS, {STAGE: "prefill"},
                          ids(base + 7, base + 2, base + 5))),
    ]  # fmt: skip


@pytest.fixture
def assembled(factory: Any, store: Any, put: Any, request_of: Any, stored: Callable[[], list[Row]]) -> Any:
    """The rows after some requests of spans, each request assembled before the next comes."""

    def body(some: list[Span]) -> bytes:
        return b"".join(
            request_of(span, resource={"service.name": service, "host.id": host}) for service, host, span in some
        )

    def run(requests: list[list[Span]]) -> list[Row]:
        for table in (
            "otel_traces",
            "otel_traces_trace_id_ts",
            "trace_arrivals",
            "prompts_rows",
            "trace_join_keys",
            "clock_offsets",
            "assembler_state_rows",
        ):
            store.command(f"TRUNCATE TABLE {table}")
        service = AssemblerService(factory, grace_s=0, orphan_s=0)
        for some in requests:
            put(store, body(some))
            service.run_once()
        service.close()
        return [row | {"assembled_at": 0} for row in stored()]

    return run


@pytest.mark.parametrize("seed", range(6))
def test_any_order_and_any_split_give_the_same_rows(assembled: Any, seed: int) -> None:
    rng = random.Random(seed)
    everything = [one for number in range(1, 4) for one in spans(number)]
    wanted = assembled([everything])
    assert [(row["joined_by"], row["hops"], row["completeness"], row["ttft_prefill_ns"]) for row in wanted] == [
        ("response_id", ["app", "gw", "engine"], 1.0, 30 * MS)
    ] * 3
    shuffled = everything + rng.sample(everything, 5)  # some twice
    rng.shuffle(shuffled)
    cuts = sorted(rng.sample(range(1, len(shuffled)), 4))
    pieces = [shuffled[low:high] for low, high in zip([0, *cuts], [*cuts, len(shuffled)], strict=True)]
    told = assembled(pieces)
    assert [_steady(row) for row in told] == [_steady(row) for row in wanted]


def _steady(row: Row) -> Row:
    """Without what other prompts' spans, known later, make better: the pooled offset and what is drawn with it."""
    return {name: value for name, value in row.items() if not name.startswith(("clock_", "segments."))}


def test_a_lost_hop_leaves_the_rest_right(assembled: Any) -> None:
    (whole,) = assembled([spans(1)])
    (without,) = assembled([[one for one in spans(1) if one[0] != "engine"]])
    assert (whole["completeness"], without["completeness"]) == (1.0, 0.5)
    for name in ("ttft_ns", "ttft_gateway_ns", "e2e_ns", "gaps_us", "status", "workflow_id"):
        assert whole[name] == without[name]
    assert without["ttft_unattributed_ns"] == 50 * MS  # what the engine's side would explain of the gateway's call
    assert sum(without[name] for name in without if name.startswith("ttft_") and name.endswith("_ns")
               and name not in ("ttft_ns", "ttft_engine_ns") and without[name]) == without["ttft_ns"]  # fmt: skip


def test_a_run_of_sequential_and_parallel_calls(
    factory: Any, store: Any, put: Any, request_of: Any, stored: Callable[[], list[Row]]
) -> None:
    """Run of 1000 ms: one call of 100 ms, a pause, two calls of 200 ms at once that overlap by 100 ms."""
    calls = [(100, 200), (400, 600), (500, 700)]
    all_spans: list[tuple[str, int, int, int, Row, Row]] = [("run", INTERNAL, 0, 1000 * MS,
                  {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "it"}, ids(1, 1))]  # fmt: skip
    for number, (start, end) in enumerate(calls):
        base = 10 * (number + 1)
        usage: Row = {"gen_ai.usage.input_tokens": 5, "gen_ai.usage.output_tokens": 7}
        all_spans += [
            ("chat", CLIENT, start * MS, end * MS, {STAGE: "client"} | usage, ids(base, 1, 1)),
            ("llm", SERVER, (start + 20) * MS, (end - 20) * MS, {STAGE: "server"}, ids(base + 1, 1, base)),
            ("prefill", INTERNAL, (start + 20) * MS, (end - 20) * MS, {STAGE: "prefill"}, ids(base + 2, 1, base + 1)),
        ]
    put(store, request_of(*all_spans))
    service = AssemblerService(factory, grace_s=0)
    assert service.run_once() == 3
    service.close()
    run = store.query_arrow(
        "SELECT workflow_id, agent_name, calls, failed_calls, input_tokens, output_tokens, total_ns, calls_ns, gaps_ns,"
        " network_ns, inference_ns, network_sum_ns, inference_sum_ns, share, inference_share FROM workflows"
    ).to_pylist()
    # Inference 120-180, 420-580, 520-680: 60 + 260. Network 20 ms at both ends of each: 6 x 20, none overlapping.
    assert run == [
        {
            "workflow_id": f"{1:016x}", "agent_name": "it", "calls": 3, "failed_calls": 0,
            "input_tokens": 15, "output_tokens": 21, "total_ns": 1000 * MS, "calls_ns": 400 * MS, "gaps_ns": 600 * MS,
            "network_ns": 120 * MS, "inference_ns": 320 * MS, "network_sum_ns": 120 * MS, "inference_sum_ns": 380 * MS,
            "share": 120 / 440, "inference_share": 320 / 440,
        }
    ]  # fmt: skip
