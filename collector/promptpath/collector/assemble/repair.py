"""Parents that the spans themselves do not name: siblings that are really nested, spans whose parent never came.

Stored spans stay as they are; only the assembled prompt shows the repaired nesting.
"""

from __future__ import annotations

import numpy as np

from promptpath.collector.assemble.join_times import ONE_HOST_NS
from promptpath.collector.assemble.nodes import Nodes
from promptpath.collector.assemble.ragged import NONE, firsts, spans_of
from promptpath.collector.assemble.schema import IS_CALLER, IS_CONNECT, Bools, Ints
from promptpath.collector.assemble.sorting import order_by

#: Child-call pairs compared at once; bounds memory on traces with thousands of orphans.
_MAX_PAIRS = 2_000_000


def nest_siblings(nodes: Nodes) -> tuple[Ints, Bools]:
    """Parents after nesting sibling server spans of one request; and which nodes moved. Both of shape (n,).

    Two instrumentations of one server, or a gateway that hands the client's trace header on, make siblings where one
    holds the other: they name the same parent (or none, in one process: LiteLLM v1 makes a root beside FastAPI's), come
    from different scopes, and one lies within the other. Spans of one request id are one request too (n > 1 gives a
    span a choice).
    """
    parent = nodes.parent.copy()
    moved = np.zeros(len(nodes), dtype=np.bool_)
    # Spans that name no parent are siblings of those of their trace.
    rootless = nodes.parent_key == NONE
    family = np.where(rootless, len(nodes) * 2 + nodes.trace, nodes.parent_key)
    candidate = np.flatnonzero(nodes.inference & nodes.server_kind & (nodes.own < nodes.spans)).astype(np.int64)
    named = family[candidate]
    candidate = candidate[np.bincount(named)[named] > 1]
    order = candidate[order_by(family[candidate], nodes.start[candidate], -nodes.end[candidate])]
    if len(order) < 2:
        return parent, moved
    group_start = np.zeros(len(order), dtype=np.int64)
    at = firsts(family[order])
    group_start[at] = at
    group_start = np.maximum.accumulate(group_start)
    place = np.arange(len(order))
    inner = place[place != group_start]
    for outer in (group_start[inner], inner - 1):
        # The second round prefers the nearest enclosing sibling over the first of the group.
        child, around = order[inner], order[outer]
        holds = (nodes.scope[child] != nodes.scope[around]) & _views(nodes, around, child)
        # Roots of one trace may be prompts of their own: what is one request has to be so in one process.
        holds &= ~rootless[child] | (nodes.process[child] == nodes.process[around])
        named = nodes.request[child] == nodes.request[around]
        named &= (nodes.request[child] > 0) & ~rootless[child]
        nested = holds | (named & (outer == group_start[inner]))
        parent[child[nested]] = around[nested]
        moved[child[nested]] = True
    child = np.flatnonzero(moved & (nodes.process != nodes.process[parent])).astype(np.int64)
    found, call = _calls_around(nodes, child, nodes.process[parent[child]])
    # Of nested calls the innermost, which starts last.
    best = np.lexsort((nodes.start[call], found))
    parent[child[found[best]]] = call[best]
    return parent, moved


def place_orphans(nodes: Nodes, parent: Ints) -> tuple[Ints, Bools]:
    """Parents after giving each span whose parent is missing to the only unanswered call that contains it in time."""
    placed = np.zeros(len(nodes), dtype=np.bool_)
    orphan = np.flatnonzero(nodes.orphan & (parent == NONE) & ((nodes.stage > 0) | nodes.inference)).astype(np.int64)
    if len(orphan) == 0:
        return parent, placed
    has_parent = np.flatnonzero(parent != NONE)
    above = parent[has_parent]
    answered = np.zeros(len(nodes), dtype=np.bool_)
    answered[above[nodes.process[above] != nodes.process[has_parent]]] = True
    # A call that got no connection was taken by nobody.
    answered[above[IS_CONNECT[nodes.stage[has_parent]] & nodes.failed[has_parent]]] = True
    found, call = _calls_around(nodes, orphan, None)
    free = ~answered[call] & (nodes.process[call] != nodes.process[orphan[found]])
    found, call = found[free], call[free]
    # A call that holds another candidate call of its own hop is the same call seen further out.
    calls_per_orphan = np.bincount(found, minlength=len(orphan))
    only = calls_per_orphan[found] == 1
    parent = parent.copy()
    parent[orphan[found[only]]] = call[only]
    placed[orphan[found[only]]] = True
    return parent, placed


def _views(nodes: Nodes, outer: Ints, inner: Ints) -> Bools:
    """Whether `inner`, which began no earlier, can be a view of the request that `outer` is of: as `_holds`, but two
    instrumentations of one process may end their spans in either order."""
    late = (nodes.process[inner] == nodes.process[outer]) & (nodes.host[inner] == nodes.host[outer])
    late &= (nodes.start[inner] < nodes.end[outer]) & (nodes.end[inner] <= nodes.end[outer] + ONE_HOST_NS)
    result: Bools = late | _holds(nodes, outer, inner)
    return result


def _holds(nodes: Nodes, outer: Ints, inner: Ints) -> Bools:
    """Whether `outer` can hold `inner`: by time on one host, by duration where two clocks may differ."""
    inside = (nodes.start[inner] >= nodes.start[outer]) & (nodes.end[inner] <= nodes.end[outer])
    fits = nodes.end[inner] - nodes.start[inner] <= nodes.end[outer] - nodes.start[outer]
    return np.where(nodes.host[inner] == nodes.host[outer], inside, fits)


def _calls_around(nodes: Nodes, child: Ints, process: Ints | None) -> tuple[Ints, Ints]:
    """Pairs (position in child, call node) of the innermost calls that can hold each child.

    process: where given, of each child, only calls made by that process count.
    """
    empty = np.empty(0, dtype=np.int64)
    if len(child) == 0:
        return empty, empty
    calls = np.flatnonzero(IS_CALLER[nodes.stage] & ~_has_inner_call(nodes)).astype(np.int64)
    calls = calls[calls < nodes.spans]
    begin = np.searchsorted(nodes.trace[calls], nodes.trace[child])
    count = np.searchsorted(nodes.trace[calls], nodes.trace[child], side="right") - begin
    found: list[Ints] = []
    around: list[Ints] = []
    cuts = np.flatnonzero(np.diff(np.cumsum(count) // _MAX_PAIRS, prepend=-1)).tolist()
    for low, high in zip(cuts, [*cuts[1:], len(child)], strict=True):
        which = np.repeat(np.arange(low, high, dtype=np.int64), count[low:high])
        call = calls[spans_of(begin[low:high], count[low:high])]
        fits = _holds(nodes, call, child[which]) & (call != child[which])
        if process is not None:
            fits &= nodes.process[call] == process[which]
        found.append(which[fits])
        around.append(call[fits])
    return np.concatenate(found), np.concatenate(around)


def _has_inner_call(nodes: Nodes) -> Bools:
    """Calls whose direct child is a call too: the outer view of the same request."""
    inner = np.flatnonzero(IS_CALLER[nodes.stage] & (nodes.parent != NONE))
    result = np.zeros(len(nodes), dtype=np.bool_)
    result[nodes.parent[inner]] = True
    return result
