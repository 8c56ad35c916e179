"""Rules as the database applies them: spans go in as OTLP and come out as the assembler reads them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from promptpath.collector.assemble.rules import RuleError, load_rules
from promptpath.collector.assemble.rules_sql import compile_select, default_select
from promptpath.collector.assemble.schema import SPAN_SCHEMA, check_spans
from promptpath.collector.assemble.store import read_spans
from promptpath.collector.backfill import assemble_traces
from promptpath.semconv import INFERENCE_PATHS

Row = dict[str, Any]
TRACE = "0" * 31 + "1"
ID = "00000000000000aa"
SERVER, CLIENT, INTERNAL = 2, 3, 1
MS = 1_000_000


_trace = itertools.count(100)


@pytest.fixture(scope="module")
def read(factory: Any, put: Callable[..., None], request_of: Callable[..., bytes]) -> Iterator[Callable[..., Row]]:
    """One span, in a trace of its own, through the database: its row as the assembler reads it."""
    client = factory()

    def one(name: str, kind: int, attributes: Row, select: str | None = None, events: Any = (), **more: Any) -> Row:
        trace = f"{next(_trace):032x}"
        put(
            client,
            request_of((name, kind, 0, 1000 * MS, attributes, {"id": ID, "trace": trace, "events": events}), **more),
        )
        table = check_spans(read_spans(client, [trace], select))
        assert table.schema == SPAN_SCHEMA
        (row,) = table.to_pylist()
        return row | {"trace_id": ""}

    yield one
    client.close()


def test_everything_ours_says(read: Callable[..., Row]) -> None:
    row = read(
        "chat m",
        CLIENT,
        {
            "promptpath.stage": "client",
            "promptpath.token.gaps_us": [1500, 20, 30],
            "promptpath.token.counts": [1, 2, 3],
            "promptpath.first_byte_us": 1200,
            "promptpath.tenant": "acme",
            "promptpath.abort": "client",
            "promptpath.preemptions": 2,
            "promptpath.tcp.rtt_us": 80,
            "promptpath.tcp.retransmits": 1,
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": "asked",
            "gen_ai.response.model": "answered",
            "gen_ai.request.stream": True,
            "gen_ai.request.choice.count": 2,
            "gen_ai.response.finish_reasons": ["stop", "length"],
            "gen_ai.usage.input_tokens": 7,
            "gen_ai.usage.output_tokens": 6,
            "gen_ai.usage.cache_read.input_tokens": 2,
            "gen_ai.usage.reasoning.output_tokens": 1,
            "gen_ai.conversation.id": "talk",
            "gen_ai.agent.name": "it",
            "http.response.status_code": 200,
            "server.address": "127.0.0.1",
        },
        resource={"host.id": "machine", "service.instance.id": "i-1", "promptpath.gpu.uuids": ["GPU-1", "GPU-2"]},
        scope="promptpath.openai",
    )
    assert row == {
        "trace_id": "", "span_id": ID, "parent_id": "", "start_ns": 1_700_000_000_000_000_000,
        "duration_ns": 1000 * MS, "clamped": "",
        "kind": "CLIENT", "scope": "promptpath.openai", "service": "svc", "process": "i-1",
        "host": "machine", "loopback": True, "stage": "client", "role": "", "inference": True, "agent": False,
            "failed": False,
        "gaps_us": [1500, 20, 30], "counts": [1, 2, 3], "first_token_ns": None, "first_byte_ns": 1_200_000,
        "part_stages": [], "part_starts_ns": [], "part_durations_ns": [], "streaming": True, "choices": 2,
        "operation": "chat",
        "model": "answered", "request_model": "asked", "finish_reason": "stop", "http_status": 200, "error_type": "",
        "abort": "client", "tenant": "acme", "request_id": "", "response_id": "",
        "correlation_id": "", "bootstrap_id": "",
        "link_traces": [], "link_spans": [], "preempted_us": [], "input_tokens": 7, "cached_tokens": 2,
        "output_tokens": 6, "reasoning_tokens": 1, "preemptions": 2, "tcp_rtt_us": 80, "tcp_retransmits": 1,
        "cost_usd": None, "conversation_id": "talk", "agent_name": "it", "gpu_uuids": ["GPU-1", "GPU-2"],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("gaps", "counts", "expected"),
    [
        ("[1500, 20,30]", "[1, 2, 3]", ([1500, 20, 30], [1, 2, 3])),
        ("1500,20,30", [1, 2, 3], ([1500, 20, 30], [1, 2, 3])),
        ([1500, 20], "1,2", ([1500, 20], [1, 2])),
        (" [ 1500 ] ", "7", ([1500], [7])),
        ("[99999999999999999999, 1]", "[70000, 1]", ([4294967295, 1], [65535, 1])),
        ("[1500, -20, 30]", "[1, 2.5, 3]", ([], [])),
        ("[1500, 20", "1, 2]", ([], [])),
        ("[]", "", ([], [])),
        ("soon", "[1, null]", ([], [])),
        ("[1500 20]", "[[1], [2]]", ([], [])),
        (1500, 7, ([1500], [7])),
    ],
)
def test_lists_that_an_exporter_made_texts_of(read: Callable[..., Row], gaps: Any, counts: Any, expected: Any) -> None:
    """Read where they are clean; else as if they were not there."""
    attributes = {"promptpath.stage": "client", "promptpath.token.gaps_us": gaps, "promptpath.token.counts": counts}
    row = read("chat", CLIENT, attributes)
    assert (row["gaps_us"], row["counts"]) == expected


@pytest.mark.parametrize(
    ("attributes", "events"),
    [
        ({"gen_ai.response.time_to_first_chunk": 0.25}, ()),
        ({"gen_ai.server.time_to_first_token": 0.25}, ()),
        ({"gen_ai.response.time_to_first_token": 250_000_000}, ()),
        ({"langfuse.observation.completion_start_time": "2023-11-14T22:13:20.250Z"}, ()),
        ({"langfuse.observation.completion_start_time": '"2023-11-14T22:13:20.250Z"'}, ()),
        *[
            ({}, [(name, 250 * MS, {}), (name, 300 * MS, {})])
            for name in (
                "First Token Stream Event", "gen_ai.content.chunk", "first_token", "llm.first_token",
                "ai.stream.firstChunk",
            )
        ],
    ],
)  # fmt: skip
def test_spellings_of_a_first_token(read: Callable[..., Row], attributes: Row, events: Any) -> None:
    """langwatch/langwatch#3226: TTFT missing because it is spelt another way."""
    row = read("chat", CLIENT, attributes | {"gen_ai.operation.name": "chat"}, events=events)
    assert row["first_token_ns"] == 250 * MS


