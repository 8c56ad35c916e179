"""What the assembler asks of storage: which traces changed, their spans, and where it stood."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from promptpath.collector.assemble.offsets import ClockPool, of_table
from promptpath.collector.assemble.rules_sql import default_select
from promptpath.collector.assemble.schema import Ints
from promptpath.storage.rows import insert_clock_offsets

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client


@dataclass(frozen=True)
class Shard:
    """One of `count` assemblers: it takes the traces whose id hashes to `index`."""

    index: int = 0
    count: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.index < self.count:
            raise ValueError(f"shard {self.index}/{self.count}: the index must be from 0 to {self.count - 1}")

    @property
    def name(self) -> str:
        """Under which the shard's position is stored."""
        return "assembler" if self.count == 1 else f"assembler {self.index}/{self.count}"


class Trace(NamedTuple):
    """A trace is known by whose it is, too: tenants may use the same ids, and their spans are never assembled together.

    tenant: '' where the collector asks for no tokens.
    """

    tenant: str
    id: str


@dataclass(frozen=True)
class Arrivals:
    """Rows of `trace_arrivals`, oldest first.

    key: hash of a row; at_ns: arrival, ns since the epoch on the database's clock; spans: how many came.
    """

    key: npt.NDArray[np.uint64]
    trace: list[Trace]
    at_ns: Ints
    spans: Ints


def database_now_ns(client: Client) -> int:
    """The database's clock, ns since the epoch: arrivals are stamped by it."""
    return int(client.query("SELECT toUnixTimestamp64Nano(now64(9))").result_rows[0][0])


def arrivals_after(client: Client, after_ns: int, shard: Shard, limit: int) -> Arrivals:
    """Arrivals after an instant, oldest first; `limit` or more if there are as many, all of one instant together."""
    table = client.query_arrow(
        """
        SELECT cityHash64(Tenant, TraceId, ArrivedAt, FirstStart, LastEnd, Spans) AS key, TraceId AS trace_id,
            toString(Tenant) AS tenant,
            toUnixTimestamp64Nano(ArrivedAt) AS at_ns, toInt64(Spans) AS spans
        FROM trace_arrivals
        WHERE ArrivedAt > fromUnixTimestamp64Nano({after_ns:Int64}, 'UTC')
            AND cityHash64(TraceId) % {shards:UInt32} = {shard:UInt32}
        ORDER BY ArrivedAt
        LIMIT {limit:UInt64} WITH TIES
        """,
        parameters={"after_ns": after_ns, "shards": shard.count, "shard": shard.index, "limit": limit},
    )
    return Arrivals(
        key=table["key"].to_numpy().astype(np.uint64),
        trace=list(map(Trace, table["tenant"].to_pylist(), table["trace_id"].to_pylist())),
        at_ns=table["at_ns"].to_numpy().astype(np.int64),
        spans=table["spans"].to_numpy().astype(np.int64),
    )


def traces_between(client: Client, from_ns: int, to_ns: int, shard: Shard) -> list[tuple[Trace, int]]:
    """(trace, spans) of traces with spans in an interval of their own time, earliest first."""
    rows = client.query(
        """
        SELECT Tenant, TraceId, sum(Spans)
        FROM trace_arrivals
        WHERE TraceId IN (
            SELECT TraceId FROM otel_traces_trace_id_ts
            WHERE End >= toDateTime(intDiv({from_ns:Int64}, 1000000000)) AND Start <= toDateTime(intDiv({to_ns:Int64},
            1000000000))
        ) AND cityHash64(TraceId) % {shards:UInt32} = {shard:UInt32}
        GROUP BY Tenant, TraceId
        ORDER BY min(FirstStart), TraceId, Tenant
        """,
        parameters={"from_ns": from_ns, "to_ns": to_ns, "shards": shard.count, "shard": shard.index},
    ).result_rows
    return [(Trace(str(tenant), str(trace)), int(spans)) for tenant, trace, spans in rows]


