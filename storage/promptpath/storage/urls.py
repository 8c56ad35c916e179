"""Storage URLs: `chdb:///path` (embedded) and `clickhouse://user:password@host:port,host:port/database?secure=1`."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from promptpath.storage.errors import StorageError

DATABASE: Final = "promptpath"
#: Parameters of a clickhouse:// URL and the client argument each one sets; `cluster` is ours.
_SERVER_OPTIONS: Final = (
    "secure",
    "verify",
    "ca_cert",
    "client_cert",
    "client_cert_key",
    "connect_timeout",
    "send_receive_timeout",
    "compress",
    "cluster",
)
_FLAGS: Final = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
#: A macro such as `{cluster}`, or a name as it stands in a server's `remote_servers`.
_CLUSTER: Final = re.compile(r"\{\w+\}|[A-Za-z_][\w.-]*")
#: `user:password@` in a URL, whatever else is wrong with it.
_SECRET: Final = re.compile(r"(?<=://)([^/@:]*):.*@(?=[^@]*$)", re.DOTALL)

Host = tuple[str, int]


def default_dir() -> Path:
    """Where the embedded store lives unless a URL says otherwise (XDG base directories)."""
    base = os.environ.get("XDG_DATA_HOME") or os.path.join(os.path.expanduser("~"), ".local", "share")
    return Path(base) / "promptpath"


def redacted(url: str) -> str:
    """A URL as it may be shown: `***` in place of a password."""
    return _SECRET.sub(r"\1:***@", url)


@dataclass(frozen=True)
class EmbeddedUrl:
    """`chdb:///directory`: the engine's files are in `directory/chdb`."""

    directory: Path
    database: str = DATABASE


@dataclass(frozen=True)
class ServerUrl:
    """`clickhouse://…`: ClickHouse servers that hold the same data, or others that speak its HTTP interface.

    hosts: in the order in which they are tried. options: arguments of the client. cluster: name (or `{macro}`) of the
    cluster that the schema is spread over; empty for a single server.
    """

    hosts: tuple[Host, ...]
    database: str
    username: str
    password: str
    options: tuple[tuple[str, str | bool | int], ...] = ()
    cluster: str = ""

    def __repr__(self) -> str:
        return f"ServerUrl({self.username}@{self.shown})"

    @property
    def shown(self) -> str:
        """The address without user and password, for messages."""
        return ",".join(f"{bracketed(host)}:{port}" for host, port in self.hosts) + f"/{self.database}"


def parse(url: str) -> EmbeddedUrl | ServerUrl:
    """Reads a storage URL.

    Raises:
        StorageError: the URL is not one of the two forms.
    """
    shown = redacted(url)
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise StorageError(
            f"{shown!r} is no storage URL ({error}): use chdb:///directory or clickhouse://host:port/database"
        ) from None
    if parts.scheme == "chdb":
        return _embedded(shown, parts.netloc, unquote(parts.path), parts.query)
    if parts.scheme != "clickhouse":
        raise StorageError(
            f"{shown!r} is no storage URL: use chdb:///directory (embedded) or clickhouse://user:password@host:8123/database"
        )
    options = dict(_option(key, value) for key, value in parse_qsl(parts.query, keep_blank_values=True))
    cluster = str(options.pop("cluster", ""))
    database = unquote(parts.path.strip("/")) or DATABASE
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", database):
        raise StorageError(f"{database!r} is no database name: use letters, digits and underscores")
    credentials, _, addresses = parts.netloc.rpartition("@")
    user, _, password = credentials.partition(":")
    default_port = 8443 if options.get("secure") else 8123
    return ServerUrl(
        hosts=tuple(_host(shown, address, default_port) for address in addresses.split(",")),
        database=database,
        username=unquote(user) or "default",
        password=unquote(password),
        options=tuple(options.items()),
        cluster=cluster,
    )


def _host(shown: str, address: str, default_port: int) -> Host:
    found = re.fullmatch(r"(\[[0-9A-Fa-f:.%]+\]|[^\[\]:\s]+)(?::(\d+))?", address)
    if found is None:
        raise StorageError(f"{shown!r} names no host: use clickhouse://user:password@host:8123/database")
    port = int(found[2] or default_port)
    if not 0 < port < 65536:
        raise StorageError(
            f"{shown!r} is no storage URL (port {port}): use chdb:///directory or clickhouse://host:port/database"
        )
    return found[1].strip("[]"), port


def bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _embedded(shown: str, netloc: str, path: str, query: str) -> EmbeddedUrl:
    if netloc or not path.startswith("/"):
        raise StorageError(
            f"{shown!r} lacks an absolute directory: use three slashes, as in chdb:///var/lib/promptpath"
        )
    if query:
        raise StorageError(f"{shown!r}: a chdb URL takes no parameters; leave out ?{query}")
    return EmbeddedUrl(Path(path))


def _option(key: str, value: str) -> tuple[str, str | bool | int]:
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
    if key == "cluster":
        return key, cluster_name(value)
    if not Path(value).is_file():
        raise StorageError(f"{key}={value} in a storage URL: there is no such file")
    return key, value


def cluster_name(text: str) -> str:
    """A name of a cluster, or a macro such as `{cluster}`, checked: it goes into DDL.

    Raises:
        StorageError: it is neither.
    """
    if not _CLUSTER.fullmatch(text):
        raise StorageError(f"{text!r} is no name of a cluster: use letters, digits, underscores, or a {{macro}}")
    return text
