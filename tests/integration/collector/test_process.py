"""The collector as a process: killed, asked to stop, started wrongly."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import grpc
import pytest

from promptpath import storage
from promptpath.collector.errors import CollectorError, PortTaken
from promptpath.collector.otlp import Signal
from promptpath.storage import StorageError, owner

from .running import RunningCollector, fetch, make_spans, wait_for

START_S = 60
SCRIPT = """
import json, logging, sys
from promptpath.collector.service import Collector, CollectorConfig

logging.basicConfig(level=logging.INFO)
settings = json.loads(sys.argv[1])
def ready(collector):
    ports = collector.ports
    print(json.dumps({"http": ports.http, "grpc": ports.grpc, "sql": ports.sql}), flush=True)
Collector(CollectorConfig(http_port=0, grpc_port=0, sql_port=0, **settings)).run(ready)
"""


class Process:
    """A collector in a process of its own."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        argument = json.dumps({"storage": f"chdb://{directory}", "assemble": False, **settings})
        self.popen = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, argument], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.ports: dict[str, int] = {}

    def __enter__(self) -> Process:
        watchdog = threading.Timer(START_S, self.popen.kill)
        watchdog.start()
        assert self.popen.stdout is not None
        line = self.popen.stdout.readline()
        watchdog.cancel()
        assert line, self.popen.communicate()[1]
        self.ports = json.loads(line)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.popen.poll() is None:
            self.popen.kill()
        self.popen.communicate()

    def post(self, body: bytes) -> int:
        headers = {"Content-Type": "application/x-protobuf"}
        return fetch(f"http://127.0.0.1:{self.ports['http']}/v1/traces", body, headers).status

    def end(self, number: int) -> tuple[int, str]:
        """Sends a signal; returns the exit code and what it wrote to stderr."""
        self.popen.send_signal(number)
        errors = self.popen.communicate(timeout=60)[1]
        return self.popen.returncode, errors


def stored(directory: Path) -> Counter[int]:
    """How often each span number is in storage."""
    client = storage.connect(f"chdb://{directory}")
    try:
        column = client.query("SELECT reinterpretAsUInt64(reverse(unhex(SpanId))) FROM otel_traces").result_columns
        return Counter(column[0]) if column else Counter()
    finally:
        client.close()


def test_killed_at_any_moment_nothing_acknowledged_is_lost_and_nothing_doubled(tmp_path: Path) -> None:
    rounds, senders, spans_per_request = 3, 3, 20
    seed = random.randrange(1 << 30)
    dice = random.Random(seed)
    acknowledged: set[int] = set()
    numbers = iter(range(1, 1 << 40, spans_per_request))
    lock = threading.Lock()

    def send(process: Process) -> None:
        while process.popen.poll() is None:
            with lock:
                first = next(numbers)
            try:
                status = process.post(make_spans(spans_per_request, first=first).SerializeToString())
            except (OSError, urllib.error.URLError, ConnectionError):
                return  # it died before it answered: either is right
            if status == 200:
                with lock:
                    acknowledged.update(range(first, first + spans_per_request))

    for _ in range(rounds):
        with Process(tmp_path) as process:
            threads = [threading.Thread(target=send, args=(process,)) for _ in range(senders)]
            for thread in threads:
                thread.start()
            time.sleep(dice.uniform(0.1, 1.2))  # when the kill falls is what is being tried
            process.popen.kill()
            for thread in threads:
                thread.join()
    with Process(tmp_path) as process:
        code, errors = process.end(signal.SIGTERM)
    assert code == 0, errors
    assert list((tmp_path / "journal").glob("*.otlp")) == []
    found = stored(tmp_path)
    assert len(acknowledged) > 100
    assert acknowledged - found.keys() == set(), f"lost, seed {seed}"
    assert {number for number, count in found.items() if count > 1} == set(), f"doubled, seed {seed}"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_asked_to_stop_it_stores_what_it_has_and_exits_0(tmp_path: Path, number: int) -> None:
    with Process(tmp_path) as process:
        for first in range(1, 1001, 100):
            assert process.post(make_spans(100, first=first).SerializeToString()) == 200
        code, errors = process.end(number)
    assert (code, "Traceback" in errors) == (0, False), errors
    assert list((tmp_path / "journal").glob("*.otlp")) == []
    assert not (tmp_path / "owner.json").exists()
    assert stored(tmp_path) == Counter(range(1, 1001))


