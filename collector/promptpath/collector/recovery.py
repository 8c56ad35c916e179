"""What a start finds in a journal's directory: whole segments to store, and torn ends, which are set aside."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from promptpath.collector import segments
from promptpath.collector.segments import Segment

_log = logging.getLogger(__name__)

_TORN_DIR: Final = "torn"
#: What `torn/` may hold; bytes over that are cut off all the same.
_TORN_BYTES: Final = 64 << 20


@dataclass
class Found:
    """Segments, the oldest first, each with its time of last change [ns]; bytes that a crash tore off."""

    segments: list[tuple[Segment, int]] = field(default_factory=list)
    torn_bytes: int = 0


def recover(directory: Path) -> Found:
    """Makes every segment of a directory whole: what stands behind its last whole request is cut off."""
    found = Found()
    for path in sorted(directory.glob(f"*{segments.SUFFIX}")):
        changed_ns = path.stat().st_mtime_ns
        scan = segments.scan(path)
        if scan.torn:
            found.torn_bytes += len(scan.torn)
            _set_torn_aside(path, scan.torn)
            os.truncate(path, scan.segment.size)
        if not scan.segment.requests:
            path.unlink()
            continue
        found.segments.append((scan.segment, changed_ns))
    return found


def _set_torn_aside(path: Path, torn: bytes) -> None:
    """Nobody was told that they are kept, so a disk without room for them is no reason not to start."""
    folder = path.parent / _TORN_DIR
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        held = sum(file.stat().st_size for file in folder.iterdir())
        if held + len(torn) > _TORN_BYTES:
            raise OSError(0, f"{folder} is full")
        (folder / f"{path.stem}.bin").write_bytes(torn)
    except OSError as error:
        _log.warning("%s: %d bytes after the last whole request dropped (%s)", path.name, len(torn), error.strerror)
    else:
        _log.warning("%s: %d bytes after the last whole request set aside in %s/", path.name, len(torn), _TORN_DIR)
