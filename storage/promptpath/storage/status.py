"""What a store holds: rows, bytes and ages per table, and which schema it has."""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from promptpath.storage.errors import StorageError, reason
from promptpath.storage.migrating import applied_versions
from promptpath.storage.queries.sql import load
from promptpath.storage.schema import migrations

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

#: The column that says when a row's event was, by table. Partitions are made by it, so that its bounds cost no reading.
_TIMES: Final = {
    "otel_traces": "Timestamp",
    "otel_traces_trace_id_ts": "Start",
    "otel_logs": "Timestamp",
    "otel_metrics_gauge": "TimeUnix",
    "otel_metrics_sum": "TimeUnix",
    "otel_metrics_histogram": "TimeUnix",
    "otel_metrics_exponential_histogram": "TimeUnix",
    "otel_metrics_summary": "TimeUnix",
    "trace_arrivals": "ArrivedAt",
    "trace_join_keys": "FirstStart",
    "prompts_rows": "start_time",
    "prompt_minutes_rows": "minute",
    "clock_offsets": "at",
    "alerts": "at",
    "incidents_rows": "opened_at",
    "assembler_state_rows": "updated_at",
    "schema_migrations": "applied_at",
}
_TTL: Final = re.compile(r"toDateTime\((\w+)(?:, '\w+')?\) \+ toInterval(Second|Day)\((\d+)\)")


@dataclass(frozen=True)
class TableStatus:
    """One table. Bytes are of its columns; on disk there are marks and indexes as well. oldest, newest: UTC, of its
    rows' own times; None where it is empty. ttl_s: seconds that rows are kept for, counted from when they were stored;
    None for ever."""

    table: str
    parts: int
    partitions: int
    rows: int
    bytes_compressed: int
    bytes_uncompressed: int
    bytes_on_disk: int
    bytes_per_row: float | None
    oldest: dt.datetime | None
    newest: dt.datetime | None
    ttl_s: int | None


@dataclass(frozen=True)
class StoreStatus:
    """A store. schema_version: of the newest migration that it has; schema_known: the newest that this release has."""

    schema_version: int
    schema_known: int
    tables: tuple[TableStatus, ...]


def store_status(client: Client) -> StoreStatus:
    """Asks a store, by a client that may be read-only and may reach it over the collector that owns it.

    Raises:
        StorageError: it has no schema yet, or an older one that cannot say, or does not answer.
    """
    version = max(applied_versions(client), default=0)
    if version == 0:
        raise StorageError("the store is empty: start `promptpath collector`, or run `promptpath storage migrate`")
    try:
        rows = list(client.query(load("storage_tables")).named_results())
    except Exception as error:
        raise StorageError(
            f"the store cannot say what it holds ({reason(error)}): "
            "run `promptpath storage migrate`, or restart its collector"
        ) from error
    tables = []
    for row in rows:
        name = str(row["table"]).removesuffix("_local")
        oldest, newest = _bounds(client, name) if row["rows"] else (None, None)
        tables.append(
            TableStatus(
                table=name,
                parts=int(row["parts"]),
                partitions=int(row["partitions"]),
                rows=int(row["rows"]),
                bytes_compressed=int(row["bytes_compressed"]),
                bytes_uncompressed=int(row["bytes_uncompressed"]),
                bytes_on_disk=int(row["bytes_on_disk"]),
                bytes_per_row=round(row["bytes_compressed"] / row["rows"], 1) if row["rows"] else None,
                oldest=oldest,
                newest=newest,
                ttl_s=_ttl_s(str(row["ttl"])),
            )
        )
    return StoreStatus(version, len(migrations()), tuple(tables))


def _bounds(client: Client, table: str) -> tuple[dt.datetime | None, dt.datetime | None]:
    column = _TIMES.get(table)
    if column is None:
        return None, None
    first, last = (f"toUnixTimestamp64Micro(toDateTime64({bound}({column}), 6))" for bound in ("min", "max"))
    ((first_us, last_us),) = client.query(f"SELECT {first}, {last} FROM {table}").result_rows
    return _at(int(first_us)), _at(int(last_us))


def _at(micros: int) -> dt.datetime:
    return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=micros)


def _ttl_s(expression: str) -> int | None:
    found = _TTL.fullmatch(expression)
    return int(found[3]) * (86_400 if found[2] == "Day" else 1) if found else None
