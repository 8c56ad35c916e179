"""Server spans that two instrumentations of one process made of one request, neither of them under the other.

Neither has a parent: one of them paid no heed to the context that it was started in. Both are told by one clock, so the
request of the outer one, which starts first, holds the other in time. Which one that is, where several requests were
in the process at once, is told by the ids that both have or by the trace that both are in, else by there being no other
that it can be.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from promptpath.collector.assemble.join_times import ONE_HOST_NS
from promptpath.collector.assemble.join_trees import tops_of
from promptpath.collector.assemble.keys import BY_TIME, Keys
from promptpath.collector.assemble.nodes import Nodes
from promptpath.collector.assemble.ragged import NONE, array_of, firsts, spans_of
from promptpath.collector.assemble.schema import Bools, Ints
from promptpath.collector.assemble.sorting import order_by, runs
from promptpath.collector.assemble.texts import filled

#: Requests that one process had at once, of which a view is told from. Of more nothing is told.
_MAX_AT_ONCE: Final = 256
#: How often what is known of some views tells of further ones.
_MAX_ROUNDS: Final = 64


@dataclass
class _Pairs:
    """Views that another one may hold: inner, outer: nodes; by: index into JOINED_BY, 0 where nothing says that they
    are of one request."""

    inner: Ints
    outer: Ints
    by: Ints

    def where(self, chosen: Bools) -> _Pairs:
        return _Pairs(self.inner[chosen], self.outer[chosen], self.by[chosen])


def join_views(nodes: Nodes, table: pa.Table, parent: Ints, keys: Keys | None) -> tuple[Ints, Ints, Ints]:
    """(views, the views that hold them, by what).

    parent: of each node, siblings nested. keys: the ids that two traces share, their rows being nodes.
    """
    none = np.empty(0, dtype=np.int64)
    view = np.flatnonzero(nodes.inference & nodes.server_kind & (parent == NONE) & (nodes.parent_key == NONE))
    view = _beside_others(nodes, view.astype(np.int64))
    if len(view) == 0:
        return none, none, none
    inner, outer = _around(nodes, view)
    if len(inner) == 0:
        return none, none, none
    top = tops_of(parent)
    pairs = _Pairs(inner, outer, _shared(nodes, top, inner, outer, keys))
    pairs = pairs.where(_free(nodes, top, pairs) & ~_other_request(nodes, table, pairs))
    pairs = pairs.where(_right_way_round(nodes, pairs) | ((pairs.by > 0) & (pairs.by != BY_TIME)))
    pairs = _only(nodes, pairs)
    # Of several views around one the innermost.
    order = order_by(pairs.inner, nodes.start[pairs.outer], -nodes.end[pairs.outer])
    last = np.append(firsts(pairs.inner[order])[1:], len(order)) - 1
    chosen = order[last[last >= 0]]
    by = np.where(pairs.by[chosen] == 0, BY_TIME, pairs.by[chosen])
    return pairs.inner[chosen], pairs.outer[chosen], by


def _beside_others(nodes: Nodes, view: Ints) -> Ints:
    """Views of processes that have views of several scopes; by process and time."""
    if len(view) == 0 or bool((nodes.scope[view] == nodes.scope[view[0]]).all()):
        return view[:0]
    place = nodes.process[view] * (int(nodes.host.max()) + 1) + nodes.host[view]
    order = order_by(place, nodes.scope[view])
    one_each = runs(place[order], nodes.scope[view[order]])
    scopes = np.unique(place[order[one_each]], return_counts=True)
    several = np.isin(place, scopes[0][scopes[1] > 1])
    view, place = view[several], place[several]
    return view[order_by(place, nodes.start[view], -nodes.end[view])]


def _around(nodes: Nodes, view: Ints) -> tuple[Ints, Ints]:
    """(view, view of another scope that began before it and was not over). view: by process and time."""
    place = nodes.process[view] * (int(nodes.host.max()) + 1) + nodes.host[view]
    group = np.cumsum(np.append(False, place[1:] != place[:-1]))
    start = nodes.start[view] - nodes.start[view].min()
    end = start + (nodes.end[view] - nodes.start[view])
    # One line for all processes, so that the latest end so far never reaches into the next one.
    base = group * (int(end.max()) + 1)
    latest = np.maximum.accumulate(base + end)
    waiting = np.arange(1, len(view), dtype=np.int64)
    inner, outer = [waiting[:0]], [waiting[:0]]
    for back in range(1, _MAX_AT_ONCE + 1):
        waiting = waiting[waiting >= back]
        waiting = waiting[latest[waiting - back] >= (base + start)[waiting]]
        if len(waiting) == 0:
            break
        before = waiting - back
        fits = (group[before] == group[waiting]) & (end[before] >= start[waiting])
        fits &= nodes.scope[view[before]] != nodes.scope[view[waiting]]
        inner.append(waiting[fits])
        outer.append(before[fits])
    found, around = np.concatenate(inner), np.concatenate(outer)
    told = ~np.isin(found, waiting)
    return view[found[told]], view[around[told]]


def _shared(nodes: Nodes, top: Ints, inner: Ints, outer: Ints, keys: Keys | None) -> Ints:
    """By what each pair is known to be of one request: an id that something under both has, or, said as by time, the
    trace; 0 where by nothing."""
    by = np.where(nodes.trace[inner] == nodes.trace[outer], BY_TIME, 0)
    if keys is None:
        return by
    asked = np.zeros(len(nodes), dtype=np.bool_)
    asked[inner] = asked[outer] = True
    tree = top[keys.row]
    some = np.flatnonzero((tree != NONE) & asked[tree])
    order = some[order_by(keys.key[some], tree[some], keys.kind[some])]
    order = order[runs(keys.key[order], tree[order])]
    if len(order) == 0:
        return by
    begin = firsts(keys.key[order])
    count = np.diff(np.append(begin, len(order)))
    group = np.repeat(np.arange(len(begin)), count)
    first = np.repeat(order, count)
    second = order[spans_of(begin[group], count[group])]
    name = tree[first] * len(nodes) + tree[second]
    kind = np.maximum(keys.kind[first], keys.kind[second])
    surest = order_by(name, kind)
    name, kind = name[surest], kind[surest]
    wanted = inner * len(nodes) + outer
    at = np.minimum(np.searchsorted(name, wanted), len(name) - 1)
    return np.where(name[at] == wanted, kind[at], by)


def _free(nodes: Nodes, top: Ints, pairs: _Pairs) -> Bools:
    """Pairs that fit: what no id says is of one request must lie in the other in time, and the outer's own tree must
    not hold a view of the inner's scope already."""
    inside = nodes.end[pairs.inner] <= nodes.end[pairs.outer] + ONE_HOST_NS
    server = np.flatnonzero(nodes.inference & nodes.server_kind & (top != NONE))
    server = server[(top[server] != server) & (nodes.process[server] == nodes.process[top[server]])]
    width = int(nodes.scope.max()) + 1
    held = np.isin(pairs.outer * width + nodes.scope[pairs.inner], top[server] * width + nodes.scope[server])
    fits: Bools = (inside | ((pairs.by > 0) & (pairs.by != BY_TIME))) & ~held
    return fits


