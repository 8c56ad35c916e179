"""OTLP written by hand: read by others it is what was meant, in both forms alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from google.protobuf.json_format import MessageToDict
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from promptpath.collector.otlp import Signal
from promptpath.collector.otlp.json_format import to_protobuf
from promptpath.collector.simulate.clocks import Clock
from promptpath.collector.simulate.encode import Encoder, Json, Protobuf, varint
from promptpath.collector.simulate.spans import CLIENT, Span
from promptpath.collector.simulate.stack import Host, Node

NODE = Node(
    0, "app", Host("id", "name", Clock(0), False), (("service.name", "app"), ("pid", 7), ("g", ("a", "b"))), 1, 0
)


def request(encoder: Encoder, *, error: str = "", parent: bytes = b"", gaps: list[int] | None = None) -> bytes:
    span = Span(NODE, 0, "scope", 'say "hello"', CLIENT, bytes(range(16)), b"\xff" * 8, parent, 0)
    span.attributes += (
        ("text", 'quotes " and ünïcode'),
        ("yes", True),
        ("no", False),
        ("number", 3),
        ("big", 1 << 40),
        ("less", -5),
        ("float", 1.5),
        ("list", ("x", "y")),
        ("ints", (1, 300)),
    )
    span.error = error
    found = None if gaps is None else np.array(gaps, dtype=np.int64)
    made = [encoder.span(span, 1_700_000_000_123_456_789, 1_700_000_001_000_000_000, found, found)] * 2
    return encoder.request(NODE.resource, {"scope": made, "other": made[:1]})


@pytest.mark.parametrize("error", ["", "ReadTimeout"])
@pytest.mark.parametrize("parent", [b"", b"\x01" * 8])
@pytest.mark.parametrize("gaps", [None, [], [0, 127, 128, 70_000, 1 << 31]])
def test_json_says_what_protobuf_says(error: str, parent: bytes, gaps: list[int] | None) -> None:
    ours = ExportTraceServiceRequest.FromString(request(Protobuf(), error=error, parent=parent, gaps=gaps))
    theirs = ExportTraceServiceRequest.FromString(
        to_protobuf(Signal.TRACES, request(Json(), error=error, parent=parent, gaps=gaps))
    )
    assert MessageToDict(ours) == MessageToDict(theirs)


def test_protobuf_is_what_was_meant() -> None:
    message = ExportTraceServiceRequest.FromString(request(Protobuf(), error="e", parent=b"\x02" * 8, gaps=[5, 300]))
    (resource,) = message.resource_spans
    assert [pair.key for pair in resource.resource.attributes] == ["service.name", "pid", "g"]
    assert [(scope.scope.name, scope.scope.version, len(scope.spans)) for scope in resource.scope_spans] == [
        ("scope", "0.1.0", 2),
        ("other", "0.1.0", 1),
    ]
    span = resource.scope_spans[0].spans[0]
    assert (span.trace_id, span.span_id, span.parent_span_id) == (bytes(range(16)), b"\xff" * 8, b"\x02" * 8)
    assert (span.name, span.kind, span.status.code) == ('say "hello"', 3, 2)
    assert (span.start_time_unix_nano, span.end_time_unix_nano) == (
        1_700_000_000_123_456_789,
        1_700_000_001_000_000_000,
    )
    values: dict[str, Any] = {pair.key: pair.value for pair in span.attributes}
    assert values["text"].string_value == 'quotes " and ünïcode'
    assert (values["yes"].bool_value, values["no"].HasField("bool_value")) == (True, True)
    assert (values["big"].int_value, values["less"].int_value, values["float"].double_value) == (1 << 40, -5, 1.5)
    assert [one.string_value for one in values["list"].array_value.values] == ["x", "y"]
    for key in ("promptpath.token.gaps_us", "promptpath.token.counts"):
        assert [one.int_value for one in values[key].array_value.values] == [5, 300]
    assert values["error.type"].string_value == "e"


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_varint(value: int) -> None:
    encoded = varint(value)
    number = sum((byte & 0x7F) << (7 * place) for place, byte in enumerate(encoded))
    assert number == value % (1 << 64)
    assert len(encoded) <= 10
