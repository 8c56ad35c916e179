"""The processes that are killed: a collector as it is run for real, and an engine behind HTTP beside it."""

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
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from promptpath import storage

_ENGINE: Final = Path(__file__).parents[1] / "engine_server.py"
_START_S: Final = 90.0
_POLL_S: Final = 0.02


class Stack:
    """A collector and its store in `folder`, on ports that stay the same when it is started again.

    over_http: the store is an engine behind HTTP, in a process of its own, and not the collector's.
    """

    def __init__(self, folder: Path, *, over_http: bool, grace_s: float = 0.5, options: tuple[str, ...] = ()) -> None:
        self.folder = folder
        self.http_port, self.grpc_port, self.sql_port, self._engine_port = _free_ports(4)
        self.collector: subprocess.Popen[bytes] | None = None
        self.engine: subprocess.Popen[bytes] | None = None
        self.over_http = over_http
        self._served = f"clickhouse://127.0.0.1:{self._engine_port if over_http else self.sql_port}/promptpath"
        self.journal = folder / "journal"
        self.log = folder / "collector.log"
        self._command = [sys.executable, "-m", "promptpath.cli", "collector", "--grace-s", str(grace_s)]
        self._command += ["--storage", self._served if over_http else f"chdb://{folder}/store"]
        self._command += ["--journal", str(self.journal), "--http-port", str(self.http_port)]
        self._command += ["--grpc-port", str(self.grpc_port), "--sql-port", str(self.sql_port), *options]
        folder.mkdir(parents=True, exist_ok=True)

    # --- processes ----------------------------------------------------------------------------------------------------

    def start_engine(self) -> None:
        """Starts the engine and waits until it answers."""
        self.engine = self._start([sys.executable, str(_ENGINE), str(self.folder / "engine"), str(self._engine_port)])
        self._wait(lambda: _answers(self._engine_port, "/?query=SELECT+1"), self.engine, "the engine")

    def launch(self) -> None:
        """Starts the collector, and does not wait."""
        self.collector = self._start(self._command)

    def wait_ready(self) -> float:
        """Seconds until the collector takes requests."""
        began = time.monotonic()
        assert self.collector is not None
        self._wait(lambda: _answers(self.http_port, "/readyz"), self.collector, "the collector")
        return time.monotonic() - began

    def is_running(self) -> bool:
        return self.collector is not None and self.collector.poll() is None

    def kill(self, process: subprocess.Popen[bytes] | None) -> bool:
        """SIGKILL, to the process and whatever it started; False if it had ended by itself."""
        assert process is not None
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        return process.wait() == -signal.SIGKILL

    def ask_to_stop(self) -> None:
        assert self.collector is not None
        self.collector.send_signal(signal.SIGTERM)

    def stop(self) -> int:
        """SIGTERM to the collector; its exit code."""
        assert self.collector is not None
        self.ask_to_stop()
        return self.collector.wait(120)

    def close(self) -> None:
        """Ends what runs still."""
        for process in (self.collector, self.engine):
            if process is not None:
                self.kill(process)

    def _start(self, command: list[str]) -> subprocess.Popen[bytes]:
        # What is set of PROMPTPATH_ variables outside is not what is tried here.
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PROMPTPATH_")}
        with self.log.open("ab") as log:
            return subprocess.Popen(
                command, stdout=log, stderr=log, env=environment, cwd=self.folder, start_new_session=True
            )

    def _wait(self, condition: Callable[[], bool], process: subprocess.Popen[bytes], what: str) -> None:
        deadline = time.monotonic() + _START_S
        while not condition():
            if process.poll() is not None:
                raise RuntimeError(f"{what} ended with {process.returncode}: {self.log.read_text()[-2000:]}")
            if time.monotonic() > deadline:
                raise RuntimeError(f"{what} has not started after {_START_S:g} s")
            time.sleep(_POLL_S)

    # --- what it says -------------------------------------------------------------------------------------------------

    def client(self) -> Any:
        """A client of the store, for reading."""
        settings = {"max_execution_time": 300, "max_result_rows": 0} if self.over_http else {}
        return storage.connect(self._served, readonly=not self.over_http, settings=settings)

    def metrics(self) -> dict[str, float]:
        """Samples of `/metrics`, by their names without prefix, with labels; none where nobody answers."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}/metrics", timeout=20) as answer:
                lines = answer.read().decode().splitlines()
        except OSError:
            return {}
        return {
            name.removeprefix("promptpath_collector_"): float(value)
            for name, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        }

    def settle(self, timeout_s: float = 300.0) -> None:
        """Waits until the journal is empty and nothing is left to assemble, over some runs of the assembler.

        Raises:
            TimeoutError: it does not come to rest.
        """
        deadline = time.monotonic() + timeout_s
        quiet_since: float | None = None
        while time.monotonic() < deadline:
            now = self.metrics()
            if now.get("journal_items") != 0 or now.get("assembler_pending_traces") != 0:
                quiet_since = None
            elif quiet_since is None:
                quiet_since = now["assembler_runs_total"]
            elif now["assembler_runs_total"] >= quiet_since + 3:
                return
            time.sleep(0.1)
        raise TimeoutError(f"not at rest after {timeout_s:g} s: {json.dumps(self.metrics())}")

    def left_in_journal(self) -> list[str]:
        """Segments and requests set aside that lie in the journal's folder."""
        folders = (self.journal, self.journal / "quarantine")
        return [str(path) for folder in folders for path in (*folder.glob("*.otlp"), *folder.glob("*.pb"))]


def resident_bytes(pid: int) -> int:
    """VmRSS of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    return 0


def _answers(port: int, path: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [int(one.getsockname()[1]) for one in sockets]
    finally:
        for one in sockets:
            one.close()