def _other_request(nodes: Nodes, table: pa.Table, pairs: _Pairs) -> Bools:
    """Pairs of which each view names its request, and not the same one."""
    ids = array_of(table["correlation_id"])
    one, other = (ids.take(pa.array(nodes.row[each])) for each in (pairs.inner, pairs.outer))
    differ = np.asarray(pc.not_equal(one, other).fill_null(False).to_numpy(zero_copy_only=False), dtype=np.bool_)
    other_request: Bools = differ & filled(one) & filled(other) & (pairs.by == 0)
    return other_request


def _right_way_round(nodes: Nodes, pairs: _Pairs) -> Bools:
    """Pairs whose outer one is of the scope that is the outer one in this process, not the other way round.

    Of two requests at once the later one's outer view may lie in the earlier one's inner view; but then its inner view
    lies in the earlier one's outer view as well, and each request's own two views come on top of that.
    """
    width = int(nodes.scope.max()) + 1
    inner, outer = nodes.scope[pairs.inner], nodes.scope[pairs.outer]
    process = (nodes.process[pairs.inner] * (int(nodes.host.max()) + 1) + nodes.host[pairs.inner]) * width * width
    way, back = process + outer * width + inner, process + inner * width + outer
    kinds, count = np.unique(way, return_counts=True)
    at = np.minimum(np.searchsorted(kinds, back), max(len(kinds) - 1, 0))
    against = np.where(kinds[at] == back, count[at], 0) if len(kinds) else np.zeros(0, dtype=np.int64)
    right: Bools = count[np.searchsorted(kinds, way)] > against
    return right


def _only(nodes: Nodes, pairs: _Pairs) -> _Pairs:
    """Pairs that must be: of each scope a view has one view around it, and holds one.

    Those that are known to be of one request go before those that are not. What is settled is no candidate any more,
    which may leave others with one.
    """
    width = int(nodes.scope.max()) + 1
    settled = [np.empty(0, dtype=np.int64)]
    for sure in (True, False):
        left = np.flatnonzero(pairs.by > 0 if sure else pairs.by >= 0)
        taken = np.concatenate(settled)
        for _ in range(_MAX_ROUNDS):
            around = pairs.inner * width + nodes.scope[pairs.outer]
            within = pairs.outer * width + nodes.scope[pairs.inner]
            left = left[~np.isin(around[left], around[taken]) & ~np.isin(within[left], within[taken])]
            only = left[_once(around[left])]
            only = only[_once(within[only])]
            if len(only) == 0:
                break
            settled.append(only)
            taken = np.concatenate(settled)
    return _Pairs(*(values[np.concatenate(settled)] for values in (pairs.inner, pairs.outer, pairs.by)))


def _once(values: Ints) -> Bools:
    """Which values occur once."""
    _, where, count = np.unique(values, return_inverse=True, return_counts=True)
    once: Bools = count[where] == 1
    return once
