"""Several processes that migrate one server at once, and one that dies while it does."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from promptpath.storage import StorageError, connect, migrate, migration_lock
from promptpath.storage.schema import migrations

_ALL = [migration.version for migration in migrations()]
_MIGRATE = """
import sys
from promptpath.storage import connect, migrate
client = connect(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
print([step.version for step in migrate(client)], flush=True)
"""
_SLOWLY = """
import sys, time
from promptpath.storage import connect, migrate, migrating
client = connect(sys.argv[1])
def stopping(*arguments, apply=migrating._apply):
    apply(*arguments)
    print("applied", arguments[1].version, flush=True)
    time.sleep(3600 if arguments[1].version == 3 else 0)
migrating._apply = stopping
migrate(client)
"""


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """A server in a process of its own."""
    command = [sys.executable, str(Path(__file__).parents[2] / "engine_server.py"), str(tmp_path / "engine")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path)
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.communicate()


def _versions(client: Any) -> list[int]:
    rows = client.query("SELECT version FROM schema_migrations ORDER BY version").result_rows
    return [int(version) for (version,) in rows]


def _locks(client: Any) -> list[str]:
    return [name for (name,) in client.query("SHOW TABLES LIKE 'schema\\\\_lock\\\\_%'").result_rows]


def test_one_of_many_migrates(port: int) -> None:
    connect(f"clickhouse://127.0.0.1:{port}/shared").close()
    command = [sys.executable, "-c", _MIGRATE, f"clickhouse://127.0.0.1:{port}/shared"]
    processes = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(5)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    # All are connected; now all at once.
    outputs = []
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    outputs = [process.communicate(timeout=120)[0].strip() for process in processes]
    assert sorted(outputs) == sorted([str(_ALL), *["[]"] * 4])
    client = connect(f"clickhouse://127.0.0.1:{port}/shared")
    assert _versions(client) == _ALL
    assert _locks(client) == []
    client.close()


def test_one_that_dies_is_followed_by_another(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"clickhouse://127.0.0.1:{port}/crashed"
    process = subprocess.Popen([sys.executable, "-c", _SLOWLY, url], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if line == "applied 3\n":
            break
    process.send_signal(signal.SIGKILL)
    process.wait()
    client = connect(url)
    assert _versions(client) == [1, 2, 3]
    assert _locks(client) == ["schema_lock_1"]

    held = rf"process {process.pid} on \S+ has been migrating this database for 0.5 s"
    with monkeypatch.context() as patch:
        patch.setattr(migration_lock, "PATIENCE_S", 0.5)
        with pytest.raises(StorageError, match=held):
            migrate(client)

    with migration_lock.held(client, lease_s=1) as lock:
        assert lock.number == 2
        assert _locks(client) == ["schema_lock_2"]
    assert [step.version for step in migrate(client)] == _ALL[3:]
    assert _versions(client) == _ALL
    assert _locks(client) == []
    client.close()


def test_one_that_slept_too_long_notices(port: int) -> None:
    url = f"clickhouse://127.0.0.1:{port}/slept"
    sleeper, other = connect(url), connect(url)
    with migration_lock.held(sleeper) as lock:
        lock.touch()
        time.sleep(2.1)
        took_over = pytest.raises(StorageError, match="another process took over the migration: run it again")
        with migration_lock.held(other, lease_s=1), took_over:
            lock.touch()
    assert _locks(other) == []
    sleeper.close()
    other.close()


def test_the_lock_is_one_at_a_time(port: int) -> None:
    """Many takers, none of which may see another inside."""
    url = f"clickhouse://127.0.0.1:{port}/busy"
    connect(url).close()
    inside: list[int] = []
    most: list[int] = []

    def work(number: int) -> None:
        client = connect(url)
        for _ in range(3):
            with migration_lock.held(client) as lock:
                inside.append(number)
                most.append(len(inside))
                lock.touch()
                inside.remove(number)
        client.close()

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    assert most == [1] * 18


def test_holders_are_named(port: int) -> None:
    client = connect(f"clickhouse://127.0.0.1:{port}/named")
    with migration_lock.held(client):
        ((comment,),) = client.query("SELECT comment FROM system.tables WHERE name = 'schema_lock_1'").result_rows
        assert re.fullmatch(r"process \d+ on \S+", comment)
    client.close()