@pytest.mark.parametrize("value", ["soon", "", -1.5, "nan", "inf", 1e30])
def test_a_first_token_that_makes_no_sense_is_unknown(read: Callable[..., Row], value: Any) -> None:
    attributes = {"gen_ai.operation.name": "chat", "gen_ai.response.time_to_first_chunk": value}
    assert read("chat", CLIENT, attributes)["first_token_ns"] is None


def test_inference_paths_in_every_spelling(store: Any, put: Any, request_of: Any) -> None:
    spans = []
    for path in (one.replace("*", "llama") for one in INFERENCE_PATHS):
        for key in ("url.path", "http.target", "url.full", "http.url", "http.route"):
            value = f"/mounted{path}" if key in ("url.path", "http.route") else f"http://host:8000{path}?x=1"
            value = f"{path}?x=1" if key == "http.target" else value
            attributes = {key: value, "http.request.method": "POST"}
            spans.append((f"{key} {value}", SERVER, 0, MS, attributes, {"id": f"{len(spans) + 1:016x}"}))
    put(store, request_of(*spans))
    rows = read_spans(store, [TRACE]).to_pylist()
    assert len(rows) == 5 * len(INFERENCE_PATHS)
    assert {(row["stage"], row["inference"]) for row in rows} == {("inbound", True)}


@pytest.mark.parametrize(
    "attributes",
    [
        {"url.path": "/v1/models"},
        {"url.path": "/health"},
        {"url.path": "/v1/chat/completions/abc"},
        {"url.path": "/xv1/chat/completionsx"},
        {"url.path": "/v1/chat/completions", "http.request.method": "OPTIONS"},
        {"url.path": "/v1/chat/completions", "http.method": "GET"},
        {},
    ],
)
def test_other_requests_are_no_inference(read: Callable[..., Row], attributes: Row) -> None:
    row = read("GET", SERVER, attributes)
    assert (row["stage"], row["inference"]) == ("", False)