def test_a_stop_lets_requests_finish_that_are_under_way_and_takes_no_more(tmp_path: Path) -> None:
    body = make_spans(50).SerializeToString()
    head = f"POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-protobuf\r\nContent-Length: {len(body)}"
    released = threading.Event()

    def stuck() -> Iterator[bytes]:
        released.wait()
        yield make_spans(50, first=51).SerializeToString()

    with Process(tmp_path) as process:
        ports = process.ports
        channel = grpc.insecure_channel(f"127.0.0.1:{ports['grpc']}")
        call = channel.stream_unary(Signal.TRACES.rpc_method).future(stuck())
        with socket.create_connection(("127.0.0.1", ports["http"]), 20) as slow:
            slow.sendall(f"{head}\r\n\r\n".encode() + body[:100])
            assert channel.unary_unary(Signal.TRACES.rpc_method)(b"", timeout=20) == b""
            process.popen.send_signal(signal.SIGTERM)
            for port in (ports["http"], ports["grpc"]):
                wait_for(lambda port=port: not accepts(port), "no more connections")
            slow.sendall(body[100:])
            assert slow.recv(65536).startswith(b"HTTP/1.1 200 ")
        released.set()
        assert call.result(timeout=20) == b""
        errors = process.popen.communicate(timeout=60)[1]
        channel.close()
    assert (process.popen.returncode, "Traceback" in errors) == (0, False), errors
    assert stored(tmp_path) == Counter(range(1, 101))


def accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_others_find_it_and_read_through_it(tmp_path: Path) -> None:
    with Process(tmp_path) as process:
        found = owner.find(tmp_path)
        assert found is not None
        assert found == owner.Owner(
            process.popen.pid, found.started, f"clickhouse://127.0.0.1:{process.ports['sql']}/promptpath"
        )
        assert process.post(make_spans(5).SerializeToString()) == 200
        client = storage.connect(f"chdb://{tmp_path}", readonly=True)
        wait_for(lambda: client.query("SELECT count() FROM otel_traces").result_rows == [(5,)], "rows")
        client.close()
        with pytest.raises(StorageError, match=f"in use by process {process.popen.pid}"), RunningCollector(tmp_path):
            pass
        process.popen.kill()
        process.popen.wait()
        assert owner.find(tmp_path) is None


@pytest.mark.parametrize("option", ["http_port", "grpc_port", "sql_port"])
def test_a_taken_port_is_one_line_and_nothing_is_left_behind(tmp_path: Path, option: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortTaken) as caught, RunningCollector(tmp_path, **{option: port}):
            pass
    flag = f"--{option.replace('_', '-')}"
    assert (
        str(caught.value)
        == f"port {port} on 127.0.0.1 is taken: stop what listens there, or choose another with {flag}"
    )
    assert owner.find(tmp_path) is None
    with RunningCollector(tmp_path, **{option: port}) as running:
        assert port in (running.ports.http, running.ports.grpc, running.ports.sql)


def test_a_place_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError) as caught, RunningCollector(tmp_path / "file"):
        pass
    assert "\n" not in str(caught.value)
    with pytest.raises(CollectorError) as refused, RunningCollector(tmp_path / "store", journal=tmp_path / "file"):
        pass
    assert "\n" not in str(refused.value)
    assert "journal" in str(refused.value)
    assert owner.find(tmp_path / "store") is None


def test_nothing_listens_beyond_this_machine(tmp_path: Path) -> None:
    with Process(tmp_path) as process:
        inodes = set()
        for link in os.scandir(f"/proc/{process.popen.pid}/fd"):
            target = os.readlink(link.path)
            if target.startswith("socket:["):
                inodes.add(target[8:-1])
        listening = set()
        for table in ("tcp", "tcp6"):
            for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == "0A" and fields[9] in inodes:
                    address, port = fields[1].split(":")
                    listening.add((address, int(port, 16)))
        assert {port for _, port in listening} == set(process.ports.values())
        assert {address for address, _ in listening} <= {"0100007F", "0000000000000000FFFF00000100007F"}
