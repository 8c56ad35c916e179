"""Virtual environments for systems that want pins of their own, each made once and kept in the user's cache."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "promptpath-tests"


@contextmanager
def made_once(place: Path, install: Callable[[Path], None]) -> Iterator[None]:
    """A virtual environment, made if it is not there; nobody else changes it meanwhile.

    Args:
        place: its folder; the file `complete` in it says that it is whole.
        install: puts into the new one what it is for.
    """
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{place.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "complete").exists():
            shutil.rmtree(place, ignore_errors=True)
            run(sys.executable, "-m", "venv", str(place))
            install(place)
            (place / "complete").touch()
        yield


def pip(place: Path, *argv: str) -> None:
    """Runs an environment's pip."""
    run(str(place / "bin/python"), "-m", "pip", "--disable-pip-version-check", "--quiet", *argv)


def run(*argv: str) -> None:
    """Runs a command.

    Raises:
        RuntimeError: it failed; with what it printed last.
    """
    done = subprocess.run(argv, capture_output=True, text=True, env=os.environ | {"HF_HUB_OFFLINE": "1"})
    if done.returncode:
        raise RuntimeError(f"{' '.join(argv)} failed:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
