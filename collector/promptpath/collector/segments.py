"""Segment files: an envelope, then requests behind frames that carry their length, item count and checksum.

Envelope and frames are fields of the protobuf request message that no OTLP version has (length-delimited, numbers 2045
and 2047), so that **the file as a whole is one valid export request**: the database reads it as it lies there, takes
from the envelope which times it may believe (`promptpath.storage.ingest.envelope`), and skips the frames.
"""

from __future__ import annotations

import os
import secrets
import struct
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from promptpath.collector.otlp import Request, Signal
from promptpath.storage.ingest import ENVELOPE_BYTES, MAX_AGE_NS, MAX_AHEAD_NS, envelope, envelope_bytes

SUFFIX: Final = ".otlp"
_TAG: Final = b"\xfa\x7f"  # field 2047, length-delimited
_CONTENT: Final = struct.Struct("<III")  # bytes of the body, items in it, CRC-32 of both and of the body
_PREFIX: Final = _TAG + bytes((_CONTENT.size,))
FRAME_BYTES: Final = len(_PREFIX) + _CONTENT.size
#: Buffers of one writev; the kernel's limit is 1,024.
_MAX_BUFFERS: Final = 1000


@dataclass(frozen=True)
class Segment:
    """A sealed segment. `token` is unique for ever: it is the deduplication token of its insert."""

    path: Path
    signal: Signal
    size: int
    items: int
    requests: int
    created_ns: int
    #: The collector's own spans among the items; not known of a segment from before a start.
    own_items: int = 0

    @property
    def token(self) -> str:
        return self.path.stem

    @property
    def envelope(self) -> bytes:
        """What stands before its requests; belongs before any part of them that is stored apart."""
        with self.path.open("rb") as file:
            head = file.read(ENVELOPE_BYTES)
        return head[: envelope_bytes(head)]

    def content(self) -> Path | bytes:
        """What storage is given: the file, without what a failed write may have left behind its end."""
        if self.path.stat().st_size == self.size:
            return self.path
        with self.path.open("rb") as file:
            return file.read(self.size)

    def bodies(self) -> Iterator[tuple[bytes, int]]:
        """The requests in it, each with its item count."""
        with self.path.open("rb") as file:
            data = file.read(self.size)
        for start, end, items in _frames(data):
            yield data[start:end], items


@dataclass(frozen=True)
class Scan:
    """A segment file as a start finds it: what is whole, and the bytes behind that."""

    segment: Segment
    torn: bytes


def scan(path: Path) -> Scan:
    """Reads a segment file up to the first frame that is cut short or fails its checksum."""
    data = path.read_bytes()
    good, items, requests = 0, 0, 0
    for _, end, count in _frames(data):
        good, items, requests = end, items + count, requests + 1
    signal, created_ns = _parse_name(path)
    return Scan(Segment(path, signal, good, items, requests, created_ns), data[good:])


class OpenSegment:
    """A segment that is being written, by one thread."""

    def __init__(self, path: Path, signal: Signal, fd: int, created_ns: int) -> None:
        self.path = path
        self.signal = signal
        self.size = 0
        self.items = 0
        self.requests = 0
        self.own_items = 0
        self.created_ns = created_ns
        self._fd = fd
        self._born = time.monotonic()

    @classmethod
    def create(cls, directory: Path, signal: Signal) -> OpenSegment:
        """A new file. Its name sorts by time and never comes again, whatever the clock does."""
        created_ns = time.time_ns()
        path = directory / f"{created_ns:020d}-{signal.value}-{secrets.token_hex(6)}{SUFFIX}"
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        return cls(path, signal, fd, created_ns)

    def append(self, requests: list[Request]) -> int:
        """Writes requests and syncs them; returns the bytes written. On OSError nothing counts as written."""
        buffers: list[bytes] = []
        total, items = 0, 0
        if self.size == 0:
            buffers.append(envelope(self.created_ns, self.created_ns - MAX_AGE_NS, self.created_ns + MAX_AHEAD_NS))
            total += ENVELOPE_BYTES
        for request in requests:
            buffers.append(_frame(request.body, request.items))
            buffers.append(request.body)
            total += FRAME_BYTES + len(request.body)
            items += request.items
        for start in range(0, len(buffers), _MAX_BUFFERS):
            _write_all(self._fd, buffers[start : start + _MAX_BUFFERS])
        os.fdatasync(self._fd)
        self.size += total
        self.items += items
        self.requests += len(requests)
        self.own_items += sum(request.items for request in requests if request.is_own)
        return total

    def cut(self) -> None:
        """Drops what was written after the last sync that succeeded, as far as the disk lets us."""
        try:
            os.ftruncate(self._fd, self.size)
            os.fdatasync(self._fd)
        except OSError:
            # What is left behind the end is not stored by this process (`Segment.content`). A later start cuts it off,
            # or, if it is whole, stores it although it was refused, and knows the sender's retry again (`repeats`).
            pass

    def close(self) -> None:
        os.close(self._fd)

    def sealed(self) -> Segment:
        return Segment(self.path, self.signal, self.size, self.items, self.requests, self.created_ns, self.own_items)

    def age_s(self) -> float:
        """Seconds since the first request."""
        return time.monotonic() - self._born


def _frame(body: bytes, items: int) -> bytes:
    return _PREFIX + _CONTENT.pack(len(body), items, _checksum(body, items))


def _checksum(body: bytes, items: int) -> int:
    return zlib.crc32(body, zlib.crc32(struct.pack("<II", len(body), items)))


def _frames(data: bytes) -> Iterator[tuple[int, int, int]]:
    """(start, end, items) of every whole request up to the first damage."""
    position = envelope_bytes(data)
    while data.startswith(_PREFIX, position) and position + FRAME_BYTES <= len(data):
        length, items, checksum = _CONTENT.unpack_from(data, position + len(_PREFIX))
        start = position + FRAME_BYTES
        end = start + length
        if end > len(data) or _checksum(data[start:end], items) != checksum:
            return
        yield start, end, items
        position = end


def _write_all(fd: int, buffers: list[bytes]) -> None:
    pending = [memoryview(buffer) for buffer in buffers]
    while pending:
        written = os.writev(fd, pending)
        while pending and written >= len(pending[0]):
            written -= len(pending.pop(0))
        if written:
            pending[0] = pending[0][written:]


def _parse_name(path: Path) -> tuple[Signal, int]:
    created, signal, _ = path.stem.split("-")
    return Signal(signal), int(created)
