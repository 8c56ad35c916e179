"""Fuzzes the SQL endpoint of a collector in this process: statements, parameters, headers, bodies, bytes on the line.

    python tests/bench/fuzz_sql.py --inputs 33000 --seed 1

Prints one JSON object. A finding is: a 5xx that is not an answer to the query (a limit, an error of evaluation, what is
not implemented), an answer without a status, one that took too long, or a collector that does not answer afterwards.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import os
import random
import re
import socket
import sys
import tempfile
import threading
import time
import urllib.parse
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import lz4.frame

from promptpath.collector.service import Collector, CollectorConfig
from promptpath.collector.sql_settings import SqlLimits

_DIALS: Final = 4
_SLOW_S: Final = 20.0
#: Statuses that a query earns by itself: too large, not implemented, over a limit, wrong in its data.
_ASKED_FOR: Final = {500, 501, 503}
_NOT_ASKED_FOR: Final = re.compile(rb"UNKNOWN_EXCEPTION|LOGICAL_ERROR|STD_EXCEPTION")
_SEEDS: Final = [
    "SELECT 1",
    "SELECT * FROM otel_traces LIMIT 10",
    "SELECT model, count(), quantiles(0.5, 0.99)(ttft_ns) FROM prompts GROUP BY model ORDER BY 2 DESC",
    "SELECT * FROM prompt_minutes WHERE minute > now() - INTERVAL 1 HOUR FORMAT JSONCompact",
    "WITH x AS (SELECT number AS n FROM numbers(100)) SELECT sum(n), arrayMap(y -> y * n, [1, 2]) FROM x GROUP BY n",
    "SELECT a.TraceId FROM otel_traces AS a LEFT JOIN otel_logs AS b USING TraceId WHERE a.SpanName LIKE '%x%'",
    "SELECT {a:String}, {b:Array(UInt8)}, {c:Identifier} FROM {t:Identifier}",
    "EXPLAIN indexes = 1 SELECT * FROM otel_traces WHERE TraceId IN (SELECT trace_id FROM prompts)",
    "DESCRIBE TABLE prompts",
    "SHOW CREATE TABLE otel_traces",
    "SELECT * FROM file('/etc/passwd')",
    "INSERT INTO otel_traces VALUES (1)",
    "SELECT toStartOfMinute(Timestamp) AS t, avg(Duration) OVER (PARTITION BY t ORDER BY t) FROM otel_traces",
    "SELECT JSONExtractString('{\"a\": 1}', 'a'), CAST('2020-01-01' AS Date), $$heredoc$$, 0x1F, 1e309, -0., NULL",
    "SELECT * FROM system.tables; DROP TABLE otel_traces",
    "SELECT number FROM numbers(1000000) ORDER BY rand() LIMIT 5",
]
_PIECES: Final = [
    "'", '"', '`', '(', ')', '[', ']', '{', '}', ';', '--', '/*', '*/', '#', '$$', '\\', "\\'", '\x00', '\n',
    '\t', ',', '.', '..', '::', '->', '?', ':', '@', '%', '=', '==', '!=', '<=>', '||', '&&', '~', '^',
    '\u202e', '\ufeff', '日本', '😀', ' SELECT ', ' FROM ', ' WHERE ', ' UNION ALL ', " INTO OUTFILE '/tmp/x' ",
    ' FORMAT ', ' SETTINGS ', ' max_threads = 1 ', ' readonly = 0 ', 'system.', 'default.', 'file(', 'url(',
    'numbers(', 'view(', 'merge(', 'dictGet(', 'APPLY(', 'x -> ', ' IN ', ' AS ', ' NULL ', ' ARRAY JOIN ',
    ' LIMIT ', ' OFFSET ', ' FINAL ', ' PREWHERE ', ' INTERSECT ', ' EXPLAIN ', '-1', '0', '1e400',
    '99999999999999999999999', '0xFFFFFFFFFFFFFFFFFF', 'nan', 'inf', '{a:String}', '{a:Identifier}', '{:}',
    'toUInt8(', 'throwIf(', 'sleep(0.01)', "repeat('x', 1000)", 'range(1000)', 'rand()', 'tuple(', 'map(',
    'CAST(', 'materialize(',
]  # fmt: skip
_SETTINGS: Final = [
    'max_threads', 'max_block_size', 'max_result_rows', 'max_execution_time', 'max_memory_usage', 'limit',
    'offset', 'readonly', 'dialect', 'output_format_json_quote_64bit_integers', 'extremes', 'join_use_nulls',
    'session_timezone', 'max_ast_depth', 'additional_table_filters', 'no_such_setting',
    'format_csv_delimiter', 'wait_end_of_query', 'enable_http_compression', 'compress', 'default_format',
    'database', 'query_id', 'param_a', 'param_t', 'session_id',
]  # fmt: skip
_VALUES: Final = [
    '0', '1', '-1', '', '1e9', 'abc', "'", '\x00', '\r\nX-Evil: 1', '999999999999999999999999999999', 'true',
    'nan', '{}', 'JSON', 'Native', 'system', 'default', 'otel_traces', '日本', 'Parquet', 'ArrowStream',
    'Template', 'Protobuf', 'Null',
]  # fmt: skip


@dataclass
class Input:
    """One request. `raw`: bytes that are sent as they are instead."""

    target: str = "/"
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    raw: bytes = b""

    def to_bytes(self) -> bytes:
        if self.raw:
            return self.raw
        head = f"POST {self.target} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
        head += f"Content-Length: {len(self.body)}\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in self.headers.items())
        return head.encode("utf-8", "replace") + b"\r\n" + self.body


def mutated(text: str, rnd: random.Random) -> str:
    """A statement with some of its parts taken out, doubled, exchanged or put in."""
    tokens = re.findall(r"\w+|\s+|.", text, re.DOTALL)
    for _ in range(rnd.choice((0, 1, 1, 2, 3, 5, 8))):
        at = rnd.randrange(len(tokens) + 1)
        match rnd.randrange(6):
            case 0:
                tokens[at:at] = [rnd.choice(_PIECES)]
            case 1 if tokens:
                del tokens[min(at, len(tokens) - 1)]
            case 2:
                tokens[at:at] = tokens[at : at + rnd.randrange(1, 9)]
            case 3:
                other = re.findall(r"\w+|\s+|.", rnd.choice(_SEEDS), re.DOTALL)
                start = rnd.randrange(len(other))
                tokens[at : at + rnd.randrange(4)] = other[start : start + rnd.randrange(1, 12)]
            case 4:
                tokens[at:at] = [rnd.choice(_PIECES) * rnd.choice((2, 10, 300))]
            case _ if tokens:
                tokens[min(at, len(tokens) - 1)] = rnd.choice(tokens)
    return "".join(tokens)


def made(rnd: random.Random) -> Input:
    """An input."""
    query = mutated(rnd.choice(_SEEDS), rnd)
    params = {rnd.choice(_SETTINGS): rnd.choice(_VALUES) for _ in range(rnd.choice((0, 0, 1, 2, 4)))}
    headers: dict[str, str] = {}
    body = query.encode("utf-8", "surrogatepass")
    kind = rnd.randrange(20)
    if kind == 0:
        params["query"], body = query, b""
    elif kind == 1:
        body = gzip.compress(body)
        headers["Content-Encoding"] = rnd.choice(("gzip", "deflate", "lz4", "zstd", "nope"))
    elif kind == 2:
        body = lz4.frame.compress(body)
        headers["Content-Encoding"] = "lz4"
    elif kind == 3:
        headers["Content-Type"] = "multipart/form-data; boundary=x"
        name = rnd.choice(("query", "param_a", "t", "max_threads", ""))
        body = f'--x\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{query}\r\n--x--\r\n'.encode()
        body = body[: rnd.randrange(len(body))] if rnd.random() < 0.3 else body
    elif kind == 4:
        position = rnd.randrange(len(body) + 1)
        body = body[:position] + rnd.randbytes(rnd.randrange(20)) + body[position:]
    elif kind == 5:
        headers |= {"X-ClickHouse-Format": rnd.choice(_VALUES).split("\r")[0], "Accept-Encoding": "gzip, lz4, zstd, br"}
        params["enable_http_compression"] = "1"
    elif kind == 6:
        whole = Input(_target(params), body, headers).to_bytes()
        return Input(raw=whole[: rnd.randrange(1, len(whole))] + rnd.randbytes(rnd.randrange(8)))
    elif kind == 7:
        return Input(raw=rnd.randbytes(rnd.randrange(1, 300)))
    return Input(_target(params), body, headers)


def _target(params: dict[str, str]) -> str:
    return "/?" + urllib.parse.urlencode(params) if params else "/"


@dataclass
class Found:
    """What came of the inputs."""

    statuses: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)
    slowest_s: float = 0.0


def send(port: int, given: Input) -> tuple[str, bytes]:
    """The status line's code, or how the connection ended, and the body's beginning."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as line:
        try:
            line.sendall(given.to_bytes())
            if given.raw:
                line.shutdown(socket.SHUT_WR)
            answer = b""
            while len(answer) < 1 << 16 and (more := line.recv(1 << 16)):
                answer += more
        except (ConnectionError, BrokenPipeError):
            return "reset", b""
        except TimeoutError:
            return "hang", b""
    if not answer:
        return "closed", b""
    return answer[9:12].decode("latin-1"), answer.partition(b"\r\n\r\n")[2][:300]


