"""The journal: requests are durable here before they are acknowledged, and stay until storage has them.

Requests of one signal are appended to a **segment**; a segment is later one insert and one deduplication token. Many
requests share one `fdatasync` (group commit, in a thread). A sealed segment is never changed again, so that inserting
it twice after a crash is told apart by its token.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import threading
import time
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from promptpath.collector import segments
from promptpath.collector.errors import JournalFull, JournalUnavailable
from promptpath.collector.otlp import Request, Signal
from promptpath.collector.recovery import recover
from promptpath.collector.repeats import Repeats
from promptpath.collector.segments import OpenSegment, Segment

_log = logging.getLogger(__name__)

_LOCK_NAME: Final = "journal.lock"
#: While the disk refuses, it is tried this often, with a file of this size: so it is noticed that it has room again
#: although nobody sends.
_PROBE_S: Final = 1.0
_PROBE_BYTES: Final = 64 << 10
_PROBE_NAME: Final = "probe"
#: Most requests that one group of writes takes, and the bytes that may wait for it.
_MAX_GROUP: Final = 1024
_MAX_PENDING_BYTES: Final = 128 << 20


@dataclass(frozen=True)
class JournalLimits:
    """When a segment is full, and how much may wait.

    `segment_items` and `segment_age_s` make a segment ready to be stored; while the writer is busy it grows on, up to
    `segment_max_items` and `segment_max_bytes`, so that inserts get larger as the load does. Where an insert takes long
    whatever it holds, small segments wait for up to `segment_rest_s` (see `Journal.rest`).
    """

    max_bytes: int = 4 << 30
    segment_items: int = 10_000
    segment_age_s: float = 0.2
    segment_rest_s: float = 1.0
    segment_max_items: int = 25_000
    segment_max_bytes: int = 64 << 20


@dataclass(frozen=True)
class JournalState:
    """What the journal holds now. `oldest_age_s` is 0 when it is empty, `failure` empty while the disk takes writes."""

    bytes: int
    segments: int
    items: int
    pending_requests: int
    oldest_age_s: float
    syncs: int
    torn_bytes: int
    failure: str
    failures: int
    repeats: int


@dataclass(slots=True)
class _Pending:
    request: Request
    done: Future[None]


class Journal:
    """A directory of segments. `append` may be called from any thread; one reader takes segments out with `take`."""

    def __init__(self, directory: Path, limits: JournalLimits | None = None) -> None:
        """Opens the directory, cuts what a crash tore off, and makes what it holds available to `take`.

        Raises:
            JournalUnavailable: the directory cannot be used, or another process has it open.
        """
        self.directory = directory
        self.limits = limits or JournalLimits()
        self._wake = threading.Condition()
        self._pending: deque[_Pending] = deque()
        self._pending_bytes = 0
        self._open: dict[Signal, OpenSegment] = {}
        self._sealed: deque[Segment] = deque()
        self._returned: deque[Segment] = deque()
        self._took_returned = False
        self._rest_s: dict[Signal, float] = {}
        self._taken: dict[str, Segment] = {}
        self._held_until: dict[Signal, float] = {}
        self._stored_bytes = 0
        self._syncs = 0
        self._torn_bytes = 0
        self._failure = ""
        self._failures = 0
        self._repeats = Repeats(directory)
        self._repeated = 0
        self._closing = False
        try:
            directory.parent.mkdir(parents=True, exist_ok=True)
            directory.mkdir(mode=0o700, exist_ok=True)
            self._lock_fd = os.open(directory / _LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._directory_fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise JournalUnavailable(
                f"cannot use the journal directory {directory} ({error.strerror}): use one that you may write"
            ) from error
        try:
            fcntl.flock(self._lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock_fd)
            os.close(self._directory_fd)
            raise JournalUnavailable(
                f"another process has the journal {directory} open: stop it, or use another directory"
            ) from error
        found = recover(directory)
        self._sealed.extend(segment for segment, _ in found.segments)
        self._stored_bytes = sum(segment.size for segment in self._sealed)
        self._torn_bytes = found.torn_bytes
        self._repeats.recover(found.segments)
        if self._sealed:
            _log.info("journal: %d segments, %d bytes to store from before", len(self._sealed), self._stored_bytes)
        self._committer = threading.Thread(target=self._commit_loop, name="journal-commit", daemon=True)
        self._committer.start()

    def append(self, request: Request) -> Future[None]:
        """Takes a request; the future is done once it is on disk.

        One that was in the journal when it was last killed, and is sent again, is there already.

        Raises:
            JournalFull: over the limit of bytes.
            JournalUnavailable: closed. A disk that refuses shows as this exception in the future.
        """
        size = len(request.body) + segments.FRAME_BYTES
        pending = _Pending(request, Future())
        is_repeat = self._repeats.is_known(request)
        with self._wake:
            if self._closing:
                raise JournalUnavailable("the collector is stopping")
            if is_repeat:
                self._repeated += 1
                pending.done.set_result(None)
                return pending.done
            if self._stored_bytes + self._pending_bytes + size > self.limits.max_bytes:
                raise JournalFull(f"the journal holds its limit of {self.limits.max_bytes} bytes")
            if self._pending_bytes + size > _MAX_PENDING_BYTES and self._pending:
                raise JournalFull(f"{self._pending_bytes} bytes are waiting for the disk")
            self._pending.append(pending)
            self._pending_bytes += size
            if len(self._pending) == 1:
                self._wake.notify_all()
        return pending.done

    def take(self, *, flush: bool = False, timeout_s: float = 0.0) -> Segment | None:
        """The oldest segment that is ready to be stored, or None after `timeout_s`.

        A segment is ready when it is full or old enough; with `flush` any that holds something is. One of a signal that
        `put_back` holds back is not. It stays in the journal until `discard`, or becomes available again by `put_back`.
        """
        deadline = time.monotonic() + timeout_s
        with self._wake:
            while True:
                self._seal_due(flush)
                segment = self._next()
                if segment is not None:
                    self._taken[segment.token] = segment
                    return segment
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    return None
                self._wake.wait(min(left_s, max(self._until_due(), 0.001)))

    def discard(self, segment: Segment) -> None:
        """Storage has it, durably: the file goes."""
        # Not synced: a file that comes back after a power cut is stored again under the same token, to no effect.
        segment.path.unlink(missing_ok=True)
        with self._wake:
            self._taken.pop(segment.token, None)
            self._stored_bytes -= segment.size
            self._held_until.pop(segment.signal, None)

    def put_back(self, segment: Segment, hold_s: float = 0.0) -> None:
        """Not stored after all: taken again in turn with others, so that one table in trouble does not hold them up.

        For `hold_s` seconds no segment of its signal is taken.
        """
        with self._wake:
            self._taken.pop(segment.token, None)
            self._returned.append(segment)
            self._held_until[segment.signal] = time.monotonic() + hold_s
            self._took_returned = True  # it has just had its turn
            self._wake.notify_all()

    def rest(self, signal: Signal, insert_s: float) -> None:
        """An insert of a signal took `insert_s`: until its segments are full they wait for the next one thrice as long.

        Planning is most of a small insert (100 ms of a core in the embedded engine). Five of them a second would take
        half a core from a program that sends a span now and then.
        """
        with self._wake:
            self._rest_s[signal] = min(3 * insert_s, self.limits.segment_rest_s)

    def is_empty(self) -> bool:
        """Whether storage has everything that was acknowledged."""
        with self._wake:
            return not (self._pending_bytes or self._open or self._sealed or self._returned or self._taken)

    def state(self) -> JournalState:
        """Figures for self-observation."""
        with self._wake:
            held: list[OpenSegment | Segment] = [*self._open.values(), *self._waiting(), *self._taken.values()]
            oldest_ns = min((segment.created_ns for segment in held), default=0)
            return JournalState(
                bytes=self._stored_bytes + self._pending_bytes,
                segments=len(held),
                items=sum(segment.items for segment in held),
                pending_requests=len(self._pending),
                oldest_age_s=max(time.time_ns() - oldest_ns, 0) / 1e9 if held else 0.0,
                syncs=self._syncs,
                torn_bytes=self._torn_bytes,
                failure=self._failure,
                failures=self._failures,
                repeats=self._repeated,
            )

    def stop_accepting(self) -> None:
        """Refuses new requests and returns when everything taken is on disk."""
        with self._wake:
            self._closing = True
            self._wake.notify_all()
        self._committer.join()

    def close(self) -> None:
        """Stops accepting and lets the directory go. What is left is found again at the next start."""
        self.stop_accepting()
        with self._wake:
            for segment in self._open.values():
                segment.close()
            self._open.clear()
            if self._lock_fd >= 0:
                os.close(self._lock_fd)
                os.close(self._directory_fd)
                self._lock_fd = -1

    # --- sealing (under the lock) -------------------------------------------------------------------------------------

    def _seal_due(self, flush: bool) -> None:
        """Seals what is full or old enough. While one of its signal waits already, a segment rather grows on."""
        waiting = {segment.signal for segment in self._sealed}
        for signal, segment in list(self._open.items()):
            ready = segment.items >= self.limits.segment_items or segment.age_s() >= self._due_age_s(signal)
            if flush or (ready and signal not in waiting):
                del self._open[signal]
                segment.close()
                self._sealed.append(segment.sealed())

    def _due_age_s(self, signal: Signal) -> float:
        return max(self.limits.segment_age_s, self._rest_s.get(signal, 0.0))

    def _next(self) -> Segment | None:
        """New segments and those that failed before, in turn."""
        now = time.monotonic()
        held = {signal for signal, until in self._held_until.items() if until > now}
        new = next((segment for segment in self._sealed if segment.signal not in held), None)
        old = next((segment for segment in self._returned if segment.signal not in held), None)
        self._took_returned = old is not None and not (new is not None and self._took_returned)
        if old is not None and self._took_returned:
            self._returned.remove(old)
            return old
        if new is not None:
            self._sealed.remove(new)
        return new

    def _waiting(self) -> list[Segment]:
        return [*self._sealed, *self._returned]

    def _until_due(self) -> float:
        """Seconds until some open segment is old enough, or some signal is no longer held back."""
        now = time.monotonic()
        waits = [self._due_age_s(signal) - segment.age_s() for signal, segment in self._open.items()]
        waits += [until - now for until in self._held_until.values() if until > now]
        return min(waits, default=float("inf"))

    # --- committing (its own thread) ----------------------------------------------------------------------------------

    def _commit_loop(self) -> None:
        while True:
            with self._wake:
                while not self._pending and not self._closing:
                    if not self._wake.wait(_PROBE_S if self._failure else None):
                        break
                if not self._pending and self._closing:
                    return
                group = self._next_group()
            if group:
                self._commit(group)
            else:
                self._probe()

    def _next_group(self) -> list[_Pending]:
        """What is written and synced at once: with it a segment outgrows its limit by no more than half."""
        group: list[_Pending] = []
        items = size = 0
        while self._pending and len(group) < _MAX_GROUP:
            request = self._pending[0].request
            items, size = items + request.items, size + len(request.body)
            if group and (items > self.limits.segment_max_items // 2 or size > self.limits.segment_max_bytes // 2):
                break
            group.append(self._pending.popleft())
        return group

    def _commit(self, group: list[_Pending]) -> None:
        by_signal: dict[Signal, list[_Pending]] = {}
        for pending in group:
            by_signal.setdefault(pending.request.signal, []).append(pending)
        for signal, members in by_signal.items():
            failure: JournalUnavailable | None = None
            try:
                self._write(signal, [member.request for member in members])
            except OSError as error:
                failure = JournalUnavailable(f"the journal cannot be written: {error.strerror or error}")
            self._note(failure)
            with self._wake:
                self._pending_bytes -= sum(len(m.request.body) + segments.FRAME_BYTES for m in members)
                self._wake.notify_all()
            for member in members:
                if failure is None:
                    member.done.set_result(None)
                else:
                    member.done.set_exception(failure)

    def _note(self, failure: JournalUnavailable | None) -> None:
        """Says once that the disk refuses, and once that it takes writes again."""
        before, self._failure = self._failure, str(failure or "")
        self._failures += failure is not None
        if self._failure and not before:
            _log.error("%s; senders are asked to come back until it can (%s)", failure, self.directory)
        elif before and not self._failure:
            _log.warning("the journal can be written again (%s)", self.directory)

    def _probe(self) -> None:
        """Whether the disk takes writes, found out without a request to write."""
        path = self.directory / _PROBE_NAME
        failure: JournalUnavailable | None = None
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                if os.write(fd, bytes(_PROBE_BYTES)) < _PROBE_BYTES:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fdatasync(fd)
            finally:
                os.close(fd)
                path.unlink(missing_ok=True)
        except OSError as error:
            failure = JournalUnavailable(f"the journal cannot be written: {error.strerror or error}")
        self._note(failure)

    def _write(self, signal: Signal, requests: list[Request]) -> None:
        """Appends and syncs. While it is written, a segment is out of reach of `take`."""
        with self._wake:
            segment = self._open.pop(signal, None)
        try:
            if segment is None:
                segment = OpenSegment.create(self.directory, signal)
                os.fsync(self._directory_fd)
            written = segment.append(requests)
        except OSError:
            if segment is not None:
                self._retire(segment)
            raise
        with self._wake:
            self._syncs += 1
            self._stored_bytes += written
            if segment.items >= self.limits.segment_max_items or segment.size >= self.limits.segment_max_bytes:
                segment.close()
                self._sealed.append(segment.sealed())
            else:
                self._open[signal] = segment

    def _retire(self, segment: OpenSegment) -> None:
        """After a failed write or sync nothing is known of the pages behind it: no more goes into this file."""
        segment.cut()
        segment.close()
        with self._wake:
            if segment.requests:
                self._sealed.append(segment.sealed())
            else:
                segment.path.unlink(missing_ok=True)
