"""A store of this release's schema, laid where a test wants one: made once, then copied; migrating takes seconds."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Final

from promptpath.storage.engine import ENGINE_DIR

_MAKE: Final = """
import sys
from promptpath.storage import connect, migrate
client = connect(sys.argv[1])
migrate(client)
client.close()
"""


def lay(directory: Path) -> None:
    """Puts an empty, migrated store into a directory that has none; what cannot be written is left to the test."""
    target = directory / ENGINE_DIR
    if target.exists():
        return
    with contextlib.suppress(OSError):
        directory.mkdir(parents=True, exist_ok=True)
        shutil.copytree(_template() / ENGINE_DIR, target, symlinks=True)


@lru_cache(maxsize=1)
def _template() -> Path:
    """In a process of its own: one process opens one directory at a time."""
    folder = tempfile.TemporaryDirectory(prefix="promptpath-template-")
    _kept.append(folder)
    subprocess.run([sys.executable, "-c", _MAKE, f"chdb://{folder.name}"], check=True)
    return Path(folder.name)


#: Removed when the interpreter ends.
_kept: list[tempfile.TemporaryDirectory[str]] = []
