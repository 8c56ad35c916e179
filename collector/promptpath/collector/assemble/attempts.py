"""Calls of a prompt: which were answered, which were attempts that failed and were made again.

An attempt is a call from a hop, or the span of another hop that a hop caused without a call span of its own. It is
lost if it failed before its first token and the same hop then made another. What it held, and the back-off until the
next one, belongs to the `router` part.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from promptpath.collector.assemble.climb import mark_above
from promptpath.collector.assemble.clock import Axis
from promptpath.collector.assemble.nodes import Nodes
from promptpath.collector.assemble.ragged import NONE
from promptpath.collector.assemble.schema import IS_CALLER, IS_RELAY, NO_NS, STAGE_CODE, Bools, Ints, stage_set
from promptpath.collector.assemble.sorting import order_by
from promptpath.collector.assemble.tree import Tree
from promptpath.semconv import Stage

#: Stages that only an inference server has: under a call in one process they show that it was answered in that process.
_ENGINE = stage_set(Stage.SERVER, Stage.QUEUE, Stage.TRANSFER, Stage.PREFILL, Stage.KV_TRANSFER, Stage.DECODE)
_SERVER = STAGE_CODE[Stage.SERVER]


@dataclass
class Attempts:
    """Calls of n nodes. answered: shape (n,), a call whose server left a span. lost: shape (n,), inside a lost attempt.

    prepared: shape (n,), in a prefill worker, or its call, that worked for a decode worker of the same prompt: what it
    says of its answer is not the prompt's. made, calls, calls_answered: shape (n,), counted at each prompt's root:
    attempts, innermost calls, and those answered. pause_*: back-off between attempts, one entry each: the hop entry
    that waited, its depth, start and end on the clock of the entry's host.
    """

    answered: Bools
    lost: Bools
    prepared: Bools
    made: Ints
    calls: Ints
    calls_answered: Ints
    pause_entry: Ints
    pause_depth: Ints
    pause_start: Ints
    pause_end: Ints


def find(nodes: Nodes, tree: Tree, axis: Axis) -> Attempts:
    """The attempts of all prompts."""
    inside = tree.prompt != NONE
    root = tree.prompt == nodes.own
    calls = IS_CALLER[tree.stage] & inside
    answered = _answered(nodes, tree, root)
    lost, first_lost, following = _lost(nodes, tree, axis, calls, root)
    entry = tree.entry[tree.caller[first_lost]]
    pause_start = nodes.end[first_lost] + axis.shift[first_lost] - axis.shift[entry]
    pause_end = nodes.start[following] + axis.shift[following] - axis.shift[entry]
    waited = pause_end > pause_start

    outer = np.flatnonzero(calls & (tree.caller != NONE))
    has_inner = np.zeros(len(nodes), dtype=np.bool_)
    has_inner[tree.caller[outer]] = True
    innermost = calls & ~has_inner
    made, prepared = _made(nodes, tree, innermost, lost)
    return Attempts(
        answered=answered,
        lost=lost,
        prepared=prepared,
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


def _lost(nodes: Nodes, tree: Tree, axis: Axis, calls: Bools, root: Bools) -> tuple[Bools, Ints, Ints]:
    """Nodes inside lost attempts; the lost attempts themselves; the attempt that followed each."""
    above = np.where(tree.staged_parent == NONE, 0, tree.staged_parent)
    bare = (tree.entry == nodes.own) & (tree.stage > 0) & (tree.staged_parent != NONE) & ~calls[above]
    attempt = np.flatnonzero((calls | bare) & ~root & (tree.caller != NONE)).astype(np.int64)
    # Only under a caller of which one failed can any be lost.
    suspect = np.zeros(len(nodes), dtype=np.bool_)
    suspect[tree.caller[attempt[nodes.failed[attempt]]]] = True
    attempt = attempt[suspect[tree.caller[attempt]]]
    order = attempt[order_by(tree.caller[attempt], nodes.start[attempt] + axis.shift[attempt])]
    again = tree.caller[order][1:] == tree.caller[order][:-1]
    gone = nodes.failed[order][:-1] & (nodes.first[order][:-1] == NO_NS) & again
    first_lost, following = order[:-1][gone], order[1:][gone]
    lost = np.zeros(len(nodes), dtype=np.bool_)
    lost[first_lost] = True
    if len(first_lost):
        for level in tree.levels[1:]:
            level = level[(tree.prompt[level] != NONE) & ~root[level]]
            lost[level] |= lost[tree.parent[level]]
    return lost, first_lost, following


def _made(nodes: Nodes, tree: Tree, innermost: Bools, lost: Bools) -> tuple[Ints, Bools]:
    """Calls of a deployment per prompt, at its root: calls that lead to no further relay, servers reached without a
    call. And the nodes of prefill workers and of the calls to them.

    A prefill worker and a decode worker that served one prompt are one deployment.
    """
    child = np.flatnonzero((tree.staged_parent != NONE) & IS_RELAY[tree.stage])
    child = child[tree.entry[child] == child]
    to_relay = np.zeros(len(nodes), dtype=np.bool_)
    to_relay[tree.staged_parent[child]] = True
    above = np.where(tree.staged_parent == NONE, 0, tree.staged_parent)
    outside = tree.staged_parent == NONE
    is_server = (tree.stage == _SERVER) & (tree.prompt != NONE)
    unled = is_server & (outside | (~IS_CALLER[tree.stage[above]] & (tree.server[above] == NONE)))
    made = _count(tree, (innermost & ~to_relay) | unled)
    # A server inside another was not counted above.
    counted = ~lost & (outside | (tree.server[above] == NONE))
    prefills = _servers_with(tree, Stage.PREFILL) & counted
    decodes = _servers_with(tree, Stage.DECODE) & counted
    pairs = np.minimum(_count(tree, prefills & ~decodes), _count(tree, decodes & ~prefills))
    prepared = np.zeros(len(nodes), dtype=np.bool_)
    worker = np.flatnonzero(prefills & ~decodes)
    worker = worker[pairs[tree.prompt[worker]] > 0]
    if len(worker):
        prepared[worker] = True
        prepared = (tree.server != NONE) & prepared[tree.server]
        prepared[above[worker][IS_CALLER[tree.stage[above[worker]]]]] = True
    return made - pairs, prepared


def _servers_with(tree: Tree, stage: Stage) -> Bools:
    """Server nodes that hold a node of `stage`."""
    holder = np.zeros(len(tree.stage), dtype=np.bool_)
    inner = np.flatnonzero((tree.stage == STAGE_CODE[stage]) & (tree.server != NONE))
    holder[tree.server[inner]] = True
    return holder
