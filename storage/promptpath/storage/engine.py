"""The embedded engine: chDB handles on one directory, one handle a thread."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from promptpath.storage import owner
from promptpath.storage.errors import StorageError, reason
from promptpath.storage.limits import OUTPUT_SETTINGS, reader_settings
from promptpath.storage.urls import DATABASE

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

ENGINE_DIR: Final = "chdb"
#: Memory caps of the engine. Its own defaults (5 GiB of marks, 90 % of the machine) are a server's, not a guest's.
ENGINE_OPTIONS: Final[Mapping[str, str]] = {
    "mark_cache_size": str(256 << 20),
    "max_server_memory_usage": str(4 << 30),
}

#: Reentrant: a handle that is collected while another is opened on the same thread gives itself back under it.
_lock = threading.RLock()
_handles: dict[Path, int] = {}
_own_claims: dict[Path, owner.Claim] = {}


def open_client(
    directory: Path,
    *,
    database: str = DATABASE,
    readonly: bool = False,
    settings: Mapping[str, Any] | None = None,
    engine_options: Mapping[str, Any] | None = None,
) -> Client:
    """A new handle on the engine in `directory/chdb`; for use by one thread at a time.

    Takes the directory's claim for this process if nobody has it, and keeps it until the last handle is closed.

    Raises:
        StorageError: another process has the store, the directory cannot be used, or (read-only) it holds no data.
    """
    path = Path(os.path.realpath(directory))
    if readonly and not (path / ENGINE_DIR).is_dir():
        raise StorageError(f"no data in {path}: start `promptpath collector` or `promptpath demo` first")
    with _lock:
        _retain(path)
    try:
        return _open(path, database, readonly, settings, {**ENGINE_OPTIONS, **(engine_options or {})})
    except BaseException:
        _drop(path)
        raise


def _open(
    path: Path, database: str, readonly: bool, settings: Mapping[str, Any] | None, options: Mapping[str, Any]
) -> Client:
    try:
        import chdb  # noqa: F401
        import clickhouse_connect
    except ImportError as error:
        raise StorageError(f"the embedded store needs {error.name}: pip install 'promptpath[collector]'") from error
    engine_dir = path / ENGINE_DIR
    common: dict[str, Any] = {
        "interface": "chdb",
        "path": str(engine_dir),
        "chdb_options": {key: str(value) for key, value in options.items()},
    }
    try:
        if not (readonly and (engine_dir / "metadata" / f"{database}.sql").exists()):
            # Not the default database: that one is an Overlay, in which refreshable views fail.
            first = clickhouse_connect.get_client(**common)
            first.command(f"CREATE DATABASE IF NOT EXISTS {database} ENGINE = Atomic")
            first.close()
        applied = reader_settings(settings) if readonly else {**OUTPUT_SETTINGS, **(settings or {})}
        client: Client = clickhouse_connect.get_client(**common, database=database, settings=applied)
    except Exception as error:
        raise StorageError(_open_failure(path, error)) from error
    _release_on_close(client, path)
    return client


def _open_failure(path: Path, error: Exception) -> str:
    text = str(error)
    if ("different" in text and "path" in text) or ("already" in text.lower() and "initialized" in text.lower()):
        return (
            f"this process has another store than {path} open: close its clients first, one process opens one directory"
        )
    if "EmbeddedServer" in text or "Cannot lock" in text:
        return f"the store in {path} is open in another process: stop it, or ask its SQL endpoint"
    return f"cannot open the store in {path}: {reason(error)}; move its folder `{ENGINE_DIR}` away to start anew"


def _retain(path: Path) -> None:
    if _handles.get(path, 0) == 0 and owner.claimed_here(path) is None:
        _own_claims[path] = owner.claim(path)
    _handles[path] = _handles.get(path, 0) + 1


def _drop(path: Path) -> None:
    with _lock:
        _handles[path] = max(_handles.get(path, 0) - 1, 0)
        if _handles[path] == 0 and path in _own_claims:
            _own_claims.pop(path).release()


def _release_on_close(client: Client, path: Path) -> None:
    done = weakref.finalize(client, _drop, path)
    close = client.close
    weak_close = weakref.WeakMethod(close)

    def closing() -> None:
        method = weak_close()
        if method is not None:
            method()
        done()

    client.close = closing  # type: ignore[method-assign]
