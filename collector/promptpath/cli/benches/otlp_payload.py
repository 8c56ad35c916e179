"""Export requests as a busy inference stack sends them: 512 spans, 12 attributes, 2 events and 600 bytes each."""

from __future__ import annotations

import random
from typing import Final

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

SPANS: Final = 512
_SPANS_PER_TRACE: Final = 20
_STAGES: Final = ("client", "prefill", "decode", "queue")


def requests(count: int, *, start_ns: int, seed: int = 0) -> list[bytes]:
    """`count` different requests, each of spans that start at `start_ns` and shortly after."""
    return [_request(random.Random(seed * 1_000_003 + i), start_ns + i * 50_000_000) for i in range(count)]


def _request(dice: random.Random, start_ns: int) -> bytes:
    request = ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    for key, value in (
        ("service.name", "engine"),
        ("host.id", f"host-{dice.randrange(8):02d}"),
        ("service.instance.id", f"engine-4e0f2c6a-{dice.randrange(8)}"),
        ("telemetry.sdk.name", "opentelemetry"),
    ):
        resource.resource.attributes.add(key=key).value.string_value = value
    scope = resource.scope_spans.add()
    scope.scope.name, scope.scope.version = "promptpath.openai", "0.1.0"
    trace_id = parent_id = b""
    for i in range(SPANS):
        if i % _SPANS_PER_TRACE == 0:
            trace_id, parent_id = dice.randbytes(16), b""
        at_ns = start_ns + i * 90_000
        span = scope.spans.add(
            trace_id=trace_id,
            span_id=dice.randbytes(8),
            parent_span_id=parent_id,
            name=f"{_STAGES[i % 4]} smollm2",
            kind=1 + i % 3,
            start_time_unix_nano=at_ns,
            end_time_unix_nano=at_ns + dice.randrange(100_000_000),
        )
        _attributes(span, dice, i)
        parent_id = span.span_id
    body: bytes = request.SerializeToString()
    return body


def _attributes(span: Span, dice: random.Random, i: int) -> None:
    for key, text in (
        ("promptpath.stage", _STAGES[i % 4]),
        ("gen_ai.operation.name", "chat"),
        ("gen_ai.request.model", "smollm2-135m"),
        ("gen_ai.response.model", "smollm2-135m-instruct"),
        ("gen_ai.response.id", f"chatcmpl-{dice.getrandbits(128):032x}"),
        ("server.address", f"10.1.2.{dice.randrange(256)}"),
        ("http.request.method", "POST"),
    ):
        span.attributes.add(key=key).value.string_value = text
    for key, number in (
        ("gen_ai.usage.input_tokens", dice.randrange(3000)),
        ("gen_ai.usage.output_tokens", dice.randrange(300)),
        ("server.port", 8000),
        ("http.response.status_code", 200),
    ):
        span.attributes.add(key=key).value.int_value = number
    span.attributes.add(key="gen_ai.request.temperature").value.double_value = 0.7
    for j in range(2):
        event = span.events.add(time_unix_nano=span.start_time_unix_nano + j, name="gen_ai.choice")
        event.attributes.add(key="index").value.int_value = j
