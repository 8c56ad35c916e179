"""An embedded store with prompts made by rule, and a reader as the dashboard has it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest

from promptpath.storage import connect, migrate
from promptpath.storage.queries import dashboard
from promptpath.storage.rows import insert_prompts

from .rows import prompt_rows

S: Final = 1_000_000_000
#: Ten minutes from 2026-01-01 10:00 UTC.
SINCE_NS: Final = 1_767_261_600 * S
UNTIL_NS: Final = SINCE_NS + 600 * S
COUNT: Final = 1_000


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A store that holds `COUNT` prompts; a client stays open, so that it keeps its owner."""
    url = f"chdb://{tmp_path_factory.mktemp('store')}"
    client = connect(url)
    migrate(client)
    insert_prompts(client, prompt_rows(COUNT, seed=5, since_ns=SINCE_NS, until_ns=UNTIL_NS))
    yield url
    client.close()


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    """What was stored, as dictionaries, times as integers."""
    table = prompt_rows(COUNT, seed=5, since_ns=SINCE_NS, until_ns=UNTIL_NS)
    starts = table.column("start_time").cast("int64").to_pylist()
    plain = table.drop_columns(["start_time", "end_time", "assembled_at"]).to_pylist()
    return [{**row, "start_ns": start} for row, start in zip(plain, starts, strict=True)]


@pytest.fixture
def reader(url: str) -> Iterator[Any]:
    """A read-only client with the pages' bounds."""
    client = connect(url, readonly=True, settings=dashboard.LIMITS)
    yield client
    client.close()
