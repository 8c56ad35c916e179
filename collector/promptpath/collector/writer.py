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
from promptpath.collector.segments import Segment
from promptpath.collector.selfmetrics import SelfMetrics
from promptpath.storage import StorageError, ingest

_log = logging.getLogger(__name__)

_FIRST_DELAY_S: Final = 0.1
_LAST_DELAY_S: Final = 5.0
_IDLE_S: Final = 0.5
#: Set-aside files may take this much; what is over it is dropped, and counted all the same.
_QUARANTINE_BYTES: Final = 256 << 20


@dataclass(frozen=True)
class WriterState:
    """What the writer is at. `last_error` is empty while storage answers."""

    last_error: str
    failures_in_a_row: int
    quarantine_bytes: int


class Writer:
    """A thread that stores segments, and tries again while storage fails. One at a time: inserts use all cores."""

    def __init__(self, journal: Journal, connect: Callable[[], Any], metrics: SelfMetrics) -> None:
        """`connect` makes a client that may write; it is called on the writer's own thread, again after a failure."""
        self._journal = journal
        self._connect = connect
        self._metrics = metrics
        self._client: Any = None
        self._stopping = threading.Event()
        self._deadline = float("inf")
        self._last_error = ""
        self._failures = 0
        self._quarantine = journal.directory / "quarantine"
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
        return WriterState(self._last_error, self._failures, _folder_bytes(self._quarantine))

    def _run(self) -> None:
        try:
            while not (self._stopping.is_set() and (self._journal.is_empty() or time.monotonic() > self._deadline)):
                segment = self._journal.take(
                    flush=self._stopping.is_set(), timeout_s=0 if self._stopping.is_set() else _IDLE_S
                )
                if segment is not None:
                    self._store(segment)
        finally:
            self._disconnect()

    def _store(self, segment: Segment) -> None:
        try:
            self._insert(segment.signal, segment.path, segment.token)
        except ingest.BadBody as error:
            if not self._store_apart(segment, error):
                return
        except Exception as error:  # whatever storage fails with, the segment is kept and tried again
            self._failed(segment, error)
            return
        else:
            self._metrics.add("stored_items_total", segment.items, segment.signal.value)
        self._failures, self._last_error = 0, ""
        self._journal.discard(segment)
        self._metrics.add("stored_segments_total", 1, segment.signal.value)

    def _insert(self, signal: Signal, body: bytes | Path, token: str) -> None:
        if self._client is None:
            self._client = self._connect()
        ingest.insert(self._client, signal.value, body, token)

    def _failed(self, segment: Segment, error: Exception) -> None:
        self._failures += 1
        message = " ".join(str(error).split())[:300]
        if message != self._last_error:
            _log.warning("storage: %s; trying again, the journal keeps the data", message)
        self._last_error = message
        self._metrics.add("store_failures_total", 1, segment.signal.value)
        self._journal.put_back(segment)
        self._disconnect()
        delay_s = min(_FIRST_DELAY_S * 2 ** min(self._failures - 1, 10), _LAST_DELAY_S)
        if self._stopping.is_set():
            time.sleep(min(_FIRST_DELAY_S, max(self._deadline - time.monotonic(), 0)))
        else:
            self._stopping.wait(delay_s * random.uniform(0.5, 1.0))

    def _disconnect(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            try:
                client.close()
            except Exception as error:
                _log.debug("closing a storage client: %s", error)

    # --- a request that storage cannot read ---------------------------------------------------------------------------

    def _store_apart(self, segment: Segment, error: StorageError) -> bool:
        """Halves the segment until the bad requests stand alone, and sets those aside; False if storage failed.

        Part tokens say which requests they hold, so that a crash in the middle repeats the same inserts to no effect.
        """
        requests = list(segment.bodies())
        _log.warning(
            "storage cannot read a request of segment %s (%s): looking for it among %d",
            segment.token,
            error,
            len(requests),
        )
        spans = [(0, len(requests))]
        try:
            while spans:
                low, high = spans.pop()
                part = requests[low:high]
                try:
                    if high - low < len(requests):
                        self._insert(
                            segment.signal, b"".join(body for body, _ in part), f"{segment.token}/{low}-{high}"
                        )
                        self._metrics.add("stored_items_total", sum(items for _, items in part), segment.signal.value)
                        continue
                except ingest.BadBody as again:
                    error = again
                if high - low == 1:
                    self._set_aside(segment, low, *part[0], error)
                else:
                    middle = (low + high) // 2
                    spans += [(middle, high), (low, middle)]
        except Exception as failure:
            self._failed(segment, failure)
            return False
        return True

    def _set_aside(self, segment: Segment, index: int, body: bytes, items: int, error: StorageError) -> None:
        path = self._quarantine / f"{segment.token}.{index}.pb"
        self._quarantine.mkdir(exist_ok=True)
        if _folder_bytes(self._quarantine) + len(body) <= _QUARANTINE_BYTES:
            path.write_bytes(body)
            path.with_suffix(".txt").write_text(f"{error}\n")
            _log.error("storage cannot read a request of %d items: set aside as %s (%s)", items, path, error)
        else:
            _log.error(
                "storage cannot read a request of %d items, and %s is full: dropped (%s)",
                items,
                self._quarantine,
                error,
            )
        self._metrics.add("quarantined_requests_total", 1, segment.signal.value)
        self._metrics.add("quarantined_items_total", items, segment.signal.value)


def _folder_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir()) if folder.is_dir() else 0
