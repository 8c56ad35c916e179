"""Spans as arrays: one order whatever order they came in, every span once, parents as indices.

Besides the spans, a node exists for each part that a rule reads out of a span's attributes (an engine that says its
queue and prefill times as numbers instead of child spans): those come last and are children of their span.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from promptpath.collector.assemble.clamped import LONGEST_NS, at_least
from promptpath.collector.assemble.ragged import NONE, array_of, bools_of, codes_of, firsts, ints_of, spans_of
from promptpath.collector.assemble.schema import (
    INBOUND,
    IS_CONTAINER,
    NO_NS,
    ROLE_CODE,
    STAGE_CODE,
    Bools,
    Ints,
    stage_set,
)
from promptpath.collector.assemble.sorting import Words, find, order_by, runs
from promptpath.collector.assemble.texts import ids_of, ranks_of, sparse_codes_of, take_pairs, texts_of_ids
from promptpath.semconv import Stage

#: What else may see tokens pass: a forwarding of the prompt, and a hop of which the tree decides what it is.
_PASSES_ON = stage_set(Stage.HOP)
_PASSES_ON[STAGE_CODE[INBOUND]] = True


@dataclass
class Nodes:
    """Columns of n nodes, all of shape (n,). The first `spans` nodes are spans, the others parts of one.

    row: row of the span table (of the span a part belongs to). trace, scope, service, process, host, request: codes, 0
    for no request id; role: of ROLE_CODE. parent_key: equal for nodes that name the same parent, whether it is there
    or not, -1 where none is named. parent: index of the parent node, -1 for none; `orphan` where a parent is named
    that is not there. start, end: ns since the epoch. first: ns from start to the span's first delivery of tokens,
    NO_NS if it saw none. said_first: the same, said by the span in a number of its own. owner: the span that a part
    belongs to, else the node itself. span_ids: shape (spans,), text.
    """

    spans: int
    row: Ints
    trace: Ints
    parent: Ints
    parent_key: Ints
    orphan: Bools
    start: Ints
    end: Ints
    first: Ints
    said_first: Ints
    stage: Ints
    role: Ints
    server_kind: Bools
    scope: Ints
    service: Ints
    process: Ints
    host: Ints
    request: Ints
    loopback: Bools
    inference: Bools
    agent: Bools
    failed: Bools
    owner: Ints
    span_ids: pa.Array
    service_names: list[str]
    host_names: list[str]
    request_names: list[str]

    def __len__(self) -> int:
        return len(self.start)

    @cached_property
    def own(self) -> Ints:
        """0, 1, ... n - 1: each node itself. Not to be changed."""
        return np.arange(len(self), dtype=np.int64)


def load(table: pa.Table, unknown_rows: tuple[Bools, Bools]) -> Nodes:
    """Nodes of a span table that `check_spans` has passed. unknown_rows: what `clamped.lost` says of it."""
    trace = ranks_of(array_of(table["trace_id"]))
    span, parent_id, named = ids_of(array_of(table["span_id"]), array_of(table["parent_id"]))
    start = ints_of(array_of(table["start_ns"]), 0)
    duration = np.maximum(ints_of(array_of(table["duration_ns"]), 0), 0)
    said_first = ints_of(array_of(table["first_token_ns"]), NO_NS)
    start, duration = at_least(table, unknown_rows, start, duration, said_first)

    inference = bools_of(array_of(table["inference"]))
    rows, trace, own = _canonical_rows(trace, span, inference, start, duration)
    named = named[rows]
    asking = np.flatnonzero(named)
    parent = np.full(len(rows), NONE, dtype=np.int64)
    parent[asking] = find(trace, own, trace[asking], take_pairs(parent_id, rows[asking]))
    parent_key = parent.copy()
    parent[parent == np.arange(len(rows))] = NONE
    lost = np.flatnonzero(named & (parent == NONE))
    unknown = lost[parent_key[lost] == NONE]
    keys = [trace[unknown].view(np.uint64), *take_pairs(parent_id, rows[unknown])]
    parent_key[unknown] = len(rows) + _numbered(keys)
    orphan = np.zeros(len(rows), dtype=np.bool_)
    orphan[lost] = True

    def text(name: str) -> tuple[Ints, list[str]]:
        codes, names = codes_of(array_of(table[name]))
        return codes[rows], names

    def flag(name: str) -> Bools:
        values = bools_of(array_of(table[name]))
        return values[rows] if values.any() else np.zeros(len(rows), dtype=np.bool_)

    stage_codes, stage_names = text("stage")
    known = np.array([STAGE_CODE.get(name, 0) for name in stage_names] or [0], dtype=np.int64)
    stage = known[stage_codes]
    role_codes, role_names = text("role")
    role = np.array([ROLE_CODE.get(name, 0) for name in role_names] or [0], dtype=np.int64)[role_codes]
    service, service_names = text("service")
    host, host_names = text("host")
    request, request_names = sparse_codes_of(array_of(table["request_id"]))
    kind, kind_names = text("kind")
    is_server = np.array([name.upper() == "SERVER" for name in kind_names] or [False], dtype=np.bool_)
    start, duration, said_first = start[rows], duration[rows], said_first[rows]
    said_first = np.where(said_first > duration + LONGEST_NS, NO_NS, said_first)
    nodes = Nodes(
        spans=len(rows),
        row=rows,
        trace=trace,
        parent=parent,
        parent_key=parent_key,
        orphan=orphan,
        start=start,
        end=start + duration,
        first=_first_delivery(array_of(table["gaps_us"]), rows, said_first, stage, duration),
        said_first=np.minimum(said_first, duration),
        stage=stage,
        role=role,
        server_kind=is_server[kind],
        scope=text("scope")[0],
        service=service,
        process=text("process")[0],
        host=host,
        request=request[rows].astype(np.int64),
        loopback=flag("loopback"),
        inference=flag("inference"),
        agent=flag("agent"),
        failed=flag("failed"),
        owner=np.arange(len(rows), dtype=np.int64),
        span_ids=texts_of_ids(array_of(table["span_id"]), rows, own),
        service_names=service_names,
        host_names=host_names,
        request_names=request_names,
    )
    return _with_parts(nodes, table)


def _traces_in_order(trace: Ints) -> Ints | None:
    """Rows by trace where storage gave most traces' spans together: only as many numbers are sorted as there are such
    pieces. None where they are too many, or in order already."""
    begins = firsts(trace)
    piece = trace.take(begins)
    if 4 * len(begins) > len(trace) or bool((piece[1:] >= piece[:-1]).all()):
        return None
    order = order_by(piece)
    counts = np.diff(np.append(begins, len(trace)))
    return spans_of(begins.take(order), counts.take(order))


def _canonical_rows(
    trace: Ints, span: Words, inference: Bools, start: Ints, duration: Ints
) -> tuple[Ints, Ints, tuple[Words, Words]]:
    """Rows by trace and span id, of a span sent twice the longer one only; and their traces and span ids.

    Of different spans with one id it is an inference span, if one is: the others hang from it.
    """
    rows = _traces_in_order(trace)
    if rows is None:
        order = order_by(trace, span[:, 0], span[:, 1])
    else:
        order = rows.take(order_by(trace.take(rows), *take_pairs(span, rows)))
    trace = trace.take(order)
    first, second = take_pairs(span, order)
    begins = runs(trace, first, second)
    if len(begins) == len(order):
        return order, trace, (first, second)
    counts = np.diff(np.append(begins, len(order)))
    rows = order[begins]
    several = np.flatnonzero(counts > 1)
    run = np.repeat(several, counts[several])
    row = order[spans_of(begins[several], counts[several])]
    best = order_by(run, inference[row].astype(np.int64), start[row], duration[row])
    rows[run[best]] = row[best]  # of several the last written stays
    return rows, trace[begins], (first[begins], second[begins])


def _numbered(keys: Sequence[Words]) -> Ints:
    """One number for each distinct row of some columns."""
    order = order_by(*keys)
    begins = runs(*(key[order] for key in keys))
    number = np.empty(len(order), dtype=np.int64)
    number[order] = np.repeat(np.arange(len(begins)), np.diff(np.append(begins, len(order))))
    return number


def _first_delivery(gaps: pa.Array, rows: Ints, said: Ints, stage: Ints, duration: Ints) -> Ints:
    """Span start to first delivery in ns: from the token gaps, else as the span says, for spans that contain others.

    What was delivered after a span's end it cannot have seen: such a claim is a wrong unit, or another clock's.
    """
    offsets = gaps.offsets.to_numpy()
    values = gaps.values.to_numpy(zero_copy_only=False)
    first = np.full(len(rows), NO_NS, dtype=np.int64)
    hop = np.flatnonzero(IS_CONTAINER[stage] | _PASSES_ON[stage])
    row = rows[hop]
    begin = offsets[row]
    has = offsets[row + 1] != begin
    first[hop] = np.where(said[hop] >= 0, said[hop], NO_NS)
    first[hop[has]] = values[begin[has]].astype(np.int64) * 1000
    return np.minimum(first, duration)


@dataclass
class _Decoding:
    """What of some prefills is decoding: the spans, and from when to when [ns since the epoch]."""

    owner: Ints
    begin: Ints
    end: Ints


def _decoding(nodes: Nodes) -> tuple[Nodes, _Decoding]:
    """`nodes` with prefills that end where decoding begins in them, and what came after in those that did not.

    An engine that has one span for all that its model did says of it when tokens came, by spans inside it.
    """
    child = np.flatnonzero((nodes.stage == STAGE_CODE[Stage.DECODE]) & (nodes.parent != NONE))
    above = nodes.parent[child]
    held = (nodes.stage[above] == STAGE_CODE[Stage.PREFILL]) & (nodes.process[child] == nodes.process[above])
    held &= (nodes.start[child] > nodes.start[above]) & (nodes.start[child] < nodes.end[above])
    child, above = child[held], above[held]
    owner = np.unique(above)
    begin = np.full(len(nodes), np.iinfo(np.int64).max, dtype=np.int64)
    np.minimum.at(begin, above, nodes.start[child])
    if len(owner) == 0:
        return nodes, _Decoding(owner, owner, owner)
    until = nodes.end[owner]
    end = nodes.end.copy()
    end[owner] = begin[owner]
    return replace(nodes, end=end), _Decoding(owner, begin[owner], until)


def _with_parts(nodes: Nodes, table: pa.Table) -> Nodes:
    """`nodes` and, behind them, a node for each part a rule read out of a span, and for what of a prefill is
    decoding."""
    nodes, decoding = _decoding(nodes)
    stages = array_of(table["part_stages"])
    if len(decoding.owner) == 0 and (len(stages) == 0 or stages.offsets[0] == stages.offsets[-1]):
        return nodes
    offsets = stages.offsets.to_numpy().astype(np.int64)
    counts = (offsets[1:] - offsets[:-1])[nodes.row]
    owner = np.repeat(np.arange(len(nodes), dtype=np.int64), counts)
    within = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
    at = offsets[nodes.row[owner]] + within
    codes, names = codes_of(stages.values)
    known = np.array([STAGE_CODE.get(name, 0) for name in names], dtype=np.int64)
    begin = nodes.start[owner] + ints_of(array_of(table["part_starts_ns"]).values, 0)[at]
    length = ints_of(array_of(table["part_durations_ns"]).values, 0)[at]
    begin = np.clip(begin, nodes.start[owner], nodes.end[owner])
    until = np.clip(begin + np.maximum(length, 0), begin, nodes.end[owner])
    stage = np.concatenate((known[codes[at]], np.full(len(decoding.owner), STAGE_CODE[Stage.DECODE])))
    owner = np.concatenate((owner, decoding.owner))
    begin, until = np.concatenate((begin, decoding.begin)), np.concatenate((until, decoding.end))
    none = np.full(len(owner), NO_NS, dtype=np.int64)
    false = np.zeros(len(owner), dtype=np.bool_)

    def more(values: Ints, extra: Ints) -> Ints:
        return np.concatenate((values, extra))

    def inherit(values: Ints) -> Ints:
        return np.concatenate((values, values[owner]))

    return Nodes(
        spans=nodes.spans,
        row=inherit(nodes.row),
        trace=inherit(nodes.trace),
        parent=more(nodes.parent, owner),
        parent_key=more(nodes.parent_key, np.full(len(owner), NONE, dtype=np.int64)),
        orphan=np.concatenate((nodes.orphan, false)),
        start=more(nodes.start, begin),
        end=more(nodes.end, until),
        first=more(nodes.first, none),
        said_first=more(nodes.said_first, none),
        stage=more(nodes.stage, stage),
        role=more(nodes.role, np.zeros(len(owner), dtype=np.int64)),
        server_kind=np.concatenate((nodes.server_kind, false)),
        scope=inherit(nodes.scope),
        service=inherit(nodes.service),
        process=inherit(nodes.process),
        host=inherit(nodes.host),
        request=inherit(nodes.request),
        loopback=np.concatenate((nodes.loopback, false)),
        inference=np.concatenate((nodes.inference, false)),
        agent=np.concatenate((nodes.agent, false)),
        failed=np.concatenate((nodes.failed, false)),
        owner=more(nodes.owner, owner),
        span_ids=nodes.span_ids,
        service_names=nodes.service_names,
        host_names=nodes.host_names,
        request_names=nodes.request_names,
    )
