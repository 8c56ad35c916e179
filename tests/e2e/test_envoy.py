"""A real Envoy proxies a request; the spans of its own OTLP exporters arrive, over gRPC and over HTTP."""

from __future__ import annotations

import threading
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import envoy
from tests.integration.collector.running import RunningCollector, wait_for

from .conftest import TENANT, TOKEN
from .rows import rows

TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
_START_S = 60.0


class _Engine(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def engine() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Engine)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("way", ["grpc", "http"])
def test_a_proxied_request_makes_spans_that_arrive(
    collector: RunningCollector, tmp_path: Path, engine: int, way: str
) -> None:
    trace_id = TRACE_ID[:-1] + ("a" if way == "grpc" else "b")
    otlp = collector.ports.grpc if way == "grpc" else collector.ports.http
    with envoy.running(tmp_path, engine, envoy.Tracing(f"envoy-{way}", way, otlp, TOKEN)) as port:
        headers = {"traceparent": f"00-{trace_id}-00f067aa0ba902b7-01", "Content-Type": "application/json"}
        request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/chat/completions", b"{}", headers)
        with urllib.request.urlopen(request, timeout=20) as answer:
            assert answer.read() == b"{}"
        columns = "ServiceName, TraceId, ParentSpanId, SpanAttributes['http.status_code'], Tenant"
        query = f"SELECT {columns} FROM otel_traces WHERE ServiceName = 'envoy-{way}' AND SpanKind = 'Server'"
        wait_for(lambda: len(rows(collector, query)) == 1, "the span", _START_S)
        assert rows(collector, query) == [[f"envoy-{way}", trace_id, "00f067aa0ba902b7", "200", TENANT]]
