"""Trees that are parts of one prompt, joined: by the ids their spans share, by links.

A tree that starts with a server's span, or with a stage of one, is put under the call that led to it; if no call
carries the id, under the hop that does. Which of two trees is the outer one follows from what they start with (a
client's call, an edge, gateway, router, server, a stage), then from their durations. Times must overlap: on one host
as they are, across hosts within what two clocks may differ, or within the error of their offset where that is known.
Where an id was used again and it cannot be told which of several trees is meant, nothing is joined.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from promptpath.collector.assemble import keys as keys_of
from promptpath.collector.assemble.join_links import by_link, links_of
from promptpath.collector.assemble.join_times import ONE_HOST_NS, apart, overlap
from promptpath.collector.assemble.join_trees import ENGINE, PART, Trees, trees_of
from promptpath.collector.assemble.join_views import join_views
from promptpath.collector.assemble.keys import BY_BOOTSTRAP, Keys
from promptpath.collector.assemble.nodes import Nodes
from promptpath.collector.assemble.offsets import ClockPool
from promptpath.collector.assemble.ragged import NONE, firsts, spans_of
from promptpath.collector.assemble.schema import (
    IS_CALLER,
    IS_CONTAINER,
    Bools,
    Ints,
)

#: An engine stamps all choices of one request with one arrival.
_CHOICES_NS: Final = 1_000_000
#: An id that more spans than this have names no request.
_MAX_CARRIERS: Final = 256


def join(nodes: Nodes, table: pa.Table, parent: Ints, clocks: ClockPool | None = None) -> tuple[Ints, Ints]:
    """Parents after joining; and by what each node was joined (index into JOINED_BY). Both of shape (n,).

    clocks: what is known of the offsets between hosts.
    """
    by = np.zeros(len(nodes), dtype=np.int64)
    found = _shared(nodes, keys_of.find(table))
    view, around, how = join_views(nodes, table, parent, found)
    if len(view):
        parent = parent.copy()
        parent[view] = around
        by[view] = how
    linking = links_of(nodes, table, parent)
    if found is None and len(linking[0]) == 0:
        return parent, by
    trees = trees_of(nodes, parent)
    parent = parent.copy()
    if found is not None:
        inner, outer, kind = _by_id(nodes, trees, parent, found, clocks)
        parent[inner] = outer
        by[inner] = kind
    by_link(nodes, trees, parent, *linking)
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


def _by_id(nodes: Nodes, trees: Trees, parent: Ints, keys: Keys, clocks: ClockPool | None) -> tuple[Ints, Ints, Ints]:
    """(tops, their new parents, by what) of trees that share ids with outer ones."""
    inner, carrier, kind = _pairs(nodes, trees, keys)
    inner, carrier, kind = _in_time(nodes, trees, inner, carrier, kind, clocks)
    inner, carrier, kind = _nearest(nodes, trees, inner, carrier, kind)
    inner, carrier, kind = _carriers(nodes, trees, parent, inner, carrier, kind)
    outer = _calls_below(nodes, trees, parent, inner, carrier)
    # Of an id used again within what clocks may differ: whom the call overlaps as they are, if it overlaps any.
    overlaps = overlap(nodes, inner, outer) >= 0
    some = np.zeros(len(nodes), dtype=np.bool_)
    some[outer[overlaps]] = True
    keep = overlaps | ~some[outer]
    return inner[keep], outer[keep], kind[keep]


def _pairs(nodes: Nodes, trees: Trees, keys: Keys) -> tuple[Ints, Ints, Ints]:
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


def _in_time(
    nodes: Nodes, trees: Trees, inner: Ints, carrier: Ints, kind: Ints, clocks: ClockPool | None
) -> tuple[Ints, Ints, Ints]:
    """Pairs that can be of one request by their times, and by where they ran."""
    one_host = nodes.host[inner] == nodes.host[carrier]
    top = trees.top[carrier]
    offset, error = apart(nodes, inner, carrier, clocks)
    fits = overlap(nodes, inner, carrier, offset) >= np.where(one_host, -ONE_HOST_NS, -error)
    # Nothing of a request begins before it: where one clock tells both.
    with_top = nodes.host[inner] == nodes.host[top]
    fits &= ~with_top | (nodes.start[inner] >= nodes.start[top] - ONE_HOST_NS)
    # One process twice is one id used again, unless it is another instrumentation's view of the same request, or the
    # choices of one request, which arrived at one instant.
    engines = (trees.rank[inner] >= ENGINE) & (trees.rank[top] >= ENGINE)
    again = (nodes.process[inner] == nodes.process[top]) & (nodes.scope[inner] == nodes.scope[top])
    choices = np.abs(nodes.start[inner] - nodes.start[top]) <= _CHOICES_NS
    fits &= ~again | (engines & (choices | (trees.rank[inner] == PART) | (kind == BY_BOOTSTRAP)))
    # Two engines that no hop is seen to lead to: only a room is surely of one request, an id may be used again.
    fits &= ~engines | (kind == BY_BOOTSTRAP) | (overlap(nodes, inner, carrier) >= 0)
    return inner[fits], carrier[fits], kind[fits]


def _nearest(nodes: Nodes, trees: Trees, inner: Ints, carrier: Ints, kind: Ints) -> tuple[Ints, Ints, Ints]:
    """Pairs with the innermost of the outer trees: engines beside each other stay beside each other if a hop led to
    both.

    Nothing where two trees of one service are meant alike.
    """
    if len(inner) == 0:
        return inner, carrier, kind
    top = trees.top[carrier]
    engine = trees.rank[inner] == ENGINE
    beside = engine & (trees.rank[top] >= ENGINE)
    led = np.zeros(len(nodes), dtype=np.bool_)
    led[inner[engine & ~beside]] = True
    overlaps = overlap(nodes, inner, carrier) >= 0
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
    nodes: Nodes, trees: Trees, parent: Ints, inner: Ints, carrier: Ints, kind: Ints
) -> tuple[Ints, Ints, Ints]:
    """Of each inner top the best carrier in its outer tree: a call, one that nobody answered, the best in time."""
    if len(inner) == 0:
        return inner, carrier, kind
    call = IS_CALLER[nodes.stage[carrier]]
    free = call & ~_answered(nodes, parent)[carrier]
    beside = (trees.rank[inner] == ENGINE) & (trees.rank[trees.top[carrier]] >= ENGINE)
    # Beside another engine: under that engine's own span, not under a stage of it.
    at_top = beside & (carrier == trees.top[carrier])
    length = nodes.end[carrier] - nodes.start[carrier]
    order = np.lexsort((carrier, -length, overlap(nodes, inner, carrier), at_top, call, free, inner))
    last = np.append(firsts(inner[order])[1:], len(order)) - 1
    inner, carrier, kind, beside = (values[order[last]] for values in (inner, carrier, kind, beside))
    return inner, np.where(beside, trees.top[carrier], carrier), kind


def _calls_below(nodes: Nodes, trees: Trees, parent: Ints, inner: Ints, carrier: Ints) -> Ints:
    """Where to put each inner top: the only unanswered call that its carrier's process made and that can hold it, else
    the server's span that answered it in the top's own process, else the carrier."""
    if len(inner) == 0:
        return carrier
    count = len(nodes)
    trying = ~((trees.rank[inner] == ENGINE) & (trees.rank[trees.top[carrier]] >= ENGINE))
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
    shared_ns = overlap(nodes, option, inner[which])
    fits = np.where(one_host, (shared_ns >= 0) & (nodes.start[inner[which]] >= nodes.start[option] - ONE_HOST_NS), True)
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
