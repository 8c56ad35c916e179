"""Spans to prompts: a pure function over Arrow columns, without I/O, vectorised over whole batches of traces."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from promptpath.collector.assemble import (
    attempts,
    breakdown,
    clamped,
    clock,
    delivery,
    drawing,
    nodes,
    prompts,
    stalls,
    tokens,
    tree,
    windows,
)
from promptpath.collector.assemble.batch import Batch, not_streaming
from promptpath.collector.assemble.columns import Columns
from promptpath.collector.assemble.offsets import ClockPool
from promptpath.collector.assemble.ragged import NONE
from promptpath.collector.assemble.schema import (
    PROMPT_SCHEMA,
    ROLE_CODE,
    SPAN_SCHEMA,
    UNKNOWN_STAGE,
    AssembleConfig,
    AssembleError,
    Bools,
    check_spans,
)

__all__ = ["PROMPT_SCHEMA", "SPAN_SCHEMA", "AssembleConfig", "AssembleError", "ClockPool", "Tally", "assemble"]


@dataclass
class Tally:
    """What assemblies could not make use of, counted in spans.

    orphans: spans whose parent never came, of which nothing says whose prompt they are of. unknown_stages: spans that
    name a stage which is none; they count as if they named none. open_stalls: stalls that nothing in their batch
    explains, tables of `stalls.OPEN_SCHEMA`.
    """

    orphans: int = 0
    unknown_stages: int = 0
    open_stalls: list[pa.Table] = field(default_factory=list)


def assemble(
    spans: pa.Table,
    config: AssembleConfig | None = None,
    clocks: ClockPool | None = None,
    tally: Tally | None = None,
) -> pa.Table:
    """Prompts of whole traces.

    spans: columns of SPAN_SCHEMA, one row a span, in any order; every span of a trace that is known must be there.
    Returns PROMPT_SCHEMA, one row a prompt, sorted by trace id, start and span id. The same spans give the same rows.
    clocks: what is known of the offsets between hosts; what these spans tell is added to it. Without it each prompt's
    offset is told from its own requests only. No part of a TTFT depends on it, but for calls that were given up (see
    `clock`). tally: what cannot be made use of is added to it.
    Raises AssembleError where a column is missing or of another type.
    """
    config = config or AssembleConfig()
    if not config.assembled_at_ns:
        config = replace(config, assembled_at_ns=time.time_ns())
    table = check_spans(spans, coded=True)
    lost = clamped.lost(table)
    loaded = clamped.mend(nodes.load(table, lost), lost)
    tally = tally or Tally()
    tally.unknown_stages += int(np.count_nonzero(loaded.role == ROLE_CODE[UNKNOWN_STAGE]))
    if not loaded.inference.any():
        tally.orphans += tree.orphans(loaded, np.full(len(loaded), NONE, dtype=np.int64))
    if not loaded.inference.any():
        return PROMPT_SCHEMA.empty_table()
    columns = Columns(table)
    parts = []
    linked = tree.link(loaded, table, clocks)
    for window, links in windows.split(loaded, linked):
        if window.inference.any():
            grown = tree.build(window, links)
            tally.orphans += tree.orphans(window, grown.prompt)
            parts.append((window, grown, clock.measure(window, grown, columns)))
        else:
            tally.orphans += tree.orphans(window, np.full(len(window), NONE, dtype=np.int64))
    if clocks is not None:
        clock.tell(clocks, parts)
    others = stalls.prefills([(window, grown) for window, grown, _ in parts])
    rows = [_prompts(columns, *part, lost, clocks, config, others, tally.open_stalls) for part in parts]
    # Windows are by trace, but joined traces are together in that of the first of them.
    return prompts.in_order(rows) if linked.joined.any() else pa.concat_tables(rows)


def _prompts(
    columns: Columns,
    loaded: nodes.Nodes,
    grown: tree.Tree,
    blocks: clock.Blocks | None,
    lost: tuple[Bools, Bools],
    clocks: ClockPool | None,
    config: AssembleConfig,
    others: stalls.Prefills,
    opened: list[pa.Table],
) -> pa.Table:
    """The prompts of a window."""
    axis = clock.place(loaded, grown, blocks, clocks)
    tried = attempts.find(loaded, grown, axis, columns)
    numbered = delivery.prompts_of(loaded, grown, tried, axis)
    batch = Batch(columns, loaded, grown, axis, tried, numbered)
    streams = not_streaming(batch)
    cut_short = columns.filled("abort")[loaded.row]
    cut_short[loaded.spans :] = False
    cut_short |= loaded.failed | tried.orphaned
    first = delivery.find(loaded, grown, axis, tried, numbered, streams[0], cut_short)
    first, endless = clamped.known(first, numbered.root, loaded, lost)
    painted = breakdown.paint(loaded, grown, axis, tried, numbered, first)
    painted = drawing.redraw(painted, grown, axis, numbered, first)
    found = tokens.deliveries(loaded, grown, numbered, tried.beside, columns)
    return prompts.build(batch, first, painted, found, streams, config, others, opened, endless)
