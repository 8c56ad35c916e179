"""Calls of a prompt: which were answered, which were attempts that failed and were made again.

An attempt is a call from a hop, or the span of another hop that a hop caused without a call span of its own. It is
lost if it failed before its first token and the same hop then made another, or if it was given up while another (a
hedge) went on. What it held, and the back-off until the next one, belongs to the `router` part. An attempt that failed
later, and that another one outlived, says nothing of how the prompt ended.

What a guardrail asks of a model is no attempt at the prompt: it is the guardrail's.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from promptpath.collector.assemble.climb import mark_above, nearest, outermost
from promptpath.collector.assemble.clock import Axis
from promptpath.collector.assemble.columns import Columns
from promptpath.collector.assemble.nodes import Nodes
from promptpath.collector.assemble.ragged import NONE, ints_of
from promptpath.collector.assemble.schema import (
    DECODE,
    FORWARD,
    FORWARDED,
    IS_CALLER,
    IS_RELAY,
    NO_NS,
    PREFILL,
    ROLE_CODE,
    STAGE_CODE,
    Bools,
    Ints,
    stage_set,
)
from promptpath.collector.assemble.sorting import order_by
from promptpath.collector.assemble.tree import Tree
from promptpath.semconv import Stage

#: Stages that only an inference server has: under a call in one process they show that it was answered in that process.
_ENGINE = stage_set(Stage.SERVER, Stage.QUEUE, Stage.TRANSFER, Stage.PREFILL, Stage.KV_TRANSFER, Stage.DECODE)
#: Guardrails, and what else checks a prompt or its answer.
_GUARD = stage_set(Stage.SAFETY, Stage.STRUCTURE)
_SERVER = STAGE_CODE[Stage.SERVER]
_FORWARD, _FORWARDED, _PREFILL, _DECODE = (ROLE_CODE[role] for role in (FORWARD, FORWARDED, PREFILL, DECODE))


@dataclass
class Attempts:
    """Calls of n nodes. answered: shape (n,), a call whose server left a span. lost: shape (n,), inside a lost attempt.

    over: shape (n,), for nodes inside lost attempts when that attempt was over, ns since the epoch on the prompt's
    axis: its hop had gone on, whatever went on in it; far ahead for the others; None where nothing is lost. recovered:
    shape (n,), inside attempts cut short that another one outlived. guard: shape (n,), the stage of the guardrail for
    which a node's hop was called, 0 for none. prepared:
    shape (n,), in a prefill worker, or its call, that worked for a decode worker of the same prompt (or would have,
    had the prompt not been cut short): what it says of its answer is not the prompt's. orphaned: shape (n,), those of
    them whose prompt was cut short before a decode worker took over: their first token was nobody's. made, calls,
    calls_answered: shape (n,), counted at each prompt's root: attempts, innermost calls, and those answered. pause_*:
    back-off between attempts, one entry each: the hop entry that waited, its depth, start and end on the clock of the
    entry's host.
    """

    answered: Bools
    lost: Bools
    over: Ints | None
    recovered: Bools
    guard: Ints
    prepared: Bools
    orphaned: Bools
    made: Ints
    calls: Ints
    calls_answered: Ints
    pause_entry: Ints
    pause_depth: Ints
    pause_start: Ints
    pause_end: Ints

    @cached_property
    def beside(self) -> Bools:
        """Nodes of whom nothing is the prompt's answer: in lost attempts, in what guardrails called; shape (n,)."""
        return self.lost | (self.guard > 0)


@dataclass
class _Lost:
    """nodes, recovered, over: as in `Attempts`. first, following: lost attempts and the one made after each. servers:
    attempts that failed or were given up on servers which a call reached beside others."""

    nodes: Bools
    recovered: Bools
    over: Ints | None
    first: Ints
    following: Ints
    servers: Ints


