"""The same code over ClickHouse's HTTP interface: a small HTTP server passes what the client sends to a real engine.

No ClickHouse server runs here, so that is as near as it gets: URLs, settings and bodies are as a server gets them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from promptpath.storage import connect, ingest, migrate
from promptpath.storage.queries import prompts
from promptpath.storage.rows import insert_prompts
from tests.engine_server import Listener, served

from .conftest import Store
from .otlp_metric_rows import metric_rows
from .otlp_rows import CAPTURES, requests, same_rows, span_rows, stored
from .prompt_rows import prompt, table


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Listener]:
    # An engine that is given a schema as text keeps a copy in its working directory; a server has a directory for them.
    monkeypatch.chdir(tmp_path)
    with served(tmp_path / "engine") as listener:
        yield listener


class _Remote(Store):
    """A store behind a URL of its own."""

    address: str = ""

    @property
    def url(self) -> str:
        return self.address


def test_the_whole_way_over_http(server: Listener, tmp_path: Path) -> None:
    store = _Remote(tmp_path)
    store.address = f"clickhouse://127.0.0.1:{server.port}/prod"
    try:
        migrate(store.open())
        assert migrate(store.client) == []
        assert store.client.command("SELECT currentDatabase()") == "prod"

        spans = b"".join(requests(CAPTURES / "vllm-detailed" / "traces.pb"))
        metrics = b"".join(requests(CAPTURES / "litellm-v1-metrics" / "metrics.pb"))
        for _ in range(2):
            ingest.insert(store.client, "traces", spans, "t")
            ingest.insert(store.client, "metrics", metrics, "m")
        assert "INSERT INTO otlp_traces FORMAT ProtobufSingle" in {
            " ".join(text.split()) for text in server.engine.seen
        }
        same_rows(stored(store, "otel_traces"), list(span_rows([spans])), "TraceId", "SpanId", "Timestamp")
        tables = {name for name, _ in metric_rows([metrics])}
        assert sum(store.count(name) for name in tables) == len(list(metric_rows([metrics])))
        with pytest.raises(ingest.BadBody):
            ingest.insert(store.client, "traces", b"hello, world", "bad")

        insert_prompts(store.client, table(prompt(1), prompt(2)))
        assert store.count("prompt_minutes") == 1
        reader = store.open(readonly=True)
        assert prompts.list_prompts(reader, model="m").num_rows == 2
    finally:
        store.close()


def test_a_database_that_is_missing_is_not_made_by_a_reader(server: Listener) -> None:
    from promptpath.storage import StorageError

    with pytest.raises(StorageError, match="there is no database 'prod'"):
        connect(f"clickhouse://127.0.0.1:{server.port}/prod", readonly=True)
