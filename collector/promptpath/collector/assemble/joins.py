"""Trees that are parts of one prompt, joined: by the ids their spans share, by links.

A tree that starts with a server's span, or with a stage of one, is put under the call that led to it; if no call
carries the id, under the hop that does. Which of two trees is the outer one follows from what they start with (a
client's call, an edge, gateway, router, server, a stage), then from their durations. Times must overlap: on one host
as they are, across hosts within what two clocks may differ, or within the error of their offset where that is known.
Where an id was used again and it cannot be told which of several trees is meant, nothing is joined.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from promptpath.collector.assemble import keys as keys_of
from promptpath.collector.assemble.keys import BY_BOOTSTRAP, Keys
from promptpath.collector.assemble.nodes import Nodes
from promptpath.collector.assemble.offsets import NO_BOUND_NS, Bounds, ClockPool
from promptpath.collector.assemble.ragged import NONE, array_of, firsts, spans_of
from promptpath.collector.assemble.schema import (
    INBOUND,
    IS_CALLER,
    IS_CONTAINER,
    STAGE_CODE,
    Bools,
    Ints,
)
from promptpath.semconv import Stage

#: By how much the clocks of two hosts may differ for their spans to be of one request.
TOLERANCE_NS: Final = 15_000_000_000
#: How late or early clocks of one host may be read.
_ONE_HOST_NS: Final = 1_000_000
#: Where an offset is known, by so much more than its error two spans of one request may still miss each other: ends
#: are noted late, work is handed on.
_SURE_NS: Final = 100_000_000
#: An engine stamps all choices of one request with one arrival.
_CHOICES_NS: Final = 1_000_000
#: An id that more spans than this have names no request.
_MAX_CARRIERS: Final = 256

#: How far in a tree is that starts with a stage: calls and whatever is no stage 0.
RANK: Final = np.zeros(len(STAGE_CODE), dtype=np.int64)
_BARE, _ENGINE, _PART = 4, 5, 6
RANK[:] = _PART
for _stage, _rank in (
    ("", 0),
    (Stage.CLIENT, 0),
    (Stage.CALL, 0),
    (Stage.EDGE, 1),
    (Stage.GATEWAY, 2),
    (Stage.ROUTER, 3),
    (INBOUND, _BARE),
    (Stage.SERVER, _ENGINE),
):
    RANK[STAGE_CODE[_stage]] = _rank


@dataclass
class _Trees:
    """Trees by node: top, shape (n,), -1 on cycles. rank, place: shape (n,), of a top: what it starts with, its place
    in the order of outer to inner. inner: tops that may be put under others."""

    top: Ints
    rank: Ints
    place: Ints
    inner: Bools


def join(nodes: Nodes, table: pa.Table, parent: Ints, clocks: ClockPool | None = None) -> tuple[Ints, Ints]:
    """Parents after joining; and by what each node was joined (index into JOINED_BY). Both of shape (n,).

    clocks: what is known of the offsets between hosts.
    """
    by = np.zeros(len(nodes), dtype=np.int64)
    found = _shared(nodes, keys_of.find(table))
    linking = _links(nodes, table, parent)
    if found is None and len(linking[0]) == 0:
        return parent, by
    trees = _trees(nodes, parent)
    parent = parent.copy()
    if found is not None:
        inner, outer, kind = _by_id(nodes, trees, parent, found, clocks)
        parent[inner] = outer
        by[inner] = kind
    _by_link(nodes, trees, parent, *linking)
    return parent, by


def _shared(nodes: Nodes, keys: Keys) -> Keys | None:
    """The rows of `keys`, by node, of ids that two traces share or that a span without its parent has."""
    if len(keys) == 0:
        return None
    node_of = np.full(int(nodes.row.max()) + 1 if len(nodes) else 0, NONE, dtype=np.int64)
    node_of[nodes.row[: nodes.spans]] = np.arange(nodes.spans)
    row = keys.row[keys.row < len(node_of)]
    if len(row) == 0:
        return None
    node = node_of[row]
    key, kind, exact = (values[keys.row < len(node_of)][node != NONE] for values in (keys.key, keys.kind, keys.exact))
    node = node[node != NONE]
    size = len(keys.names)
    low = np.full(size, np.iinfo(np.int64).max, dtype=np.int64)
    high = np.full(size, NONE, dtype=np.int64)
    np.minimum.at(low, key, nodes.trace[node])
    np.maximum.at(high, key, nodes.trace[node])
    carriers = np.bincount(key, minlength=size)
    lost = np.zeros(size, dtype=np.bool_)
    lost[key[nodes.orphan[node]]] = True
    wanted = ((low < high) | (lost & (carriers > 1))) & (carriers <= _MAX_CARRIERS)
    keep = wanted[key]
    if not keep.any():
        return None
    return Keys(node[keep], key[keep], kind[keep], exact[keep], keys.names)


def _trees(nodes: Nodes, parent: Ints) -> _Trees:
    count = len(nodes)
    top = np.where(parent == NONE, np.arange(count), parent)
    for _ in range(count.bit_length()):
        further = top[top]
        if np.array_equal(further, top):
            break
        top = further
    is_top = parent == NONE
    top = np.where(is_top[top], top, NONE)
    rank = RANK[nodes.stage]
    inside = top != NONE

    def holds(chosen: Bools) -> Bools:
        some = np.zeros(count, dtype=np.bool_)
        some[top[chosen & inside]] = True
        return some

    inbound = nodes.stage == STAGE_CODE[INBOUND]
    rank[inbound & holds(IS_CALLER[nodes.stage])] = RANK[STAGE_CODE[Stage.GATEWAY]]
    engine = holds((RANK[nodes.stage] >= _ENGINE) & (nodes.process == nodes.process[np.maximum(top, 0)]))
    rank[inbound & (rank == _BARE) & engine] = _ENGINE
    place = np.empty(count, dtype=np.int64)
    place[np.lexsort((np.arange(count), nodes.start, nodes.start - nodes.end, rank))] = np.arange(count)
    inner = is_top & (rank > 0) & ~nodes.agent & (nodes.inference | (nodes.stage > 0))
    return _Trees(top, rank, place, inner)


def _by_id(nodes: Nodes, trees: _Trees, parent: Ints, keys: Keys, clocks: ClockPool | None) -> tuple[Ints, Ints, Ints]:
    """(tops, their new parents, by what) of trees that share ids with outer ones."""
    inner, carrier, kind = _pairs(nodes, trees, keys)
    inner, carrier, kind = _in_time(nodes, trees, inner, carrier, kind, clocks)
    inner, carrier, kind = _nearest(nodes, trees, inner, carrier, kind)
    inner, carrier, kind = _carriers(nodes, trees, parent, inner, carrier, kind)
    outer = _calls_below(nodes, trees, parent, inner, carrier)
    # Of an id used again within what clocks may differ: whom the call overlaps as they are, if it overlaps any.
    overlaps = _overlap(nodes, inner, outer) >= 0
    some = np.zeros(len(nodes), dtype=np.bool_)
    some[outer[overlaps]] = True
    keep = overlaps | ~some[outer]
    return inner[keep], outer[keep], kind[keep]


def _pairs(nodes: Nodes, trees: _Trees, keys: Keys) -> tuple[Ints, Ints, Ints]:
    """(inner top, node of an outer tree that shares an id with it, by what), once each, the surest."""
    order = np.argsort(keys.key, kind="stable")
    node, key, kind, exact = keys.row[order], keys.key[order], keys.kind[order], keys.exact[order]
    begin = firsts(key)
    count = np.diff(np.append(begin, len(key)))
    group = np.repeat(np.arange(len(begin)), count)
    left = np.flatnonzero((trees.top[node] != NONE) & trees.inner[trees.top[node]])
    first = np.repeat(left, count[group[left]])
    second = spans_of(begin[group[left]], count[group[left]])
    top, other = trees.top[node[first]], trees.top[node[second]]
    fits = (other != NONE) & (other != top) & (exact[first] | exact[second])
    fits &= trees.place[np.maximum(other, 0)] < trees.place[top]
    first, second = first[fits], second[fits]
    inner, carrier = trees.top[node[first]], node[second]
    by = np.maximum(kind[first], kind[second])
    order = np.lexsort((by, carrier, inner))
    inner, carrier, by = inner[order], carrier[order], by[order]
    once = firsts(inner * len(nodes) + carrier)
    return inner[once], carrier[once], by[once]


def _overlap(nodes: Nodes, one: Ints, other: Ints, ahead: Ints | int = 0) -> Ints:
    """For how long two spans overlap as their clocks say; negative: how far apart they are. ahead: of the first's
    clock."""
    ends = np.minimum(nodes.end[one] - ahead, nodes.end[other])
    overlap: Ints = ends - np.maximum(nodes.start[one] - ahead, nodes.start[other])
    return overlap


def _apart(nodes: Nodes, one: Ints, other: Ints, clocks: ClockPool | None) -> tuple[Ints, Ints]:
    """By how much the first span's clock is ahead of the other's, and how wrong that may be [ns]."""
    offset, error = np.zeros(len(one), dtype=np.int64), np.full(len(one), TOLERANCE_NS, dtype=np.int64)
    across = np.flatnonzero(nodes.host[one] != nodes.host[other])
    if clocks is None or len(across) == 0:
        return offset, error
    # The codes of hosts rank their names. Instants are told on the clock of the host named first.
    first, second = nodes.host[one[across]], nodes.host[other[across]]
    forward = first > second
    at = np.where(forward, nodes.start[other[across]], nodes.start[one[across]])
    any_low, any_high = np.full(len(across), NO_BOUND_NS), np.full(len(across), -NO_BOUND_NS)
    pair = np.minimum(first, second), np.maximum(first, second)
    found, wrong, known = clocks.offsets(Bounds(nodes.host_names, *pair, at, any_low, any_high))
    known &= wrong + _SURE_NS < TOLERANCE_NS
    offset[across[known]] = np.where(forward, found, -found)[known]
    error[across[known]] = wrong[known] + _SURE_NS
    return offset, error


def _in_time(
    nodes: Nodes, trees: _Trees, inner: Ints, carrier: Ints, kind: Ints, clocks: ClockPool | None
) -> tuple[Ints, Ints, Ints]:
    """Pairs that can be of one request by their times, and by where they ran."""
    one_host = nodes.host[inner] == nodes.host[carrier]
    top = trees.top[carrier]
    offset, error = _apart(nodes, inner, carrier, clocks)
    fits = _overlap(nodes, inner, carrier, offset) >= np.where(one_host, -_ONE_HOST_NS, -error)
    # Nothing of a request begins before it: where one clock tells both.
    with_top = nodes.host[inner] == nodes.host[top]
    fits &= ~with_top | (nodes.start[inner] >= nodes.start[top] - _ONE_HOST_NS)
    # One process twice is one id used again, unless it is another instrumentation's view of the same request, or the
    # choices of one request, which arrived at one instant.
    engines = (trees.rank[inner] >= _ENGINE) & (trees.rank[top] >= _ENGINE)
    again = (nodes.process[inner] == nodes.process[top]) & (nodes.scope[inner] == nodes.scope[top])
    choices = np.abs(nodes.start[inner] - nodes.start[top]) <= _CHOICES_NS
    fits &= ~again | (engines & (choices | (trees.rank[inner] == _PART) | (kind == BY_BOOTSTRAP)))
    # Two engines that no hop is seen to lead to: only a room is surely of one request, an id may be used again.
    fits &= ~engines | (kind == BY_BOOTSTRAP) | (_overlap(nodes, inner, carrier) >= 0)
    return inner[fits], carrier[fits], kind[fits]


def _nearest(nodes: Nodes, trees: _Trees, inner: Ints, carrier: Ints, kind: Ints) -> tuple[Ints, Ints, Ints]:
    """Pairs with the innermost of the outer trees: engines beside each other stay beside each other if a hop led to
    both.

    Nothing where two trees of one service are meant alike.
    """
    if len(inner) == 0:
        return inner, carrier, kind
    top = trees.top[carrier]
    engine = trees.rank[inner] == _ENGINE
    beside = engine & (trees.rank[top] >= _ENGINE)
    led = np.zeros(len(nodes), dtype=np.bool_)
    led[inner[engine & ~beside]] = True
    overlaps = _overlap(nodes, inner, carrier) >= 0
    # Of engines without a hop before them the first is the root: the best is the outermost.
    depth = np.where(beside, -trees.place[top], trees.place[top])
    keep = ~(beside & led[inner])
    inner, carrier, kind, top = inner[keep], carrier[keep], kind[keep], top[keep]
    depth, overlaps, beside = depth[keep], overlaps[keep], beside[keep]
    order = np.lexsort((depth, overlaps, trees.rank[top] * ~beside, inner))
    last = np.append(firsts(inner[order])[1:], len(order)) - 1
    chosen = np.full(len(nodes), NONE, dtype=np.int64)
    sure = np.zeros(len(nodes), dtype=np.bool_)
    chosen[inner[order[last]]] = top[order[last]]
    sure[inner[order[last]]] = overlaps[order[last]]
    is_chosen = top == chosen[inner]
    rival = ~is_chosen & (nodes.service[top] == nodes.service[chosen[inner]]) & (overlaps == sure[inner]) & ~beside
    unclear = np.zeros(len(nodes), dtype=np.bool_)
    unclear[inner[rival]] = True
    keep = is_chosen & ~unclear[inner]
    return inner[keep], carrier[keep], kind[keep]


def _answered(nodes: Nodes, parent: Ints) -> Bools:
    """Calls under which another process, or a server's span, stands."""
    child = np.flatnonzero(parent != NONE)
    above = parent[child]
    other = (nodes.process[child] != nodes.process[above]) | (nodes.server_kind[child] & nodes.inference[child])
    answered = np.zeros(len(nodes), dtype=np.bool_)
    answered[above[other]] = True
    return answered


