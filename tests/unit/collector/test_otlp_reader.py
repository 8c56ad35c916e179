"""Protobuf requests: what passes untouched, what is refused, what is repaired."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from promptpath.collector.otlp import JSON, PROTOBUF, Malformed, Reader, Request, Signal, Unsupported, media_type
from promptpath.collector.otlp.nesting import may_nest
from promptpath.storage.nesting import to_json

from .otlp_messages import messages, requests

READER = Reader()
SLOW = settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


def make_trace(spans: int = 1) -> Any:
    request = Signal.TRACES.request()
    scope = request.resource_spans.add().scope_spans.add()
    for i in range(spans):
        span = scope.spans.add(trace_id=bytes([i + 1]) * 16, span_id=bytes([i + 1]) * 8, name=f"span {i}")
        span.start_time_unix_nano, span.end_time_unix_nano = 1_000, 2_000
    return request


def spans_of(request: Any) -> list[Any]:
    return [span for resource in request.resource_spans for scope in resource.scope_spans for span in scope.spans]


def test_a_good_request_passes_byte_for_byte() -> None:
    body = make_trace(3).SerializeToString()
    assert READER.read_protobuf(Signal.TRACES, body) == Request(Signal.TRACES, body, items=3)


def test_fields_of_a_newer_protocol_are_kept() -> None:
    body = make_trace().SerializeToString() + b"\xfa\x3f\x03new"
    assert READER.read_protobuf(Signal.TRACES, body).body == body


def test_an_empty_request_is_fine() -> None:
    for signal in Signal:
        assert READER.read_protobuf(signal, b"") == Request(signal, b"", items=0)


def test_items_are_counted_per_signal() -> None:
    metrics = Signal.METRICS.request()
    scope = metrics.resource_metrics.add().scope_metrics.add()
    scope.metrics.add(name="empty")
    for kind in ("gauge", "sum", "histogram", "exponential_histogram", "summary"):
        metric = scope.metrics.add(name=kind)
        getattr(metric, kind).data_points.add()
        getattr(metric, kind).data_points.add()
    logs = Signal.LOGS.request()
    logs.resource_logs.add().scope_logs.add().log_records.add().body.string_value = "x"
    assert READER.read_protobuf(Signal.METRICS, metrics.SerializeToString()).items == 10
    assert READER.read_protobuf(Signal.LOGS, logs.SerializeToString()).items == 1


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"trace_id": b"\1" * 15}, "trace_id: 15 bytes, 16 expected"),
        ({"trace_id": b""}, "trace_id: 0 bytes, 16 expected"),
        ({"trace_id": bytes(16)}, "trace_id: all zero"),
        ({"span_id": b"\1" * 9}, "span_id: 9 bytes, 8 expected"),
        ({"span_id": bytes(8)}, "span_id: all zero"),
        ({"parent_span_id": b"\1"}, "parent_span_id: 1 bytes, 8 expected"),
        ({"end_time_unix_nano": (1 << 64) - 1}, "end_time_unix_nano: 18446744073709551615 is after the year 2262"),
        ({"start_time_unix_nano": 1 << 63}, "start_time_unix_nano: 9223372036854775808 is after the year 2262"),
    ],
)
def test_two_good_spans_and_a_bad_one(change: dict[str, Any], why: str) -> None:
    """opentelemetry.io#11277: what is not taken is counted and said, and the rest is taken."""
    request = make_trace(3)
    bad = request.resource_spans[0].scope_spans[0].spans[1]
    for name, value in change.items():
        setattr(bad, name, value)
    read = READER.read_protobuf(Signal.TRACES, request.SerializeToString())
    assert (read.items, read.rejected) == (2, 1)
    assert read.message == f"resource_spans[0].scope_spans[0].spans[1].{why}"
    del request.resource_spans[0].scope_spans[0].spans[1]
    assert Signal.TRACES.request.FromString(read.body) == request


def test_a_log_record_needs_no_trace_but_no_half_of_one() -> None:
    request = Signal.LOGS.request()
    records = request.resource_logs.add().scope_logs.add().log_records
    records.add(severity_text="free")
    records.add(trace_id=b"\1" * 16, span_id=b"\1" * 8)
    records.add(trace_id=b"\1" * 4)
    read = READER.read_protobuf(Signal.LOGS, request.SerializeToString())
    assert (read.items, read.rejected) == (2, 1)
    assert read.message == "resource_logs[0].scope_logs[0].log_records[2].trace_id: 4 bytes, 16 expected"


def test_a_zero_parent_is_a_root_as_some_senders_write_it() -> None:
    request = make_trace()
    request.resource_spans[0].scope_spans[0].spans[0].parent_span_id = bytes(8)
    assert READER.read_protobuf(Signal.TRACES, request.SerializeToString()).rejected == 0


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"\x0a\xff", "resource_spans[0]: truncated in the middle of a number (at byte 1 of 2)"),
        (b"\x0a\x05\x12", "resource_spans[0]: truncated: 5 bytes expected, 1 left (at byte 2 of 3)"),
        (b"\x0a\x02\x12\x05", "resource_spans[0].scope_spans[0]: truncated: 5 bytes expected, 0 left (at byte 4 of 4)"),
        (
            b"\x0a\x00\x0a\x04\x1a\x02\xff\xff",
            "resource_spans[1].schema_url: a string that is not UTF-8 (at byte 6 of 8)",
        ),
        (b"\x0f", "field 1: wire type 7 does not exist (at byte 1 of 1)"),
        (b"\x00", "ExportTraceServiceRequest: field number 0 (at byte 0 of 1)"),
        (b"\xff" * 11, "ExportTraceServiceRequest: a number longer than 10 bytes (at byte 0 of 11)"),
        (b"{}", "field 15: a group, which this protocol does not have (at byte 1 of 2)"),
    ],
)
def test_broken_protobuf_is_named_with_its_place(body: bytes, message: str) -> None:
    with pytest.raises(Malformed) as caught:
        READER.read_protobuf(Signal.TRACES, body)
    assert str(caught.value).replace("resource_spans[0]: wire", "field 1: wire") == message


