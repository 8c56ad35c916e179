"""The exporters of the Python and JavaScript SDKs, as released, against a collector that asks for tokens."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter as GrpcLogExporter
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as GrpcMetricExporter
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcSpanExporter
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter as HttpLogExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as HttpMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpSpanExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from tests.integration.collector.running import RunningCollector, wait_for

from .conftest import TENANT, TOKEN
from .rows import rows

BEARER = f"Bearer {TOKEN}"


def over_http(collector: RunningCollector) -> tuple[Any, Any, Any]:
    base, headers = f"http://127.0.0.1:{collector.ports.http}/v1", {"Authorization": BEARER}
    return (
        HttpSpanExporter(f"{base}/traces", headers=headers, compression=Compression.Gzip),
        HttpMetricExporter(f"{base}/metrics", headers=headers, compression=Compression.Deflate),
        HttpLogExporter(f"{base}/logs", headers=headers),
    )


def over_grpc(collector: RunningCollector) -> tuple[Any, Any, Any]:
    shared: dict[str, Any] = {
        "endpoint": f"127.0.0.1:{collector.ports.grpc}",
        "insecure": True,
        "headers": (("authorization", BEARER),),
        "compression": grpc.Compression.Gzip,
    }
    return GrpcSpanExporter(**shared), GrpcMetricExporter(**shared), GrpcLogExporter(**shared)


@pytest.mark.parametrize("way", [over_http, over_grpc])
def test_python(collector: RunningCollector, way: Any) -> None:
    spans, metrics, logs = way(collector)
    name = f"python-{way.__name__}"
    resource = Resource.create({"service.name": name, "promptpath.tenant": "forged"})
    tracers = TracerProvider(resource=resource)
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    with (
        tracers.get_tracer("py").start_as_current_span("parent"),
        tracers.get_tracer("py").start_as_current_span("child"),
    ):
        pass
    tracers.shutdown()
    meters = MeterProvider([PeriodicExportingMetricReader(metrics)], resource=resource)
    meters.get_meter("py").create_counter("requests").add(3)
    meters.get_meter("py").create_histogram("seconds").record(0.5)
    meters.shutdown()
    loggers = LoggerProvider(resource=resource)
    loggers.add_log_record_processor(SimpleLogRecordProcessor(logs))
    loggers.get_logger("py").emit(LogRecord(body="hello", severity_number=SeverityNumber.INFO))
    loggers.shutdown()

    def stored(column: str, table: str) -> list[list[Any]]:
        return rows(collector, f"SELECT {column}, Tenant FROM {table} WHERE ServiceName = '{name}' ORDER BY 1")

    wait_for(lambda: len(stored("Body", "otel_logs")) == 1, "the log record")
    wait_for(lambda: len(stored("SpanName", "otel_traces")) == 2, "the spans")
    wait_for(lambda: len(stored("MetricName", "otel_metrics_histogram")) == 1, "the histogram")
    assert stored("SpanName", "otel_traces") == [["child", TENANT], ["parent", TENANT]]
    assert stored("MetricName", "otel_metrics_sum") == [["requests", TENANT]]
    assert stored("Body", "otel_logs") == [["hello", TENANT]]


def test_javascript(collector: RunningCollector, js: Path) -> None:
    urls = [f"http://127.0.0.1:{collector.ports.http}", f"http://127.0.0.1:{collector.ports.grpc}"]
    sent = subprocess.run(
        ["node", "send.js", *urls, TOKEN], cwd=js, capture_output=True, text=True, timeout=60, check=False
    )
    assert sent.returncode == 0, sent.stderr
    columns = (
        "ServiceName, SpanName, SpanKind, SpanAttributes['gen_ai.request.model'], SpanAttributes['n'], Events.Name, "
        "ParentSpanId != '', Tenant"
    )
    query = f"SELECT {columns} FROM otel_traces WHERE ScopeName = 'js' ORDER BY 1, 2"
    wait_for(lambda: len(rows(collector, query)) == 6, "the spans")
    assert rows(collector, query) == [
        row
        for name in ("js-grpc", "js-http", "js-proto")
        for row in (
            [name, "child", "Internal", "", "", [], 1, TENANT],
            [name, "parent", "Client", "m", "7", ["first"], 0, TENANT],
        )
    ]
    sums = "SELECT MetricName, Value, Attributes['k'], Tenant FROM otel_metrics_sum WHERE ServiceName = 'js-proto'"
    wait_for(lambda: rows(collector, sums) == [["requests", 3, "v", TENANT]], "the sum")
    records = "SELECT Body, SeverityNumber, Tenant FROM otel_logs WHERE ServiceName = 'js-proto'"
    wait_for(lambda: rows(collector, records) == [["hello", 9, TENANT]], "the log record")


def test_javascript_without_a_token_is_told_so(collector: RunningCollector, js: Path) -> None:
    urls = [f"http://127.0.0.1:{collector.ports.http}", f"http://127.0.0.1:{collector.ports.grpc}"]
    sent = subprocess.run(["node", "send.js", *urls], cwd=js, capture_output=True, text=True, timeout=60, check=False)
    assert sent.returncode == 1
    assert "401" in sent.stderr
    assert "UNAUTHENTICATED" in sent.stderr