def _carriers(
    nodes: Nodes, trees: _Trees, parent: Ints, inner: Ints, carrier: Ints, kind: Ints
) -> tuple[Ints, Ints, Ints]:
    """Of each inner top the best carrier in its outer tree: a call, one that nobody answered, the best in time."""
    if len(inner) == 0:
        return inner, carrier, kind
    call = IS_CALLER[nodes.stage[carrier]]
    free = call & ~_answered(nodes, parent)[carrier]
    beside = (trees.rank[inner] == _ENGINE) & (trees.rank[trees.top[carrier]] >= _ENGINE)
    # Beside another engine: under that engine's own span, not under a stage of it.
    at_top = beside & (carrier == trees.top[carrier])
    length = nodes.end[carrier] - nodes.start[carrier]
    order = np.lexsort((carrier, -length, _overlap(nodes, inner, carrier), at_top, call, free, inner))
    last = np.append(firsts(inner[order])[1:], len(order)) - 1
    inner, carrier, kind, beside = (values[order[last]] for values in (inner, carrier, kind, beside))
    return inner, np.where(beside, trees.top[carrier], carrier), kind


def _calls_below(nodes: Nodes, trees: _Trees, parent: Ints, inner: Ints, carrier: Ints) -> Ints:
    """Where to put each inner top: the only unanswered call that its carrier's process made and that can hold it, else
    the server's span that answered it in the top's own process, else the carrier."""
    if len(inner) == 0:
        return carrier
    count = len(nodes)
    trying = ~((trees.rank[inner] == _ENGINE) & (trees.rank[trees.top[carrier]] >= _ENGINE))
    answered = _answered(nodes, parent)
    is_call = IS_CALLER[nodes.stage] & (np.arange(count) < nodes.spans)
    has_inner = np.zeros(count, dtype=np.bool_)
    has_inner[parent[is_call & (parent != NONE)]] = True
    carries = np.zeros(count, dtype=np.bool_)
    carries[carrier[trying]] = True
    # Climb from each call to the nearest carriers above it, within its process.
    call = np.flatnonzero(is_call & ~has_inner & ~answered & (trees.top != NONE))
    below = np.zeros(count, dtype=np.bool_)
    below[trees.top[carrier]] = True
    call = call[below[trees.top[call]]]
    found: list[Ints] = []
    under: list[Ints] = []
    step, from_call = call, call
    while len(step):
        hit = carries[step]
        found.append(from_call[hit])
        under.append(step[hit])
        above = parent[step]
        go = (above != NONE) & (nodes.process[np.maximum(above, 0)] == nodes.process[step])
        step, from_call = above[go], from_call[go]
    calls, holders = np.concatenate([*found, call[:0]]), np.concatenate([*under, call[:0]])
    order = np.argsort(holders, kind="stable")
    calls, holders = calls[order], holders[order]
    begin = np.searchsorted(holders, carrier)
    number = np.where(trying, np.searchsorted(holders, carrier, side="right") - begin, 0)
    which = np.repeat(np.arange(len(inner)), number)
    option = calls[spans_of(begin, number)]
    one_host = nodes.host[option] == nodes.host[inner[which]]
    overlap = _overlap(nodes, option, inner[which])
    fits = np.where(one_host, (overlap >= 0) & (nodes.start[inner[which]] >= nodes.start[option] - _ONE_HOST_NS), True)
    which, option = which[fits], option[fits]
    only = np.bincount(which, minlength=len(inner))[which] == 1
    result = carrier.copy()
    result[which[only]] = option[only]
    return _within_answer(nodes, parent, answered, inner, result)


