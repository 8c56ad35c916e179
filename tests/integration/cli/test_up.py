"""`promptpath up` as a user runs it: what it prints is there, commands reach the store through it, it ends cleanly."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from promptpath.storage import connect

PORTS = ("--http-port", "0", "--grpc-port", "0", "--sql-port", "0", "--dashboard-port", "0")
ADDRESS = re.compile(r"^(dashboard|OTLP/HTTP|OTLP/gRPC|SQL) +(\S+)", re.MULTILINE)


def environment(home: Path) -> dict[str, str]:
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("PROMPTPATH_", "OTEL_", "XDG_"))}
    return clean | {"HOME": str(home)}


def promptpath(*argv: str, home: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "promptpath.cli", *argv],
        env=environment(home),
        cwd=home,
        capture_output=True,
        text=True,
        timeout=120,
    )


def eventually(true: Callable[[], bool], within_s: float = 90) -> None:
    deadline = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


@dataclass
class Running:
    process: subprocess.Popen[str]
    home: Path
    addresses: dict[str, str]

    def children(self) -> list[int]:
        text = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return [int(pid) for pid in text.split()]

    def end(self, number: int) -> tuple[int, str]:
        children = self.children()
        self.process.send_signal(number)
        _, err = self.process.communicate(timeout=60)
        assert not any(Path(f"/proc/{pid}").exists() for pid in children)
        return self.process.returncode, err


@contextmanager
def started(tmp_path: Path, **settings: str) -> Iterator[Running]:
    out = (tmp_path / "out").open("w+")
    process = subprocess.Popen(
        [sys.executable, "-m", "promptpath.cli", "up", *PORTS, "--ttl", "otel_traces=7d,prompts=0"],
        env=environment(tmp_path) | settings,
        cwd=tmp_path,
        stdout=out,
        stderr=subprocess.PIPE,
        text=True,
        # As a terminal starts it, whatever started the tests.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    found: dict[str, str] = {}

    def printed() -> bool:
        assert process.poll() is None, process.communicate()[1]
        found.update(ADDRESS.findall((tmp_path / "out").read_text()))
        return "SQL" in found

    try:
        eventually(printed)
        yield Running(process, tmp_path, found)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate(timeout=30)
        out.close()


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    with started(tmp_path) as it:
        yield it


def get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=10) as answer:
        body: bytes = answer.read()
        return body


SPAN = {
    "resourceSpans": [
        {
            "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "by-hand"}}]},
            "scopeSpans": [
                {
                    "spans": [
                        {
                            "traceId": "4bf92f3577b34da6a3ce929d0e0e4736",
                            "spanId": "00f067aa0ba902b7",
                            "name": "chat tiny",
                            "kind": 3,
                            "startTimeUnixNano": str(1_790_000_000_000_000_000),
                            "endTimeUnixNano": str(1_790_000_001_000_000_000),
                            "attributes": [
                                {"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}},
                                {"key": "gen_ai.request.model", "value": {"stringValue": "tiny"}},
                            ],
                        }
                    ]
                }
            ],
        }
    ]
}


def test_from_a_span_to_a_waterfall(running: Running) -> None:
    home, at = running.home, running.addresses
    assert get(at["dashboard"] + "/_stcore/health") == b"ok"
    assert get(at["SQL"] + "/ping") == b"Ok.\n"
    owner = json.loads((home / ".local/share/promptpath/owner.json").read_text())
    assert owner["sql_url"] == at["SQL"].replace("http", "clickhouse") + "/promptpath"

    ttl = "SELECT extract(engine_full, 'toIntervalSecond.(\\\\d+)') AS seconds"
    kept = promptpath("sql", f"{ttl} FROM system.tables WHERE name = 'otel_traces'", "--format", "json", home=home)
    assert (kept.returncode, json.loads(kept.stdout)) == (0, {"seconds": str(7 * 86_400)}), kept.stderr

    post = urllib.request.Request(
        at["OTLP/HTTP"] + "/v1/traces", json.dumps(SPAN).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(post, timeout=10) as answer:
        assert answer.status == 200

    def rows() -> list[dict[str, object]]:
        done = promptpath("prompts", "--format", "json", home=home)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    eventually(lambda: len(rows()) == 1, within_s=30)
    row = rows()[0]
    told = {key: row[key] for key in ("prompt_id", "trace_id", "model", "service", "status", "e2e_ns", "ttft_ns")}
    assert told == {
        "prompt_id": "00f067aa0ba902b7",
        "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736",
        "model": "tiny",
        "service": "by-hand",
        "status": "ok",
        "e2e_ns": 1_000_000_000,
        "ttft_ns": None,
    }
    for argv in (["--latest"], ["--slowest"], ["00f067"], ["4bf92f3577b34da6a3ce929d0e0e4736"]):
        shown = promptpath("show", *argv, home=home)
        assert shown.returncode == 0, shown.stderr
        assert shown.stdout.startswith("prompt 00f067aa0ba902b7  |  tiny  |  ok\n")
        assert shown.stdout.isascii()
    assert json.loads(promptpath("show", "--latest", "--format", "json", home=home).stdout)["e2e_ns"] == 1_000_000_000

    query = "SELECT prompt_id, e2e_ns, CAST(NULL AS Nullable(Int8)) AS nothing FROM prompts"
    table = promptpath("sql", query, home=home).stdout.splitlines()
    assert [line.split() for line in table] == [
        ["prompt_id", "e2e_ns", "nothing"],
        ["00f067aa0ba902b7", "1000000000", "-"],
    ]
    as_json = promptpath("sql", "--format", "json", query, home=home).stdout
    assert json.loads(as_json) == {"prompt_id": "00f067aa0ba902b7", "e2e_ns": 1_000_000_000, "nothing": None}
    as_csv = promptpath("sql", "--format", "csv", query, home=home).stdout
    assert as_csv == '"prompt_id","e2e_ns","nothing"\n"00f067aa0ba902b7",1000000000,\\N\n'
    with subprocess.Popen(
        [sys.executable, "-m", "promptpath.cli", "sql", "--format", "parquet", query],
        env=environment(home),
        stdout=subprocess.PIPE,
    ) as process:
        parquet = process.communicate(timeout=60)[0]
    assert parquet[:4] == parquet[-4:] == b"PAR1"

    doctor = promptpath("doctor", "--service", "by-hand", "--service", "nobody", home=home)
    assert doctor.returncode == 1
    # vllm-project/vllm#56696: tracing is on and nothing is sent.
    assert "PROBLEM  service nobody" in doctor.stdout
    assert "no spans from nobody in 10 minutes" in doctor.stdout

    second = promptpath("up", *PORTS, home=home)
    assert (second.returncode, second.stderr.count("\n")) == (2, 2), second.stderr
    assert "is in use by process" in second.stderr

    code, err = running.end(signal.SIGINT)
    assert (code, err) == (0, "starting the collector and the dashboard ...\nstopped\n")
    # Without a collector the store is opened by the command itself.
    assert promptpath("sql", "--format", "csv", query, home=home).stdout == as_csv


def test_with_tokens_the_dashboard_has_the_owner_s(tmp_path: Path) -> None:
    """What the environment says to the collector reaches it, and nobody is asked for what `up` itself knows."""
    tokens = tmp_path / "tokens.toml"
    made = promptpath("tokens", "create", "--tokens", str(tokens), "--name", "a", "--tenant", "t", home=tmp_path)
    assert made.returncode == 0, made.stderr
    with started(tmp_path, PROMPTPATH_TOKENS=str(tokens)) as running:
        url = running.addresses["OTLP/HTTP"] + "/v1/traces"
        body, kind = json.dumps(SPAN).encode(), {"Content-Type": "application/json"}
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(urllib.request.Request(url, body, kind), timeout=10)
        token = {"Authorization": f"Bearer {made.stdout.strip()}"}
        with urllib.request.urlopen(urllib.request.Request(url, body, kind | token), timeout=10) as answer:
            assert answer.status == 200
        [dashboard] = [pid for pid in running.children() if b"streamlit" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        its = dict(
            entry.split("=", 1) for entry in Path(f"/proc/{dashboard}/environ").read_text().split("\0") if "=" in entry
        )
        with contextlib.closing(connect(its["PROMPTPATH_STORAGE"], readonly=True)) as client:
            eventually(lambda: client.query("SELECT tenant FROM prompts").result_rows == [("t",)], within_s=30)


def test_sigterm(running: Running) -> None:
    assert running.end(signal.SIGTERM)[0] == 0


def test_a_part_that_dies_is_told_and_ends_the_rest(running: Running) -> None:
    children = running.children()
    dashboard = next(pid for pid in children if b"streamlit" in Path(f"/proc/{pid}/cmdline").read_bytes())
    os.kill(dashboard, signal.SIGKILL)
    _, err = running.process.communicate(timeout=60)
    assert running.process.returncode == 2
    last = err.splitlines()[-1]
    assert last.startswith("promptpath up: dashboard ended: ")
    assert "dashboard.log" in last
    assert not any(Path(f"/proc/{pid}").exists() for pid in children)


def test_children_end_with_a_parent_that_is_killed(running: Running) -> None:
    children = running.children()
    running.process.kill()
    running.process.communicate(timeout=30)
    eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in children), within_s=30)
