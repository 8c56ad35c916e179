"""Spans as an instrumented stack sends them: client, gateway, router and inference server, four processes on two hosts.

Every prompt is built from known durations, so a test knows what the dashboard has to show: `Sent` says what was sent.
The spans are OTLP requests for a real collector; nothing here writes to storage.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, Span, Status

from promptpath import semconv

MS: Final = 1_000_000
MODEL: Final = "smollm2-135m"
#: service -> host.id, host.name, scope of its request spans
PROCESSES: Final = {
    "demo-client": ("host-id-a", "edge-a", "promptpath.openai"),
    "demo-gateway": ("host-id-a", "edge-a", "promptpath.asgi"),
    "demo-router": ("host-id-a", "edge-a", "promptpath.asgi"),
    "demo-engine": ("host-id-b", "gpu-b", "promptpath.asgi"),
}
PATH: Final = "/v1/chat/completions"


@dataclass(frozen=True)
class Sent:
    """What was sent for one prompt. `ttft_ns` is None where the answer did not stream."""

    kind: str
    trace_id: str
    prompt_id: str
    ttft_ns: int | None
    gaps_us: tuple[int, ...]
    spans: int


@dataclass
class _Batch:
    """Spans of one prompt by service."""

    rng: random.Random
    trace_id: bytes
    parent: bytes = b""
    spans: dict[str, list[Span]] = field(default_factory=dict)

    def add(
        self,
        service: str,
        name: str,
        parent: bytes,
        start_ns: int,
        end_ns: int,
        *,
        stage: str,
        kind: int = Span.SPAN_KIND_INTERNAL,
        error: str = "",
        **attributes: Any,
    ) -> bytes:
        """One span; attributes are given by name with `__` for a dot. Returns its id."""
        span_id = self.rng.randbytes(8)
        said = {
            **({semconv.STAGE: stage} if stage else {}),
            **{key.replace("__", "."): value for key, value in attributes.items()},
        }
        if error:
            said[semconv.ERROR_TYPE] = error
        span = Span(
            trace_id=self.trace_id,
            span_id=span_id,
            parent_span_id=parent,
            name=name,
            kind=kind,  # type: ignore[arg-type]
            start_time_unix_nano=start_ns,
            end_time_unix_nano=end_ns,
            attributes=[KeyValue(key=key, value=_value(value)) for key, value in said.items()],
            status=Status(code=Status.STATUS_CODE_ERROR) if error else None,
        )
        self.spans.setdefault(service, []).append(span)
        return span_id


def _value(value: Any) -> AnyValue:
    match value:
        case bool():
            return AnyValue(bool_value=value)
        case int():
            return AnyValue(int_value=value)
        case float():
            return AnyValue(double_value=value)
        case list() | tuple():
            return AnyValue(array_value=ArrayValue(values=[_value(item) for item in value]))
        case _:
            return AnyValue(string_value=str(value))


KINDS: Final = ("plain", "plain", "queued", "stalled", "retried", "unstreamed", "aborted", "limited")


def prompts(count: int, *, seed: int, until_ns: int, every_ns: int = 900 * MS) -> Iterator[tuple[Sent, bytes]]:
    """So many prompts, the last one ended just before `until_ns`: what each is, and its OTLP request."""
    rng = random.Random(seed)
    for number in range(count):
        start_ns = until_ns - (count - number) * every_ns - 3_000 * MS
        yield prompt(rng, KINDS[number % len(KINDS)], start_ns, tenant=("red", "blue")[number % 2])


def agent_run(calls: int, *, seed: int, start_ns: int) -> tuple[list[Sent], bytes]:
    """An agent that asks the model several times, one after the other: one trace, several prompts."""
    rng = random.Random(seed)
    batch = _Batch(rng, rng.randbytes(16))
    every_ns = 1_500 * MS
    root = batch.add(
        "demo-client", "invoke_agent planner", b"", start_ns, start_ns + calls * every_ns, stage="",
        gen_ai__operation__name="invoke_agent", gen_ai__agent__name="planner",
    )  # fmt: skip
    out, bodies = [], _request(batch).SerializeToString()
    for number in range(calls):
        sent, body = prompt(rng, "plain", start_ns + number * every_ns, within=(batch.trace_id, root))
        out.append(sent)
        # Concatenated requests are one request.
        bodies += body
    return out, bodies


def prompt(
    rng: random.Random, kind: str, start_ns: int, *, tenant: str = "red", within: tuple[bytes, bytes] | None = None
) -> tuple[Sent, bytes]:
    """One prompt of a kind (one of `KINDS`) that began at `start_ns`, in a trace of its own or `within` (trace,
    parent)."""
    batch = _Batch(rng, rng.randbytes(16))
    if within:
        batch.trace_id, batch.parent = within
    deliveries = {"aborted": 5, "stalled": 40}.get(kind, rng.randint(12, 60))
    gaps_us = [int(rng.gammavariate(20, 12_000 / 20)) for _ in range(deliveries - 1)]
    if kind == "stalled":
        gaps_us[20] += 260_000
    if kind == "limited":
        return _limited(batch, start_ns, tenant)
    return _answered(batch, kind, start_ns, gaps_us, tenant)


def _answered(batch: _Batch, kind: str, start_ns: int, gaps_us: list[int], tenant: str) -> tuple[Sent, bytes]:
    rng = batch.rng

    def some(ms: float) -> int:
        # Whole microseconds: first deliveries are told in them.
        return max(20, int(rng.gammavariate(8, ms / 8) * 1000)) * 1000

    queue_ns = some(160) if kind == "queued" else some(9)
    streaming = kind != "unstreamed"
    answer_ns = sum(gaps_us) * 1000
    send, connect, gateway_in, router_in = some(0.6), some(0.5), some(0.8), some(0.5)
    auth, limit, policy = some(0.7), some(0.3), some(0.4)
    wire, back = some(0.3), some(0.2)
    retry = some(24) if kind == "retried" else 0
    parse, tokenize, prefill, detokenize, stream = some(0.9), some(1.4), some(60), some(0.2), some(0.15)

    # The way in: each hop begins after the one before it has done its part.
    t_call = start_ns + send
    t_gateway = t_call + connect + wire
    t_gateway_call = t_gateway + gateway_in + auth + limit + policy
    t_router = t_gateway_call + wire
    t_router_call = t_router + router_in + retry
    t_engine = t_router_call + wire
    t_tokenize = t_engine + parse
    t_queue = t_tokenize + tokenize
    t_prefill = t_queue + queue_ns
    t_token = t_prefill + prefill
    t_text = t_token + detokenize
    t_sent = t_text + stream
    # The first token's way back, and the end of each hop a little after its last token.
    seen = {"demo-engine": t_sent}
    for hop, before in (("router-call", "demo-engine"), ("demo-router", "router-call"), ("gateway-call", "demo-router"),
                        ("demo-gateway", "gateway-call"), ("call", "demo-gateway"),
                        ("demo-client", "call")):  # fmt: skip
        seen[hop] = seen[before] + back
    end = {hop: at + answer_ns + 60_000 for hop, at in seen.items()}

    def tokens(hop: str, began_ns: int) -> dict[str, Any]:
        return (
            {semconv.TOKEN_GAPS_US.replace(".", "__"): [(seen[hop] - began_ns) // 1000, *gaps_us]} if streaming else {}
        )

    abort = {"promptpath__abort": "client"} if kind == "aborted" else {}
    finish = {} if kind == "aborted" else {"gen_ai__response__finish_reasons": ["stop"]}
    usage = {"gen_ai__usage__input_tokens": 42, "gen_ai__usage__output_tokens": len(gaps_us) + 1}
    request = {"gen_ai__operation__name": "chat", "gen_ai__request__model": MODEL, "gen_ai__request__stream": streaming}
    answer = {**request, **usage, **finish, "gen_ai__response__model": MODEL}
    http = {"http__request__method": "POST", "url__path": PATH, "http__response__status_code": 200}
    client, server = Span.SPAN_KIND_CLIENT, Span.SPAN_KIND_SERVER

    root = batch.add(
        "demo-client", f"chat {MODEL}", batch.parent, start_ns, end["demo-client"], stage="client", kind=client,
        promptpath__tenant=tenant, **answer, **abort, **tokens("demo-client", start_ns),
    )  # fmt: skip
    call = batch.add(
        "demo-client", "POST", root, t_call, end["call"], stage="call", kind=client,
        server__address="127.0.0.1", **http, **tokens("call", t_call),
    )  # fmt: skip
    batch.add("demo-client", "tcp", call, t_call, t_call + connect, stage="tcp")
    gateway = batch.add(
        "demo-gateway", f"POST {PATH}", call, t_gateway, end["demo-gateway"], stage="gateway", kind=server,
        **request, **http, **abort, **tokens("demo-gateway", t_gateway),
    )  # fmt: skip
    at = t_gateway + gateway_in // 2
    for name, length in (("authenticate", auth), ("rate_limit", limit), ("prompt_policy", policy)):
        batch.add("demo-gateway", name, gateway, at, at + length, stage="gateway")
        at += length
    gateway_call = batch.add(
        "demo-gateway", "POST", gateway, t_gateway_call, end["gateway-call"], stage="call", kind=client,
        **http, **tokens("gateway-call", t_gateway_call),
    )  # fmt: skip
    router = batch.add(
        "demo-router", f"POST {PATH}", gateway_call, t_router, end["demo-router"], stage="router", kind=server,
        **request, **http, **tokens("demo-router", t_router),
    )  # fmt: skip
    if retry:
        batch.add(
            "demo-router", "POST", router, t_router + router_in, t_router + router_in + retry - some(0.2), stage="call",
            kind=client, error="503", promptpath__attempt=1, **{**http, "http__response__status_code": 503},
        )  # fmt: skip
    router_call = batch.add(
        "demo-router", "POST", router, t_router_call, end["router-call"], stage="call", kind=client,
        promptpath__attempt=2 if retry else 1, **http, **tokens("router-call", t_router_call),
    )  # fmt: skip
    engine = batch.add(
        "demo-engine", f"POST {PATH}", router_call, t_engine, end["demo-engine"], stage="server", kind=server,
        **answer, **http, **tokens("demo-engine", t_engine),
    )  # fmt: skip
    batch.add("demo-engine", "parse", engine, t_engine, t_tokenize, stage="parse")
    batch.add("demo-engine", "tokenize", engine, t_tokenize, t_queue, stage="tokenize")
    batch.add("demo-engine", "queue", engine, t_queue, t_prefill, stage="queue")
    batch.add("demo-engine", "prefill", engine, t_prefill, t_token, stage="prefill", promptpath__batch__size=4)
    batch.add("demo-engine", "decode", engine, t_token, t_token + answer_ns, stage="decode")
    batch.add("demo-engine", "detokenize", engine, t_token, t_text, stage="detokenize")
    if streaming:
        batch.add("demo-engine", "stream", engine, t_text, t_sent, stage="stream")
    ttft_ns = seen["demo-client"] - start_ns if streaming else None
    return _sent(batch, kind, root, ttft_ns, tuple(gaps_us) if streaming else ())


def _limited(batch: _Batch, start_ns: int, tenant: str) -> tuple[Sent, bytes]:
    """Refused by the gateway's rate limit."""
    end_ns = start_ns + 4 * MS
    http = {"http__request__method": "POST", "url__path": PATH, "http__response__status_code": 429}
    said = {"gen_ai__operation__name": "chat", "gen_ai__request__model": MODEL, "promptpath__tenant": tenant}
    root = batch.add(
        "demo-client", f"chat {MODEL}", batch.parent, start_ns, end_ns, stage="client", kind=Span.SPAN_KIND_CLIENT,
        error="429", http__response__status_code=429, **said,
    )  # fmt: skip
    call = batch.add(
        "demo-client", "POST", root, start_ns + MS // 2, end_ns - MS // 4, stage="call", kind=Span.SPAN_KIND_CLIENT,
        error="429", **http,
    )  # fmt: skip
    gateway = batch.add(
        "demo-gateway", f"POST {PATH}", call, start_ns + MS, end_ns - MS // 2, stage="gateway",
        kind=Span.SPAN_KIND_SERVER, **http,
    )  # fmt: skip
    batch.add("demo-gateway", "rate_limit", gateway, start_ns + MS, start_ns + 2 * MS, stage="gateway", error="429")
    return _sent(batch, "limited", root, None, ())


