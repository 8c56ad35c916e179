"""Assembling traces that are stored already: some of them, or all since a time. The service reads and batches alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from promptpath.collector.assemble import AssembleConfig, ClockPool, Tally, assemble
from promptpath.collector.assemble.causes import explain
from promptpath.collector.assemble.groups import complete, remember
from promptpath.collector.assemble.store import (
    Shard,
    Trace,
    database_now_ns,
    read_clocks,
    read_spans,
    traces_between,
    write_clocks,
)
from promptpath.storage.rows import insert_prompts

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

#: What is assembled at once fits in memory.
BATCH_SPANS: Final = 50_000
BATCH_TRACES: Final = 5_000


def assemble_traces(
    client: Client,
    trace_ids: Sequence[str],
    config: AssembleConfig | None = None,
    select: str | None = None,
    clocks: ClockPool | None = None,
    tenant: str = "",
) -> tuple[int, int]:
    """Assemble some traces of a tenant as they are stored and write their prompts. Returns (spans read, prompts
    written).

    clocks: what is known of the offsets between hosts; by default, what is stored of them.
    """
    pool = clocks if clocks is not None else read_clocks(client, tenant)
    config = stamped(config or AssembleConfig(), database_now_ns(client))
    spans, traces = read_whole(client, trace_ids, select, tenant)
    tally = Tally()
    prompts = explain(client, assemble(spans, config, pool, tally), tally.open_stalls, tenant)
    written = insert_prompts(client, prompts, trace_ids=traces, tenant=tenant, as_of_ns=config.assembled_at_ns)
    remember(client, prompts, tenant)
    write_clocks(client, pool, tenant)
    return spans.num_rows, written


def read_whole(client: Client, trace_ids: Sequence[str], select: str | None, tenant: str) -> tuple[pa.Table, list[str]]:
    """The spans of some traces and of those that are parts of the same prompts; and the ids of all these."""

    def read(traces: Sequence[str]) -> pa.Table:
        return read_spans(client, traces, select, tenant)

    return complete(client, read(trace_ids), trace_ids, read, tenant)


def stamped(config: AssembleConfig, read_ns: int) -> AssembleConfig:
    """`config` for spans that were read at a time: of two assemblers at one prompt the one that saw more wins."""
    return config if config.assembled_at_ns else replace(config, assembled_at_ns=read_ns)


def assemble_since(
    client: Client,
    since_ns: int,
    *,
    until_ns: int | None = None,
    shard: Shard | None = None,
    config: AssembleConfig | None = None,
    select: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> int:
    """Assemble all traces that have spans from `since_ns` (to `until_ns`) on their own clock, anew. Returns the
    prompts written.

    progress: called with (traces done, traces in all) after each batch.
    """
    until = until_ns if until_ns is not None else time.time_ns()
    traces = traces_between(client, since_ns, until, shard or Shard())
    written = done = 0
    clocks: dict[str, ClockPool] = {}
    for batch in batches(traces):
        tenant = batch[0].tenant
        if tenant not in clocks:
            clocks[tenant] = read_clocks(client, tenant)
        written += assemble_traces(client, [one.id for one in batch], config, select, clocks[tenant], tenant)[1]
        done += len(batch)
        if progress is not None:
            progress(done, len(traces))
    return written


def batches(traces: Sequence[tuple[Trace, int]]) -> Iterator[list[Trace]]:
    """(trace, spans) in batches that fit in memory, each of one tenant; a trace is never split."""
    batches: dict[str, list[Trace]] = {}
    sizes: dict[str, int] = {}
    for trace, spans in traces:
        batch = batches.get(trace.tenant)
        if batch and (sizes[trace.tenant] + spans > BATCH_SPANS or len(batch) >= BATCH_TRACES):
            yield batches.pop(trace.tenant)
            sizes[trace.tenant] = 0
        batches.setdefault(trace.tenant, []).append(trace)
        sizes[trace.tenant] = sizes.get(trace.tenant, 0) + spans
    yield from batches.values()