def find(nodes: Nodes, tree: Tree, axis: Axis, columns: Columns) -> Attempts:
    """The attempts of all prompts. columns: of the span table."""
    inside = tree.prompt != NONE
    root = tree.prompt == nodes.own
    calls = IS_CALLER[tree.stage] & inside
    answered = _answered(nodes, tree, root)
    cut_short = columns.filled("abort")[nodes.row]
    cut_short[nodes.spans :] = False
    cut_short |= nodes.failed
    guard = _guards(tree, nodes.own, calls, root)
    tried = _lost(nodes, tree, axis, calls & (guard == 0), root | (guard > 0), cut_short)
    lost, first_lost, following = tried.nodes, tried.first, tried.following
    entry = tree.entry[tree.caller[first_lost]]
    pause_start = nodes.end[first_lost] + axis.shift[first_lost] - axis.shift[entry]
    pause_end = nodes.start[following] + axis.shift[following] - axis.shift[entry]
    waited = pause_end > pause_start

    outer = np.flatnonzero(calls & (tree.caller != NONE))
    has_inner = np.zeros(len(nodes), dtype=np.bool_)
    has_inner[tree.caller[outer]] = True
    innermost = calls & ~has_inner
    made, prepared, orphaned = _made(nodes, tree, innermost, lost, guard > 0, cut_short)
    np.add.at(made, tree.prompt[tried.servers], 1)
    forwarding = ((nodes.role == _FORWARD) | (nodes.role == _FORWARDED)) & (guard == 0)
    if forwarding.any():
        made += _count(tree, _forwarded(nodes, tree, columns, np.flatnonzero(forwarding & inside), calls, answered))
    return Attempts(
        answered=answered,
        lost=lost,
        over=tried.over,
        recovered=tried.recovered,
        guard=guard,
        prepared=prepared,
        orphaned=orphaned,
        made=made,
        calls=_count(tree, innermost),
        calls_answered=_count(tree, innermost & answered),
        pause_entry=entry[waited],
        pause_depth=tree.depth[first_lost][waited],
        pause_start=pause_start[waited],
        pause_end=pause_end[waited],
    )


def _count(tree: Tree, chosen: Bools) -> Ints:
    """How many chosen nodes each prompt has, at its root; shape (n,)."""
    return np.bincount(tree.prompt[chosen], minlength=len(chosen)).astype(np.int64)


def _answered(nodes: Nodes, tree: Tree, root: Bools) -> Bools:
    """Nodes under which, inside their hop, another hop (or an engine in the same process) left a span."""
    is_entry = tree.entry == nodes.own
    within = (tree.prompt != NONE) & ~root
    shows = np.flatnonzero(within & (is_entry | _ENGINE[tree.stage]))
    return mark_above(tree.parent, shows, through=within & ~is_entry)


def _guards(tree: Tree, own: Ints, calls: Bools, root: Bools) -> Ints:
    """The stage of the guardrail for which each node's hop was called, 0 for none; shape (n,).

    Where nobody else was called, the guardrail is around the prompt's own call, not beside it.
    """
    none = np.zeros(len(own), dtype=np.int64)
    guards = _GUARD.take(tree.stage)
    if not guards.any() or not guards[tree.staged_parent[tree.staged_parent != NONE]].any():
        return none
    rail = nearest(tree.staged_parent, guards)
    asked = (rail != NONE) & (calls | (tree.entry == own))
    up = np.where(root | (tree.prompt == NONE), NONE, tree.parent)
    inside = nearest(np.where(asked, own, up), asked) != NONE
    others = ((calls & ~root) | (tree.stage == _SERVER)) & (tree.prompt != NONE) & ~inside
    inside &= (_count(tree, others) > 0)[tree.prompt]
    return np.where(inside, tree.stage[rail], none)


