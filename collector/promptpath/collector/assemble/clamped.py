"""Spans of which a time is not known: storage gave them one that can be, and says so (`otel_traces.Clamped`).

Such a span has lasted at least as long as the tokens took that it counted, and as the spans inside it on its host. Of
which that tells nothing has no stage: it is of its prompt, but of no part of its time.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from promptpath.collector.assemble.ragged import NONE, array_of, codes_of
from promptpath.collector.assemble.schema import NO_NS, Bools, Ints

if TYPE_CHECKING:
    from promptpath.collector.assemble.delivery import FirstTokens
    from promptpath.collector.assemble.nodes import Nodes

#: As long as storage believes that a span may last: what a span says of a time later than that is another clock's.
LONGEST_NS: Final = 30 * 86_400 * 10**9
#: Spans of unknown length inside spans of unknown length, as deep as that.
_DEEPEST: Final = 64
_LATEST: Final = np.iinfo(np.int64).max


def lost(table: pa.Table) -> tuple[Bools, Bools]:
    """By row of the span table: whose start is not known, and whose end."""
    codes, names = codes_of(array_of(table["clamped"]))
    words = names or [""]
    starts, ends = (np.array([word in name for name in words], dtype=np.bool_) for word in ("start", "end"))
    if not (starts.any() or ends.any()):
        nowhere = np.zeros(table.num_rows, dtype=np.bool_)
        return nowhere, nowhere
    return starts[codes], ends[codes]


def at_least(
    table: pa.Table, unknown_rows: tuple[Bools, Bools], start: Ints, duration: Ints, first: Ints
) -> tuple[Ints, Ints]:
    """Starts and durations, by row: a span of which one end is known lasts as long as its tokens took.

    unknown_rows: what `lost` says. first: ns from the span's start to its first token as it says, NO_NS where it does
    not.
    """
    no_start, no_end = unknown_rows
    one = no_start != no_end
    if not one.any():
        return start, duration
    gaps = array_of(table["gaps_us"])
    offsets = gaps.offsets.to_numpy()
    values = gaps.values.to_numpy(zero_copy_only=False).astype(np.int64)
    total = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(values)))
    took = np.maximum((total[offsets[1:]] - total[offsets[:-1]]) * 1000, np.where(first > LONGEST_NS, 0, first))
    took = np.where(one, np.clip(took, 0, LONGEST_NS), 0)
    return np.where(no_start & one, start - took, start), np.maximum(duration, took)


def mend(nodes: Nodes, unknown_rows: tuple[Bools, Bools]) -> Nodes:
    """`nodes` whose spans of unknown times hold their children, or have no stage where these tell nothing.

    unknown_rows: what `lost` says.
    """
    starts, ends = unknown_rows
    if not (starts.any() or ends.any()):
        return nodes
    is_span = nodes.own < nodes.spans
    no_start, no_end = starts[nodes.row] & is_span, ends[nodes.row] & is_span
    unknown = no_start | no_end
    child = np.flatnonzero((nodes.parent != NONE) & is_span).astype(np.int64)
    child = child[unknown[nodes.parent[child]]]
    child = child[nodes.host[child] == nodes.host[nodes.parent[child]]]
    start, end = nodes.start.copy(), nodes.end.copy()
    for _ in range(_DEEPEST):
        some = child[end[child] > start[child]]
        low, high = np.full(len(nodes), _LATEST, dtype=np.int64), np.full(len(nodes), -_LATEST, dtype=np.int64)
        np.minimum.at(low, nodes.parent[some], start[some])
        np.maximum.at(high, nodes.parent[some], end[some])
        held = low <= high
        # Where neither is known, when it was received says nothing.
        begin = np.where(held & no_start, np.where(no_end, low, np.minimum(start, low)), start)
        until = np.where(held & no_end, np.where(no_start, high, np.maximum(end, high)), end)
        if np.array_equal(begin, start) and np.array_equal(until, end):
            break
        start, end = begin, until
    silent = unknown & (end <= start)
    return replace(
        nodes,
        start=start,
        end=end,
        first=np.where(silent | no_start, NO_NS, nodes.first),
        said_first=np.where(silent | no_start, NO_NS, nodes.said_first),
        stage=np.where(silent, 0, nodes.stage),
    )


def known(first: FirstTokens, root: Ints, nodes: Nodes, unknown_rows: tuple[Bools, Bools]) -> tuple[FirstTokens, Bools]:
    """First tokens without those of prompts whose root's start is not known; and which prompts' ends are not, (m,).

    Without a start or an end of the root there is no E2E. unknown_rows: what `lost` says.
    """
    starts, ends = unknown_rows
    row = nodes.row[root]
    no_start = starts[row]
    if no_start.any():
        first = replace(first, ttft=np.where(no_start, NO_NS, first.ttft), source=np.where(no_start, 0, first.source))
    return first, no_start | ends[row]
