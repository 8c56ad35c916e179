"""A store on real chDB for each test."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from promptpath.storage import connect
from tests.fresh_store import lay


@dataclass
class Store:
    """A migrated store and its writing client; `open` makes further clients, closed with the store."""

    directory: Path
    clients: list[Any] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"chdb://{self.directory}"

    @property
    def client(self) -> Any:
        return self.clients[0]

    def open(self, **options: Any) -> Any:
        client = connect(self.url, **options)
        self.clients.append(client)
        return client

    def close(self) -> None:
        while self.clients:
            self.clients.pop().close()

    def count(self, table: str) -> int:
        return int(self.client.command(f"SELECT count() FROM {table}"))

    def dicts(self, query: str, **parameters: Any) -> list[dict[str, Any]]:
        return list(self.client.query(query, parameters=parameters).named_results())


def _opened(directory: Path) -> Iterator[Store]:
    store = Store(directory)
    try:
        lay(directory)
        store.open()
        yield store
    finally:
        store.close()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    yield from _opened(tmp_path / "store")


@pytest.fixture(scope="module")
def shared_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """One store for a whole module; use it alone in a module, for a process has one store open at a time."""
    yield from _opened(tmp_path_factory.mktemp("shared") / "store")
