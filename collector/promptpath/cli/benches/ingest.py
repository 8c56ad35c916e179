"""What a span costs from a socket to a row, and how long a sender waits, beside two other ways to the same table."""

from __future__ import annotations

import contextlib
import importlib.util
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Final

from promptpath.cli.benches import Figures
from promptpath.cli.benches.machine import machine
from promptpath.cli.benches.otlp_payload import SPANS, requests
from promptpath.cli.benches.programs import Running, cpu_s, process, running
from promptpath.cli.benches.senders import Send, load, over_grpc, over_http

_SPANS_PER_PROMPT: Final = 20
_DIFFERENT: Final = 128
_WARM_UP: Final = 40
_THREADS: Final = 4
_HALF_LOAD_S: Final = 20.0
#: The slower ways are measured with a part of the spans.
_BASELINE_SHARE: Final = 0.25
_STORED_S: Final = 300.0
_POLL_S: Final = 0.25
_ENGINE_SERVER: Final = Path(__file__).parents[4] / "tests" / "engine_server.py"


def measure(prompts: int) -> Figures:
    """Sends `prompts` times 20 spans, and measures CPU of whole processes, all threads, background merges included.

    us_per_span: of the collector, OTLP/HTTP in, journal, embedded database, until a query sees them; `_grpc` the same
    over gRPC. ack_*: from when a request was due to its answer, at half the rate that storage keeps up with.
    baseline: protobuf, Python columns, insert, without receiving. rotel: that collector in front of the same engine
    behind ClickHouse's HTTP interface, with the database's work; null where either is missing.
    """
    count = max(prompts * _SPANS_PER_PROMPT // SPANS, 4 * _DIFFERENT)
    bodies = requests(_DIFFERENT, start_ns=time.time_ns())
    small = max(int(count * _BASELINE_SHARE), _DIFFERENT)
    figures: dict[str, float] = {
        "spans": count * SPANS,
        "bytes_per_span_sent": round(sum(map(len, bodies)) / len(bodies) / SPANS),
    }
    with running() as ours:
        figures |= _ours(ours, bodies, count)
    figures["baseline_us_per_span"] = _baseline(bodies, small)
    rotel = _rotel(bodies, small)
    if rotel is not None:
        figures["rotel_us_per_span"] = rotel
    mine = figures["us_per_span"]
    return Figures(
        "ingest",
        machine(),
        figures,
        {
            "baseline_cpu": round(figures["baseline_us_per_span"] / mine, 2),
            "rotel_cpu": round(rotel / mine, 2) if rotel is not None else None,
        },
    )


def _ours(ours: Running, bodies: list[bytes], count: int) -> dict[str, float]:
    def send(make: Callable[[], Send], requests_: int) -> tuple[float, float, float]:
        """CPU µs a span, spans a second, and how long storage took for all of it [s]."""
        cpu, stored, began = ours.cpu_s(), ours.stored(), time.perf_counter()
        load(make, bodies, requests_, threads=_THREADS)
        spans = requests_ * SPANS
        _until(lambda: ours.stored() >= stored + spans)
        wall = time.perf_counter() - began
        return (ours.cpu_s() - cpu) / spans * 1e6, spans / wall, wall

    def http() -> Send:
        return over_http(ours.ports["http"])

    def grpc() -> Send:
        return over_grpc(ours.ports["grpc"])

    send(http, _WARM_UP)
    us, per_s, _ = send(http, count)
    us_grpc, _, _ = send(grpc, count)
    half = per_s / SPANS / 2
    paced = load(http, bodies, int(half * _HALF_LOAD_S), threads=4 * _THREADS, per_s=half)
    paced_grpc = load(grpc, bodies, int(half * _HALF_LOAD_S), threads=4 * _THREADS, per_s=half)
    url = f"http://127.0.0.1:{ours.ports['sql']}/"
    _until(lambda: ours.metric("journal_segments") == 0)
    with urllib.request.urlopen(url, data=b"SELECT count() FROM otel_traces", timeout=60) as answer:
        found = int(answer.read())
    expected = (_WARM_UP + 2 * count + len(paced.latencies_s) + len(paced_grpc.latencies_s)) * SPANS
    if found != expected:
        raise RuntimeError(f"{expected} spans were acknowledged, a query sees {found}")
    return {
        "us_per_span": round(us, 2),
        "us_per_span_grpc": round(us_grpc, 2),
        "spans_per_s": round(per_s),
        "half_load_spans_per_s": round(half * SPANS),
        "ack_p50_ms": _quantile_ms(paced.latencies_s, 0.5),
        "ack_p99_ms": _quantile_ms(paced.latencies_s, 0.99),
        "ack_p50_ms_grpc": _quantile_ms(paced_grpc.latencies_s, 0.5),
        "ack_p99_ms_grpc": _quantile_ms(paced_grpc.latencies_s, 0.99),
    }


def _baseline(bodies: list[bytes], count: int) -> float:
    framed = [len(body).to_bytes(4, "big") + body for body in bodies]
    with tempfile.TemporaryDirectory(prefix="promptpath-bench-") as folder:
        command = [sys.executable, "-m", "promptpath.cli.benches.ingest_baseline", f"chdb://{folder}"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as popen:
            assert popen.stdin is not None
            assert popen.stdout is not None
            for i in range(count):
                popen.stdin.write(framed[i % len(framed)])
            popen.stdin.close()
            cpu_s = float(popen.stdout.read())
    return round(cpu_s / (count * SPANS) * 1e6, 2)


def _rotel(bodies: list[bytes], count: int) -> float | None:
    spec = importlib.util.find_spec("rotel")
    if spec is None or spec.origin is None or not _ENGINE_SERVER.is_file():
        return None
    from promptpath.storage import connect, migrate

    with tempfile.TemporaryDirectory(prefix="promptpath-bench-") as folder, contextlib.ExitStack() as stack:
        engine = stack.enter_context(process([sys.executable, str(_ENGINE_SERVER), f"{folder}/engine"], cwd=folder))
        assert engine.stdout is not None
        port = int(engine.stdout.readline())
        client = connect(f"clickhouse://127.0.0.1:{port}/otel")
        stack.callback(client.close)
        migrate(client)
        http_port, grpc_port = _free_port(), _free_port()
        agent = stack.enter_context(
            process(
                [
                    *(str(Path(spec.origin).parent / "rotel-agent"), "start", "--exporter", "clickhouse"),
                    *(
                        "--otlp-http-endpoint",
                        f"127.0.0.1:{http_port}",
                        "--otlp-grpc-endpoint",
                        f"127.0.0.1:{grpc_port}",
                    ),
                    *("--clickhouse-exporter-endpoint", f"http://127.0.0.1:{port}"),
                    *("--clickhouse-exporter-compression", "none", "--clickhouse-exporter-async-insert", "false"),
                    *("--batch-max-size", "40000"),
                ]
            )
        )
        _until(lambda: _listens(http_port))

        def stored() -> int:
            return int(str(client.command("SELECT count() FROM otel_traces")))

        def send(requests_: int) -> float:
            cpu, before = cpu_s(engine) + cpu_s(agent), stored()
            load(lambda: over_http(http_port), bodies, requests_, threads=_THREADS)
            _until(lambda: stored() >= before + requests_ * SPANS)
            return (cpu_s(engine) + cpu_s(agent) - cpu) / (requests_ * SPANS) * 1e6

        send(_WARM_UP)
        return round(send(count), 2)


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _STORED_S
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"not stored within {_STORED_S:.0f} s")
        time.sleep(_POLL_S)


def _quantile_ms(seconds: list[float], q: float) -> float:
    ordered = sorted(seconds)
    return round(ordered[min(int(q * len(ordered)), len(ordered) - 1)] * 1000, 2)


def _free_port() -> int:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def _listens(port: int) -> bool:
    import socket

    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
