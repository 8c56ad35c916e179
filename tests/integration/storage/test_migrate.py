"""Migrations: once each, in order, whoever runs them, and never over a schema that is another."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from promptpath.storage import StorageError, connect, migrate
from promptpath.storage.schema import migrations

_TABLES = {
    "otel_traces",
    "otel_traces_trace_id_ts",
    "otel_logs",
    "otel_metrics_gauge",
    "otel_metrics_sum",
    "otel_metrics_histogram",
    "otel_metrics_exponential_histogram",
    "otel_metrics_summary",
    "prompts",
    "prompt_minutes",
    "counters",
    "workflows",
    "clock_offsets",
    "alerts",
    "incidents",
    "schema_migrations",
    "trace_arrivals",
    "assembler_state",
}


@pytest.fixture
def client(tmp_path: Path) -> Any:
    client = connect(f"chdb://{tmp_path / 'store'}")
    yield client
    client.close()


def test_everything_once(client: Any) -> None:
    wanted = list(migrations())
    assert migrate(client, dry_run=True) == wanted
    assert client.query("SHOW TABLES").result_rows == []
    assert migrate(client) == wanted
    assert {name for (name,) in client.query("SHOW TABLES").result_rows} >= _TABLES
    assert migrate(client) == []
    assert migrate(client, dry_run=True) == []
    rows = client.query("SELECT version, name, checksum FROM schema_migrations ORDER BY version").result_rows
    assert rows == [(step.version, step.name, step.checksum) for step in wanted]


def test_the_database_may_hold_refreshable_views(client: Any) -> None:
    assert client.command("SELECT engine FROM system.databases WHERE name = currentDatabase()") == "Atomic"


def test_goes_on_where_it_was_interrupted(client: Any) -> None:
    migrate(client)
    client.command("ALTER TABLE schema_migrations DELETE WHERE version >= 3 SETTINGS mutations_sync = 2")
    client.command("DROP TABLE otel_logs")
    assert [step.version for step in migrate(client)] == [step.version for step in migrations()[2:]]
    assert client.command("SELECT count() FROM otel_logs") == 0


def test_another_schema_is_left_alone(client: Any) -> None:
    migrate(client)
    client.command("ALTER TABLE schema_migrations UPDATE checksum = 'x' WHERE version = 2 SETTINGS mutations_sync = 2")
    with pytest.raises(StorageError, match=r"migration 0002_prompts differs .* use another store"):
        migrate(client)


def test_a_newer_schema_is_left_alone(client: Any) -> None:
    migrate(client)
    client.command("INSERT INTO schema_migrations (version, name, checksum) SELECT 999, 'future', 'x'")
    with pytest.raises(StorageError, match=r"schema version 999, this release knows .* upgrade promptpath"):
        migrate(client)


def test_a_reader_cannot_migrate_and_is_told_so(client: Any, tmp_path: Path) -> None:
    reader = connect(f"chdb://{tmp_path / 'store'}", readonly=True)
    try:
        with pytest.raises(StorageError, match="without `readonly`"):
            migrate(reader)
    finally:
        reader.close()


_RACE = """
import sys
from promptpath.storage import StorageError, connect, migrate
while True:
    try:
        client = connect(sys.argv[1])
        break
    except StorageError as error:
        if "in use" not in str(error):
            raise
print(len(migrate(client)))
client.close()
"""


def test_several_processes_at_once(tmp_path: Path) -> None:
    """They take turns, for one process at a time has the store; exactly one of them migrates."""
    command = [sys.executable, "-c", _RACE, f"chdb://{tmp_path / 'store'}"]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    outputs = [process.communicate(timeout=120)[0] for process in processes]
    assert sorted(int(output) for output in outputs) == [0, 0, len(migrations())]


def test_two_clients_of_one_process_at_once(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    url = f"chdb://{tmp_path / 'store'}"
    clients = [connect(url) for _ in range(4)]
    try:
        with ThreadPoolExecutor(4) as pool:
            done = [len(steps) for steps in pool.map(migrate, clients)]
        assert sum(done) >= len(migrations())
        rows = clients[0].query("SELECT version FROM schema_migrations ORDER BY version").result_rows
        assert [version for (version,) in rows] == [step.version for step in migrations()]
    finally:
        for client in clients:
            client.close()