def bounds_ns(client: Client, trace_ids: Sequence[str]) -> tuple[int, int]:
    """Between which starts the spans of some traces lie, ns since the epoch, so that reading them touches little."""
    first, last = client.query(
        """
        SELECT toInt64(toUnixTimestamp(min(Start))) AS first, toInt64(toUnixTimestamp(max(End))) AS last
        FROM otel_traces_trace_id_ts
        WHERE TraceId IN {trace_ids:Array(String)}
        """,
        parameters={"trace_ids": list(trace_ids)},
    ).result_rows[0]
    return int(first) * 1_000_000_000, (int(last) + 1) * 1_000_000_000


def rooted(client: Client, traces: Sequence[Trace]) -> set[Trace]:
    """Those of some traces whose root span has come (spans come when they end, so it has ended too)."""
    trace_ids = sorted({trace.id for trace in traces})
    first, last = bounds_ns(client, trace_ids)
    rows = client.query(
        """
        SELECT DISTINCT Tenant, TraceId
        FROM otel_traces
        WHERE TraceId IN {trace_ids:Array(String)} AND ParentSpanId = ''
            AND toStartOfMinute(Timestamp) BETWEEN toStartOfMinute(fromUnixTimestamp64Nano({from_ns:Int64}))
                AND toStartOfMinute(fromUnixTimestamp64Nano({to_ns:Int64}))
        """,
        parameters={"trace_ids": trace_ids, "from_ns": first, "to_ns": last},
    ).result_rows
    return {Trace(str(tenant), str(trace)) for tenant, trace in rows} & set(traces)


def read_spans(client: Client, trace_ids: Sequence[str], select: str | None = None, tenant: str = "") -> pa.Table:
    """All stored spans of some traces of a tenant, as SPAN_SCHEMA has them.

    select: of other rules than those that come along.
    """
    first, last = bounds_ns(client, trace_ids)
    return client.query_arrow(
        select or default_select(),
        parameters={"trace_ids": list(trace_ids), "from_ns": first, "to_ns": last, "tenant": tenant},
        settings={"output_format_arrow_low_cardinality_as_dictionary": 1},
    )


def read_clocks(client: Client, tenant: str = "") -> ClockPool:
    """The offsets between a tenant's hosts as stored, of each pair's last minutes: where an assembler goes on from."""
    pool = ClockPool()
    rows = client.query_arrow(
        """
        SELECT host_a, host_b, toUnixTimestamp64Nano(at) AS at_ns, offset_ns, error_ns
        FROM clock_offsets
        WHERE Tenant = {tenant:String} AND (host_a, host_b, toStartOfMinute(at)) IN (
            SELECT host_a, host_b, arrayJoin([max(minute), max(minute) - 60]) FROM
            (SELECT host_a, host_b, toStartOfMinute(at) AS minute FROM clock_offsets
            WHERE Tenant = {tenant:String})
            GROUP BY host_a, host_b)
        """,
        parameters={"tenant": tenant},
    )
    if rows.num_rows:
        pool.add(of_table(rows))
        pool.new()
    return pool


def write_clocks(client: Client, pool: ClockPool, tenant: str = "") -> None:
    """Store the offsets between a tenant's hosts that have become known since the last time."""
    rows = pool.new()
    if rows.num_rows:
        insert_clock_offsets(client, rows, tenant=tenant)


def read_position(client: Client, shard: Shard) -> int:
    """Where an assembler stood, ns since the epoch on the database's clock; 0 at the first start."""
    rows = client.query(
        "SELECT toUnixTimestamp64Nano(position) FROM assembler_state WHERE name = {name:String}",
        parameters={"name": shard.name},
    ).result_rows
    return int(rows[0][0]) if rows else 0


def write_position(client: Client, shard: Shard, position_ns: int) -> None:
    """Make a position durable."""
    client.command(
        "INSERT INTO assembler_state_rows (name, position) "
        "SELECT {name:String}, fromUnixTimestamp64Nano({position_ns:Int64}, 'UTC')",
        parameters={"name": shard.name, "position_ns": position_ns},
    )
