"""Spans of the collector's own work, put into its own journal; off unless asked for.

They never cause more of themselves: they pass by the receivers, a segment or a batch that holds nothing but them makes
no span, and their trace ids begin alike, so that collectors that share a store know each other's.
"""

from __future__ import annotations

import secrets
import socket
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from promptpath.collector.errors import JournalError
from promptpath.collector.otlp import Request, Signal

if TYPE_CHECKING:
    from promptpath.collector.journal import Journal
    from promptpath.collector.selfmetrics import SelfMetrics

SERVICE: Final = "promptpath-collector"
#: The first half of every trace id; W3C asks for chance in the other half only.
_PREFIX: Final = b"ppcollec"
_FLUSH_S: Final = 1.0
_MAX_WAITING: Final = 8192
_INTERNAL: Final = 1
_SERVER: Final = 2
_ERROR: Final = 2

Attributes = Mapping[str, str | int]


def is_own(trace_id: str) -> bool:
    """Whether a trace id (32 hex digits) is of a collector's own spans."""
    return trace_id.startswith(_PREFIX.hex())


@dataclass(frozen=True, slots=True)
class _Work:
    name: str
    end_ns: int
    took_s: float
    attributes: Attributes
    error: str
    #: Seconds at its end that were the journal's; None where it has no such part.
    commit_s: float | None
    is_request: bool


class OwnSpans:
    """Takes what was done, from any thread, and journals it as spans each second."""

    def __init__(self, metrics: SelfMetrics) -> None:
        self._metrics = metrics
        self._lock = threading.Lock()
        self._waiting: list[_Work] = []
        self._stop = threading.Event()
        self._journal: Journal | None = None
        self._thread = threading.Thread(target=self._run, name="own-spans", daemon=True)
        self._instance = f"{socket.gethostname()}-{secrets.token_hex(4)}"

    def start(self, journal: Journal) -> None:
        self._journal = journal
        self._thread.start()

    def stop(self) -> None:
        """Journals what waits; what is done from now on makes no spans."""
        self._stop.set()
        self._thread.join()

    def add(
        self,
        name: str,
        took_s: float,
        attributes: Attributes,
        *,
        error: str = "",
        commit_s: float | None = None,
        is_request: bool = False,
    ) -> None:
        """Work that ends now and took `took_s`; `commit_s`: the last part of it, until the journal had it on disk."""
        if self._stop.is_set():
            return
        work = _Work(name, time.time_ns(), took_s, attributes, error, commit_s, is_request)
        with self._lock:
            if len(self._waiting) < _MAX_WAITING:
                self._waiting.append(work)
                return
        self._metrics.add("own_spans_dropped_total", 1 if commit_s is None else 2)

    def _run(self) -> None:
        while not self._stop.wait(_FLUSH_S):
            self._flush()
        self._flush()

    def _flush(self) -> None:
        with self._lock:
            done, self._waiting = self._waiting, []
        if not done or self._journal is None:
            return
        request = self._request(done)
        try:
            self._journal.append(request).add_done_callback(lambda kept: self._note(request, kept))
        except JournalError:
            self._metrics.add("own_spans_dropped_total", request.items)

    def _note(self, request: Request, kept: Future[None]) -> None:
        if kept.exception() is not None:
            self._metrics.add("own_spans_dropped_total", request.items)

    def _request(self, done: list[_Work]) -> Request:
        message = Signal.TRACES.request()
        resource = message.resource_spans.add()
        for key, text in (("service.name", SERVICE), ("service.instance.id", self._instance)):
            resource.resource.attributes.add(key=key).value.string_value = text
        scope = resource.scope_spans.add()
        scope.scope.name = "promptpath.collector"
        for work in done:
            span = scope.spans.add(
                trace_id=_PREFIX + secrets.token_bytes(8),
                span_id=secrets.token_bytes(8),
                name=work.name,
                kind=_SERVER if work.is_request else _INTERNAL,
                start_time_unix_nano=work.end_ns - int(work.took_s * 1e9),
                end_time_unix_nano=work.end_ns,
            )
            for key, value in work.attributes.items():
                pair = span.attributes.add(key=key)
                if isinstance(value, int):
                    pair.value.int_value = value
                else:
                    pair.value.string_value = value
            if work.error:
                span.status.code, span.status.message = _ERROR, work.error[:300]
            if work.commit_s is not None:
                scope.spans.add(
                    trace_id=span.trace_id,
                    span_id=secrets.token_bytes(8),
                    parent_span_id=span.span_id,
                    name="journal commit",
                    kind=_INTERNAL,
                    start_time_unix_nano=work.end_ns - int(work.commit_s * 1e9),
                    end_time_unix_nano=work.end_ns,
                )
        return Request(Signal.TRACES, message.SerializeToString(), len(scope.spans), is_own=True)
