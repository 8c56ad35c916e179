"""Storage: the schema, its migrations, one client for chDB and ClickHouse, ingest and named queries."""

from __future__ import annotations

from promptpath.storage.connection import DEFAULT_URL, ClientFactory, client_factory, connect, data_dir
from promptpath.storage.engine import open_client as embedded
from promptpath.storage.errors import StorageError
from promptpath.storage.migrating import migrate
from promptpath.storage.schema import Migration

__all__ = [
    "DEFAULT_URL",
    "ClientFactory",
    "Migration",
    "StorageError",
    "client_factory",
    "connect",
    "data_dir",
    "embedded",
    "migrate",
]
