"""A real collector in a thread of the test, and ways to talk to it."""

from __future__ import annotations

import asyncio
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from promptpath.collector.otlp import Signal
from promptpath.collector.service import Collector, CollectorConfig, Ports
from tests.fresh_store import lay

START_S = 30.0
WAIT_S = 20.0


class RunningCollector:
    """`with RunningCollector(config) as collector:`; every port is a free one."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        lay(directory)
        defaults: dict[str, Any] = {"storage": f"chdb://{directory}", "http_port": 0, "grpc_port": 0, "sql_port": 0}
        self.config = CollectorConfig(**(defaults | {"assemble": False} | settings))
        self.collector = Collector(self.config)
        self._started = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    def __enter__(self) -> RunningCollector:
        self._thread.start()
        assert self._started.wait(START_S)
        if self._failure is not None:
            self._thread.join()
            raise self._failure
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        try:
            async with self.collector:
                self._started.set()
                await self._stop.wait()
        except BaseException as error:
            self._failure = error
            self._started.set()

    @property
    def ports(self) -> Ports:
        return self.collector.ports

    def post(
        self,
        body: bytes,
        *,
        signal: Signal = Signal.TRACES,
        content_type: str = "application/x-protobuf",
        **headers: str,
    ) -> Answer:
        """Posts an export request as it is."""
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        return fetch(
            f"http://127.0.0.1:{self.ports.http}/v1/{signal.value}", body, {"Content-Type": content_type, **names}
        )

    def get(self, path: str) -> Answer:
        return fetch(f"http://127.0.0.1:{self.ports.http}{path}")

    def sql(self, query: str, **params: str) -> Any:
        """Rows of a query over the SQL endpoint, as lists."""
        url = f"http://127.0.0.1:{self.ports.sql}/?default_format=JSONCompact&output_format_json_quote_64bit_integers=0"
        owner = {"Authorization": f"Bearer {self.collector.owner_token}"}
        answer = fetch(url + "".join(f"&{key}={value}" for key, value in params.items()), query.encode(), owner)
        assert answer.status == 200, answer.body
        return json.loads(answer.body)["data"]

    def metric(self, name: str) -> float:
        """A sample of /metrics, by its name with labels; 0 where there is none yet."""
        for line in self.get("/metrics").body.decode().splitlines():
            if line.startswith(f"promptpath_collector_{name} "):
                return float(line.split()[-1])
        return 0.0

    def wait_stored(self, items: int, signal: str = "traces") -> None:
        """Until storage has `items` items of a signal."""
        wait_for(lambda: self.metric(f'stored_items_total{{signal="{signal}"}}') >= items, f"{items} {signal} stored")


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes


def fetch(url: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> Answer:
    request = urllib.request.Request(url, data=body, headers=headers or {})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return Answer(answer.status, {k.lower(): v for k, v in answer.headers.items()}, answer.read())
    except urllib.error.HTTPError as error:
        return Answer(error.code, {k.lower(): v for k, v in error.headers.items()}, error.read())


def wait_for(condition: Callable[[], bool], what: str, timeout_s: float = WAIT_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"timed out: {what}"
        time.sleep(0.01)


def make_spans(count: int, *, first: int = 1, name: str = "chat", padding: int = 0) -> Any:
    """An export request of `count` spans whose ids are numbers from `first` on."""
    request = Signal.TRACES.request()
    resource = request.resource_spans.add()
    resource.resource.attributes.add(key="service.name").value.string_value = "test"
    scope = resource.scope_spans.add()
    for number in range(first, first + count):
        span = scope.spans.add(
            trace_id=number.to_bytes(16, "big"),
            span_id=number.to_bytes(8, "big"),
            name=name,
            start_time_unix_nano=1_760_000_000_000_000_000 + number,
            end_time_unix_nano=1_760_000_000_001_000_000 + number,
        )
        if padding:
            span.attributes.add(key="padding").value.string_value = "x" * padding
    return request