def _sent(batch: _Batch, kind: str, root: bytes, ttft_ns: int | None, gaps_us: tuple[int, ...]) -> tuple[Sent, bytes]:
    count = sum(len(spans) for spans in batch.spans.values())
    sent = Sent(kind, batch.trace_id.hex(), root.hex(), ttft_ns, gaps_us, count)
    return sent, _request(batch).SerializeToString()


def _request(batch: _Batch) -> ExportTraceServiceRequest:
    request = ExportTraceServiceRequest()
    for service, spans in batch.spans.items():
        request.resource_spans.append(_resource_spans(service, spans))
    return request


def _resource_spans(service: str, spans: list[Span]) -> ResourceSpans:
    host_id, host_name, scope = PROCESSES[service]
    out = ResourceSpans()
    resource: Mapping[str, Any] = {
        semconv.SERVICE_NAME: service,
        semconv.SERVICE_INSTANCE_ID: f"{service}-1",
        semconv.HOST_ID: host_id,
        semconv.HOST_NAME: host_name,
        semconv.PROCESS_PID: 1000 + list(PROCESSES).index(service),
    }
    out.resource.attributes.extend(KeyValue(key=key, value=_value(value)) for key, value in resource.items())
    scope_spans = out.scope_spans.add()
    scope_spans.scope.name = scope
    scope_spans.spans.extend(spans)
    return out
