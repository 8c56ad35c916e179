"""Fuzzing of both receivers: bad bodies, headers, encodings and frames, against a real collector in its own process.

    python tests/bench/fuzz_receivers.py --inputs 100000 --seed 1 [--drop]

With `--drop` what is accepted is dropped in the place of the journal, so that the memory is the receivers' alone;
without, the embedded database's is in it.

A run fails (exit code 1) on a status that was not asked for (any 5xx but a 503 that says when to come back, any gRPC
code of a fault in the server), on an answer that does not come, on a traceback in the log, when the process dies, or
when its memory grows.
"""

from __future__ import annotations

import argparse
import gzip
import http.client
import json
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import psutil
from google.protobuf import json_format

from promptpath.collector.otlp import JSON, PROTOBUF, Signal
from promptpath.collector.otlp.encoding import zstd_module

#: An answer that takes longer counts as a hang.
ANSWER_S = 30.0
MAX_BODY_BYTES = 1 << 20
THREADS = 4
#: What the process may grow by, from when a tenth of the inputs are sent to the end.
GROWTH_BYTES = 96 << 20
#: gRPC codes that say that something is wrong with the server.
_FAULTS = {grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL, grpc.StatusCode.DATA_LOSS, grpc.StatusCode.ABORTED}

_COLLECTOR = """
import asyncio, concurrent.futures, json, signal, sys
from promptpath.collector.intake import Intake
from promptpath.collector.service import Collector, CollectorConfig

if sys.argv[3] == "False":
    def drop(self, request):
        done = concurrent.futures.Future()
        done.set_result(None)
        return done
    Intake.keep = drop

async def main():
    config = CollectorConfig(storage=sys.argv[1], http_port=0, grpc_port=0, sql_port=0, assemble=False,
                             max_body_bytes=int(sys.argv[2]))
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with Collector(config) as collector:
        print(json.dumps([collector.ports.http, collector.ports.grpc]), flush=True)
        await stop.wait()

asyncio.run(main())
"""


@dataclass
class Result:
    """What came of a run: answers by kind, faults (at most 20 are kept), and the process's memory in bytes."""

    inputs: int = 0
    seconds: float = 0.0
    answers: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    rss_start: int = 0
    rss_end: int = 0
    rss_max: int = 0
    exit_code: int | None = None

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not self.faults and self.exit_code == 0 and self.rss_end - self.rss_start <= GROWTH_BYTES


