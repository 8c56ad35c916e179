"""`connect()`: one client for an embedded store and for a ClickHouse server."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from promptpath.storage import engine, owner
from promptpath.storage.cluster import CLUSTER_SETTINGS, create_database
from promptpath.storage.errors import StorageError, reason
from promptpath.storage.limits import OUTPUT_SETTINGS, reader_settings
from promptpath.storage.urls import EmbeddedUrl, ServerUrl, default_dir, parse

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

DEFAULT_URL = f"chdb://{default_dir()}"


class ClientFactory(Protocol):
    """Makes clients; call it once in each thread, for a client serves one thread at a time."""

    def __call__(self, *, readonly: bool = False, settings: Mapping[str, Any] | None = None) -> Client: ...


def connect(
    url: str | None = None,
    *,
    readonly: bool = False,
    settings: Mapping[str, Any] | None = None,
    engine_options: Mapping[str, Any] | None = None,
) -> Client:
    """Opens a store. Use one client a thread.

    Args:
        url: `chdb:///directory` (default: `chdb://` and the user's data directory) or
            `clickhouse://user:password@host:port,host:port/database?secure=1`, where any of several hosts that hold the
            same data may answer.
        readonly: apply the bounds of `limits.READER_LIMITS` and allow reading only. Such a client takes no settings
            with a query: give them here. Of an embedded store that this process opens itself, `readonly` refuses writes
            and bounds queries; it does not keep the caller from files that this process may read (decision 0005).
        settings: ClickHouse settings of the session; with `readonly` they change the bounds.
        engine_options: options of the embedded engine such as `mark_cache_size`, `max_server_memory_usage` (bytes).

    An embedded store that another live process owns is reached over that process's SQL endpoint, which is read-only.

    Raises:
        StorageError: a bad URL, no permission, nobody answers, or the store is in use by a process that serves no SQL.
    """
    target = parse(url if url is not None else f"chdb://{default_dir()}")
    if isinstance(target, ServerUrl):
        return _server(target, readonly=readonly, settings=settings)
    return _embedded(target, readonly=readonly, settings=settings, engine_options=engine_options)


def client_factory(url: str | None = None, *, engine_options: Mapping[str, Any] | None = None) -> ClientFactory:
    """A factory of clients of one store, for programs with several threads."""
    return partial(connect, url, engine_options=engine_options)


def cluster_of(url: str | None = None) -> str:
    """The cluster that a storage URL names; empty for none."""
    target = parse(url) if url is not None else None
    return target.cluster if isinstance(target, ServerUrl) else ""


def data_dir(url: str | None = None) -> Path | None:
    """The directory of an embedded store; None for a server."""
    target = parse(url if url is not None else f"chdb://{default_dir()}")
    return target.directory if isinstance(target, EmbeddedUrl) else None


def _embedded(
    target: EmbeddedUrl,
    *,
    readonly: bool,
    settings: Mapping[str, Any] | None,
    engine_options: Mapping[str, Any] | None,
) -> Client:
    directory = target.directory
    if directory.exists() and not directory.is_dir():
        raise StorageError(f"{directory} is not a directory: use another one in the storage URL")
    if owner.claimed_here(directory) is None:
        live = owner.find(directory)
        if live is not None:
            if not live.sql_url:
                raise StorageError(
                    f"the store in {directory} is in use by process {live.pid}, "
                    "which serves no SQL (yet): wait, or stop it"
                )
            served = parse(live.sql_url)
            if not isinstance(served, ServerUrl):
                raise StorageError(f"{directory}/owner.json names no clickhouse:// address: restart the collector")
            _unverified_is_meant(served)
            return _server(served, readonly=readonly, settings=settings)
    return engine.open_client(
        directory, database=target.database, readonly=readonly, settings=settings, engine_options=engine_options
    )


def _unverified_is_meant(served: ServerUrl) -> None:
    """An owner that says so is on this machine: no warning for each request."""
    if not dict(served.options).get("verify", True):
        warnings.filterwarnings("ignore", message="Unverified HTTPS request", module="urllib3")


def _server(target: ServerUrl, *, readonly: bool, settings: Mapping[str, Any] | None) -> Client:
    try:
        import clickhouse_connect
        from clickhouse_connect.driver.exceptions import ClickHouseError, DatabaseError
    except ImportError as error:
        raise StorageError(f"storage needs {error.name}: pip install 'promptpath[collector]'") from error
    # Without a handler its warnings would go to stderr, beside the error that is raised for the same reason.
    logging.getLogger("clickhouse_connect").addHandler(logging.NullHandler())
    if target.cluster:
        settings = {**CLUSTER_SETTINGS, **(settings or {})}
    applied = reader_settings(settings) if readonly else {**OUTPUT_SETTINGS, **(settings or {})}
    host, port = target.hosts[0]
    options: dict[str, Any] = dict(target.options)
    if len(target.hosts) > 1:
        from promptpath.storage.failover import pool_for

        options["pool_mgr"] = pool_for(target.hosts, options)
    open_one = partial(
        clickhouse_connect.get_client,
        host=host,
        port=port,
        username=target.username,
        password=target.password,
        settings=applied,
        # A session would allow one query at a time over all threads and outlive an error.
        autogenerate_session_id=False,
        **options,
    )
    try:
        try:
            client: Client = open_one(database=target.database)
        except DatabaseError as error:
            if readonly or "UNKNOWN_DATABASE" not in str(error):
                raise
            first = open_one()
            first.command(create_database(target.database, target.cluster))
            first.close()
            client = open_one(database=target.database)
    except (ClickHouseError, OSError) as error:
        raise StorageError(_server_failure(target, error)) from error
    return client


def _server_failure(target: ServerUrl, error: Exception) -> str:
    text = str(error)
    if any(word in text for word in ("AUTHENTICATION_FAILED", "REQUIRED_PASSWORD", "WRONG_PASSWORD")):
        return f"{target.shown} refused user {target.username!r}: check user and password in the storage URL"
    if "UNKNOWN_DATABASE" in text:
        return (
            f"{target.shown}: there is no database {target.database!r}; start the collector with this URL to create it"
        )
    return f"cannot reach ClickHouse at {target.shown} ({reason(error, 160)}): check that it runs and the storage URL"
