"""Rows that are computed elsewhere: prompts (with their per-minute roll-up) and clock offsets."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from promptpath.storage.errors import StorageError, reason

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

_NS: Final = pa.timestamp("ns", "UTC")
_TEXTS: Final = pa.list_(pa.string())

#: Columns of a prompt in their order, as Arrow types. Times are ns, in UTC; `*_ns` are durations in ns.
PROMPTS_SCHEMA: Final = pa.schema(
    [
        pa.field("prompt_id", pa.string(), nullable=False),
        pa.field("trace_id", pa.string(), nullable=False),
        pa.field("root_span_id", pa.string(), nullable=False),
        pa.field("start_time", _NS, nullable=False),
        pa.field("end_time", _NS, nullable=False),
        *(pa.field(name, pa.string(), nullable=False) for name in ("tenant", "service", "model", "operation")),
        pa.field("streaming", pa.bool_()),
        *(pa.field(name, pa.string(), nullable=False) for name in ("status", "error_type", "finish_reason")),
        *(pa.field(f"{name}_tokens", pa.uint32()) for name in ("input", "cached", "output", "reasoning")),
        pa.field("ttft_ns", pa.int64()),
        pa.field("ttft_source", pa.string(), nullable=False),
        pa.field("ttft_engine_ns", pa.int64()),
        pa.field("e2e_ns", pa.int64()),
        *(pa.field(name, pa.int64()) for name in ("tpot_ns", "itl_p50_ns", "itl_p99_ns", "itl_max_ns")),
        pa.field("stalls", pa.uint32()),
        *(
            pa.field(f"ttft_{part}_ns", pa.int64())
            for part in (
                "network",
                "gateway",
                "router",
                "tokenize",
                "queue",
                "prefill",
                "post",
                "stream",
                "unattributed",
            )
        ),
        pa.field("segments.stage", _TEXTS, nullable=False),
        pa.field("segments.hop", _TEXTS, nullable=False),
        pa.field("segments.span_id", _TEXTS, nullable=False),
        pa.field("segments.start_ns", pa.list_(pa.int64()), nullable=False),
        pa.field("segments.duration_ns", pa.list_(pa.int64()), nullable=False),
        pa.field("segments.critical", pa.list_(pa.bool_()), nullable=False),
        pa.field("gaps_us", pa.list_(pa.uint32()), nullable=False),
        pa.field("gap_tokens", pa.list_(pa.uint16()), nullable=False),
        pa.field("first_tokens", pa.uint32()),
        pa.field("first_byte_ns", pa.int64()),
        pa.field("retry_ns", pa.int64(), nullable=False),
        *(pa.field(name, pa.string(), nullable=False) for name in ("gaps_source", "request_model")),
        *(pa.field(name, _TEXTS, nullable=False) for name in ("hops", "hosts", "gpu_uuids")),
        pa.field("attempts", pa.uint16(), nullable=False),
        *(pa.field(name, pa.uint32()) for name in ("preemptions", "tcp_rtt_us", "tcp_retransmits")),
        *(pa.field(name, pa.int64()) for name in ("clock_offset_ns", "clock_error_ns")),
        pa.field("joined_by", pa.string(), nullable=False),
        pa.field("completeness", pa.float32()),
        *(pa.field(name, pa.string(), nullable=False) for name in ("workflow_id", "conversation_id", "agent_name")),
        *(pa.field(name, pa.float64()) for name in ("cost_usd", "energy_j")),
        pa.field("assembled_at", _NS, nullable=False),
        pa.field("joined_traces", _TEXTS, nullable=False),
        pa.field("stall_causes.at_us", pa.list_(pa.uint64()), nullable=False),
        pa.field("stall_causes.gap_us", pa.list_(pa.uint32()), nullable=False),
        pa.field("stall_causes.cause", _TEXTS, nullable=False),
        pa.field("stall_causes.detail", _TEXTS, nullable=False),
        pa.field("workflow_start", _NS),
        pa.field("workflow_end", _NS),
    ]
)

#: Objectives that `prompt_minutes.good` counts against, unless told otherwise.
SLO_TTFT_NS: Final = 1_000_000_000
SLO_TPOT_NS: Final = 50_000_000

#: Prompts made of the same traces begin this near each other.
_NEAR_NS: Final = 3_600_000_000_000
#: The last minute that a DateTime holds [s since the epoch].
_LAST_MINUTE: Final = ((1 << 32) // 60 - 1) * 60
#: Prompts of more days than an insert may have partitions (an import, clocks gone wild) are stored all the same.
_ANY_TIMES: Final = {"throw_on_max_partitions_per_insert_block": 0}


def insert_prompts(
    client: Client,
    table: pa.Table,
    *,
    trace_ids: Iterable[str] = (),
    as_of_ns: int | None = None,
    tenant: str = "",
    slo_ttft_ns: int = SLO_TTFT_NS,
    slo_tpot_ns: int = SLO_TPOT_NS,
) -> int:
    """Stores prompts; each replaces what was stored under its `prompt_id`, and their minutes are rolled up anew.

    Args:
        client: a client that may write.
        table: columns of `PROMPTS_SCHEMA` in any order; times may be ns as int64.
        trace_ids: all traces that were assembled for this table (those in the table always are). A stored prompt of one
            of them that is not in the table is withdrawn: it turned out to be an attempt or a hop of another.
        tenant: of the token that their spans were sent with, in place of what they say; '' if there was none. Prompts
            of other tenants are left alone, whatever their ids.
        as_of_ns: when the spans were read, on the database's clock, which is the table's `assembled_at` too: what was
            assembled from spans read later stays. None: now.
        slo_ttft_ns, slo_tpot_ns: objectives for `prompt_minutes.good`.

    Returns:
        Rows written.

    Raises:
        StorageError: a column is missing or of another type, or the database refused.
    """
    rows = _owned(_conform(table), tenant)
    ids = rows.column("prompt_id").to_pylist()
    traces = sorted({*trace_ids, *rows.column("trace_id").to_pylist()})
    try:
        if rows.num_rows:
            client.insert_arrow("prompts_rows", rows, settings=dict(_ANY_TIMES))
        # After the insert: whoever wrote rows of these traces meanwhile sees ours, or we see theirs.
        touched = _withdraw(client, traces, ids, tenant, as_of_ns or time.time_ns())
        if as_of_ns is not None and rows.num_rows:
            _withdraw_overtaken(client, rows, tenant, as_of_ns)
        filled = _minutes(rows.column("start_time"))
        roll_up(client, touched | filled, slo_ttft_ns=slo_ttft_ns, slo_tpot_ns=slo_tpot_ns)
    except StorageError:
        raise
    except Exception as error:
        raise StorageError(f"cannot store prompts ({reason(error)}): assemble these traces again") from error
    return int(rows.num_rows)


def roll_up(
    client: Client, minutes: Iterable[int], *, slo_ttft_ns: int = SLO_TTFT_NS, slo_tpot_ns: int = SLO_TPOT_NS
) -> None:
    """Computes `prompt_minutes` anew for some minutes (Unix seconds, multiples of 60) from `prompts`."""
    wanted = sorted(set(minutes))
    for first in range(0, len(wanted), 1000):
        some = wanted[first : first + 1000]
        client.command(
            _sql("roll_up"),
            parameters={"minutes": some, "slo_ttft_ns": slo_ttft_ns, "slo_tpot_ns": slo_tpot_ns},
            settings=dict(_ANY_TIMES),
        )
        client.command(_sql("roll_up_empty"), parameters={"minutes": some}, settings=dict(_ANY_TIMES))


def insert_clock_offsets(client: Client, table: pa.Table, *, tenant: str = "") -> int:
    """Stores offsets between the clocks of two hosts of a tenant; `offset_ns` is b's clock minus a's.

    Columns: `host_a host_b` (string), `at` (timestamp, ns, UTC), `offset_ns error_ns` (int64), `pairs` (uint32).
    """
    client.insert_arrow("clock_offsets", table.append_column("Tenant", _all(tenant, table)))
    return int(table.num_rows)


def _conform(table: pa.Table) -> pa.Table:
    missing = [name for name in PROMPTS_SCHEMA.names if name not in table.column_names]
    if missing:
        raise StorageError(f"prompts lack the columns {', '.join(missing)}: add them")
    try:
        return table.select(PROMPTS_SCHEMA.names).cast(PROMPTS_SCHEMA)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
        raise StorageError(f"prompts have other types than PROMPTS_SCHEMA ({reason(error)}): cast them") from error


def _owned(rows: pa.Table, tenant: str) -> pa.Table:
    owner = _all(tenant, rows)
    if tenant:
        rows = rows.set_column(rows.column_names.index("tenant"), PROMPTS_SCHEMA.field("tenant"), owner)
    return rows.append_column("token_tenant", owner)


def _all(text: str, rows: pa.Table) -> pa.Array:
    return pa.repeat(pa.scalar(text), rows.num_rows)


def _withdraw(client: Client, traces: Sequence[str], keep: Sequence[str], tenant: str, as_of_ns: int) -> set[int]:
    """Marks stored prompts of `traces` that are not in `keep` as deleted; returns the minutes of all stored ones."""
    minutes: set[int] = set()
    kept = set(keep)
    for first in range(0, len(traces), 5000):
        some = traces[first : first + 5000]
        stored = client.query(_sql("stored_prompts"), parameters={"traces": some, "tenant": tenant}).result_rows
        minutes |= {int(minute) for _, minute in stored}
        gone = [prompt_id for prompt_id, _ in stored if prompt_id not in kept]
        if gone:
            client.command(
                _sql("withdraw_prompts"),
                parameters={"traces": some, "gone": gone, "tenant": tenant, "as_of_ns": as_of_ns},
                settings=dict(_ANY_TIMES),
            )
    return minutes


def _withdraw_overtaken(client: Client, rows: pa.Table, tenant: str, as_of_ns: int) -> None:
    """Withdraws those of `rows` whose traces a later reading has made other prompts of."""
    starts = rows.column("start_time").cast(pa.int64())
    traces = rows.column("trace_id").to_pylist()
    newer = client.query(
        _sql("newer_prompts"),
        parameters={
            "as_of_ns": as_of_ns,
            "from_ns": max(int(pc.min(starts).as_py()) - _NEAR_NS, -(1 << 63)),
            "to_ns": min(int(pc.max(starts).as_py()) + _NEAR_NS, (1 << 63) - 1),
            "traces": sorted(set(traces)),
            "tenant": tenant,
        },
    ).result_rows
    if not newer:
        return
    prompts = {prompt_id for prompt_id, _ in newer}
    taken = {trace for _, some in newer for trace in some}
    ids = rows.column("prompt_id").to_pylist()
    gone = [one for one, trace in zip(ids, traces, strict=True) if trace in taken and one not in prompts]
    if gone:
        client.command(
            _sql("withdraw_prompts"),
            parameters={"traces": sorted(set(traces)), "gone": gone, "tenant": tenant, "as_of_ns": as_of_ns},
            settings=dict(_ANY_TIMES),
        )


def _minutes(times: pa.ChunkedArray) -> set[int]:
    """Minutes that `prompt_minutes` can hold: 1970 to 2106. Prompts of other times have rows, but are in no roll-up."""
    minutes = pc.divide(times.cast(pa.int64()), 60_000_000_000)
    held = minutes.filter(pc.and_(pc.greater_equal(minutes, 0), pc.less_equal(minutes, _LAST_MINUTE // 60)))
    return {int(minute) * 60 for minute in pc.unique(held).to_pylist()}


@lru_cache
def _sql(name: str) -> str:
    return (Path(__file__).parent / "sql" / f"{name}.sql").read_text()
