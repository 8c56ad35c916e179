"""A real OTLP/HTTP receiver on a free port, and programs run in real processes against it."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Receiver:
    """Keeps the spans that it is sent."""

    def __init__(self) -> None:
        self._spans: list[dict[str, Any]] = []
        self.metrics: set[str] = set()
        self._arrived = threading.Condition()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.path == "/v1/metrics":
                    outer._take_metrics(ExportMetricsServiceRequest.FromString(body))
                else:
                    outer._take(ExportTraceServiceRequest.FromString(body))
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def _take(self, request: ExportTraceServiceRequest) -> None:
        with self._arrived:
            for resource_spans in request.resource_spans:
                resource = {
                    pair.key: pair.value.string_value or pair.value.int_value
                    for pair in resource_spans.resource.attributes
                }
                for scope_spans in resource_spans.scope_spans:
                    self._spans += [
                        {
                            "name": span.name,
                            "id": span.span_id.hex(),
                            "trace": span.trace_id.hex(),
                            "parent": span.parent_span_id.hex(),
                            "scope": scope_spans.scope.name,
                            "resource": resource,
                        }
                        for span in scope_spans.spans
                    ]
            self._arrived.notify_all()

    def _take_metrics(self, request: ExportMetricsServiceRequest) -> None:
        with self._arrived:
            self.metrics |= {
                metric.name
                for resource_metrics in request.resource_metrics
                for scope_metrics in resource_metrics.scope_metrics
                for metric in scope_metrics.metrics
            }

    def spans(self) -> list[dict[str, Any]]:
        """What has arrived, sorted by name."""
        with self._arrived:
            return sorted(self._spans, key=lambda span: str(span["name"]))

    def names(self) -> list[str]:
        return [span["name"] for span in self.spans()]

    def wait_for(self, *names: str, timeout_s: float = 15) -> None:
        """Wait until spans of these names have arrived."""
        deadline = time.monotonic() + timeout_s
        with self._arrived:
            while not set(names) <= {span["name"] for span in self._spans}:
                left_s = deadline - time.monotonic()
                assert left_s > 0, f"only {self._spans}"
                self._arrived.wait(left_s)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.close()


class Programs:
    """Writes programs and runs them, with a clean environment that points at the receiver."""

    def __init__(self, folder: Path, endpoint: str) -> None:
        self.folder = folder
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "PROMPTPATH_"))},
            "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
            "PYTHONPATH": str(folder),
        }
        self.running: list[subprocess.Popen[str]] = []

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        return path

    def start(self, *command: str, **variables: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            command,
            env={**self.environment, **variables},
            cwd=self.folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.running.append(process)
        return process

    def run(self, *command: str, **variables: str) -> tuple[int, str, str]:
        """Exit code, stdout, stderr."""
        process = self.start(*command, **variables)
        out, err = process.communicate(timeout=60)
        return process.returncode, out, err

    def python(self, text: str, **variables: str) -> tuple[int, str, str]:
        """Run a program written here."""
        return self.run(sys.executable, str(self.write("program.py", text)), **variables)

    def close(self) -> None:
        for process in self.running:
            if process.poll() is None:
                process.kill()
            process.communicate()


@pytest.fixture
def programs(tmp_path: Path, receiver: Receiver) -> Iterator[Programs]:
    made = Programs(tmp_path, receiver.url)
    yield made
    made.close()


@pytest.fixture
def lonely(tmp_path: Path, unused_port: Callable[[], int]) -> Iterator[Programs]:
    """Programs whose collector is not there."""
    made = Programs(tmp_path, f"http://127.0.0.1:{unused_port()}")
    yield made
    made.close()


@pytest.fixture
def unused_port() -> Callable[[], int]:
    """A port on which nobody listens."""
    import socket

    def find() -> int:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            return int(listener.getsockname()[1])

    return find
