"""What both receivers do with a body: read it, hand it to the journal, count."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Literal

from promptpath.collector.auth import AuthError, Scope, Tokens
from promptpath.collector.errors import JournalError, JournalFull
from promptpath.collector.journal import Journal
from promptpath.collector.otlp import OtlpError, Reader, Request, Signal
from promptpath.collector.otlp.errors import RESOURCE_EXHAUSTED, UNAVAILABLE
from promptpath.collector.own_spans import Attributes, OwnSpans
from promptpath.collector.selfmetrics import SelfMetrics

Protocol = Literal["http", "grpc"]
#: What a sender that meets a full journal or a failing disk is told to wait.
RETRY_AFTER_S: Final = 1
#: Bodies that may be in memory at once, before they are in the journal. One is let in whatever its size.
HELD_BYTES: Final = 128 << 20
_TOO_MANY_REQUESTS: Final = 429
_SERVICE_UNAVAILABLE: Final = 503


class Busy(Exception):
    """Too much is being received at once; the sender is asked to come back."""


class Held:
    """The memory that a body takes up while it is received and read."""

    def __init__(self, intake: Intake) -> None:
        self._intake = intake
        self._bytes = 0

    def add(self, size: int) -> None:
        """More of it has come.

        Raises:
            Busy: there is no room for it.
        """
        others = self._intake.held_bytes - self._bytes
        if others > 0 and self._intake.held_bytes + size > HELD_BYTES:
            raise Busy(f"{others} bytes of other requests are being received")
        self._bytes += size
        self._intake.held_bytes += size

    def drop(self) -> None:
        """It is not held any more."""
        self._intake.held_bytes -= self._bytes
        self._bytes = 0


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request was not taken, as HTTP and gRPC say it. `retry_after_s` is None where a retry cannot help."""

    http_status: int
    rpc_code: int
    reason: str
    message: str
    retry_after_s: int | None
    #: Value of `WWW-Authenticate`, or empty.
    challenge: str = ""


class Intake:
    """Reads bodies and puts requests into the journal. Used by several threads at once."""

    def __init__(
        self,
        reader: Reader,
        journal: Journal,
        metrics: SelfMetrics,
        *,
        max_body_bytes: int,
        tokens: Tokens | None = None,
        own_spans: OwnSpans | None = None,
    ) -> None:
        """Without `tokens` everyone may send, and rows say of their tenant what their sender says."""
        self.max_body_bytes = max_body_bytes
        #: Bytes of bodies that are being received and read; kept by the event loop's thread only.
        self.held_bytes = 0
        self._tokens = tokens
        self._reader = reader
        self._journal = journal
        self._metrics = metrics
        self._own_spans = own_spans

    def tenant_of(self, authorization: str | None) -> str:
        """For whom a request's rows are; empty where nobody has to say who they are.

        Raises:
            AuthError: who sends this may not.
        """
        return "" if self._tokens is None else self._tokens.authenticate(authorization, Scope.INGEST).tenant

    def read(
        self, signal: Signal, body: bytes, content_type: str, content_encoding: str = "", tenant: str = ""
    ) -> Request:
        """Decompresses, converts and checks; `tenant` is what `tenant_of` said.

        Raises:
            OtlpError: the request is refused for good.
        """
        return self._reader.read(
            signal,
            body,
            content_type=content_type,
            content_encoding=content_encoding,
            max_bytes=self.max_body_bytes,
            owner=tenant,
        )

    @contextmanager
    def holding(self) -> Iterator[Held]:
        """Around receiving and keeping one body."""
        held = Held(self)
        try:
            yield held
        finally:
            held.drop()

    def keep(self, request: Request) -> Future[None]:
        """Journals a request; the future is done once it is durable.

        Raises:
            JournalError: not now.
        """
        if request.items == 0:  # an empty request is fine, and nothing to keep
            done: Future[None] = Future()
            done.set_result(None)
            return done
        return self._journal.append(request)

    def acknowledged(self, request: Request, protocol: Protocol, started: float, read: float) -> None:
        """Counts a request that is durable. `started`, `read`: `time.perf_counter()` at its arrival, and when read."""
        signal = request.signal.value
        self._metrics.add("requests_total", 1, signal, protocol)
        self._metrics.add("received_items_total", request.items, signal, protocol)
        self._metrics.add("received_bytes_total", len(request.body), signal, protocol)
        if request.rejected:
            self._metrics.add("rejected_items_total", request.rejected, signal, protocol)
        now = time.perf_counter()
        self._metrics.observe_ack(now - started)
        if self._own_spans is not None:
            said: Attributes = {
                "signal": signal,
                "protocol": protocol,
                "items": request.items,
                "bytes": len(request.body),
            }
            commit_s = now - read if request.items else None
            self._own_spans.add(f"receive {signal}", now - started, said, commit_s=commit_s, is_request=True)

    def refused(
        self, signal: Signal, protocol: Protocol, error: OtlpError | AuthError | JournalError | Busy, started: float
    ) -> Refusal:
        """Counts a refusal and says how to answer it."""
        if isinstance(error, OtlpError):
            refusal = Refusal(error.http_status, error.rpc_code, error.reason, str(error), None)
        elif isinstance(error, AuthError):
            refusal = Refusal(error.http_status, error.rpc_code, error.reason, str(error), None, error.challenge)
        elif isinstance(error, Busy):
            refusal = Refusal(_SERVICE_UNAVAILABLE, UNAVAILABLE, "busy", str(error), RETRY_AFTER_S)
        elif isinstance(error, JournalFull):
            refusal = Refusal(_TOO_MANY_REQUESTS, RESOURCE_EXHAUSTED, "full", str(error), RETRY_AFTER_S)
        else:
            refusal = Refusal(_SERVICE_UNAVAILABLE, UNAVAILABLE, "unavailable", str(error), RETRY_AFTER_S)
        self._metrics.add("refused_requests_total", 1, signal.value, protocol, refusal.reason)
        if self._own_spans is not None:
            told: Attributes = {"signal": signal.value, "protocol": protocol}
            took_s = time.perf_counter() - started
            self._own_spans.add(f"receive {signal.value}", took_s, told, error=refusal.reason, is_request=True)
        return refusal


def response_of(request: Request) -> object:
    """The export response: empty, or a partial success that says what was taken out and why."""
    response = request.signal.response()
    if request.rejected:
        setattr(response.partial_success, request.signal.rejected_field, request.rejected)
        response.partial_success.error_message = f"{request.rejected} invalid, the first: {request.message}"
    return response