def run(inputs: int, seed: int = 1, *, store: bool = True) -> Result:
    """Sends `inputs` inputs to a collector of its own; the same seed sends the same. `store`: what is accepted."""
    result = Result(inputs)
    with tempfile.TemporaryDirectory() as folder, Path(folder, "log").open("w+") as log:
        command = [sys.executable, "-c", _COLLECTOR, f"chdb://{folder}/store", str(MAX_BODY_BYTES), str(store)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process:
            try:
                assert process.stdout is not None
                http_port, grpc_port = json.loads(process.stdout.readline())
                _send_all(result, inputs, seed, http_port, grpc_port, psutil.Process(process.pid))
            finally:
                process.send_signal(signal.SIGTERM)
                try:
                    result.exit_code = process.wait(120)
                except subprocess.TimeoutExpired:
                    process.kill()
                    result.faults.append("the collector does not stop")
        log.seek(0)
        logged = log.read()
        if "Traceback" in logged:
            result.faults.append(logged[logged.index("Traceback") :][:2000])
    return result


def _send_all(result: Result, inputs: int, seed: int, http_port: int, grpc_port: int, process: psutil.Process) -> None:
    lock = threading.Lock()
    began = time.monotonic()
    sent = 0

    def worker(number: int) -> None:
        nonlocal sent
        draw = random.Random(f"{seed}/{number}")
        http_sender, grpc_sender = HttpSender(http_port), GrpcSender(grpc_port)
        for _ in range(number, inputs, THREADS):
            kind, value = _one(draw, http_sender, grpc_sender)
            with lock:
                sent += 1
                result.answers[kind] += 1
                if value and len(result.faults) < 20:
                    result.faults.append(f"{kind}: {value}")
                if sent % max(inputs // 50, 1) == 0:
                    _measure(result, process, sent >= inputs / 10)
        grpc_sender.close()

    threads = [threading.Thread(target=worker, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    _measure(result, process, True)
    result.seconds = time.monotonic() - began


def _measure(result: Result, process: psutil.Process, warm: bool) -> None:
    try:
        rss = process.memory_info().rss
    except psutil.NoSuchProcess:
        result.faults.append("the collector has died")
        return
    if warm and not result.rss_start:
        result.rss_start = rss
    result.rss_end, result.rss_max = rss, max(result.rss_max, rss)


def _one(draw: random.Random, http_sender: HttpSender, grpc_sender: GrpcSender) -> tuple[str, str]:
    """Sends one input; what was answered, and what is wrong with that ("" if nothing is)."""
    target = draw.random()
    if target < 0.62:
        return http_sender.post(draw)
    if target < 0.70:
        return http_sender.garbage(draw)
    if target < 0.97:
        return grpc_sender.call(draw)
    return grpc_sender.garbage(draw)


class HttpSender:
    """Over one connection that is kept alive, as long as the server does."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._connection: http.client.HTTPConnection | None = None

    def post(self, draw: random.Random) -> tuple[str, str]:
        """A request that HTTP accepts; its body and headers may be anything."""
        path, headers, body = request(draw)
        for again in (True, False):  # a connection that the server has closed meanwhile says nothing
            fresh = self._connection is None
            try:
                if self._connection is None:
                    self._connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=ANSWER_S)
                self._connection.request(draw.choice(("POST",) * 30 + ("GET", "PUT", "OPTIONS")), path, body, headers)
                answer = self._connection.getresponse()
                answer.read()
            except TimeoutError:
                self._connection = None
                return "http hang", f"no answer in {ANSWER_S:g} s to {path} {headers} {body[:64]!r}"
            except (OSError, http.client.HTTPException) as error:
                self._connection = None
                if again and not fresh:
                    continue
                return "http closed", "" if isinstance(error, OSError) else f"{error!r} {path} {headers} {body[:64]!r}"
            if answer.will_close:
                self._connection.close()
                self._connection = None
            asked_for = answer.status < 500 or (answer.status == 503 and answer.getheader("Retry-After"))
            return f"http {answer.status}", "" if asked_for else f"{path} {headers} {body[:64]!r}"
        raise AssertionError("unreachable")

    def garbage(self, draw: random.Random) -> tuple[str, str]:
        """Bytes that are no HTTP, or only begin so."""
        path, headers, body = request(draw)
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        raw = f"POST {path} HTTP/1.1\r\nHost: x\r\n{lines}Content-Length: {len(body)}\r\n\r\n".encode() + body
        return "http raw", _raw(self._port, mutated(draw, raw))


class GrpcSender:
    """Over one channel."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._channel = grpc.insecure_channel(f"127.0.0.1:{port}")

    def close(self) -> None:
        """Closes the channel."""
        self._channel.close()

    def call(self, draw: random.Random) -> tuple[str, str]:
        """A call that gRPC accepts; its message, method and metadata may be anything."""
        one = draw.choice(list(Signal))
        message = valid(draw, one).SerializeToString()
        if draw.random() < 0.8:
            message = mutated(draw, message)
        method = one.rpc_method if draw.random() < 0.97 else draw.choice(("/x/y", one.rpc_method + "x", "/"))
        metadata = [("x-noise", "n" * draw.randrange(200))] if draw.random() < 0.1 else []
        if draw.random() < 0.1:
            metadata.append(("authorization", draw.choice(("", "Bearer", "Bearer x", "Basic =="))))
        try:
            if draw.random() < 0.05:
                messages = [message] * draw.randrange(4)
                self._channel.stream_unary(method)(iter(messages), metadata=metadata, timeout=ANSWER_S)
            else:
                compression = draw.choice(list(grpc.Compression))
                self._channel.unary_unary(method)(message, metadata=metadata, timeout=ANSWER_S, compression=compression)
        except grpc.RpcError as error:
            code = error.code()
            if code is grpc.StatusCode.DEADLINE_EXCEEDED:
                return "grpc hang", f"no answer in {ANSWER_S:g} s to {method} {message[:64]!r}"
            return f"grpc {code.name}", f"{method} {error.details()} {message[:64]!r}" if code in _FAULTS else ""
        return "grpc OK", ""

    def garbage(self, draw: random.Random) -> tuple[str, str]:
        """Frames that are no HTTP/2, or only begin so."""
        preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
        size = draw.randrange(64)
        frame = size.to_bytes(3, "big") + draw.randbytes(6) + draw.randbytes(size)
        return "grpc raw", _raw(self._port, preface + frame if draw.random() < 0.7 else mutated(draw, preface + frame))


def _raw(port: int, data: bytes) -> str:
    """Sends bytes and hangs up; whatever comes back, the server must go on accepting."""
    try:
        with socket.create_connection(("127.0.0.1", port), ANSWER_S) as connection:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            connection.settimeout(0.05)
            connection.recv(4096)
    except ConnectionRefusedError:
        return "the connection is refused"
    except OSError:
        return ""
    return ""


def request(draw: random.Random) -> tuple[str, dict[str, str], bytes]:
    """Path, headers and body of an HTTP request in which something may be wrong."""
    one = draw.choice(list(Signal))
    message = valid(draw, one)
    content_type = draw.choice(
        (PROTOBUF,) * 5 + (JSON,) * 4 + ("text/plain", "", "application/json; charset=x", "a/b;;")
    )
    if content_type.startswith(JSON):
        body = json.dumps(_hexed(json_format.MessageToDict(message))).encode()
    else:
        body = message.SerializeToString()
    if draw.random() < 0.75:
        body = mutated(draw, body)
    encoding = draw.choice(("",) * 5 + ("gzip", "deflate", "zstd", "identity", "br", "gzip, gzip"))
    pack = _PACKERS.get(encoding)
    if pack is not None and draw.random() < 0.9:
        body = pack(body)
        if draw.random() < 0.4:
            body = mutated(draw, body)
    if draw.random() < 0.004:
        body, encoding = gzip.compress(bytes(MAX_BODY_BYTES * 8)), "gzip"
    headers = {"Content-Type": content_type, "Content-Encoding": encoding}
    headers = {name: value for name, value in headers.items() if value or draw.random() < 0.1}
    if draw.random() < 0.1:
        headers[draw.choice(("Authorization", "X-Noise", "Expect", "Origin", "traceparent"))] = draw.choice(
            ("", "x", "Bearer x", "100-continue", "\xff", "n" * 3000)
        )
    path = f"/v1/{one.value}" if draw.random() < 0.95 else draw.choice(("/", "/v1/x", "/v1/traces/", "//v1/traces?a=b"))
    return path, headers, body


def _zstd(data: bytes) -> bytes:
    module = zstd_module()
    return bytes(module.compress(data)) if module is not None else data


_PACKERS: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "deflate": zlib.compress, "zstd": _zstd}


def valid(draw: random.Random, one: Signal) -> Any:
    """A valid export request of a signal."""
    message = one.request()
    for _ in range(draw.randrange(3)):
        if one is Signal.TRACES:
            scope = message.resource_spans.add().scope_spans.add()
            for _ in range(draw.randrange(4)):
                start = draw.choice((0, 1, 1_760_000_000_000_000_000, 1 << 62))
                span = scope.spans.add(
                    trace_id=draw.randbytes(draw.choice((16, 16, 16, 0, 3))),
                    span_id=draw.randbytes(draw.choice((8, 8, 8, 0, 5))),
                    name=_text(draw),
                    start_time_unix_nano=start,
                    end_time_unix_nano=max(start + draw.randrange(-5, 10**9), 0),
                )
                _attributes(draw, span.attributes)
                span.events.add(name=_text(draw))
        elif one is Signal.LOGS:
            scope = message.resource_logs.add().scope_logs.add()
            for _ in range(draw.randrange(4)):
                record = scope.log_records.add(
                    time_unix_nano=draw.randrange(1 << 60), severity_number=draw.randrange(25)
                )
                record.body.string_value = _text(draw)
                _attributes(draw, record.attributes)
        else:
            metric = message.resource_metrics.add().scope_metrics.add().metrics.add(name=_text(draw))
            kind = draw.choice(("gauge", "sum", "histogram", "exponential_histogram", "summary"))
            point = getattr(metric, kind).data_points.add(time_unix_nano=draw.randrange(1 << 60))
            _attributes(draw, point.attributes)
    return message


def _attributes(draw: random.Random, attributes: Any) -> None:
    for _ in range(draw.randrange(4)):
        value = attributes.add(key=_text(draw)).value
        for _ in range(draw.choice((0, 0, 0, 1, 2, 60))):
            value = value.array_value.values.add()
        value.int_value = draw.randrange(-(1 << 63), 1 << 63)


def _text(draw: random.Random) -> str:
    return draw.choice(("chat", "", "é\u0000\U0001f600", "promptpath.token.gaps_us", "x" * draw.randrange(200)))


def _hexed(value: Any) -> Any:
    """protobuf's JSON as OTLP's: identifiers in hex."""
    if isinstance(value, list):
        return [_hexed(item) for item in value]
    if isinstance(value, dict):
        return {key: item.encode().hex() if key.endswith("Id") else _hexed(item) for key, item in value.items()}
    return value


def mutated(draw: random.Random, data: bytes) -> bytes:
    """`data` with something done to it."""
    kind = draw.randrange(7)
    at = draw.randrange(len(data) + 1)
    if kind == 0:
        return data[:at]
    if kind == 1:
        return draw.randbytes(draw.randrange(200))
    if kind == 2:
        return data[:at] + draw.randbytes(draw.randrange(1, 9)) + data[at:]
    if kind == 3:
        return data[:at] + data[at + draw.randrange(1, 20) :]
    if kind == 4:
        return data + data[at:]
    changed = bytearray(data)
    for _ in range(draw.randrange(1, 8) if changed else 0):
        changed[draw.randrange(len(changed))] = draw.choice((0, 0x7F, 0x80, 0xFF, draw.randrange(256)))
    return bytes(changed)


def main() -> int:
    """Runs and prints what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--drop", action="store_true", help="store nothing")
    options = parser.parse_args()
    result = run(options.inputs, options.seed, store=not options.drop)
    print(f"inputs {result.inputs} in {result.seconds:.0f} s, exit code of the collector {result.exit_code}")
    mib = 1 << 20
    print(f"memory {result.rss_start // mib} MiB after a tenth, {result.rss_end // mib} at the end, "
          f"{result.rss_max // mib} at most")  # fmt: skip
    for kind, count in sorted(result.answers.items()):
        print(f"  {kind:<24} {count:>8}")
    for fault in result.faults:
        print(f"FAULT {fault}")
    return 0 if result.ok else 1


if __name__ == "__main__":
    sys.exit(main())
