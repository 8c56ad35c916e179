"""The schema spread over a ClickHouse cluster, made from the same migration files.

Each table that grows is a replicated table `NAME_local` on every shard and a Distributed table `NAME` over them, so
that readers and writers name the same tables as on a single server. Spans, prompts and all that belongs to one trace
are on one shard: a prompt that is replaced finds its older row there. Small tables are whole on every node.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final

from promptpath.storage.errors import StorageError

#: What a client of a cluster sets. Without the second, an insert would be acknowledged before the shards have it.
CLUSTER_SETTINGS: Final = {"distributed_product_mode": "global", "distributed_foreground_insert": "1"}

_BY_TRACE: Final = "cityHash64(TraceId)"
_BY_SERIES: Final = "cityHash64(MetricName, ServiceName, Attributes)"
#: Tables that grow, and by what their rows are spread. Deterministic, so that a repeated insert meets the same shards.
SHARDED: Final = {
    "otel_traces": _BY_TRACE,
    "otel_traces_trace_id_ts": _BY_TRACE,
    "trace_arrivals": _BY_TRACE,
    # Records outside of traces would all be on one shard.
    "otel_logs": "if(TraceId = '', cityHash64(Timestamp, Body), cityHash64(TraceId))",
    "otel_metrics_gauge": _BY_SERIES,
    "otel_metrics_sum": _BY_SERIES,
    "otel_metrics_histogram": _BY_SERIES,
    "otel_metrics_exponential_histogram": _BY_SERIES,
    "otel_metrics_summary": _BY_SERIES,
    "trace_join_keys": "KeyHash",
    # A row that replaces another must be on its shard, for FINAL looks at one shard at a time.
    "prompts_rows": "cityHash64(trace_id)",
    "prompt_minutes_rows": "cityHash64(minute)",
}
#: Small tables, of which every node has all rows.
EVERYWHERE: Final = frozenset(
    {"alerts", "assembler_state_rows", "clock_offsets", "incidents_rows", "schema_migrations"}
)

_SHARD_PATH: Final = "'/clickhouse/tables/{shard}/{database}/{table}', '{replica}'"
_ALL_PATH: Final = "'/clickhouse/tables/all/{database}/{table}', '{shard}-{replica}'"
_WINDOW: Final = "non_replicated_deduplication_window = 1000"
#: A segment may wait for a database that is down for longer than an hour, the default.
_REPLICATED_WINDOW: Final = "replicated_deduplication_window = 10000, replicated_deduplication_window_seconds = 604800"

_HEAD: Final = re.compile(
    r"(?P<verb>CREATE TABLE|CREATE MATERIALIZED VIEW|CREATE OR REPLACE VIEW|CREATE VIEW|ALTER TABLE|DROP (?:TABLE|VIEW)|(?:ATTACH|DETACH) TABLE)"  # noqa: E501
    r"(?P<exists> IF NOT EXISTS| IF EXISTS)? (?P<name>\w+)(?P<rest>.*)",
    re.DOTALL,
)
_ENGINE: Final = re.compile(r"ENGINE = (?P<kind>\w*MergeTree)(?:\((?P<arguments>[^)]*)\))?")
#: What a Distributed table has none of.
_SORTING: Final = re.compile(r",\s*MODIFY ORDER BY \(.*\)$")
_TO_BOTH: Final = re.compile(
    r" (ADD COLUMN|DROP COLUMN|RENAME COLUMN|COMMENT COLUMN|MODIFY COLUMN (?:IF EXISTS )?\S+ (?!CODEC\()) ?"
)


def create_database(database: str, cluster: str = "") -> str:
    """The statement that makes a database, on all nodes of a cluster if one is named."""
    return f"CREATE DATABASE IF NOT EXISTS {database}" + (f" ON CLUSTER '{cluster}'" if cluster else "")


def local_name(table: str, cluster: str) -> str:
    """The table that holds the rows of `table`."""
    return f"{table}_local" if cluster and table in SHARDED else table


def for_cluster(statements: Iterable[str], cluster: str, database: str) -> list[str]:
    """The statements of a migration as they are on a cluster.

    Args:
        cluster: its name as in the servers' `remote_servers`, or a macro such as `{cluster}`.
        database: where the tables are; Distributed tables name it.

    Raises:
        StorageError: a statement is of a kind that this function does not know, or of a table without a place.
    """
    return [made for statement in statements for made in _spread(statement, f"'{cluster}'", database)]


def _spread(statement: str, cluster: str, database: str) -> list[str]:
    found = _HEAD.fullmatch(statement)
    if found is None:
        raise StorageError(f"no cluster form is known of: {statement.splitlines()[0][:80]}")
    verb, exists, name, rest = found["verb"], found["exists"] or "", found["name"], found["rest"]

    def written(table: str, text: str) -> str:
        return f"{verb}{exists} {table} ON CLUSTER {cluster}{text}"

    if verb == "CREATE TABLE":
        return _table(name, rest, written, cluster, database)
    if verb == "ALTER TABLE" and name in SHARDED:
        changes = [written(f"{name}_local", rest)]
        if _TO_BOTH.match(rest):
            changes.append(written(name, _SORTING.sub("", rest)))
        return changes
    if verb == "DROP TABLE" and name in SHARDED:
        return [written(name, rest), written(f"{name}_local", rest)]
    if verb == "CREATE MATERIALIZED VIEW" or rest.lstrip().startswith("MODIFY QUERY"):
        return [written(name, _beside_its_source(rest))]
    return [written(name, _reading_everywhere(rest, cluster))]


def _table(name: str, rest: str, written: Callable[[str, str], str], cluster: str, database: str) -> list[str]:
    engine = _ENGINE.search(rest)
    if engine is None:
        return [written(name, rest)]
    if name not in SHARDED and name not in EVERYWHERE:
        raise StorageError(f"table {name} has no place in a cluster: name it in SHARDED or EVERYWHERE")
    path = _SHARD_PATH if name in SHARDED else _ALL_PATH
    arguments = f", {engine['arguments']}" if engine["arguments"] else ""
    replicated = f"ENGINE = Replicated{engine['kind']}({path}{arguments})"
    text = (rest[: engine.start()] + replicated + rest[engine.end() :]).replace(_WINDOW, _REPLICATED_WINDOW)
    if name in EVERYWHERE:
        return [written(name, text)]
    local = f"{name}_local"
    return [
        written(local, text),
        written(
            name, f" AS {database}.{local}\nENGINE = Distributed({cluster}, '{database}', '{local}', {SHARDED[name]})"
        ),
    ]


def _beside_its_source(text: str) -> str:
    """A view that is fed by a sharded table reads and fills the tables of its own shard. One that is fed by a Null
    table, where requests enter, fills Distributed tables: a trace arrives on any node, and belongs to one."""
    source = re.search(r"\bFROM (\w+)\b(?!\()", text)
    if source is None or source[1] not in SHARDED:
        return text
    return re.sub(r"\b(FROM|TO) (\w+)\b", lambda m: f"{m[1]} {m[2]}_local" if m[2] in SHARDED else m[0], text)


def _reading_everywhere(text: str, cluster: str) -> str:
    text = re.sub(r"\bFROM system\.parts\b", f"FROM cluster({cluster}, system.parts)", text)
    return re.sub(r"(?<!GLOBAL )\bIN \(SELECT\b", "GLOBAL IN (SELECT", text)