@pytest.mark.parametrize(
    ("operation", "inference", "agent"),
    [
        ("chat", True, False), ("text_completion", True, False), ("generate_content", True, False),
        ("embeddings", True, False), ("invoke_agent", False, True), ("create_agent", False, True),
        ("execute_tool", False, True), ("guardrail", False, False),
    ],
)  # fmt: skip
def test_operations(read: Callable[..., Row], operation: str, inference: bool, agent: bool) -> None:
    row = read("x", INTERNAL, {"gen_ai.operation.name": operation})
    assert (row["inference"], row["agent"], row["stage"]) == (inference, agent, "call" if inference else "")


def test_older_and_other_spellings_of_the_rest(read: Callable[..., Row]) -> None:
    row = read(
        "openai.chat",
        CLIENT,
        {
            "llm.request.type": "chat", "gen_ai.is_streaming": "true", "llm.model_name": "m",
            "llm.token_count.prompt": 5, "llm.token_count.completion": 6, "http.status_code": 429,
            "llm.token_count.prompt_details.cache_read": 3, "session.id": "s", "gen_ai.usage.cost": 0.5,
        },
        events=[("exception", 5, {"exception.type": "RateLimitError"})],
    )  # fmt: skip
    wanted = {
        "stage": "call", "inference": True, "streaming": True, "request_model": "m", "input_tokens": 5,
        "output_tokens": 6, "cached_tokens": 3, "http_status": 429, "failed": True, "error_type": "RateLimitError",
        "conversation_id": "s", "cost_usd": 0.5,
    }  # fmt: skip
    assert {name: row[name] for name in wanted} == wanted


@pytest.mark.parametrize(
    ("resource", "host", "process"),
    [
        ({"host.id": "a", "host.name": "b", "service.instance.id": "i"}, "a", "i"),
        ({"host.name": "b", "k8s.node.name": "c", "service.instance.id": "i"}, "b", "i"),
        ({"k8s.node.name": "c", "k8s.pod.name": "d"}, "c", "svc"),
        ({"k8s.pod.name": "d", "process.pid": 7}, "d", "svc 7"),
        ({"process.pid": 7}, "svc 7", "svc 7"),
        ({}, "svc", "svc"),
    ],
)
def test_what_a_host_is(read: Callable[..., Row], resource: Row, host: str, process: str) -> None:
    row = read("x", INTERNAL, {}, resource=resource)
    assert (row["host"], row["process"]) == (host, process)


def test_a_queue_time_below_zero_is_none(store: Any, put: Any, request_of: Any, stored: Any) -> None:
    """vllm-project/vllm#56238: a queue time of -48 s."""
    numbers = {
        "gen_ai.latency.time_in_queue": -48.0,
        "gen_ai.latency.time_in_model_prefill": 0.1,
        "gen_ai.latency.time_to_first_token": 0.25,
        "gen_ai.latency.time_in_model_decode": 0.5,
    }
    span = ("llm_request", SERVER, 0, 1000 * MS, numbers, {"id": ID})
    put(store, request_of(span, scope="vllm.tracing.otel"))
    assert assemble_traces(store, [TRACE]) == (1, 1)
    (row,) = stored()
    assert (row["ttft_queue_ns"], row["ttft_prefill_ns"], row["ttft_unattributed_ns"]) == (0, 100 * MS, 150 * MS)


def test_a_rule_of_ones_own(tmp_path: Path, read: Callable[..., Row]) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        """
        system = "mine"
        order = 5
        [[span]]
        name = "request"
        match = { service = "s*c", name = ["it's {name:String} \\\\ done", "other"], attribute = { "a'b" = true } }
        stage = "server"
        inference = true
        from_start = [
          { stage = "queue", duration = { attribute = "wait", unit = "ms" } },
          { stage = "prefill", duration = { attribute = "fill", unit = "us" } },
        ]
        [span.fields]
        finish_reason = [{ attribute = "why", values = { eos = "stop" } }]
        """
    )
    select = compile_select(load_rules([file]))
    name = r"it's {name:String} \ done"
    row = read(name, INTERNAL, {"a'b": "x", "wait": 2, "fill": 3.5, "why": "eos"}, select=select)
    assert (row["stage"], row["inference"], row["finish_reason"]) == ("server", True, "stop")
    parts = list(zip(row["part_stages"], row["part_starts_ns"], row["part_durations_ns"], strict=True))
    assert parts == [("queue", 0, 2 * MS), ("prefill", 2 * MS, 3500)]


def test_the_rules_that_come_along_compile_to_one_select() -> None:
    assert "{{" not in default_select().partition("WITH")[2]
    assert load_rules()[0].system == "promptpath"
    with pytest.raises(RuleError, match="cannot be read"):
        load_rules([Path("/nowhere.toml")])
