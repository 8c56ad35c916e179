"""Simulated spans sent to a collector: a real one, and ones that say no."""

from __future__ import annotations

import http.server
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from promptpath.collector.simulate import HttpSink, Scenario, SinkError, simulate

Answer = Callable[[int], tuple[int, dict[str, str]]]


@pytest.fixture
def collector() -> Iterator[Callable[[Answer], tuple[str, list[bytes]]]]:
    """A server that answers as it is told and keeps what it has accepted."""
    servers: list[http.server.ThreadingHTTPServer] = []

    def start(answer: Answer) -> tuple[str, list[bytes]]:
        taken: list[bytes] = []
        asked = 0

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                nonlocal asked
                asked += 1
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status, headers = answer(asked)
                if status == 200:
                    assert self.path == "/v1/traces"
                    taken.append(body)
                self.send_response(status)
                for name, value in {"Content-Length": "2", **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(b"no")

            def log_message(self, *_: object) -> None:
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}", taken

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def count(bodies: list[bytes]) -> int:
    return sum(
        len(scope.spans)
        for body in bodies
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans
        for scope in resource.scope_spans
    )


def test_a_busy_collector_is_sent_the_same_again(collector: Callable[[Answer], tuple[str, list[bytes]]]) -> None:
    url, taken = collector(lambda asked: (200, {}) if asked % 5 else (429, {"Retry-After": "0"}))
    result = simulate(Scenario(prompts=15, doubled=0.0), [HttpSink(url)])
    assert count(taken) == result.counts.spans
    assert len(taken) == len(set(taken)) == result.counts.requests


def test_a_connection_that_was_closed_is_opened_again(collector: Callable[[Answer], tuple[str, list[bytes]]]) -> None:
    url, taken = collector(lambda _: (200, {"Connection": "close"}))
    result = simulate(Scenario(prompts=5, doubled=0.0), [HttpSink(f"{url}/v1/traces")])
    assert count(taken) == result.counts.spans


def test_a_refusal_ends_it(collector: Callable[[Answer], tuple[str, list[bytes]]]) -> None:
    url, _ = collector(lambda _: (400, {}))
    with pytest.raises(SinkError, match="refuses the spans: 400 no"):
        simulate(Scenario(prompts=5), [HttpSink(url)])


def test_no_more_spans_a_second_than_asked_for(collector: Callable[[Answer], tuple[str, list[bytes]]]) -> None:
    url, taken = collector(lambda _: (200, {}))
    began = time.monotonic()
    simulate(Scenario(prompts=20), [HttpSink(url, rate=1000.0)])
    # All but the last request are paid for in time.
    assert time.monotonic() - began >= count(taken[:-1]) / 1000.0


def _free_ports(number: int) -> list[int]:
    held = [socket.socket() for _ in range(number)]
    for one in held:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


def _promptpath(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "promptpath.cli", *arguments]


def test_through_a_real_collector(tmp_path: Path) -> None:
    otlp, grpc, sql = _free_ports(3)
    storage = f"chdb://{tmp_path}/store"
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PROMPTPATH_")}
    options = ["--http-port", str(otlp), "--grpc-port", str(grpc), "--sql-port", str(sql), "--grace-s", "0.2"]
    collector = subprocess.Popen(
        _promptpath("collector", "--storage", storage, *options),
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=environment,
    )

    def run(*arguments: str) -> str:
        done = subprocess.run(
            _promptpath(*arguments), capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=120
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    try:
        assert collector.stdout is not None
        assert collector.stdout.readline().startswith("OTLP/HTTP")
        send = ["simulate", "--prompts", "60", "--seed", "3", "--endpoint", f"http://127.0.0.1:{otlp}"]
        figures = json.loads(run(*send, "--out", "truth", "--spans", "none", "--format", "json"))
        assert (figures["prompts"], figures["lost"]) == (60, 0)
        truth = {row["prompt_id"]: row for row in pq.read_table(tmp_path / "truth/truth.parquet").to_pylist()}
        query = "SELECT prompt_id, status, attempts, completeness FROM prompts"
        deadline = time.monotonic() + 60
        rows: dict[str, Any] = {}
        while time.monotonic() < deadline and (set(rows) != set(truth) or _differs(rows, truth)):
            lines = run("sql", "--storage", storage, "--format", "json", query).splitlines()
            rows = {row["prompt_id"]: row for row in map(json.loads, lines)}
        assert set(rows) == set(truth)
        assert _differs(rows, truth) == []
    finally:
        collector.terminate()
        collector.wait(30)


def _differs(rows: dict[str, Any], truth: dict[str, Any]) -> list[str]:
    return [
        prompt_id
        for prompt_id, row in rows.items()
        if (row["status"], row["attempts"]) != (truth[prompt_id]["status"], truth[prompt_id]["attempts"])
    ]
