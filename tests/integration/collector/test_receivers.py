"""OTLP over HTTP and gRPC, from real exporters and from raw bytes, as far as the rows in storage."""

from __future__ import annotations

import contextlib
import gzip
import json
import socket
import zlib
from typing import Any

import grpc
import pytest
from google.protobuf import json_format
from google.rpc import status_pb2
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter as GrpcLogExporter
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as GrpcMetricExporter
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcSpanExporter
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter as HttpLogExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as HttpMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpSpanExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind

from promptpath.collector.otlp import Signal
from promptpath.collector.otlp.encoding import zstd_module

from .conftest import MAX_BODY_BYTES
from .running import RunningCollector, make_spans, wait_for

EXPORTERS = {
    "http": lambda c: (
        HttpSpanExporter(f"http://127.0.0.1:{c.ports.http}/v1/traces"),
        HttpMetricExporter(f"http://127.0.0.1:{c.ports.http}/v1/metrics"),
        HttpLogExporter(f"http://127.0.0.1:{c.ports.http}/v1/logs"),
    ),
    "http-gzip": lambda c: (
        HttpSpanExporter(f"http://127.0.0.1:{c.ports.http}/v1/traces", compression=Compression.Gzip),
        HttpMetricExporter(f"http://127.0.0.1:{c.ports.http}/v1/metrics", compression=Compression.Gzip),
        HttpLogExporter(f"http://127.0.0.1:{c.ports.http}/v1/logs", compression=Compression.Deflate),
    ),
    "grpc": lambda c: (
        GrpcSpanExporter(f"127.0.0.1:{c.ports.grpc}", insecure=True),
        GrpcMetricExporter(f"127.0.0.1:{c.ports.grpc}", insecure=True),
        GrpcLogExporter(f"127.0.0.1:{c.ports.grpc}", insecure=True),
    ),
    "grpc-gzip": lambda c: (
        GrpcSpanExporter(f"127.0.0.1:{c.ports.grpc}", insecure=True, compression=grpc.Compression.Gzip),
        GrpcMetricExporter(f"127.0.0.1:{c.ports.grpc}", insecure=True, compression=grpc.Compression.Gzip),
        GrpcLogExporter(f"127.0.0.1:{c.ports.grpc}", insecure=True, compression=grpc.Compression.Gzip),
    ),
}


@pytest.mark.parametrize("way", EXPORTERS)
def test_what_the_sdk_exports_is_in_storage(collector: RunningCollector, way: str) -> None:
    span_exporter, metric_exporter, log_exporter = EXPORTERS[way](collector)
    resource = Resource.create({"service.name": way})

    traces = TracerProvider(resource=resource)
    traces.add_span_processor(BatchSpanProcessor(span_exporter))
    tracer = traces.get_tracer("scope", "1.2")
    with tracer.start_as_current_span(
        "parent", kind=SpanKind.CLIENT, attributes={"gen_ai.request.model": "m"}
    ) as parent:
        parent.add_event("first", {"n": 1}, timestamp=1_760_000_000_000_000_123)
        with tracer.start_as_current_span("child", attributes={"promptpath.token.gaps_us": [5, 7], "deep": "flat"}):
            pass
    traces.shutdown()

    meters = MeterProvider([PeriodicExportingMetricReader(metric_exporter)], resource=resource)
    meters.get_meter("scope").create_counter("requests", "{request}").add(3, {"k": "v"})
    meters.shutdown()

    logs = LoggerProvider(resource=resource)
    logs.add_log_record_processor(BatchLogRecordProcessor(log_exporter))
    logs.get_logger("scope").emit(
        LogRecord(body="hello", severity_number=SeverityNumber.WARN, timestamp=1_760_000_000_000_000_005)
    )
    logs.shutdown()

    def rows(columns: str, table: str) -> list[list[Any]]:
        found: list[list[Any]] = collector.sql(f"SELECT {columns} FROM {table} WHERE ServiceName = '{way}' ORDER BY 1")
        return found

    wait_for(lambda: len(rows("SpanName", "otel_traces")) == 2, "spans")
    wait_for(lambda: len(rows("MetricName", "otel_metrics_sum")) == 1, "points")
    wait_for(lambda: len(rows("Body", "otel_logs")) == 1, "records")
    context = parent.get_span_context()
    trace_id = format(context.trace_id, "032x")
    assert rows("SpanName, TraceId, ParentSpanId, SpanKind, ScopeName, ScopeVersion, TokenGapsUs", "otel_traces") == [
        ["child", trace_id, format(context.span_id, "016x"), "Internal", "scope", "1.2", [5, 7]],
        ["parent", trace_id, "", "Client", "scope", "1.2", []],
    ]
    assert rows(
        "SpanAttributes['gen_ai.request.model'], Events.Name, toUnixTimestamp64Nano(Events.Timestamp[1])", "otel_traces"
    )[1] == ["m", ["first"], 1_760_000_000_000_000_123]
    assert rows("MetricName, MetricUnit, Value, Attributes['k']", "otel_metrics_sum") == [
        ["requests", "{request}", 3, "v"]
    ]
    assert rows("Body, SeverityNumber, toUnixTimestamp64Nano(Timestamp)", "otel_logs") == [
        ["hello", 13, 1_760_000_000_000_000_005]
    ]


