"""Who has an embedded store open: one process holds a file lock and says where it serves SQL.

`owner.lock` decides (flock: it is gone the moment its process is); `owner.json` only tells others the pid and the
address.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from promptpath.storage.errors import StorageError, reason

_LOCK_NAME: Final = "owner.lock"
_INFO_NAME: Final = "owner.json"
#: A reader holds a shared lock for an instant while it looks, and an owner has the lock for an instant before it has
#: written who it is: each waits the other out.
_PATIENCE_S: Final = 1.0
_POLL_S: Final = 0.02

_claims: dict[Path, Claim] = {}


@dataclass(frozen=True)
class Owner:
    """The live process that has the store open. `sql_url` is empty until it listens."""

    pid: int
    started: float
    sql_url: str

    @property
    def shown_url(self) -> str:
        """`sql_url` without a token that it may hold, for messages."""
        scheme, sign, rest = self.sql_url.partition("://")
        return scheme + sign + rest.rpartition("@")[2]


class Claim:
    """A held claim on a directory; `release()` it, or let the process end."""

    def __init__(self, directory: Path, lock_fd: int, owner: Owner) -> None:
        self.directory = directory
        self.owner = owner
        self._lock_fd = lock_fd

    def publish(self, sql_url: str) -> None:
        """Tells other processes where SQL is served, e.g. `clickhouse://127.0.0.1:8123/promptpath`."""
        self.owner = Owner(self.owner.pid, self.owner.started, sql_url)
        target = self.directory / _INFO_NAME
        draft = target.with_suffix(".json.new")
        # An address may hold a token: then it is for the directory's owner alone.
        draft.unlink(missing_ok=True)
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if "@" in sql_url else 0o644)
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            file.write(json.dumps(asdict(self.owner)) + "\n")
        os.replace(draft, target)

    def release(self) -> None:
        """Gives the store up. Harmless when called twice, and in a forked child."""
        if self._lock_fd < 0:
            return
        if os.getpid() == self.owner.pid:
            (self.directory / _INFO_NAME).unlink(missing_ok=True)
        os.close(self._lock_fd)
        self._lock_fd = -1
        if _claims.get(self.directory) is self:
            del _claims[self.directory]

    def __enter__(self) -> Claim:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def claim(directory: Path | str, sql_url: str = "") -> Claim:
    """Makes this process the owner of the store in `directory`, which is created where it is missing.

    Raises:
        StorageError: another process has it, or the directory cannot be written.
    """
    path = prepare_directory(directory)
    if path in _claims and _claims[path].owner.pid == os.getpid():
        raise StorageError(f"{path} is in use by this process already: release it first")
    fd = os.open(path / _LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    deadline = time.monotonic() + _PATIENCE_S
    while not _try_lock(fd, fcntl.LOCK_EX):
        if time.monotonic() > deadline:
            os.close(fd)
            holder = _read(path)
            who = f"process {holder.pid}" if holder else "another process"
            raise StorageError(f"{path} is in use by {who}: stop it, or use another directory")
        time.sleep(_POLL_S)
    held = Claim(path, fd, Owner(os.getpid(), time.time(), sql_url))
    _claims[path] = held
    held.publish(sql_url)
    return held


def find(directory: Path | str) -> Owner | None:
    """The live owner of the store in `directory`, or None. What a dead process left behind does not count.

    Raises:
        StorageError: a live owner's `owner.json` cannot be read.
    """
    path = Path(directory)
    mine = claimed_here(path)
    if mine is not None:
        return mine.owner
    try:
        fd = os.open(path / _LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StorageError(
            f"cannot read {path} ({reason(error)}): run as its owner, or use another directory"
        ) from error
    try:
        deadline = time.monotonic() + _PATIENCE_S
        while not _try_lock(fd, fcntl.LOCK_SH):
            found = _read(path)
            if found is not None and _is_alive(found.pid):
                return found
            if time.monotonic() > deadline:
                raise StorageError(
                    f"{path / _INFO_NAME} is damaged while a process has the store open: restart the collector"
                )
            time.sleep(_POLL_S)
        return None
    finally:
        os.close(fd)


def release(directory: Path | str) -> None:
    """Releases this process's claim on `directory`, if it has one."""
    mine = claimed_here(directory)
    if mine is not None:
        mine.release()


def claimed_here(directory: Path | str) -> Claim | None:
    """This process's own claim on `directory`. A claim inherited through a fork is the parent's, not ours."""
    mine = _claims.get(Path(os.path.realpath(directory)))
    return mine if mine is not None and mine.owner.pid == os.getpid() else None


def prepare_directory(directory: Path | str) -> Path:
    """Creates the data directory and checks that it can be written; returns its real path.

    Raises:
        StorageError: it is a file, or may not be written.
    """
    path = Path(os.path.realpath(directory))
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise StorageError(f"{path} is not a directory: use another one in the storage URL") from error
    except OSError as error:
        raise StorageError(f"cannot create {path} ({reason(error)}): use a directory that you may write") from error
    probe = path / f".write-check-{os.getpid()}"
    try:
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise StorageError(
            f"cannot write to {path} ({reason(error)}): give yourself write permission, or use another directory"
        ) from error
    return path


def _try_lock(fd: int, mode: int) -> bool:
    try:
        fcntl.flock(fd, mode | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        raise StorageError(
            f"cannot lock the data directory ({reason(error)}): use one on a local file system"
        ) from error
    return True


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _read(path: Path) -> Owner | None:
    try:
        raw = json.loads((path / _INFO_NAME).read_text())
        return Owner(int(raw["pid"]), float(raw["started"]), str(raw["sql_url"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
