"""Senders that do as exporters do: a request that was not acknowledged is sent again, the same bytes, until it is."""

from __future__ import annotations

import enum
import gzip
import http.client
import itertools
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import grpc
from google.rpc import error_details_pb2, status_pb2
from tests.bench.numbered import Numbered

from promptpath.collector.otlp import Signal

_TIMEOUT_S: Final = 15.0
#: Exporters wait for seconds; these are here to press.
_RETRY_S: Final = 0.1
_CHANNEL: Final = (
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 300),
)


class Outcome(enum.Enum):
    """What became of one attempt.

    REFUSED: it was answered that it is to be sent again. NOT_SENT: nobody was there. LOST: it was sent, or some of it,
    and no answer came: it may have been taken.
    """

    ACKNOWLEDGED = "acknowledged"
    REFUSED = "refused"
    NOT_SENT = "not sent"
    LOST = "lost"


class Wrong(Exception):
    """An answer that nobody who is overloaded, stopping or killed may give."""


Send = Callable[[Numbered], Outcome]


def over_http(port: int, *, compress: bool = False) -> Send:
    """A sender on a kept connection of its own, for one thread."""
    connection: http.client.HTTPConnection | None = None
    headers = {"Content-Type": "application/x-protobuf", **({"Content-Encoding": "gzip"} if compress else {})}

    def send(request: Numbered) -> Outcome:
        nonlocal connection
        try:
            if connection is None:
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT_S)
                connection.connect()
        except OSError:
            connection = None
            return Outcome.NOT_SENT
        body = gzip.compress(request.body, 1) if compress else request.body
        try:
            connection.request("POST", f"/v1/{request.signal.value}", body, headers)
            answer = connection.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException):
            connection.close()
            connection = None
            return Outcome.LOST
        if answer.will_close:
            connection.close()
            connection = None
        if answer.status == 200:
            return Outcome.ACKNOWLEDGED
        if answer.status not in (429, 503) or not answer.headers.get("Retry-After"):
            raise Wrong(f"HTTP {answer.status} {dict(answer.headers)}: {text[:200]!r}")
        return Outcome.REFUSED

    return send


def over_grpc(port: int) -> Send:
    """A sender on a channel of its own."""
    channel = grpc.insecure_channel(f"127.0.0.1:{port}", options=_CHANNEL)
    calls = {signal: channel.unary_unary(signal.rpc_method) for signal in Signal}

    def send(request: Numbered) -> Outcome:
        try:
            calls[request.signal](request.body, timeout=_TIMEOUT_S)
        except grpc.RpcError as error:
            return _of_rpc(error)
        return Outcome.ACKNOWLEDGED

    return send


def _of_rpc(error: grpc.RpcError) -> Outcome:
    code, details = error.code(), str(error.details())
    if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED) and _says_when(error):
        return Outcome.REFUSED
    if code is grpc.StatusCode.UNAVAILABLE:
        return Outcome.NOT_SENT if "failed to connect" in details.lower() else Outcome.LOST
    if code in (grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED):
        return Outcome.LOST
    raise Wrong(f"gRPC {code}: {details[:200]}")


def _says_when(error: grpc.RpcError) -> bool:
    """Whether a status has RetryInfo."""
    details = [value for key, value in error.trailing_metadata() or () if key == "grpc-status-details-bin"]
    return any(
        any_of.Is(error_details_pb2.RetryInfo.DESCRIPTOR)
        for value in details
        for any_of in status_pb2.Status.FromString(value).details
    )


@dataclass
class Entry:
    """What the senders know of a request. lost: attempts without an answer, each of which may have been taken."""

    signal: Signal
    items: int
    prompts: int
    lost: int = 0
    acknowledged: bool = False


class Senders:
    """Threads that send, each one request at a time, until it is acknowledged, and at most `requests_per_s` each."""

    def __init__(
        self,
        make: Iterable[Callable[[], Send]],
        units: Iterator[Iterable[Numbered]],
        requests_per_s: float = 0.0,
        retry_s: float = _RETRY_S,
    ):
        """`make`: one maker of a sender for each thread. `units`: shared; each is sent by one thread, in order.

        requests_per_s: 0 for as many as are answered. retry_s: from an answer that asks to come back to doing so.
        """
        self.ledger: dict[int, Entry] = {}
        self.outcomes: dict[Outcome, int] = dict.fromkeys(Outcome, 0)
        self.wrong: list[str] = []
        self._units = units
        self._pause_s = 1.0 / requests_per_s if requests_per_s else 0.0
        self._retry_s = retry_s
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._give_up = threading.Event()
        self._threads = [threading.Thread(target=self._work, args=(one,), daemon=True) for one in make]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def finish(self, timeout_s: float) -> None:
        """Begins no further unit, and returns when everything that was begun is acknowledged.

        Raises:
            TimeoutError: it takes longer than that.
        """
        self._stop.set()
        self.join(timeout_s)

    def join(self, timeout_s: float) -> None:
        """Returns when there are no more units and all is acknowledged; raises TimeoutError as `finish` does."""
        each_s = timeout_s / len(self._threads)
        for thread in self._threads:
            thread.join(each_s)
        self._give_up.set()
        if left := sum(thread.is_alive() for thread in self._threads):
            raise TimeoutError(f"{left} senders are not rid of their requests after {timeout_s:g} s")

    def _work(self, make: Callable[[], Send]) -> None:
        send = make()
        while not self._stop.is_set():
            with self._lock:
                requests = next(self._units, None)
            if requests is None:
                return
            for request in requests:
                entry = Entry(request.signal, request.items, request.prompts)
                self.ledger[request.number] = entry
                self._deliver(send, request, entry)
                if self._pause_s:
                    self._give_up.wait(self._pause_s)

    def _deliver(self, send: Send, request: Numbered, entry: Entry) -> None:
        while not self._give_up.is_set():
            try:
                outcome = send(request)
            except Wrong as error:
                self.wrong.append(str(error))
                outcome = Outcome.REFUSED
            with self._lock:
                self.outcomes[outcome] += 1
            entry.lost += outcome is Outcome.LOST
            if outcome is Outcome.ACKNOWLEDGED:
                entry.acknowledged = True
                return
            self._give_up.wait(self._retry_s)


def mixed(http_port: int, grpc_port: int, count: int) -> list[Callable[[], Send]]:
    """Makers of `count` senders: over HTTP, gRPC, and HTTP with gzip, in turn."""
    kinds: list[Callable[[], Send]] = [
        lambda: over_http(http_port),
        lambda: over_grpc(grpc_port),
        lambda: over_http(http_port, compress=True),
    ]
    return list(itertools.islice(itertools.cycle(kinds), count))