def test_json_and_protobuf_make_the_same_rows(collector: RunningCollector) -> None:
    request = make_spans(1, first=7001, name="twin")
    request.resource_spans[0].scope_spans[0].spans[0].attributes.add(key="a").value.int_value = -3
    tree = json_format.MessageToDict(request)
    span = tree["resourceSpans"][0]["scopeSpans"][0]["spans"][0]
    span["traceId"], span["spanId"] = format(7001, "032x"), format(7001, "016x")
    assert collector.post(request.SerializeToString()).status == 200
    answer = collector.post(json.dumps(tree).encode(), content_type="application/json; charset=utf-8")
    assert (answer.status, answer.headers["content-type"], json.loads(answer.body)) == (200, "application/json", {})
    columns = "* EXCEPT IngestedAt"
    wait_for(lambda: len(collector.sql("SELECT 1 FROM otel_traces WHERE SpanName = 'twin'")) == 2, "both")
    first, second = collector.sql(f"SELECT {columns} FROM otel_traces WHERE SpanName = 'twin'")
    assert first == second


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd", "identity"])
def test_compressed_bodies(collector: RunningCollector, encoding: str) -> None:
    zstd = zstd_module()
    assert zstd is not None
    compress = {"gzip": gzip.compress, "deflate": zlib.compress, "zstd": zstd.compress, "identity": bytes}[encoding]
    body = compress(make_spans(2, name=f"in {encoding}").SerializeToString())
    answer = collector.post(body, Content_Encoding=encoding)
    assert (answer.status, answer.body, answer.headers["content-type"]) == (200, b"", "application/x-protobuf")
    wait_for(
        lambda: collector.sql(f"SELECT count() FROM otel_traces WHERE SpanName = 'in {encoding}'") == [[2]], "rows"
    )


def refused(collector: RunningCollector, reason: str, protocol: str = "http") -> float:
    return collector.metric(f'refused_requests_total{{signal="traces",protocol="{protocol}",reason="{reason}"}}')


@pytest.mark.parametrize(
    ("body", "headers", "status", "reason", "message"),
    [
        (b"\x0a\xff", {}, 400, "malformed", "resource_spans[0]: truncated in the middle of a number (at byte 1 of 2)"),
        (b"\x0a\xff", {"Content_Encoding": "gzip"}, 400, "malformed", "the body is not valid gzip"),
        (
            gzip.compress(b"x" * 99, mtime=0)[:-5],
            {"Content_Encoding": "gzip"},
            400,
            "malformed",
            "it ends before the stream does",
        ),
        (b"", {"Content_Encoding": "br"}, 415, "unsupported", "content encoding 'br' is not read here"),
        (
            gzip.compress(bytes(65 << 20), mtime=0),
            {"Content_Encoding": "gzip"},
            413,
            "too_large",
            f"the limit is {MAX_BODY_BYTES}",
        ),
    ],
)
def test_bad_bodies_are_answered_with_the_fault_and_counted(
    collector: RunningCollector, body: bytes, headers: dict[str, str], status: int, reason: str, message: str
) -> None:
    before = refused(collector, reason)
    answer = collector.post(body, **headers)
    assert (answer.status, answer.headers["content-type"]) == (status, "application/x-protobuf")
    assert message in status_pb2.Status.FromString(answer.body).message
    assert refused(collector, reason) == before + 1
    assert "retry-after" not in answer.headers


def test_bad_json_is_answered_in_json(collector: RunningCollector) -> None:
    answer = collector.post(b'{"resourceSpans": [{"scopeSpans": 3}]}', content_type="application/json")
    assert (answer.status, answer.headers["content-type"]) == (400, "application/json")
    assert json.loads(answer.body) == {
        "code": 3,
        "message": "resourceSpans[0].scopeSpans: a list is expected, not a number",
    }


def test_another_content_type_is_415(collector: RunningCollector) -> None:
    answer = collector.post(b"", content_type="text/plain")
    assert answer.status == 415
    assert "'text/plain' is not read here" in json.loads(answer.body)["message"]


def test_other_methods_and_paths(collector: RunningCollector) -> None:
    assert collector.get("/v1/traces").status == 405
    assert collector.get("/v1/profiles").status == 404


