"""OTLP from files into storage, without a running collector: what `promptpath import` does.

Two forms, as the OpenTelemetry Collector's file exporter writes them: OTLP/JSON, one export request a line, and
protobuf, each request behind its length in 4 bytes, big-endian. The first byte tells them apart: no length up to the
largest that is read begins with `{` or white space.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final

from promptpath.collector.errors import CollectorError
from promptpath.collector.otlp import Malformed, Reader, Request, Signal
from promptpath.storage.ingest import envelope, insert

#: Batches as large as storage likes them.
_BATCH_ITEMS: Final = 20_000
_BATCH_BYTES: Final = 32 << 20
_LENGTH_BYTES: Final = 4
_MAX_REQUEST_BYTES: Final = 128 << 20
_JSON_KEYS: Final = {
    "resourceSpans": Signal.TRACES,
    "resource_spans": Signal.TRACES,
    "resourceMetrics": Signal.METRICS,
    "resource_metrics": Signal.METRICS,
    "resourceLogs": Signal.LOGS,
    "resource_logs": Signal.LOGS,
}


class ImportFailed(CollectorError):
    """A file cannot be imported; the message names the file and the place."""


@dataclass
class Imported:
    """What was stored: items per signal, and items refused because they are invalid by themselves."""

    items: Counter[str] = field(default_factory=Counter)
    rejected: int = 0
    first_reason: str = ""


def import_files(
    client: Any,
    files: Iterable[Path],
    signal: Signal | None = None,
    progress: Callable[[int], None] | None = None,
) -> Imported:
    """Store the requests of files. The same file again stores nothing twice, as long as storage remembers its batches.

    Args:
        client: a client that may write.
        files: paths, each in one of the two forms.
        signal: what protobuf files hold; by default their name says it (`metrics`, `logs`), else traces.
        progress: called with the bytes read so far, over all files.

    Raises:
        ImportFailed: a file that cannot be read, or bytes that are no OTLP. Batches before that are stored.
    """
    done = Imported()
    reader = Reader()
    read_bytes = 0
    for path in files:
        for batch in _batches(_requests(path, reader, signal)):
            bodies = b"".join(request.body for request in batch)
            kind = batch[0].signal
            # What has no time of its own gets the file's, so that the same file again is the same rows again.
            head = envelope(path.stat().st_mtime_ns)
            insert(client, kind.value, head + bodies, f"import-{hashlib.sha256(bodies).hexdigest()}")
            done.items[kind.value] += sum(request.items for request in batch)
            refused = [request for request in batch if request.rejected]
            done.rejected += sum(request.rejected for request in refused)
            if refused and not done.first_reason:
                done.first_reason = refused[0].message
            read_bytes += len(bodies)
            if progress is not None:
                progress(read_bytes)
    return done


def _batches(requests: Iterator[Request]) -> Iterator[list[Request]]:
    """Requests of one signal that follow each other, up to a batch's size."""
    batch: list[Request] = []
    items = size = 0
    for request in requests:
        full = items + request.items > _BATCH_ITEMS or size + len(request.body) > _BATCH_BYTES
        if batch and (full or request.signal is not batch[0].signal):
            yield batch
            batch, items, size = [], 0, 0
        if request.items or request.rejected:
            batch.append(request)
            items += request.items
            size += len(request.body)
    if batch:
        yield batch


def _requests(path: Path, reader: Reader, signal: Signal | None) -> Iterator[Request]:
    try:
        with path.open("rb") as file:
            first = file.peek(1)[:1]
            if first in (b"{", b" ", b"\n", b"\r", b"\t"):
                yield from _json_lines(path, file, reader)
            else:
                yield from _framed(path, file, reader, signal or _signal_of_name(path))
    except OSError as error:
        raise ImportFailed(f"cannot read {path}: {error.strerror or error}") from None


def _json_lines(path: Path, file: BinaryIO, reader: Reader) -> Iterator[Request]:
    for number, line in enumerate(file, 1):
        if not line.strip():
            continue
        try:
            yield reader.read_json(_signal_of_json(line), line)
        except Malformed as error:
            raise ImportFailed(f"{path}:{number}: {error}") from None


def _signal_of_json(line: bytes) -> Signal:
    try:
        keys = json.loads(line)
    except ValueError as error:
        raise Malformed(f"no JSON: {error}") from None
    found = [_JSON_KEYS[key] for key in keys if key in _JSON_KEYS] if isinstance(keys, dict) else []
    if len(found) != 1:
        raise Malformed("no OTLP/JSON request: it has one of resourceSpans, resourceMetrics, resourceLogs")
    return found[0]


def _framed(path: Path, file: BinaryIO, reader: Reader, signal: Signal) -> Iterator[Request]:
    at = 0
    while header := file.read(_LENGTH_BYTES):
        size = int.from_bytes(header, "big")
        body = file.read(size) if len(header) == _LENGTH_BYTES and size <= _MAX_REQUEST_BYTES else b""
        if len(header) < _LENGTH_BYTES or len(body) < size:
            raise ImportFailed(
                f"{path}: cut off at byte {at}, or no file of requests behind 4-byte big-endian lengths; "
                f"OTLP/JSON has one request a line"
            )
        try:
            yield reader.read_protobuf(signal, body)
        except Malformed as error:
            raise ImportFailed(f"{path}: the {signal.value} request at byte {at}: {error}") from None
        at += _LENGTH_BYTES + size


def _signal_of_name(path: Path) -> Signal:
    for signal in (Signal.METRICS, Signal.LOGS):
        if signal.value in path.name.lower():
            return signal
    return Signal.TRACES
