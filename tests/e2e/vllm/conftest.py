"""A real vLLM with a tiny model, a real collector, and a client that writes down what it saw."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from promptpath.semconv import Part
from tests.e2e.vllm import environment
from tests.integration.collector.running import RunningCollector

MS = 1_000_000
_START_S = 180.0
_ROUNDED_NS = 2_000
_LOAD = Path(__file__).with_name("load.py")


def clean_environment(home: Path) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PROMPTPATH_", "OTEL_", "VLLM_"))}
    return kept | {"HOME": str(home)}


def job(index: int, **details: Any) -> dict[str, Any]:
    """A prompt to send; lengths differ from one to the next."""
    return {"text": f"{index} " + "what does a router do " * (5 + index % 20), "max_tokens": 24 + index % 17} | details


def only(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The one row there is."""
    assert len(rows) == 1, rows
    return rows[0]


def parts_add_up(row: dict[str, Any]) -> bool:
    return sum(int(row[f"ttft_{part}_ns"]) for part in Part) == int(row["ttft_ns"])


def spans_of(row: dict[str, Any], stage: str) -> int:
    """How many spans of a stage a prompt has; one may be drawn in several segments."""
    pairs = zip(row["segments.stage"], row["segments.span_id"], strict=True)
    return len({span for kind, span in pairs if kind == stage})


def duration_of(row: dict[str, Any], stage: str) -> int:
    """How long the spans of a stage took together, nanoseconds; their segments are pieces of them."""
    pairs = zip(row["segments.stage"], row["segments.duration_ns"], strict=True)
    return sum(int(duration_ns) for kind, duration_ns in pairs if kind == stage)


def gaps_off(row: dict[str, Any], one: dict[str, Any]) -> tuple[int, int]:
    """Gaps of a row that are 1 ms or more from what the client saw, and how many were judged.

    Not judged are those beside a token at which the processor was taken from the client: it may have come between our
    reading of the clock and the client's.
    """
    at_ns = np.array(one["at_ns"])
    quiet = np.diff(np.array(one["switches"]), prepend=one["switches"][0]) == 0
    judged = quiet[1:] & quiet[:-1]
    gaps_ns = np.array(row["gaps_us"], np.int64) * 1000
    off = np.abs(gaps_ns - np.diff(at_ns))[judged] >= MS
    return int(off.sum()), int(judged.sum())


def follows(row: dict[str, Any], one: dict[str, Any]) -> bool:
    """Whether TTFT and gaps lie within what the client's own readings leave room for.

    The client notes when the bytes of a token came and when the program had the token; what we say must lie between
    them, however long the two are apart. No delay of a busy machine can make that untrue.
    """
    had_ns, came_ns = np.array(one["at_ns"]), np.array(one["came_ns"])
    # Token times are stored in whole microseconds.
    ttft_ns, gaps_ns = int(row["ttft_ns"]), np.array(row["gaps_us"], np.int64) * 1000
    first = came_ns[0] - one["sent_ns"] - _ROUNDED_NS <= ttft_ns <= had_ns[0] + _ROUNDED_NS
    after = gaps_ns >= came_ns[1:] - had_ns[:-1] - _ROUNDED_NS
    before = gaps_ns <= had_ns[1:] - came_ns[:-1] + _ROUNDED_NS
    return bool(first and after.all() and before.all())


@dataclass
class Stack:
    """A running vLLM and a collector. front: what prompts are sent to, where that is not vLLM itself."""

    url: str
    collector: RunningCollector
    home: Path
    front: str | None = None

    def send(self, plan: list[dict[str, Any]], at_once: int) -> list[dict[str, Any]]:
        """Sends prompts; what the client saw of each, in the plan's order."""
        done = subprocess.run(
            [sys.executable, str(_LOAD), self.front or self.url, str(at_once)],
            input=json.dumps(plan),
            env=clean_environment(self.home)
            | {
                "OTEL_SERVICE_NAME": "client",
                "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{self.collector.ports.http}",
            },
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    def rows(self, seen: list[dict[str, Any]], complete: str) -> dict[str, list[dict[str, Any]]]:
        """The rows of prompts by trace, once all are there, `complete` holds for each, and none changes any more."""
        traces = {one["trace_id"] for one in seen}
        deadline = time.monotonic() + 60
        before: list[dict[str, Any]] = []
        while True:
            rows = [
                row
                for row in self.query(f"SELECT *, {complete} AS complete FROM prompts ORDER BY prompt_id")
                if row["trace_id"] in traces
            ]
            whole = {row["trace_id"] for row in rows if row["complete"]}
            if (whole == traces and rows == before) or time.monotonic() > deadline:
                break
            before = rows
            time.sleep(1)
        found: dict[str, list[dict[str, Any]]] = {trace: [] for trace in traces}
        for row in rows:
            found[row["trace_id"]].append(row)
        return found

    def query(self, sql: str) -> list[dict[str, Any]]:
        """Rows of a query, as JSON gives them."""
        url = f"http://127.0.0.1:{self.collector.ports.sql}/?default_format=JSONEachRow&output_format_json_quote_64bit_integers=0"
        with urllib.request.urlopen(urllib.request.Request(url, sql.encode()), timeout=60) as answer:
            return [json.loads(line) for line in answer.read().splitlines()]

    def metric(self, name: str) -> float:
        """A counter of vLLM's own, summed over its labels."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith((f"{name} ", f"{name}{{")))


@contextmanager
def serving(made: environment.Environment, home: Path, *options: str, native_tracing: bool) -> Iterator[Stack]:
    with RunningCollector(home / "store", assemble=True) as collector:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        argv = [str(made.bin / "vllm"), "serve", str(made.model), "--served-model-name", "tiny", "--enforce-eager"]
        argv += ["--host", "127.0.0.1", "--port", str(port), *options]
        variables = {
            "HF_HUB_OFFLINE": "1",
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "OTEL_SERVICE_NAME": "vllm",
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.ports.http}",
        }
        if native_tracing:
            argv += ["--otlp-traces-endpoint", f"http://127.0.0.1:{collector.ports.grpc}"]
        log = home / "vllm.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                argv,
                env=clean_environment(home) | variables,
                cwd=home,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            url = f"http://127.0.0.1:{port}"
            wait_until_healthy(f"{url}/health", process, log)
            yield Stack(url, collector, home)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def wait_until_healthy(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Waits until a server answers at a URL; fails with its log if it does not come up."""
    deadline = time.monotonic() + _START_S
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, OSError):
            assert process.poll() is None, log.read_text()[-4000:]
            assert time.monotonic() < deadline, log.read_text()[-4000:]
            time.sleep(0.2)
