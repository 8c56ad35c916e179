"""Requests that were journalled, but perhaps not acknowledged, when the collector was killed.

Their senders do not know that they are kept, and send them again: the same bytes. They are told apart by a digest, for
as long as exporters try, and acknowledged without being stored twice. What was received in the last seconds before the
kill is remembered only; in ordinary running nothing is looked up.
"""

from __future__ import annotations

import hashlib
import logging
import os
import struct
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from promptpath.collector.otlp import Request, Signal
from promptpath.collector.segments import Segment

_log = logging.getLogger(__name__)

#: Survives kills that follow one another before the sender comes back, when storage has the segment already.
FILE_NAME: Final = "unanswered"
#: Exporters give up after 5 minutes unless told otherwise.
KEPT_S: Final = 600
#: An answer is on its way no longer than this after its request is durable.
_ANSWER_NS: Final = 5 * 10**9
#: What is read for it at a start, the newest first.
_MAX_BYTES: Final = 256 << 20
_DIGEST_BYTES: Final = 16
_RECORD: Final = struct.Struct(f"<QI{_DIGEST_BYTES}s")  # when it was remembered [ns], bytes of the body, digest


class Repeats:
    """What was remembered at starts of the last ten minutes. `is_known` may be asked by any thread."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / FILE_NAME
        self._known: dict[bytes, int] = {}
        #: Lengths first: most requests need no digest.
        self._lengths: frozenset[int] = frozenset()
        self._until = 0.0

    def recover(self, found: Iterable[tuple[Segment, int]]) -> None:
        """Remembers the last requests of segments that a start found; `found`: each with its time of last change [ns].

        Those are made durable, too: a kill may have come between writing and syncing them.
        """
        now_ns = time.time_ns()
        records = {
            digest: (at_ns, size) for at_ns, size, digest in self._read() if abs(now_ns - at_ns) < KEPT_S * 10**9
        }
        newest_first = sorted(found, key=lambda pair: pair[1], reverse=True)
        taken = 0
        for segment, changed_ns in newest_first:
            taken += segment.size
            if changed_ns < newest_first[0][1] - _ANSWER_NS or taken > _MAX_BYTES:
                break
            _sync(segment.path)
            for body, _ in segment.bodies():
                records[_digest(segment.signal, body)] = (now_ns, len(body))
        self._known = {digest: size for digest, (_, size) in records.items()}
        self._lengths = frozenset(self._known.values())
        self._until = time.monotonic() + KEPT_S
        try:
            self._write([_RECORD.pack(at_ns, size, digest) for digest, (at_ns, size) in records.items()])
        except OSError as error:
            _log.warning(
                "%s: cannot be written (%s): after one more crash, retries may be stored twice", self._path, error
            )

    def is_known(self, request: Request) -> bool:
        """Whether this very request has been in the journal already."""
        if len(request.body) not in self._lengths:
            return False
        if time.monotonic() > self._until:
            self._known, self._lengths = {}, frozenset()
            return False
        return _digest(request.signal, request.body) in self._known

    def _read(self) -> list[tuple[int, int, bytes]]:
        try:
            data = self._path.read_bytes()
        except OSError:
            return []
        return list(_RECORD.iter_unpack(data[: len(data) // _RECORD.size * _RECORD.size]))

    def _write(self, records: list[bytes]) -> None:
        if not records:
            self._path.unlink(missing_ok=True)
            return
        new = self._path.with_suffix(".new")
        new.write_bytes(b"".join(records))
        _sync(new)
        new.rename(self._path)


def _digest(signal: Signal, body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=_DIGEST_BYTES, person=signal.value.encode()).digest()


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fdatasync(fd)
    finally:
        os.close(fd)