def test_a_body_one_byte_over_the_limit_is_413_and_counted(collector: RunningCollector) -> None:
    """opentelemetry-collector-contrib#38739: it does not vanish."""
    before = refused(collector, "too_large")
    exact = make_spans(1, first=8001, padding=MAX_BODY_BYTES - 5000)
    # An unknown field fills it up to the byte: tag, two bytes of length, content.
    missing = MAX_BODY_BYTES - exact.ByteSize() - 4
    body = exact.SerializeToString() + b"\xfa\x3f" + bytes((missing & 0x7F | 0x80, missing >> 7)) + bytes(missing)
    assert len(body) == MAX_BODY_BYTES
    assert collector.post(body).status == 200
    answer = collector.post(body + b"\0")
    assert (answer.status, answer.headers["connection"]) == (413, "close")
    assert refused(collector, "too_large") == before + 1


def test_an_endless_body_is_cut_off(collector: RunningCollector) -> None:
    """A sender that never ends is not read for ever, and nothing of it is kept."""
    with socket.create_connection(("127.0.0.1", collector.ports.http), 20) as connection:
        connection.sendall(
            b"POST /v1/traces HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-protobuf\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        chunk = b"10000\r\n" + bytes(0x10000) + b"\r\n"
        sent = 0
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            while sent < 64 * MAX_BODY_BYTES:
                connection.sendall(chunk)
                sent += len(chunk)
    assert 4 * MAX_BODY_BYTES < sent < 64 * MAX_BODY_BYTES


def test_a_partial_success_says_how_many_and_why(collector: RunningCollector) -> None:
    request = make_spans(3, first=9001, name="partial")
    request.resource_spans[0].scope_spans[0].spans[1].span_id = b"\1"
    why = "1 invalid, the first: resource_spans[0].scope_spans[0].spans[1].span_id: 1 bytes, 8 expected"
    answer = collector.post(request.SerializeToString())
    response = Signal.TRACES.response.FromString(answer.body)
    assert (answer.status, response.partial_success.rejected_spans, response.partial_success.error_message) == (
        200,
        1,
        why,
    )
    assert collector.metric('rejected_items_total{signal="traces",protocol="http"}') == 1
    call = grpc.insecure_channel(f"127.0.0.1:{collector.ports.grpc}").unary_unary(Signal.TRACES.rpc_method)
    assert Signal.TRACES.response.FromString(call(request.SerializeToString())) == response
    wait_for(
        lambda: collector.sql("SELECT count() FROM otel_traces WHERE SpanName = 'partial'") == [[4]], "the good ones"
    )


def test_grpc_names_the_fault(collector: RunningCollector) -> None:
    before = refused(collector, "malformed", "grpc")
    channel = grpc.insecure_channel(f"127.0.0.1:{collector.ports.grpc}")
    with pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary(Signal.TRACES.rpc_method)(b"\x0a\xff")
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert caught.value.details() == "resource_spans[0]: truncated in the middle of a number (at byte 1 of 2)"
    assert refused(collector, "malformed", "grpc") == before + 1
    with pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary("/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export")(b"")
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_a_grpc_message_over_the_limit_is_refused_and_counted(collector: RunningCollector) -> None:
    before = refused(collector, "too_large", "grpc")
    channel = grpc.insecure_channel(f"127.0.0.1:{collector.ports.grpc}")
    # Many, since the library refuses a message sometimes before, sometimes after the receiver has asked for it.
    for _ in range(20):
        for compression in (grpc.Compression.NoCompression, grpc.Compression.Gzip):
            with pytest.raises(grpc.RpcError) as caught:
                channel.unary_unary(Signal.TRACES.rpc_method)(bytes(2 * MAX_BODY_BYTES), compression=compression)
            assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    wait_for(lambda: refused(collector, "too_large", "grpc") == before + 40, "all counted")


def test_a_grpc_call_without_a_message_is_refused(collector: RunningCollector) -> None:
    channel = grpc.insecure_channel(f"127.0.0.1:{collector.ports.grpc}")
    with pytest.raises(grpc.RpcError) as caught:
        channel.stream_unary(Signal.TRACES.rpc_method)(iter(()))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "no message" in caught.value.details()
    empty = channel.unary_unary(Signal.TRACES.rpc_method)(b"")
    assert Signal.TRACES.response.FromString(empty) == Signal.TRACES.response()


def test_health(collector: RunningCollector) -> None:
    assert collector.get("/healthz").body == b"ok\n"
    assert collector.get("/readyz").status == 200
    metrics = collector.get("/metrics")
    assert metrics.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert b"promptpath_collector_storage_up 1" in metrics.body