@SLOW
@given(request=requests(Signal.TRACES), data=st.data())
def test_a_truncated_body_is_refused_with_a_place_or_is_whole(request: Any, data: st.DataObject) -> None:
    body = request.SerializeToString()
    cut = data.draw(st.integers(0, len(body)))
    try:
        Signal.TRACES.request.FromString(body[:cut])
    except DecodeError:
        with pytest.raises(Malformed, match=rf"of {cut}\)"):
            READER.read_protobuf(Signal.TRACES, body[:cut])
    else:
        read = READER.read_protobuf(Signal.TRACES, body[:cut])
        assert read.items + read.rejected == len(spans_of(Signal.TRACES.request.FromString(body[:cut])))


@SLOW
@given(body=st.binary(max_size=60))
def test_noise_is_refused_or_read_and_never_anything_else(body: bytes) -> None:
    for signal in Signal:
        with contextlib.suppress(Malformed):
            READER.read_protobuf(signal, body)


# --- nesting ----------------------------------------------------------------------------------------------------------


def _container_depth(value: Any) -> int:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return 1 + max((_container_depth(item) for item in value.array_value.values), default=0)
    if kind == "kvlist_value":
        return 1 + max((_container_depth(pair.value) for pair in value.kvlist_value.values), default=0)
    return 0


def _values(request: Any) -> list[Any]:
    found: list[Any] = []

    def walk(message: Any) -> None:
        for field, value in message.ListFields():
            if field.message_type is None:
                continue
            for item in value if field.is_repeated else [value]:
                if field.message_type.name == "AnyValue":
                    found.append(item)
                else:
                    walk(item)

    walk(request)
    return found


@pytest.mark.parametrize("signal", list(Signal))
@SLOW
@given(data=st.data())
def test_deep_values_become_json_text_and_all_else_stays(signal: Signal, data: st.DataObject) -> None:
    request = data.draw(requests(signal))
    read = signal.request.FromString(READER.read_protobuf(signal, request.SerializeToString()).body)
    before, after = _values(request), _values(read)
    assert len(before) == len(after)
    for old, new in zip(before, after, strict=True):
        if _container_depth(old) <= 1:
            assert new == old
        else:
            assert json.loads(new.string_value) == to_json(old)
            old.CopyFrom(new)
    assert read == request


@SLOW
@given(data=st.data())
def test_the_look_at_the_bytes_misses_nothing(data: st.DataObject) -> None:
    from opentelemetry.proto.common.v1.common_pb2 import AnyValue

    value = data.draw(messages(AnyValue, nesting=4))
    request = make_trace()
    request.resource_spans[0].scope_spans[0].spans[0].attributes.add(key="a").value.CopyFrom(value)
    logs = Signal.LOGS.request()
    logs.resource_logs.add().scope_logs.add().log_records.add().body.CopyFrom(value)
    if _container_depth(value) > 1:
        assert may_nest(request.SerializeToString())
        assert may_nest(logs.SerializeToString())


@pytest.mark.parametrize("outer", ["array_value", "kvlist_value"])
@pytest.mark.parametrize("inner", ["array_value", "kvlist_value"])
@pytest.mark.parametrize("empty", [True, False])
def test_the_look_at_the_bytes_finds_every_pair_of_containers(outer: str, inner: str, empty: bool) -> None:
    trace = make_trace()
    logs = Signal.LOGS.request()
    for value in (
        trace.resource_spans[0].scope_spans[0].spans[0].attributes.add(key="a").value,
        logs.resource_logs.add().scope_logs.add().log_records.add().body,
    ):
        held = getattr(value, outer).values.add()
        held = held.value if outer == "kvlist_value" else held
        getattr(held, inner).SetInParent()
        if not empty:
            getattr(held, inner).values.add()
    assert may_nest(trace.SerializeToString())
    assert may_nest(logs.SerializeToString())


def test_a_deep_value_in_a_large_body_is_found() -> None:
    """Large bodies take the quick look first; long lengths take several bytes on the wire."""
    request = make_trace(100)
    for span in spans_of(request):
        span.attributes.add(key="text").value.string_value = "2*" * 100
        gaps = span.attributes.add(key="promptpath.token.gaps_us").value.array_value
        for gap in range(200):
            gaps.values.add().int_value = gap
    body = request.SerializeToString()
    assert not may_nest(body)
    assert READER.read_protobuf(Signal.TRACES, body).body == body
    deep = spans_of(request)[50].attributes.add(key="deep").value.array_value.values.add().kvlist_value
    for i in range(500):
        deep.values.add(key=f"k{i}").value.int_value = i
    read = READER.read_protobuf(Signal.TRACES, request.SerializeToString())
    text = spans_of(Signal.TRACES.request.FromString(read.body))[50].attributes[2].value.string_value
    assert json.loads(text) == [{f"k{i}": i for i in range(500)}]


# --- content types ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "media"),
    [
        ("application/x-protobuf", PROTOBUF),
        ("Application/JSON; charset=utf-8", JSON),
        (" application/json ;x=y", JSON),
    ],
)
def test_content_types(header: str, media: str) -> None:
    assert media_type(header) == media


@pytest.mark.parametrize("header", ["", "text/plain", "application/grpc", "application/x-protobuf2"])
def test_other_content_types_are_unsupported(header: str) -> None:
    with pytest.raises(Unsupported, match="send application/x-protobuf or application/json"):
        media_type(header)
