"""Storage URLs: `chdb:///path` (embedded) and `clickhouse://user:password@host:port/database?secure=1`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from promptpath.storage.errors import StorageError

DATABASE: Final = "promptpath"
#: Parameters of a clickhouse:// URL and the client argument each one sets.
_SERVER_OPTIONS: Final = ("secure", "verify", "ca_cert", "connect_timeout", "send_receive_timeout", "compress")
_FLAGS: Final = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}


def default_dir() -> Path:
    """Where the embedded store lives unless a URL says otherwise (XDG base directories)."""
    base = os.environ.get("XDG_DATA_HOME") or os.path.join(os.path.expanduser("~"), ".local", "share")
    return Path(base) / "promptpath"


@dataclass(frozen=True)
class EmbeddedUrl:
    """`chdb:///directory`: the engine's files are in `directory/chdb`."""

    directory: Path
    database: str = DATABASE


@dataclass(frozen=True)
class ServerUrl:
    """`clickhouse://…`: a ClickHouse server, or anything else that speaks its HTTP interface."""

    host: str
    port: int
    database: str
    username: str
    password: str
    options: tuple[tuple[str, str | bool | int], ...]

    @property
    def shown(self) -> str:
        """The address without its password, for messages."""
        return f"{self.host}:{self.port}/{self.database}"


def parse(url: str) -> EmbeddedUrl | ServerUrl:
    """Reads a storage URL.

    Raises:
        StorageError: the URL is not one of the two forms.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise StorageError(
            f"{url!r} is no storage URL ({error}): use chdb:///directory or clickhouse://host:port/database"
        ) from error
    if parts.scheme == "chdb":
        return _embedded(url, parts.netloc, unquote(parts.path), parts.query)
    if parts.scheme != "clickhouse":
        raise StorageError(
            f"{url!r} is no storage URL: use chdb:///directory (embedded) or clickhouse://user:password@host:8123/database"
        )
    if not parts.hostname:
        raise StorageError(f"{url!r} names no host: use clickhouse://user:password@host:8123/database")
    options = dict(_option(url, key, value) for key, value in parse_qsl(parts.query, keep_blank_values=True))
    database = unquote(parts.path.strip("/")) or DATABASE
    if not database.replace("_", "").isalnum():
        raise StorageError(f"{database!r} is no database name: use letters, digits and underscores")
    return ServerUrl(
        host=parts.hostname,
        port=port or (8443 if options.get("secure") else 8123),
        database=database,
        username=unquote(parts.username or "default"),
        password=unquote(parts.password or ""),
        options=tuple(options.items()),
    )


def _embedded(url: str, netloc: str, path: str, query: str) -> EmbeddedUrl:
    if netloc or not path.startswith("/"):
        raise StorageError(f"{url!r} lacks an absolute directory: use three slashes, as in chdb:///var/lib/promptpath")
    if query:
        raise StorageError(f"{url!r}: a chdb URL takes no parameters; leave out ?{query}")
    return EmbeddedUrl(Path(path))


def _option(url: str, key: str, value: str) -> tuple[str, str | bool | int]:
    if key not in _SERVER_OPTIONS:
        raise StorageError(f"{key!r} is no parameter of a storage URL: use one of {', '.join(_SERVER_OPTIONS)}")
    if key in ("secure", "verify", "compress"):
        flag = _FLAGS.get(value.lower() or "1")
        if flag is None:
            raise StorageError(f"{key}={value} in a storage URL: use {key}=1 or {key}=0")
        return key, flag
    if key.endswith("timeout"):
        if not value.isdigit() or int(value) == 0:
            raise StorageError(f"{key}={value} in a storage URL: use whole seconds")
        return key, int(value)
    return key, value