def judge(given: Input, status: str, body: bytes, took_s: float, found: Found) -> None:
    """Counts an answer, and notes what is wrong with it."""
    found.statuses[status] += 1
    found.slowest_s = max(found.slowest_s, took_s)
    wrong = ""
    if status == "hang" or took_s > _SLOW_S:
        wrong = f"{took_s:.0f} s"
    elif status in ("reset", "closed") and not given.raw:
        wrong = status
    elif status.startswith("5") and (int(status) not in _ASKED_FOR or _NOT_ASKED_FOR.search(body)):
        wrong = f"{status}: {body[:200]!r}"
    elif not given.raw and status != "200" and status not in ("404", "405") and body.count(b"DB::Exception") > 1:
        wrong = f"layers: {body[:200]!r}"
    if wrong:
        found.findings.append(f"{wrong} <- {given.to_bytes()[:600]!r}")


class Running:
    """A collector in a thread."""

    def __init__(self, directory: Path) -> None:
        limits = SqlLimits(seconds=5.0, memory_bytes=500 << 20, rows_read=20_000_000, result_rows=200_000)
        self._config = CollectorConfig(
            storage=f"chdb://{directory}", http_port=0, grpc_port=0, sql_port=0, assemble=False, sql_limits=limits
        )
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    def __enter__(self) -> int:
        self._thread.start()
        self._ready.wait(60)
        assert self.port is not None
        return self.port

    async def _run(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        async with Collector(self._config) as collector:
            self.port = collector.ports.sql
            self._ready.set()
            await self._stop.wait()

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()


def fuzz(port: int, inputs: int, seed: int, on_progress: Callable[[int], None] = lambda done: None) -> Found:
    """Sends inputs, some at a time, and judges the answers."""
    found = Found()

    def one(number: int) -> tuple[Input, str, bytes, float]:
        given = made(random.Random(f"{seed}-{number}"))
        began = time.monotonic()
        status, body = send(port, given)
        return given, status, body, time.monotonic() - began

    with ThreadPoolExecutor(_DIALS) as pool:
        for number, result in enumerate(pool.map(one, range(inputs))):
            judge(*result, found)
            on_progress(number)
    status, body = send(port, Input(body=b"SELECT 'still here'"))
    if (status, body.strip()) != ("200", b"still here"):
        found.findings.append(f"afterwards: {status} {body!r}")
    return found


def resident_mib() -> float:
    """Memory of this process: the collector's."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--inputs", type=int, default=33_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    memory: list[float] = []

    def progress(done: int) -> None:
        if done % max(options.inputs // 10, 1) == 0:
            memory.append(round(resident_mib()))
            print(f"{done} of {options.inputs}, {memory[-1]:.0f} MiB", file=sys.stderr)

    with tempfile.TemporaryDirectory() as folder, Running(Path(folder)) as port:
        began = time.monotonic()
        found = fuzz(port, options.inputs, options.seed, progress)
        result: dict[str, Any] = {
            "inputs": options.inputs,
            "seconds": round(time.monotonic() - began),
            "statuses": dict(found.statuses),
            "slowest_s": round(found.slowest_s, 1),
            "resident_mib": memory,
            "findings": found.findings[:50],
            "findings_total": len(found.findings),
        }
    print(json.dumps(result, indent=1))
    return 1 if found.findings else 0


if __name__ == "__main__":
    sys.exit(main())