def _within_answer(nodes: Nodes, parent: Ints, answered: Bools, inner: Ints, outer: Ints) -> Ints:
    """Where a call was answered already by a span of the top's own process, or service and host, that span."""
    taken = np.flatnonzero(IS_CALLER[nodes.stage[outer]] & answered[outer])
    if len(taken) == 0:
        return outer
    children = np.flatnonzero((parent != NONE) & IS_CONTAINER[np.where(nodes.inference, nodes.stage, 0)])
    children = children[nodes.server_kind[children]]
    order = children[np.argsort(parent[children], kind="stable")]
    begin = np.searchsorted(parent[order], outer[taken])
    number = np.searchsorted(parent[order], outer[taken], side="right") - begin
    which = np.repeat(taken, number)
    child = order[spans_of(begin, number)]
    same = (nodes.process[child] == nodes.process[inner[which]]) | (
        (nodes.service[child] == nodes.service[inner[which]]) & (nodes.host[child] == nodes.host[inner[which]])
    )
    which, child = which[same], child[same]
    only = np.bincount(which, minlength=len(outer))[which] == 1
    result = outer.copy()
    result[which[only]] = child[only]
    return result


def _links(nodes: Nodes, table: pa.Table, parent: Ints) -> tuple[Ints, Ints]:
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


def _by_link(nodes: Nodes, trees: _Trees, parent: Ints, top: Ints, target: Ints) -> None:
    """Put tops that are still parentless under the one span of another tree that they link to; changes `parent`."""
    if len(top) == 0:
        return
    away = (parent[top] == NONE) & (trees.top[target] != top) & (trees.top[target] != NONE)
    near = np.abs(np.minimum(_overlap(nodes, top, target), 0)) <= TOLERANCE_NS
    # A tree that holds calls of its own is a request of its own, however it came to be.
    calls = np.zeros(len(nodes), dtype=np.bool_)
    client = np.flatnonzero((nodes.agent | IS_CALLER[nodes.stage]) & (trees.top != NONE))
    calls[trees.top[client]] = True
    keep = away & near & (~calls[top] | (nodes.inference[top] & (trees.rank[top] > 0)))
    top, target = top[keep], target[keep]
    only = np.bincount(top, minlength=len(nodes))[top] == 1
    parent[top[only]] = target[only]
