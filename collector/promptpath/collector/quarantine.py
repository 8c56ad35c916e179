"""Requests that storage cannot read, as files that `promptpath import` can: each behind its length in 4 bytes."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from promptpath.collector.segments import Segment

_log = logging.getLogger(__name__)

FOLDER: Final = "quarantine"
#: What the folder may hold; a request over it is dropped, and counted all the same.
MAX_BYTES: Final = 256 << 20
_LENGTH_BYTES: Final = 4


class Quarantine:
    """A folder for its owner's eyes only, of at most `max_bytes`."""

    def __init__(self, directory: Path, max_bytes: int = MAX_BYTES) -> None:
        self.folder = directory / FOLDER
        self._max_bytes = max_bytes

    def add(self, segment: Segment, index: int, body: bytes, items: int, error: Exception) -> bool:
        """Keeps request `index` of a segment, with what storage said of it beside it; False if it is dropped.

        Raises:
            OSError: it cannot be written; try again.
        """
        self.folder.mkdir(mode=0o700, exist_ok=True)
        path = self.folder / f"{segment.token}.{index}.pb"
        framed = len(body).to_bytes(_LENGTH_BYTES, "big") + body
        if self.size_bytes() + len(framed) > self._max_bytes and not path.exists():
            _log.error(
                "storage cannot read a request of %d items, and %s is full: dropped (%s)", items, self.folder, error
            )
            return False
        path.write_bytes(framed)
        path.with_suffix(".txt").write_text(f"{error}\n")
        _log.error("storage cannot read a request of %d items: set aside as %s (%s)", items, path, error)
        return True

    def size_bytes(self) -> int:
        """Bytes in the folder."""
        return sum(file.stat().st_size for file in self.folder.iterdir()) if self.folder.is_dir() else 0