def _lost(nodes: Nodes, tree: Tree, axis: Axis, calls: Bools, never: Bools, cut_short: Bools) -> _Lost:
    """Which attempts were lost or outlived. never: nodes that are no attempts."""
    above = np.where(tree.staged_parent == NONE, 0, tree.staged_parent)
    bare = (tree.entry == nodes.own) & (tree.stage > 0) & (tree.staged_parent != NONE)
    attempt = np.flatnonzero((calls | bare) & ~never & (tree.caller != NONE)).astype(np.int64)
    # Only under a caller of which one was cut short can any be lost.
    suspect = np.zeros(len(nodes), dtype=np.bool_)
    suspect[tree.caller[attempt[cut_short[attempt]]]] = True
    attempt = attempt[suspect[tree.caller[attempt]]]
    begun, ended = nodes.start + axis.shift, nodes.end + axis.shift
    order = attempt[order_by(tree.caller[attempt], begun[attempt])]
    survivor = _survivors(tree, order, begun, ended, cut_short)
    silent = nodes.first[order] == NO_NS
    outlived = cut_short[order] & (survivor != NONE)
    outlived &= ended[survivor] >= ended[order]
    again = np.zeros(len(order), dtype=np.bool_)
    again[:-1] = tree.caller[order][1:] == tree.caller[order][:-1]
    gone = silent & again & (nodes.failed[order] | outlived)
    following = order[np.flatnonzero(gone) + 1]
    given_up = gone | (silent & outlived)
    first, of_call = order[given_up], order[(given_up | outlived) & calls[above[order]]]
    lost = np.zeros(len(nodes), dtype=np.bool_)
    recovered = lost.copy()
    lost[first] = True
    recovered[order[outlived]] = True
    over = None
    if len(first) or outlived.any():
        over = np.full(len(nodes), np.iinfo(np.int64).max, dtype=np.int64)
        # From when the one that went on was there, the prompt was with that one.
        until = np.where(outlived, np.maximum(begun[order], begun[survivor]), ended[order])
        over[first] = np.minimum(ended[order], until)[given_up]
        # Of the prompts that have any, whose nodes are few.
        some = np.zeros(len(nodes), dtype=np.bool_)
        some[tree.prompt[first]] = some[tree.prompt[order[outlived]]] = True
        below = (tree.prompt != NONE) & (tree.prompt != nodes.own) & some.take(tree.prompt)
        for level in tree.levels[1:]:
            level = level.compress(below.take(level))
            above = tree.parent[level]
            lost[level] |= lost[above]
            recovered[level] |= recovered[above]
            over[level] = np.minimum(over[level], over[above])
    servers = of_call[(tree.stage[of_call] == _SERVER) & ~calls[of_call]]
    return _Lost(lost, recovered, over, order[gone], following, servers)


def _survivors(tree: Tree, attempt: Ints, begun: Ints, ended: Ints, cut_short: Bools) -> Ints:
    """Of each attempt's caller the attempt that ended last and was not cut short, of several the one that began first;
    -1 where all were. attempt: sorted by caller."""
    whole = attempt[~cut_short[attempt]]
    whole = whole[order_by(tree.caller[whole], ended[whole], -begun[whole])]
    last = np.full(len(begun), NONE, dtype=np.int64)
    last[tree.caller[whole]] = whole
    return last[tree.caller[attempt]]


def _forwarded(nodes: Nodes, tree: Tree, columns: Columns, relay: Ints, calls: Bools, answered: Bools) -> Bools:
    """Which of some relays that leave no span for their call made one that nothing else shows.

    One that answered has called somebody. One that refused (4xx but for a hang-up or its own time-out; 503: nobody to
    call) has not, unless it says who was called.
    """
    busy = np.zeros(len(nodes), dtype=np.bool_)
    busy[tree.entry[calls]] = True
    relay = relay[IS_RELAY[tree.stage[relay]] & ~busy[tree.entry[relay]] & ~answered[relay]]
    http = ints_of(columns["http_status"].take(pa.array(nodes.row[relay])), 0)
    refused = ((http >= 400) & (http < 500) & (http != 408) & (http != 499)) | (http == 503)
    made = np.zeros(len(nodes), dtype=np.bool_)
    made[relay[(nodes.role[relay] == _FORWARDED) | ~refused]] = True
    return made


