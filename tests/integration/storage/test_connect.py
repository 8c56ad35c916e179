"""Clients: who may open a store, what a reader may do, and what is said when it does not work."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from clickhouse_connect.driver.exceptions import DatabaseError

from promptpath.storage import StorageError, client_factory, connect, owner

_CONNECT = """
import sys
from promptpath.storage import StorageError, connect
try:
    client = connect(sys.argv[1], readonly=len(sys.argv) > 2)
    print(client.command("SELECT currentDatabase()"))
except StorageError as error:
    print(error)
"""


def _elsewhere(url: str, *arguments: str) -> str:
    command = [sys.executable, "-c", _CONNECT, url, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    return done.stdout.strip()


# --- who has the store ------------------------------------------------------------------------------------------------


def test_another_process_is_sent_away_while_no_sql_is_served(store: Any) -> None:
    said = _elsewhere(store.url)
    assert f"in use by process {os.getpid()}" in said
    assert "\n" not in said
    store.close()
    assert _elsewhere(store.url) == "promptpath"


def test_another_process_is_sent_to_the_owner_of_the_store(store: Any) -> None:
    claim = owner.claimed_here(store.directory)
    assert claim is not None
    claim.publish("clickhouse://127.0.0.1:1/promptpath")
    assert _elsewhere(store.url) == (
        "cannot reach ClickHouse at 127.0.0.1:1/promptpath (Connection refused): check that it runs and the storage URL"
    )
    claim.publish("chdb:///somewhere")
    assert "restart the collector" in _elsewhere(store.url)


def test_an_owner_may_claim_first_and_open_then(tmp_path: Path) -> None:
    with owner.claim(tmp_path):
        client = connect(f"chdb://{tmp_path}")
        client.close()
        found = owner.find(tmp_path)
        assert found is not None
        assert found.pid == os.getpid()


def test_one_process_opens_one_store_and_may_change_it(store: Any, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="close its clients first"):
        connect(f"chdb://{tmp_path / 'other'}")
    store.close()
    connect(f"chdb://{tmp_path / 'other'}").close()
    assert owner.find(tmp_path / "other") is None


def test_a_forgotten_client_gives_the_store_back(tmp_path: Path) -> None:
    client = connect(f"chdb://{tmp_path}")
    assert owner.find(tmp_path) is not None
    del client
    assert owner.find(tmp_path) is None


def test_a_client_in_each_thread(store: Any) -> None:
    factory = client_factory(store.url)
    results: list[int] = []

    def work() -> None:
        client = factory(readonly=True)
        try:
            results.extend(int(client.command("SELECT sum(number) FROM numbers(1000)")) for _ in range(20))
        finally:
            client.close()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [499_500] * 80


# --- what a reader may do ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO otel_traces (TraceId) SELECT 'x'",
        "DROP TABLE otel_traces",
        "ALTER TABLE otel_traces DELETE WHERE 1",
        "CREATE TABLE t (x Int8) ENGINE = Memory",
        "SET readonly = 0",
        "SET max_execution_time = 0",
        "SELECT * FROM file('/etc/passwd', 'LineAsString')",
        "SELECT * FROM url('http://127.0.0.1:1/', 'LineAsString')",
        "SELECT 1 SETTINGS max_result_rows = 0",
    ],
)
def test_a_reader_only_reads(store: Any, statement: str) -> None:
    reader = store.open(readonly=True)
    with pytest.raises(DatabaseError, match=r"READONLY|readonly"):
        reader.command(statement)
    # The writer beside it is not touched by that, nor the reader.
    store.client.command("INSERT INTO otel_traces (TraceId) SELECT 'x'")
    assert int(reader.command("SELECT count() FROM otel_traces")) == 1


@pytest.mark.parametrize(
    ("limit", "query", "error"),
    [
        ({"max_result_rows": 10}, "SELECT number FROM numbers(11)", "TOO_MANY_ROWS_OR_BYTES"),
        ({"max_result_bytes": 10}, "SELECT number FROM numbers(1000)", "TOO_MANY_ROWS_OR_BYTES"),
        ({"max_rows_to_read": 100}, "SELECT count() FROM numbers(1000) WHERE number % 2", "TOO_MANY_ROWS"),
        (
            {"max_execution_time": 1, "max_rows_to_read": 0, "max_bytes_to_read": 0},
            "SELECT sum(cityHash64(number)) FROM numbers(1000000000000)",
            "TIMEOUT_EXCEEDED",
        ),
        ({"max_memory_usage": 10_000_000}, "SELECT groupArray(number) FROM numbers(100000000)", "MEMORY_LIMIT"),
    ],
)
def test_a_query_over_its_bounds_fails_with_a_clear_error(
    store: Any, limit: dict[str, int], query: str, error: str
) -> None:
    reader = store.open(readonly=True, settings=limit)
    with pytest.raises(DatabaseError, match=error):
        reader.query(query)
    assert reader.command("SELECT 1") == 1


def test_every_reader_is_bounded(store: Any) -> None:
    reader = store.open(readonly=True)
    bounds = "('max_result_rows', 'max_result_bytes', 'max_execution_time', 'max_memory_usage', 'max_bytes_to_read')"
    rows = reader.query(f"SELECT name, value FROM system.settings WHERE name IN {bounds}").result_rows
    assert len(rows) == 5
    assert all(int(value) > 0 for _, value in rows)


def test_a_reader_gets_arrow_with_plain_strings_and_exact_times(store: Any) -> None:
    store.client.command("INSERT INTO otel_traces (Timestamp, SpanName) SELECT toDateTime64(1.000000001, 9), 'n'")
    found = store.open(readonly=True).query_arrow("SELECT Timestamp, SpanName FROM otel_traces")
    assert str(found.schema.field("SpanName").type) == "string"
    assert str(found.schema.field("Timestamp").type).startswith("timestamp[ns")
    assert found.column("Timestamp").cast("int64").to_pylist() == [1_000_000_001]


# --- what does not work -----------------------------------------------------------------------------------------------


def test_a_reader_of_nothing(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"no data in .*: start `promptpath collector`"):
        connect(f"chdb://{tmp_path / 'none'}", readonly=True)
    assert not (tmp_path / "none").exists()


def test_a_file_in_place_of_the_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="is not a directory: use another one"):
        connect(f"chdb://{tmp_path / 'file'}")


def test_a_directory_that_nobody_may_write() -> None:
    said = _elsewhere("chdb:///proc/self")
    assert "cannot write to /proc/" in said
    assert "\n" not in said


def test_nobody_answers() -> None:
    said = _elsewhere("clickhouse://127.0.0.1:1/x", "readonly")
    assert said.startswith("cannot reach ClickHouse at 127.0.0.1:1/x (Connection refused)")
