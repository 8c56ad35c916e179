"""What a stall came from, where the spans show it.

Every stall of the answer as its root saw it is held against the same tokens as the engine made them: by their number,
so that no clock matters. Where the engine made no such pause, the way from it did (`network`). Where it did, either
the prompt was taken out of the batch (`preemption`), or the engine worked on another prompt's prefill (`prefill`).
What is still open then, `causes` looks for in storage.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from promptpath.collector.assemble.clock import Axis
from promptpath.collector.assemble.columns import Columns
from promptpath.collector.assemble.delivery import FirstTokens, Prompts
from promptpath.collector.assemble.nodes import Nodes
from promptpath.collector.assemble.ragged import NONE, first_of_group, list_array, spans_of
from promptpath.collector.assemble.schema import PROMPT_SCHEMA, STAGE_CODE, Bools, Ints
from promptpath.collector.assemble.sorting import exact_sums, order_by
from promptpath.collector.assemble.texts import take_ids
from promptpath.collector.assemble.tokens import Deliveries, counts_of
from promptpath.collector.assemble.tree import Tree
from promptpath.semconv import Stage

CAUSES: Final = ("", "preemption", "prefill", "network", "gpu_clock")
_PREEMPTION, _PREFILL, _NETWORK = 1, 2, 3
#: What explains a stall explains at least this share of it (one part in so many).
SHARE: Final = 4
#: Stalls that nothing in their batch explains: of which prompt, as which of its stalls (from 0), and from when to when
#: its engine was at it, on that one's clock.
OPEN_SCHEMA: Final = pa.schema(
    [
        ("prompt_id", pa.string()),
        ("number", pa.int64()),
        ("service", pa.string()),
        ("host", pa.string()),
        ("gpu_uuids", pa.list_(pa.string())),
        ("start_ns", pa.int64()),
        ("end_ns", pa.int64()),
    ]
)
#: A prefill that began longer than this before a stall is not looked for.
_LONGEST_NS: Final = 60_000_000_000


@dataclass
class Prefills:
    """Prefills of all prompts, sorted by process and start, arrays of shape (k,): codes of processes, ns on the
    process's clock, and the row of the root span of the prompt each belongs to."""

    process: Ints
    start: Ints
    end: Ints
    root: Ints


def prefills(parts: Sequence[tuple[Nodes, Tree]]) -> Prefills:
    """The prefills of some windows of nodes."""
    found: list[tuple[Ints, ...]] = []
    for nodes, tree in parts:
        at = np.flatnonzero((tree.stage == STAGE_CODE[Stage.PREFILL]) & (tree.prompt != NONE))
        found.append((nodes.process[at], nodes.start[at], nodes.end[at], nodes.row[tree.prompt[at]]))
    none = np.empty(0, dtype=np.int64)
    process, start, end, root = (
        (np.concatenate([none, *columns]) for columns in zip(*found, strict=True)) if found else (none,) * 4
    )
    order = order_by(process, start)
    return Prefills(process[order], start[order], end[order], root[order])


@dataclass
class _Stalls:
    """s stalls: which gap, of which prompt; when it began, ns from the prompt's start; between which of the prompt's
    tokens it lies (the number of those before it)."""

    gap: Ints
    prompt: Ints
    at: Ints
    tokens: Ints


