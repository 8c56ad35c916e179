"""A real run for the browser tests: the collector, prompts sent to it over OTLP, and the dashboard served by
Streamlit."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

import pytest

from .chromium import NoChromium, launch
from .seed import Sent, agent_run, prompt, prompts

PROMPTS = 72
AGENT_CALLS = 3
_START_S = 60.0

_COLLECTOR = """
import asyncio, json, sys
from pathlib import Path
from promptpath.collector.service import Collector, CollectorConfig

async def main():
    config = CollectorConfig(storage=sys.argv[1], http_port=0, grpc_port=0, sql_port=0, grace_s=0.2)
    async with Collector(config) as collector:
        ports = collector.ports
        Path(sys.argv[2]).write_text(json.dumps({"http": ports.http, "sql": ports.sql}))
        await asyncio.Event().wait()

asyncio.run(main())
"""


@dataclass(frozen=True)
class Run:
    """A running stack. `sql` asks the store and gives rows as dictionaries."""

    url: str
    storage: str
    sent: tuple[Sent, ...]
    sql: Callable[[str], list[dict[str, Any]]]

    def one(self, kind: str) -> Sent:
        """A prompt of one of the seed's kinds."""
        return next(sent for sent in self.sent if sent.kind == kind)


class Served:
    """A subprocess that is stopped in the end; its output goes to a file that a failure shows."""

    def __init__(self, argv: Sequence[str], log: Path, env: dict[str, str] | None = None) -> None:
        self.log = log
        self._out: IO[bytes] = log.open("wb")
        self.process = subprocess.Popen(
            argv, stdout=self._out, stderr=subprocess.STDOUT, env={**os.environ, **(env or {})}
        )

    def wait_for(self, ready: Callable[[], bool], what: str) -> None:
        """Polls until `ready`; fails with the process's output when it ends or takes too long."""
        deadline = time.monotonic() + _START_S
        while not ready():
            if self.process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"{what} did not come up:\n{self.log.read_text(errors='replace')[-3000:]}")
            time.sleep(0.05)

    def stop(self) -> None:
        """Ends the process."""
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._out.close()


def answers(url: str) -> bool:
    """Whether a GET gives 200."""
    try:
        with urllib.request.urlopen(url, timeout=2) as response:
            return bool(response.status == 200)
    except (OSError, urllib.error.HTTPError):
        return False


def ask(sql_port: int, query: str) -> list[dict[str, Any]]:
    """Rows of a query over the collector's SQL endpoint, integers of 64 bits as integers."""
    url = f"http://127.0.0.1:{sql_port}/?output_format_json_quote_64bit_integers=0"
    request = urllib.request.Request(url, data=f"{query} FORMAT JSONEachRow".encode())
    with urllib.request.urlopen(request, timeout=20) as response:
        return [json.loads(line) for line in response.read().splitlines()]


def post(http_port: int, body: bytes) -> None:
    """Sends spans to the collector."""
    headers = {"content-type": "application/x-protobuf"}
    request = urllib.request.Request(f"http://127.0.0.1:{http_port}/v1/traces", data=body, headers=headers)
    with urllib.request.urlopen(request, timeout=20) as response:
        assert response.status == 200


@pytest.fixture(scope="module")
def collector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, int]]:
    """A collector on free ports over an empty store."""
    folder = tmp_path_factory.mktemp("collector")
    ports = folder / "ports.json"
    store = f"chdb://{folder / 'data'}"
    served = Served([sys.executable, "-c", _COLLECTOR, store, str(ports)], folder / "log")
    try:
        served.wait_for(lambda: ports.exists() and ports.read_text().endswith("}"), "the collector")
        yield json.loads(ports.read_text())
    finally:
        served.stop()


@pytest.fixture(scope="module")
def sent(collector: dict[str, int]) -> tuple[Sent, ...]:
    """Prompts sent to the collector, all of them stored and assembled."""
    out: list[Sent] = []
    for one, body in prompts(PROMPTS, seed=7, until_ns=time.time_ns()):
        post(collector["http"], body)
        out.append(one)
    run, body = agent_run(AGENT_CALLS, seed=8, start_ns=time.time_ns() - 10_000_000_000)
    post(collector["http"], body)
    out += run
    deadline = time.monotonic() + _START_S
    while ask(collector["sql"], "SELECT count() AS n FROM prompts")[0]["n"] < PROMPTS + AGENT_CALLS:
        assert time.monotonic() < deadline, "the prompts were not assembled in time"
        time.sleep(0.1)
    return tuple(out)


@pytest.fixture
def send(collector: dict[str, int]) -> Callable[[str], Sent]:
    """Sends one more prompt of a kind, now."""

    def one_more(kind: str) -> Sent:
        now_ns = time.time_ns()
        sent, body = prompt(random.Random(now_ns), kind, now_ns - 2_000_000_000)
        post(collector["http"], body)
        return sent

    return one_more


@pytest.fixture(scope="module")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], str]]:
    """Serves the dashboard over a storage URL; gives its address."""
    running: list[Served] = []

    def start(storage: str) -> str:
        folder = tmp_path_factory.mktemp("dashboard")
        spec = find_spec("promptpath.dashboard.app")
        assert spec is not None
        assert spec.origin is not None
        argv = [sys.executable, "-m", "streamlit", "run", spec.origin]
        options = {"server.address": "127.0.0.1", "server.port": "0", "server.headless": "true"}
        argv += [f"--{name}={value}" for name, value in options.items()]
        served = Served(argv, folder / "log", {"PROMPTPATH_STORAGE": storage, "HOME": str(folder)})
        running.append(served)
        found: list[str] = []

        def ready() -> bool:
            match = re.search(r"http://127\.0\.0\.1:\d+", served.log.read_text(errors="replace"))
            found[:] = [match.group()] if match else []
            return bool(found) and answers(f"{found[0]}/_stcore/health")

        served.wait_for(ready, "the dashboard")
        return found[0]

    yield start
    for served in running:
        served.stop()


@pytest.fixture(scope="module")
def run(collector: dict[str, int], sent: tuple[Sent, ...], serve: Callable[[str], str]) -> Run:
    """The whole of it: collector, prompts, dashboard."""
    storage = f"clickhouse://127.0.0.1:{collector['sql']}/promptpath"
    return Run(serve(storage), storage, sent, lambda query: ask(collector["sql"], query))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Headless Chromium for a module: while it runs, no other event loop can run in this thread."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        try:
            chromium = launch(playwright)
        except NoChromium as error:
            pytest.fail(str(error), pytrace=False)
        yield chromium
        chromium.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A fresh page in Berlin's time zone; a script error in it fails the test."""
    context = browser.new_context(viewport={"width": 1440, "height": 1000}, timezone_id="Europe/Berlin")
    page = context.new_page()
    page.set_default_timeout(20_000)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    yield page
    context.close()
    assert not errors, f"script errors in the page: {errors}"
