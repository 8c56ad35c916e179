"""Joins by links: spans without a parent that link to the span they belong under."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from promptpath.collector.assemble.join_times import TOLERANCE_NS, overlap
from promptpath.collector.assemble.join_trees import Trees
from promptpath.collector.assemble.nodes import Nodes
from promptpath.collector.assemble.ragged import NONE, array_of, spans_of
from promptpath.collector.assemble.schema import IS_CALLER, Ints


def links_of(nodes: Nodes, table: pa.Table, parent: Ints) -> tuple[Ints, Ints]:
    """(top, node that it links to) of parentless spans, for links to spans that are there."""
    none = np.empty(0, dtype=np.int64)
    column = array_of(table["link_spans"])
    offsets = column.offsets.to_numpy()
    if offsets[0] == offsets[-1]:
        return none, none
    offsets = offsets.astype(np.int64)
    count = offsets[1:] - offsets[:-1]
    top = np.flatnonzero((parent == NONE) & (np.arange(len(nodes)) < nodes.spans) & ~nodes.agent)
    top = top[(count[nodes.row[top]] > 0) & ~IS_CALLER[nodes.stage[top]]]
    if len(top) == 0:
        return none, none
    traces = table["link_traces"].combine_chunks()
    start = traces.offsets.to_numpy().astype(np.int64)[nodes.row[top]]
    number = count[nodes.row[top]]
    at = pa.array(spans_of(start, number))
    where = pa.array(spans_of(offsets[nodes.row[top]], number))
    wanted = pc.binary_join_element_wise(traces.values.take(at), column.values.take(where), " ")
    near = pc.is_in(table["trace_id"].combine_chunks(), traces.values.take(at).unique())
    spans = np.arange(nodes.spans)[np.asarray(near.to_numpy(zero_copy_only=False))[nodes.row[: nodes.spans]]]
    some = pa.array(nodes.row[spans])
    there = pc.binary_join_element_wise(table["trace_id"].take(some), table["span_id"].take(some), " ")
    index = pc.index_in(wanted, there.combine_chunks()).fill_null(NONE).to_numpy().astype(np.int64)
    top = np.repeat(top, number)[index != NONE]
    return top.astype(np.int64), spans[index[index != NONE]]


def by_link(nodes: Nodes, trees: Trees, parent: Ints, top: Ints, target: Ints) -> None:
    """Put tops that are still parentless under the one span of another tree that they link to; changes `parent`."""
    if len(top) == 0:
        return
    away = (parent[top] == NONE) & (trees.top[target] != top) & (trees.top[target] != NONE)
    near = np.abs(np.minimum(overlap(nodes, top, target), 0)) <= TOLERANCE_NS
    # A tree that holds calls of its own is a request of its own, however it came to be.
    calls = np.zeros(len(nodes), dtype=np.bool_)
    client = np.flatnonzero((nodes.agent | IS_CALLER[nodes.stage]) & (trees.top != NONE))
    calls[trees.top[client]] = True
    keep = away & near & (~calls[top] | (nodes.inference[top] & (trees.rank[top] > 0)))
    top, target = top[keep], target[keep]
    only = np.bincount(top, minlength=len(nodes))[top] == 1
    parent[top[only]] = target[only]
