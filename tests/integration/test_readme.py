"""The README's examples, as they stand there: three programs, one prompt, its row."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from promptpath.storage import connect

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
PARTS = ("network", "gateway", "router", "tokenize", "queue", "prefill", "post", "stream", "unattributed")


def blocks(kind: str) -> dict[str, str]:
    return dict(re.findall(rf"<!-- {kind}: (\S+) -->\n```\w+\n(.*?)```", README, re.DOTALL))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(frozen=True)
class Ports:
    http: int
    sql: int


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[Ports]:
    ports = Ports(free_port(), free_port())
    command = [sys.executable, "-m", "promptpath.cli", "collector", "--storage", f"chdb://{tmp_path}/data"]
    command += ["--http-port", str(ports.http), "--sql-port", str(ports.sql), "--grpc-port", "0", "--grace-s", "0.5"]
    process = subprocess.Popen(command)
    try:
        wait_until_listening(ports.http, process)
        yield ports
    finally:
        process.terminate()
        assert process.wait(30) == 0


def wait_until_listening(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert process.poll() is None, "the example ended"
        try:
            httpx.get(f"http://127.0.0.1:{port}/docs", timeout=1)
            return
        except httpx.TransportError:
            time.sleep(0.05)
    raise AssertionError(f"nothing listens on {port}")


def test_the_examples_give_one_prompt_whose_parts_add_up(collector: Ports, tmp_path: Path) -> None:
    ports = {"8080": free_port(), "8000": free_port()}

    def at_free_ports(text: str) -> str:
        for written, port in ports.items():
            text = re.sub(rf"\b{written}\b", str(port), text)
        return text

    for name, text in blocks("example").items():
        (tmp_path / name).write_text(at_free_ports(text))
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.http}",
    }
    commands = {name: at_free_ports(text).split() for name, text in blocks("command").items()}
    running = {name: subprocess.Popen(words, cwd=tmp_path, env=environment) for name, words in commands.items()}
    try:
        wait_until_listening(ports["8000"], running["server"])
        wait_until_listening(ports["8080"], running["gateway"])
        done = subprocess.run(
            [sys.executable, "client.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout == "what happens to a prompt on its way "
        row = the_prompt(collector)
    finally:
        for process in running.values():
            process.terminate()
        codes = {name: process.wait(20) for name, process in running.items()}
    assert all(code in (0, -15) for code in codes.values()), codes

    parts = {part: row[f"ttft_{part}_ns"] for part in PARTS}
    assert sum(parts.values()) == row["ttft_ns"]
    assert row["hops"] == ["client", "gateway", "my-engine"]
    assert (row["status"], row["streaming"], row["ttft_source"]) == ("ok", True, "client")
    assert parts["prefill"] >= 20_000_000
    assert row["completeness"] == 1
    assert len(row["gaps_us"]) == 7
    stages = set(row["segments.stage"])
    assert {"client", "transit", "gateway", "tokenize", "queue", "prefill"} <= stages
    assert "authenticate" in row["names"]


def the_prompt(collector: Ports) -> dict[str, object]:
    """The only row, once it is whole: services export on their own time."""
    client = connect(f"clickhouse://127.0.0.1:{collector.sql}/promptpath")
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        rows = client.query_arrow("SELECT * FROM prompts", use_strings=True).to_pylist()
        if len(rows) == 1 and len(rows[0]["hops"]) == 3:
            spans = client.query("SELECT DISTINCT SpanName FROM otel_traces").result_columns
            return rows[0] | {"names": set(spans[0])}
        time.sleep(0.1)
    raise AssertionError(f"no whole prompt: {rows}")
