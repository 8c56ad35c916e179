"""Programs that are measured: a collector and others, each in a process of its own."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

_COLLECTOR: Final = """
import json, sys
from promptpath.collector.service import Collector, CollectorConfig
def ready(collector):
    ports = collector.ports
    print(json.dumps({"http": ports.http, "grpc": ports.grpc, "sql": ports.sql}), flush=True)
config = CollectorConfig(storage=sys.argv[1], http_port=0, grpc_port=0, sql_port=0, assemble=False)
Collector(config).run(ready)
"""


@dataclass(frozen=True)
class Running:
    """A collector in a process of its own."""

    popen: subprocess.Popen[str]
    ports: dict[str, int]

    def cpu_s(self) -> float:
        return cpu_s(self.popen)

    def metric(self, name: str) -> float:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.ports['http']}/metrics", timeout=30) as answer:
            for line in answer.read().decode().splitlines():
                if line.startswith(f"promptpath_collector_{name} "):
                    return float(line.split()[-1])
        return 0.0

    def stored(self) -> float:
        return self.metric('stored_items_total{signal="traces"}')


@contextlib.contextmanager
def running(storage: str | None = None) -> Iterator[Running]:
    """A collector on free ports of this machine; on a store of its own unless one is named."""
    with tempfile.TemporaryDirectory(prefix="promptpath-bench-") as folder:
        command = [sys.executable, "-c", _COLLECTOR, storage or f"chdb://{folder}"]
        with process(command) as popen:
            assert popen.stdout is not None
            yield Running(popen, json.loads(popen.stdout.readline()))


@contextlib.contextmanager
def process(command: list[str], cwd: str | None = None) -> Iterator[subprocess.Popen[str]]:
    """A program whose lines can be read; ended with the block."""
    popen = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=cwd)
    try:
        yield popen
    finally:
        popen.terminate()
        try:
            popen.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            popen.kill()
            popen.communicate()


def cpu_s(popen: subprocess.Popen[Any]) -> float:
    """Processor time of a process so far, all threads [s]."""
    import psutil

    times = psutil.Process(popen.pid).cpu_times()
    return float(times.user + times.system)
