"""Traces of one prompt that come one after the other: the service finds them and keeps one row."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from promptpath.collector.assemble.store import Shard
from promptpath.collector.assembler import AssemblerService
from promptpath.collector.backfill import assemble_since

Row = dict[str, Any]
SERVER, CLIENT, INTERNAL = 2, 3, 1
MS = 1_000_000
CAPTURES = Path(__file__).parents[2] / "data" / "captures"


@pytest.fixture
def service(factory: Any, store: Any) -> Iterator[Callable[..., AssemblerService]]:
    made: list[AssemblerService] = []

    def make(**options: Any) -> AssemblerService:
        made.append(AssemblerService(factory, **({"grace_s": 0, "orphan_s": 0} | options)))
        return made[-1]

    yield make
    for one in made:
        one.close()


def ids(span: int, trace: int, parent: int = 0) -> Row:
    named = {"parent": f"{parent:016x}"} if parent else {}
    return {"id": f"{span:016x}", "trace": f"{trace:032x}"} | named


def requests_of_a_prompt(request_of: Any, at: int = 0, key: str = "chatcmpl-abc", first: int = 1) -> list[bytes]:
    """Client, gateway and engine, each in a trace and a request of its own."""
    stage = "promptpath.stage"
    client = request_of(
        ("chat", CLIENT, at, at + 100 * MS, {stage: "client", "gen_ai.response.id": key}, ids(first, first)),
        resource={"service.name": "app"},
    )
    gateway = request_of(
        ("POST", SERVER, at + 5 * MS, at + 95 * MS, {stage: "gateway"}, ids(first + 1, first + 1)),
        ("POST", CLIENT, at + 10 * MS, at + 90 * MS, {stage: "call", "gen_ai.response.id": key},
         ids(first + 2, first + 1, first + 1)),
        resource={"service.name": "gateway"},
    )  # fmt: skip
    engine = request_of(
        ("llm_request", SERVER, at + 15 * MS, at + 85 * MS, {stage: "server", "gen_ai.request.id": key[9:]},
         ids(first + 3, first + 2)),
        resource={"service.name": "engine"},
    )  # fmt: skip
    return [client, gateway, engine]


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_in_whatever_order_they_come(
    service: Any, store: Any, put: Any, request_of: Any, stored: Callable[[], list[Row]], order: tuple[int, ...]
) -> None:
    one = service()
    bodies = requests_of_a_prompt(request_of)
    for index in order:
        put(store, bodies[index])
        assert one.run_once() >= 1
    (row,) = stored()
    assert (row["prompt_id"], row["joined_by"], row["hops"]) == (
        f"{1:016x}", "response_id", ["app", "gateway", "engine"],
    )  # fmt: skip
    assert (row["joined_traces"], row["completeness"]) == ([f"{2:032x}", f"{3:032x}"], 1.0)
    assert store.query("SELECT sum(prompts) FROM prompt_minutes").result_rows == [(1,)]
    # The stored spans are as they came.
    spans = store.query("SELECT SpanId, TraceId, ParentSpanId FROM otel_traces ORDER BY SpanId").result_rows
    assert spans == [
        (f"{1:016x}", f"{1:032x}", ""), (f"{2:016x}", f"{2:032x}", ""),
        (f"{3:016x}", f"{2:032x}", f"{2:016x}"), (f"{4:016x}", f"{3:032x}", ""),
    ]  # fmt: skip


def test_a_row_that_was_a_prompt_of_its_own_is_withdrawn(
    service: Any, store: Any, put: Any, request_of: Any, stored: Callable[[], list[Row]]
) -> None:
    one = service()
    bodies = requests_of_a_prompt(request_of)
    put(store, bodies[2])
    one.run_once()
    assert [row["prompt_id"] for row in stored()] == [f"{4:016x}"]
    put(store, bodies[1])
    one.run_once()
    assert [row["prompt_id"] for row in stored()] == [f"{2:016x}"]
    put(store, bodies[0])
    one.run_once()
    assert [row["prompt_id"] for row in stored()] == [f"{1:016x}"]


def test_a_restart_and_a_backfill_know_the_group(
    service: Any, store: Any, put: Any, request_of: Any, stored: Callable[[], list[Row]]
) -> None:
    bodies = requests_of_a_prompt(request_of)
    put(store, bodies[0] + bodies[1])
    service().run_once()
    put(store, bodies[2])
    service().run_once()
    (row,) = stored()
    store.command("TRUNCATE TABLE trace_join_keys")
    assert assemble_since(store, 0) == 1
    (again,) = stored()
    assert again | {"assembled_at": 0} == row | {"assembled_at": 0}


def test_shards_find_what_another_shard_assembled(
    service: Any, store: Any, put: Any, request_of: Any, stored: Callable[[], list[Row]]
) -> None:
    for number in range(10):
        for body in requests_of_a_prompt(request_of, key=f"chatcmpl-{number}x", first=100 * number + 1):
            put(store, body)
    for index in range(3):
        service(shard=Shard(index, 3)).run_once()
    rows = stored()
    assert [(row["joined_by"], row["hops"]) for row in rows] == [("response_id", ["app", "gateway", "engine"])] * 10


def test_an_id_used_again_much_later_is_another_prompt(
    service: Any, store: Any, put: Any, request_of: Any, stored: Callable[[], list[Row]]
) -> None:
    one = service()
    for number in range(3):
        for body in requests_of_a_prompt(request_of, at=number * 60_000 * MS, first=100 * number + 1):
            put(store, body)
            one.run_once()
    rows = stored()
    assert [row["prompt_id"] for row in rows] == [f"{100 * n + 1:016x}" for n in range(3)]
    assert [row["joined_traces"] for row in rows] == [[f"{100 * n + k:032x}" for k in (2, 3)] for n in range(3)]


def test_an_id_that_everybody_sends_joins_nobody(
    service: Any, store: Any, put: Any, request_of: Any, stored: Callable[[], list[Row]]
) -> None:
    one = service()
    stage = "promptpath.stage"
    values = {stage: "gateway", "http.request.header.x-request-id": "test"}
    put(store, request_of(*(("POST", SERVER, n * MS, (n + 90) * MS, values, ids(n, n)) for n in range(1, 151))))
    assert one.run_once() == 150
    assert {row["joined_by"] for row in stored()} == {""}


def test_a_link_is_followed_from_both_of_its_ends(
    service: Any, store: Any, put: Any, request_of: Any, stored: Callable[[], list[Row]]
) -> None:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    stage = "promptpath.stage"
    router = request_of(
        ("POST", SERVER, 0, 100 * MS, {stage: "router"}, ids(1, 1)), resource={"service.name": "router"}
    )
    plain = request_of(
        ("Req", SERVER, 10 * MS, 90 * MS, {stage: "server"}, ids(2, 2)), resource={"service.name": "engine"}
    )
    message = ExportTraceServiceRequest.FromString(plain)
    link = message.resource_spans[0].scope_spans[0].spans[0].links.add()
    link.trace_id, link.span_id = bytes.fromhex(f"{1:032x}"), bytes.fromhex(f"{1:016x}")
    for first, second in ((router, message.SerializeToString()), (message.SerializeToString(), router)):
        for table in ("otel_traces", "prompts_rows", "trace_join_keys", "trace_arrivals", "assembler_state_rows"):
            store.command(f"TRUNCATE TABLE {table}")
        one = service()
        put(store, first)
        one.run_once()
        put(store, second)
        one.run_once()
        (row,) = stored()
        assert (row["hops"], row["joined_by"], row["joined_traces"]) == (["router", "engine"], "", [f"{2:032x}"])


def test_litellm_v1_before_vllm_as_captured(
    service: Any, store: Any, put: Any, capture: Callable[[str], bytes], stored: Callable[[], list[Row]]
) -> None:
    """LiteLLM v1 sent no traceparent: its answers' ids are vLLM's request ids. The two come one after the other."""
    one = service()
    put(store, capture("vllm-default"))
    one.run_once()
    before = {row["prompt_id"]: row for row in stored()}
    put(store, capture("litellm"))
    one.run_once()
    rows = [row for row in stored() if row["joined_by"] == "response_id"]

    def spans(name: str) -> Iterator[Row]:
        for line in (CAPTURES / name / "traces.jsonl").read_text().splitlines():
            for resource in json.loads(line)["resourceSpans"]:
                for scope in resource["scopeSpans"]:
                    for span in scope["spans"]:
                        values = {x["key"]: next(iter(x["value"].values())) for x in span.get("attributes", [])}
                        yield span | {"values": values}

    calls = {s["values"]["gen_ai.response.id"]: s for s in spans("litellm") if "gen_ai.response.id" in s["values"]}
    engines = {s["values"].get("gen_ai.request.id"): s for s in spans("vllm-default")}
    shared = sorted(calls.keys() & engines.keys())
    assert len(shared) == 3
    assert {row["trace_id"]: row["joined_traces"] for row in rows} == {
        calls[key]["traceId"]: [engines[key]["traceId"]] for key in shared
    }
    for row in rows:
        assert (row["hops"], row["attempts"], row["completeness"]) == (["litellm-proxy", "vllm-server"], 1, 1.0)
    after = {row["prompt_id"] for row in stored()}
    assert not after & {engines[key]["spanId"] for key in shared}
    # All that were not joined are as they were.
    assert before.keys() - after == {engines[key]["spanId"] for key in shared}


def test_traces_that_only_their_times_join_stay_joined(
    service: Any, store: Any, put: Any, request_of: Any, stored: Callable[[], list[Row]]
) -> None:
    """Two instrumentations of one process, each with a trace of its own; a span of one of them comes late."""
    path = {"url.path": "/v1/chat/completions"}
    web = request_of(
        ("POST", SERVER, 0, 100 * MS, path, ids(1, 1)), scope="fastapi", resource={"service.name": "proxy"}
    )
    own = request_of(
        ("POST", SERVER, 5 * MS, 95 * MS, {"promptpath.stage": "gateway"}, ids(2, 2)),
        scope="gateway",
        resource={"service.name": "proxy"},
    )
    late = request_of(
        ("POST", CLIENT, 10 * MS, 90 * MS, {"promptpath.stage": "call"}, ids(3, 2, 2)),
        scope="gateway",
        resource={"service.name": "proxy"},
    )
    later = request_of(
        ("read", INTERNAL, 1 * MS, 3 * MS, {"promptpath.stage": "parse"}, ids(4, 1, 1)),
        scope="fastapi",
        resource={"service.name": "proxy"},
    )
    one = service()
    put(store, web)
    put(store, own)
    assert one.run_once() == 1
    for body, attempts in ((late, 1), (later, 1)):
        put(store, body)
        assert one.run_once() == 1
        (row,) = stored()
        assert (row["prompt_id"], row["joined_by"], row["joined_traces"]) == (f"{1:016x}", "time", [f"{2:032x}"])
        assert row["attempts"] == attempts
    assert "parse" in row["segments.stage"]
