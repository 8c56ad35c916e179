"""From the journal into storage: one segment, one insert, one token."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from promptpath.collector.journal import Journal
from promptpath.collector.otlp import Signal
from promptpath.collector.own_spans import OwnSpans
from promptpath.collector.quarantine import Quarantine
from promptpath.collector.segments import Segment
from promptpath.collector.selfmetrics import SelfMetrics
from promptpath.storage import StorageError, ingest

_log = logging.getLogger(__name__)

_FIRST_DELAY_S: Final = 0.1
#: The longest wait for what may pass by itself, and for what somebody has to mend.
_LAST_DELAY_S: Final = 5.0
_LAST_DELAY_REFUSED_S: Final = 60.0
#: While storage fails, the log says so this often.
_REMIND_S: Final = 60.0
_IDLE_S: Final = 0.5


@dataclass(frozen=True)
class WriterState:
    """What the writer is at. `last_error` is empty while storage answers; `failures_in_a_row` of its worst signal."""

    last_error: str
    failures_in_a_row: int
    quarantine_bytes: int


@dataclass
class _Trouble:
    """One signal that storage does not take."""

    error: str
    since: float
    said: float
    failures: int = 0


class Writer:
    """A thread that stores segments, and tries again while storage fails. One at a time: inserts use all cores."""

    def __init__(
        self,
        journal: Journal,
        connect: Callable[[], Any],
        metrics: SelfMetrics,
        own_spans: OwnSpans | None = None,
    ) -> None:
        """`connect` makes a client that may write; it is called on the writer's own thread, again after a failure."""
        self._journal = journal
        self._connect = connect
        self._metrics = metrics
        self._own_spans = own_spans
        self._client: Any = None
        self._stopping = threading.Event()
        self._deadline = float("inf")
        self._trouble: dict[Signal, _Trouble] = {}
        self._quarantine = Quarantine(journal.directory)
        self._thread = threading.Thread(target=self._run, name="storage-writer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, *, drain_s: float) -> bool:
        """Stores what the journal holds, for at most `drain_s` seconds; says whether it is empty. The rest keeps."""
        self._deadline = time.monotonic() + drain_s
        self._stopping.set()
        self._thread.join()
        return self._journal.is_empty()

    def state(self) -> WriterState:
        """Figures for self-observation."""
        worst = max(self._trouble.copy().values(), key=lambda trouble: trouble.failures, default=None)
        return WriterState(worst.error if worst else "", worst.failures if worst else 0, self._quarantine.size_bytes())

    def _run(self) -> None:
        try:
            while not (self._stopping.is_set() and (self._journal.is_empty() or time.monotonic() > self._deadline)):
                flush = self._stopping.is_set()
                segment = self._journal.take(flush=flush, timeout_s=_FIRST_DELAY_S if flush else _IDLE_S)
                if segment is not None:
                    self._store(segment)
        finally:
            self._disconnect()

    def _store(self, segment: Segment) -> None:
        signal, began = segment.signal, time.perf_counter()
        try:
            try:
                self._insert(signal, segment.content(), segment.token)
                self._metrics.add("stored_items_total", segment.items, signal.value)
            except ingest.BadBody as error:
                self._store_apart(segment, error)
            self._journal.discard(segment)
        except Exception as error:  # whatever storage fails with, the segment is kept and tried again
            self._tell(segment, began, str(error))
            self._failed(segment, error)
            return
        self._tell(segment, began)
        self._metrics.add("stored_segments_total", 1, signal.value)
        recovered = self._trouble.pop(signal, None)
        if recovered is not None:
            _log.warning(
                "storage takes %s again, after %d failures in %.0f s",
                signal.value,
                recovered.failures,
                time.monotonic() - recovered.since,
            )

    def _tell(self, segment: Segment, began: float, error: str = "") -> None:
        if self._own_spans is not None and segment.items > segment.own_items:
            said = {"signal": segment.signal.value, "items": segment.items, "bytes": segment.size}
            self._own_spans.add("write segment", time.perf_counter() - began, said, error=error)

    def _insert(self, signal: Signal, body: bytes | Path, token: str) -> None:
        if self._client is None:
            self._client = self._connect()
        began = time.perf_counter()
        ingest.insert(self._client, signal.value, body, token)
        took_s = time.perf_counter() - began
        self._metrics.observe("store_seconds", took_s, signal.value)
        self._journal.rest(signal, took_s)

    def _failed(self, segment: Segment, error: Exception) -> None:
        signal, now = segment.signal, time.monotonic()
        is_refused = isinstance(error, ingest.Refused)
        self._metrics.add("store_failures_total", 1, signal.value, "refused" if is_refused else "transient")
        message = " ".join(str(error).split())[:300]
        trouble = self._trouble.setdefault(signal, _Trouble(message, since=now, said=float("-inf")))
        trouble.failures += 1
        if message != trouble.error or now - trouble.said > _REMIND_S:
            trouble.error, trouble.said = message, now
            _log.log(
                logging.ERROR if is_refused else logging.WARNING,
                "storage: %s; tried %d times in %.0f s, the journal keeps the data (%d bytes)",
                message,
                trouble.failures,
                now - trouble.since,
                self._journal.state().bytes,
            )
        self._disconnect()
        delay_s = min(
            _FIRST_DELAY_S * 2 ** min(trouble.failures - 1, 10), _LAST_DELAY_REFUSED_S if is_refused else _LAST_DELAY_S
        )
        if self._stopping.is_set():
            delay_s = _FIRST_DELAY_S
        self._journal.put_back(segment, delay_s * random.uniform(0.5, 1.0))

    def _disconnect(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            try:
                client.close()
            except Exception as error:
                _log.debug("closing a storage client: %s", error)

    # --- a request that storage cannot read ---------------------------------------------------------------------------

    def _store_apart(self, segment: Segment, error: StorageError) -> None:
        """Halves the segment until the bad requests stand alone, and sets those aside.

        Part tokens say which requests they hold, so that a crash in the middle repeats the same inserts to no effect.
        """
        signal = segment.signal
        if not ingest.is_readable(self._client, signal.value):
            raise ingest.Refused(f"storage cannot read {signal.value} at all: {error}")
        requests, envelope = list(segment.bodies()), segment.envelope
        _log.warning(
            "storage cannot read a request of segment %s (%s): looking for it among %d",
            segment.token,
            error,
            len(requests),
        )
        spans = [(0, len(requests))]
        while spans:
            low, high = spans.pop()
            part = requests[low:high]
            try:
                if high - low < len(requests):
                    bodies = envelope + b"".join(body for body, _ in part)
                    self._insert(signal, bodies, f"{segment.token}/{low}-{high}")
                    self._metrics.add("stored_items_total", sum(items for _, items in part), signal.value)
                    continue
            except ingest.BadBody as again:
                error = again
            if high - low == 1:
                body, items = part[0]
                kept = self._quarantine.add(segment, low, body, items, error)
                why = "unreadable" if kept else "unreadable_dropped"
                self._metrics.add("quarantined_requests_total", 1, signal.value, why)
                self._metrics.add("quarantined_items_total", items, signal.value, why)
            else:
                middle = (low + high) // 2
                spans += [(middle, high), (low, middle)]