def build(
    nodes: Nodes,
    tree: Tree,
    axis: Axis,
    prompts: Prompts,
    first: FirstTokens,
    found: Deliveries,
    stalled: Bools,
    columns: Columns,
    others: Prefills,
    opened: list[pa.Table],
) -> dict[str, pa.Array]:
    """The columns `stall_causes.*`, m rows. stalled: shape (g,), which gaps of `found` are stalls. What stays open is
    added to `opened` (OPEN_SCHEMA)."""
    size = len(prompts)
    names = ("at_us", "gap_us", "cause", "detail")
    kinds = {name: PROMPT_SCHEMA.field(f"stall_causes.{name}").type.value_type for name in names}
    if not stalled.any():
        none = np.empty(0, dtype=np.int64)
        return {f"stall_causes.{name}": list_array(none, pa.array([], type=kinds[name]), size) for name in names}
    stalls = _stalls(nodes, axis, prompts, found, stalled, columns)
    length = found.gaps_us[stalls.gap] * 1000
    start, end, made = _at_engine(nodes, tree, axis, prompts, first, found, stalls, length, columns)
    cause = np.zeros(len(stalls.gap), dtype=np.int64)
    detail = np.full(len(cause), "", dtype=object)
    network = made & (2 * (end - start) < length)
    cause[network] = _NETWORK
    detail[network] = [f"engine gap {us} us" for us in ((end - start)[network] // 1000).tolist()]

    known = (first.server[stalls.prompt] != NONE) & ~network
    lost = _preempted(nodes, tree, prompts, columns, stalls.prompt, start, end)
    hit = known & (SHARE * lost >= length)
    cause[hit] = _PREEMPTION
    detail[hit] = [f"{us} us" for us in (lost[hit] // 1000).tolist()]

    which = np.flatnonzero(known & ~hit)
    row, overlap = _of_others(nodes, prompts, first, others, stalls.prompt[which], start[which], end[which], columns)
    hit_there = (row != NONE) & (SHARE * overlap >= length[which])
    cause[which[hit_there]] = _PREFILL
    detail[which[hit_there]] = columns["span_id"].take(pa.array(row[hit_there])).to_pylist()
    still = np.flatnonzero(known & (cause == 0))
    if len(still):
        opened.append(_open(nodes, tree, prompts, first, stalls, still, start, end, columns))
    values = {
        "at_us": pa.array(np.maximum(stalls.at, 0) // 1000).cast(kinds["at_us"]),
        "gap_us": pa.array(found.gaps_us[stalls.gap]).cast(kinds["gap_us"]),
        "cause": pa.array(CAUSES).take(pa.array(cause)),
        "detail": pa.array(detail.tolist(), type=pa.string()),
    }
    return {f"stall_causes.{name}": list_array(stalls.prompt, column, size) for name, column in values.items()}


def _open(
    nodes: Nodes,
    tree: Tree,
    prompts: Prompts,
    first: FirstTokens,
    stalls: _Stalls,
    still: Ints,
    start: Ints,
    end: Ints,
    columns: Columns,
) -> pa.Table:
    """Rows of OPEN_SCHEMA: the stalls at the positions `still`."""
    prompt = stalls.prompt[still]
    server = first.server[prompt]
    texts = pa.string()
    values = [
        take_ids(nodes.span_ids, nodes.owner[prompts.root[prompt]]),
        pa.array(still - np.searchsorted(stalls.prompt, prompt)),
        pa.array(nodes.service_names, type=texts).take(pa.array(nodes.service[server])),
        pa.array(nodes.host_names, type=texts).take(pa.array(tree.host[server])),
        columns["gpu_uuids"].take(pa.array(nodes.row[server])),
        pa.array(start[still]),
        pa.array(end[still]),
    ]
    return pa.table(values, schema=OPEN_SCHEMA)


def _stalls(nodes: Nodes, axis: Axis, prompts: Prompts, found: Deliveries, stalled: Bools, columns: Columns) -> _Stalls:
    gap = np.flatnonzero(stalled).astype(np.int64)
    prompt = found.prompt[gap]
    # Sums over all gaps before each, within its prompt.
    begins = np.searchsorted(found.prompt, prompt)
    before = np.concatenate(([0], np.cumsum(found.gaps_us)))
    tokens = np.concatenate(([0], np.cumsum(found.tokens)))
    node = found.node[prompt]
    gaps = columns["gaps_us"]
    opening = gaps.offsets.to_numpy()[nodes.row[node]].astype(np.int64)
    leading = gaps.values.to_numpy(zero_copy_only=False)[opening].astype(np.int64)
    began = nodes.start[node] + axis.drawn[node] - nodes.start[prompts.root[prompt]]
    at = began + (leading + before[gap] - before[begins]) * 1000
    return _Stalls(gap, prompt, at, found.first_tokens[prompt] + tokens[gap] - tokens[begins])


def _at_engine(
    nodes: Nodes,
    tree: Tree,
    axis: Axis,
    prompts: Prompts,
    first: FirstTokens,
    found: Deliveries,
    stalls: _Stalls,
    length: Ints,
    columns: Columns,
) -> tuple[Ints, Ints, Bools]:
    """From when to when the engine was between the same two tokens, on its own clock; and whether it told so itself.

    Where it did not, the stall as it was seen, by the axis.
    """
    server = first.server[stalls.prompt]
    start = nodes.start[prompts.root[stalls.prompt]] + stalls.at
    start = start - np.where(server != NONE, axis.drawn[server], 0)
    end = start + length
    saw = columns.filled("gaps_us")[nodes.row]
    saw[nodes.spans :] = False
    size = len(prompts)
    decodes = first_of_group(prompts.of, prompts.order, saw & (tree.stage == STAGE_CODE[Stage.DECODE]), size)
    servers = np.where((first.server != NONE) & saw[first.server], first.server, NONE)
    engine = np.where(decodes != NONE, decodes, servers)
    prompt = np.unique(stalls.prompt)
    prompt = prompt[engine[prompt] != NONE]
    made = np.zeros(len(start), dtype=np.bool_)
    if len(prompt) == 0:
        return start, end, made
    row = nodes.row[engine[prompt]]
    gaps = columns["gaps_us"]
    offsets = gaps.offsets.to_numpy()
    begin = offsets[row].astype(np.int64)
    each = offsets[row + 1] - begin
    owner = np.repeat(np.arange(len(prompt)), each)
    times = gaps.values.to_numpy(zero_copy_only=False)[spans_of(begin, each)].astype(np.int64) * 1000
    counts = counts_of(columns["counts"], row, each)
    begins = np.cumsum(each) - each
    elapsed = np.cumsum(times) - np.repeat((np.cumsum(times) - times)[begins], each)
    reached = np.cumsum(counts) - np.repeat((np.cumsum(counts) - counts)[begins], each)
    # All tokens of both are the same tokens only if they are as many.
    total = exact_sums(owner, counts, len(prompt))
    same = total == found.delivered[prompt]
    place = np.searchsorted(prompt, stalls.prompt)
    place = np.minimum(place, len(prompt) - 1)
    made = (prompt[place] == stalls.prompt) & same[place]
    width = int(max(reached.max(), stalls.tokens.max())) + 2
    line = owner * width + reached
    last = np.searchsorted(line, place * width + stalls.tokens)
    after = np.searchsorted(line, place * width + stalls.tokens + 1)
    made &= after < len(line)
    last, after = np.minimum(last, len(line) - 1), np.minimum(after, len(line) - 1)
    made &= (owner[last] == place) & (owner[after] == place)
    origin = nodes.start[engine[stalls.prompt]]
    return np.where(made, origin + elapsed[last], start), np.where(made, origin + elapsed[after], end), made


def _preempted(
    nodes: Nodes, tree: Tree, prompts: Prompts, columns: Columns, prompt: Ints, start: Ints, end: Ints
) -> Ints:
    """For how long of each interval its prompt was preempted, ns."""
    lost = np.zeros(len(prompt), dtype=np.int64)
    some = columns.filled("preempted_us")[nodes.row]
    some[nodes.spans :] = False
    node = np.flatnonzero(some & (prompts.of != NONE))
    if len(node) == 0:
        return lost
    column = columns["preempted_us"]
    offsets = column.offsets.to_numpy()
    begin = offsets[nodes.row[node]].astype(np.int64)
    count = (offsets[nodes.row[node] + 1] - begin) // 2
    at = np.repeat(begin, count) + 2 * spans_of(np.zeros_like(count), count)
    values = column.values.to_numpy(zero_copy_only=False).astype(np.int64)
    owner = np.repeat(node, count)
    since = nodes.start[owner] + values[at] * 1000
    until = since + values[at + 1] * 1000
    order = np.argsort(prompts.of[owner], kind="stable")
    since, until, of = since[order], until[order], prompts.of[owner][order]
    first = np.searchsorted(of, prompt)
    number = np.searchsorted(of, prompt, side="right") - first
    which = np.repeat(np.arange(len(prompt)), number)
    one = spans_of(first, number)
    overlap = np.minimum(until[one], end[which]) - np.maximum(since[one], start[which])
    np.add.at(lost, which, np.maximum(overlap, 0))
    return lost


def _of_others(
    nodes: Nodes,
    prompts: Prompts,
    first: FirstTokens,
    others: Prefills,
    prompt: Ints,
    start: Ints,
    end: Ints,
    columns: Columns,
) -> tuple[Ints, Ints]:
    """Of each interval the other prompt on the same engine whose prefill takes most of it: its root's row, -1 for none;
    and for how long. Of prefills in one step, which take the same of it, the one with the greatest id is named."""
    row = np.full(len(prompt), NONE, dtype=np.int64)
    most = np.zeros(len(prompt), dtype=np.int64)
    if len(prompt) == 0 or len(others.start) == 0:
        return row, most
    longest = min(int((others.end - others.start).max()), _LONGEST_NS)
    origin = min(int(others.start.min()), int(start.min())) - longest
    width = max(int(others.start.max()), int(end.max())) - origin + 1
    processes, code = np.unique(others.process, return_inverse=True)
    process = nodes.process[first.server[prompt]]
    mine = np.minimum(np.searchsorted(processes, process), len(processes) - 1)
    if width > np.iinfo(np.int64).max // (len(processes) + 1):
        return row, most
    line = code * width + others.start - origin
    begin = np.searchsorted(line, mine * width + (start - longest - origin))
    until = np.searchsorted(line, mine * width + (end - origin))
    number = np.where(processes[mine] == process, np.maximum(until - begin, 0), 0)
    which = np.repeat(np.arange(len(prompt)), number)
    one = spans_of(begin, number)
    overlap = np.minimum(others.end[one], end[which]) - np.maximum(others.start[one], start[which])
    own = others.root[one] == nodes.row[prompts.root[prompt[which]]]
    which, one, overlap = which[~own & (overlap > 0)], one[~own & (overlap > 0)], overlap[~own & (overlap > 0)]
    ids = pc.rank(columns["span_id"].take(pa.array(others.root[one])).cast(pa.string()), tiebreaker="dense").to_numpy()
    order = np.lexsort((ids, overlap, which))
    which, one, overlap = which[order], one[order], overlap[order]
    last = np.flatnonzero(np.append(which[1:] != which[:-1], True)) if len(which) else which
    row[which[last]] = others.root[one[last]]
    most[which[last]] = overlap[last]
    return row, most