def _made(
    nodes: Nodes, tree: Tree, innermost: Bools, lost: Bools, guarding: Bools, cut_short: Bools
) -> tuple[Ints, Bools, Bools]:
    """Calls of a deployment per prompt, at its root: calls that lead to no further relay, servers reached without a
    call. And which nodes are `prepared` and `orphaned`, as in `Attempts`.

    A prefill worker and a decode worker that served one prompt are one deployment.
    """
    child = np.flatnonzero((tree.staged_parent != NONE) & IS_RELAY[tree.stage])
    child = child[tree.entry[child] == child]
    to_relay = np.zeros(len(nodes), dtype=np.bool_)
    to_relay[tree.staged_parent[child]] = True
    above = np.where(tree.staged_parent == NONE, 0, tree.staged_parent)
    outside = tree.staged_parent == NONE
    is_server = (tree.stage == _SERVER) & (tree.prompt != NONE)
    # The call that led to a server was lost where the server stands under the root's, and that one led to a relay.
    stray = is_server & nodes.orphan & to_relay[above]
    called = IS_CALLER[tree.stage[above]] & ~outside & ~stray
    # A server inside another, that no call led to, counts with that one.
    inside = np.flatnonzero(is_server & ~called & (tree.server[above] != NONE) & ~outside)
    holder = tree.server
    if len(inside):
        is_server[inside] = False
        up = np.full(len(nodes), NONE, dtype=np.int64)
        up[inside] = tree.server[above[inside]]
        holder = np.where(holder == NONE, NONE, outermost(up)[holder])
    attempt = ((innermost & ~to_relay) | (is_server & ~called)) & ~guarding
    made = _count(tree, attempt)
    unit = np.where(holder == NONE, nodes.own, holder)
    unit = np.where((holder != NONE) & called[unit], above[unit], unit)
    prefills, decodes, short = _workers(nodes, tree, attempt & ~lost, unit, cut_short)
    prepared = np.zeros(len(nodes), dtype=np.bool_)
    orphaned = prepared.copy()
    if not prefills.any():
        return made, prepared, orphaned
    pairs = np.minimum(_count(tree, prefills), _count(tree, decodes))
    decoded = _count(tree, (tree.stage == STAGE_CODE[Stage.DECODE]) & ~lost & (tree.prompt != NONE))
    taken = decoded + _count(tree, decodes & ~short) > 0
    # Of the decode workers none got so far, or the prompt was cut short before there was one.
    unfinished = cut_short[tree.prompt] | (pairs[tree.prompt] > 0)
    alone = prefills & ~taken[tree.prompt] & unfinished
    prepared[prefills & (pairs[tree.prompt] > 0)] = True
    prepared |= alone
    return made - pairs, prepared[unit], alone[unit]


def _workers(nodes: Nodes, tree: Tree, attempt: Bools, unit: Ints, cut_short: Bools) -> tuple[Bools, Bools, Bools]:
    """Which attempts reached prefill workers that did their work, and which may be those of the decode workers; and
    which were cut short.

    unit: shape (n,), the attempt that each node in a server is of, else itself. A rule may say so of the call or of the
    server. Else a prefill worker has prefilled and not decoded, and its decode worker has decoded, or not prefilled.
    """

    def holding(chosen: Bools) -> Bools:
        holder = np.zeros(len(nodes), dtype=np.bool_)
        holder[unit[chosen & (tree.prompt != NONE)]] = True
        return holder

    prefilled = holding(tree.stage == STAGE_CODE[Stage.PREFILL])
    decoded = holding(tree.stage == STAGE_CODE[Stage.DECODE])
    short = cut_short | holding(cut_short & ((tree.stage == _SERVER) | (tree.stage == STAGE_CODE[Stage.PREFILL])))
    said_prefill = holding(nodes.role == _PREFILL)
    said_decode = holding(nodes.role == _DECODE)
    unsaid = ~said_prefill & ~said_decode
    prefills = attempt & ~short & (said_prefill | (unsaid & prefilled & ~decoded))
    decodes = attempt & ~prefills & (said_decode | (unsaid & (decoded | ~prefilled)))
    return prefills, decodes, short
