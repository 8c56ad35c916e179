"""The schema on a cluster: its text, whether the engine reads it, and whether its tables fit together.

`promptpath storage migrate --cluster '{cluster}' --dry-run > tests/data/cluster/schema.sql` writes the text anew.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import chdb
import pytest

from promptpath.storage import StorageError
from promptpath.storage.cluster import EVERYWHERE, SHARDED, create_database, for_cluster
from promptpath.storage.schema import ledger, migrations

_GOLDEN = Path(__file__).parents[2] / "data" / "cluster" / "schema.sql"
#: Two shards in one engine, told apart by their databases. Tables can be made; nothing listens for the data.
_CONFIG = """<clickhouse><remote_servers><two>
<shard><replica><host>127.0.0.1</host><port>9000</port></replica></shard>
<shard><replica><host>127.0.0.2</host><port>9000</port></replica></shard>
</two></remote_servers></clickhouse>"""


def _script(cluster: str, database: str = "promptpath") -> list[str]:
    steps = [statement for step in migrations() for statement in step.script(cluster, database)]
    return [ledger(cluster, database), *steps]


def _written(database: str = "promptpath") -> str:
    parts = [f"{ledger('{cluster}', database)};\n"]
    for step in migrations():
        parts.append(f"-- {step.version:04d} {step.name}")
        parts += [f"{statement};\n" for statement in step.script("{cluster}", database)]
    return "\n".join(parts) + "\n"


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Any]:
    (tmp_path / "config.xml").write_text(_CONFIG)
    engine = chdb.connect(f"{tmp_path}/engine?config-file={tmp_path}/config.xml")
    yield engine
    engine.close()


def test_text() -> None:
    assert _written() == _GOLDEN.read_text()


def test_the_engine_reads_every_statement(engine: Any) -> None:
    statements = [*_script("{cluster}"), create_database("promptpath", "{cluster}")]
    for statement in statements:
        tree = engine.query(f"EXPLAIN AST {statement}", "TabSeparated").bytes().decode()
        assert re.match(r"(CreateQuery|AlterQuery|DropQuery|AttachQuery|DetachQuery) ", tree), statement
        assert "ON CLUSTER '{cluster}'" in statement


def test_every_table_that_holds_rows_has_its_place() -> None:
    plain = [statement for step in migrations() for statement in step.statements]
    holding = {
        found[1] for text in plain if (found := re.match(r"CREATE TABLE (\w+)(?s:.*)ENGINE = \w*MergeTree", text))
    }
    assert holding | {"schema_migrations"} == set(SHARDED) | EVERYWHERE
    for statement in _script("c"):
        if re.search(r"ENGINE = \w*MergeTree", statement):
            assert re.search(
                r"ENGINE = Replicated\w*MergeTree\('/clickhouse/tables/\{?\w+\}?/\{database\}/\{table\}'", statement
            )
            assert "non_replicated" not in statement


def test_tables_and_views_fit_together(engine: Any) -> None:
    """All of it is made, as far as that goes without a Keeper: columns, types, sharding keys, what views use."""
    engine.query("CREATE DATABASE promptpath ENGINE = Atomic", "TabSeparated")
    engine.query("USE promptpath", "TabSeparated")
    for statement in _script("two"):
        statement = statement.replace(" ON CLUSTER 'two'", "").replace("cluster('two', system.parts)", "system.parts")
        statement = re.sub(r"Replicated(\w*MergeTree)\('[^']*', '[^']*'(?:, )?", r"\1(", statement)
        statement = re.sub(r"replicated_deduplication_window\w* = \d+, ", "", statement)
        engine.query(statement, "TabSeparated")

    def columns(table: str) -> str:
        where = f"table = '{table}' AND database = 'promptpath'"
        query = f"SELECT name, type FROM system.columns WHERE {where} ORDER BY position"
        return str(engine.query(query, "TabSeparated").bytes().decode())

    for table in SHARDED:
        assert columns(table) == columns(f"{table}_local") != ""
    engines = "SELECT name, engine FROM system.tables WHERE database = 'promptpath' FORMAT TabSeparated"
    found = dict(line.split("\t") for line in engine.query(engines).bytes().decode().splitlines())
    assert {name for name, kind in found.items() if kind == "Distributed"} == set(SHARDED)

    # What a node's own views do with spans that came to its shard.
    engine.query(
        "INSERT INTO otel_traces_local (TraceId, Timestamp) SELECT 'a', now64(9) FROM numbers(3)", "TabSeparated"
    )
    for table in ("otel_traces_trace_id_ts_local", "trace_arrivals_local"):
        assert engine.query(f"SELECT count() FROM {table}", "TabSeparated").bytes() == b"1\n"


@pytest.mark.parametrize(
    ("statement", "made"),
    [
        ("ALTER TABLE prompts_rows ADD COLUMN IF NOT EXISTS x Int8", ["prompts_rows_local", "prompts_rows"]),
        ("ALTER TABLE otel_traces MODIFY COLUMN Flags UInt64", ["otel_traces_local", "otel_traces"]),
        ("ALTER TABLE otel_traces MODIFY COLUMN Flags CODEC(T64)", ["otel_traces_local"]),
        ("ALTER TABLE otel_traces ADD INDEX i TraceId TYPE minmax", ["otel_traces_local"]),
        ("ALTER TABLE alerts ADD COLUMN IF NOT EXISTS x Int8", ["alerts"]),
        ("ALTER TABLE otlp_traces_mv MODIFY QUERY SELECT 1 FROM otlp_traces", ["otlp_traces_mv"]),
        ("DROP VIEW IF EXISTS prompts", ["prompts"]),
        ("DROP TABLE IF EXISTS otel_logs", ["otel_logs", "otel_logs_local"]),
    ],
)
def test_changes_reach_the_tables_that_hold_the_rows(statement: str, made: list[str]) -> None:
    found = for_cluster([statement], "c", "d")
    assert [text.split(" ON CLUSTER 'c'")[0].split()[-1] for text in found] == made


def test_a_view_behind_a_sharded_table_stays_on_its_shard() -> None:
    (text,) = for_cluster(
        ["CREATE MATERIALIZED VIEW v TO otel_traces_trace_id_ts AS SELECT 1 FROM otel_traces"], "c", "d"
    )
    assert text == (
        "CREATE MATERIALIZED VIEW v ON CLUSTER 'c' TO otel_traces_trace_id_ts_local AS SELECT 1 FROM otel_traces_local"
    )
    (text,) = for_cluster(["ALTER TABLE v MODIFY QUERY SELECT 1 FROM otel_traces"], "c", "d")
    assert text == "ALTER TABLE v ON CLUSTER 'c' MODIFY QUERY SELECT 1 FROM otel_traces_local"


def test_what_is_not_known_is_an_error() -> None:
    with pytest.raises(StorageError, match="no cluster form is known of: OPTIMIZE TABLE otel_traces"):
        for_cluster(["OPTIMIZE TABLE otel_traces"], "c", "d")
    with pytest.raises(StorageError, match="table t has no place in a cluster"):
        for_cluster(["CREATE TABLE t (x Int8) ENGINE = MergeTree ORDER BY x"], "c", "d")
