"""What the tests of the shims run on: real servers on loopback, and spans as plain dicts."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import uvicorn
from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from promptpath.instrumentation import bootstrap, recorder

#: Attributes whose values depend on the run: what a test sees instead.
_MEASURED = {
    "promptpath.first_byte_us",
    "promptpath.tcp.rtt_us",
    "promptpath.stream.total_us",
    "promptpath.detokenize.total_us",
}
_PORTS = {"server.port", "network.peer.port"}


class Spans:
    """What the program's exporter was given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **options: Any) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(resource=Resource({"service.name": "test"}), shutdown_on_exit=False, **options)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        monkeypatch.setattr(trace, "_TRACER_PROVIDER", self.provider)
        monkeypatch.setattr(bootstrap, "_own", self.provider)

    def all(self) -> list[ReadableSpan]:
        """Every span so far, by start; of those that start together, the longer first."""
        assert recorder.force_flush(5000)
        return sorted(
            self._exporter.get_finished_spans(), key=lambda span: (span.start_time or 0, -(span.end_time or 0))
        )

    def wait(self, count: int, *, deadline_s: float = 10) -> list[ReadableSpan]:
        """Every span, once there are this many."""
        until = time.monotonic() + deadline_s
        while len(found := self.all()) < count and time.monotonic() < until:
            time.sleep(0.005)
        assert len(found) >= count, [span.name for span in found]
        return found

    def dicts(self, count: int, scope: str | None = None) -> list[dict[str, Any]]:
        """The spans, once there are `count` in all, as dicts; those of one scope if it is given."""
        found = self.wait(count)
        names = {span.context.span_id: span.name for span in found if span.context is not None}
        return [as_dict(span, names) for span in found if scope in (None, scope_of(span))]

    def named(self, name: str) -> ReadableSpan:
        """The only span of this name."""
        (span,) = [span for span in self.all() if span.name == name]
        return span


def scope_of(span: ReadableSpan) -> str:
    assert span.instrumentation_scope is not None
    return span.instrumentation_scope.name


def attributes_of(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def gaps_us(span: ReadableSpan) -> list[int]:
    return list(attributes_of(span).get("promptpath.token.gaps_us", ()))


def as_dict(span: ReadableSpan, names: dict[int, str]) -> dict[str, Any]:
    """All that a span says. The parent is told by name; gaps by their number; measured values and ports by `...`."""
    attributes = attributes_of(span)
    gaps = attributes.pop("promptpath.token.gaps_us", ())
    assert all(gap >= 0 for gap in gaps)
    for key in _MEASURED & attributes.keys():
        assert isinstance(attributes[key], int)
        assert attributes[key] >= 0
        attributes[key] = ...
    for key in _PORTS & attributes.keys():
        assert 0 < attributes[key] < 65536
        attributes[key] = ...
    parent = None
    if span.parent is not None:
        parent = names.get(span.parent.span_id, "remote" if span.parent.is_remote else "?")
    return {
        "name": span.name,
        "kind": span.kind.name,
        "scope": scope_of(span),
        "parent": parent,
        "attributes": attributes,
        "deliveries": len(gaps),
        "status": (span.status.status_code.name, span.status.description),
        "events": [event.name for event in span.events],
    }


@contextmanager
def serve(app: Any, **options: Any) -> Iterator[str]:
    """An ASGI application under uvicorn on a free port of loopback. Yields its base URL."""
    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning", lifespan="off", **options)
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
    thread.start()
    until = time.monotonic() + 10
    while not server.started and time.monotonic() < until:
        time.sleep(0.002)
    assert server.started
    scheme = "https" if options.get("ssl_certfile") else "http"
    try:
        yield f"{scheme}://127.0.0.1:{bound.getsockname()[1]}"
    finally:
        server.should_exit = True
        server.force_exit = True
        thread.join(10)
        bound.close()


@contextmanager
def raw_server(answer: Callable[[socket.socket, bytes], None]) -> Iterator[tuple[str, list[bytes]]]:
    """A server that is a bare socket: `answer(connection, request)` writes what it likes. Yields URL and requests."""
    listening = socket.create_server(("127.0.0.1", 0))
    requests: list[bytes] = []

    def run() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection:
                request = b""
                while b"\r\n\r\n" not in request:
                    request += connection.recv(65536)
                head, _, rest = request.partition(b"\r\n\r\n")
                length = next(
                    (
                        int(line.split(b":")[1])
                        for line in head.lower().split(b"\r\n")
                        if line.startswith(b"content-length")
                    ),
                    0,
                )
                while len(rest) < length:
                    rest += connection.recv(65536)
                requests.append(head + b"\r\n\r\n" + rest)
                with contextlib.suppress(ConnectionError):  # a client may have read enough before all is sent
                    answer(connection, requests[-1])

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", requests
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join(5)


def chunk(
    delta: dict[str, Any] | None = None, *, finish: str | None = None, index: int = 0, **more: Any
) -> dict[str, Any]:
    """A chunk of a streamed chat completion."""
    choices = [] if delta is None else [{"index": index, "delta": delta, "logprobs": None, "finish_reason": finish}]
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1700000000,
        "model": "tiny-1",
        "choices": choices,
        **more,
    }


USAGE = {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}


def five_tokens() -> list[dict[str, Any]]:
    """A role, five tokens, the end, the usage: as OpenAI's servers stream it."""
    return [
        chunk({"role": "assistant", "content": ""}),
        *(chunk({"content": word}) for word in ("The", " sky", " is", " blue", ".")),
        chunk({}, finish="stop"),
        chunk(None, usage=USAGE),
    ]


async def asleep(seconds: float) -> None:
    """A server that takes its time."""
    import anyio

    await anyio.sleep(seconds)


async def paced(frames: Sequence[bytes], gap_s: float) -> AsyncIterator[bytes]:
    """Frames, this far apart."""
    for frame in frames:
        yield frame
        await asleep(gap_s)
