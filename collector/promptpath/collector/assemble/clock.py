"""One axis for the spans of a prompt, without trusting that two hosts' clocks agree.

Spans of one host are never moved against each other. Where a call crosses to another host, the callee's spans are
moved as one block into the caller's call, the spare time split evenly before and after: what NTP assumes of a request
and its answer (offset = ((t1-t0)+(t2-t3))/2, error at most half the spare time). The axis so depends on durations
only, never on what two clocks said of each other, and no part of a TTFT moves when a clock is wrong.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from promptpath.collector.assemble.nodes import Nodes
from promptpath.collector.assemble.ragged import NONE, firsts
from promptpath.collector.assemble.schema import IS_CONNECT, IS_CONTAINER, NO_NS, Ints
from promptpath.collector.assemble.tree import Tree


@dataclass
class Axis:
    """Placement of n nodes. shift: ns added to a node's times to put it on its root's axis; error: how wrong that may
    be.

    shift is -(offset of the node's host clock against the root's host clock), as the calls between them show it.
    """

    shift: Ints
    error: Ints


def place(nodes: Nodes, tree: Tree) -> Axis:
    """The axis of every prompt. Nodes outside of prompts are not moved."""
    shift = np.zeros(len(nodes), dtype=np.int64)
    error = np.zeros(len(nodes), dtype=np.int64)
    sent = _sent(nodes, tree)
    first = _first_below(nodes, tree, sent)
    root = tree.prompt == np.arange(len(nodes))
    for level in tree.levels[1:]:
        moving = level[(tree.prompt[level] != NONE) & ~root[level]]
        above = tree.parent[moving]
        shift[moving] = shift[above]
        error[moving] = error[above]
        across = moving[tree.host[moving] != tree.host[above]]
        if len(across):
            _place_blocks(nodes, tree, across, sent, first, shift, error)
    return Axis(shift, error)


def _sent(nodes: Nodes, tree: Tree) -> Ints:
    """When each node had its connection and sent its request: after its DNS, TCP and TLS, else its start."""
    sent = nodes.start.copy()
    connect = np.flatnonzero(IS_CONNECT[tree.stage] & (tree.parent != NONE))
    connect = connect[tree.host[connect] == tree.host[tree.parent[connect]]]
    np.maximum.at(sent, tree.parent[connect], nodes.end[connect])
    return np.minimum(sent, nodes.end)


def _first_below(nodes: Nodes, tree: Tree, sent: Ints) -> Ints:
    """First deliveries, ns from each node's start; of a hop that saw none itself, when the hop below it delivered.

    A proxy that sees no tokens still passes them on at once. Its end says less: the way to its caller may stall later.
    """
    first = nodes.first.copy()
    for level in reversed(tree.levels[1:]):
        child = level[(tree.prompt[level] != NONE) & (tree.prompt[level] != level) & (first[level] != NO_NS)]
        above = tree.parent[child]
        silent = (nodes.first[above] == NO_NS) & IS_CONTAINER[tree.stage[above]]
        child, above = child[silent], above[silent]
        spare = (nodes.end[above] - sent[above]) - (nodes.end[child] - nodes.start[child])
        moved = sent[above] + np.maximum(spare, 0) // 2 - nodes.start[child]
        moved[tree.host[child] == tree.host[above]] = 0
        at = nodes.start[child] + first[child] + moved - nodes.start[above]
        np.maximum.at(first, above, np.clip(at, 0, nodes.end[above] - nodes.start[above]))
    return first


def _place_blocks(
    nodes: Nodes, tree: Tree, across: Ints, sent: Ints, first_below: Ints, shift: Ints, error: Ints
) -> None:
    """Move the children on one other host of one parent as a block into the middle of what the parent waited."""
    order = across[np.lexsort((tree.host[across], tree.parent[across]))]
    width = int(tree.host.max()) + 1
    block = tree.parent[order] * width + tree.host[order]
    begins = firsts(block)
    caller = tree.parent[order[begins]]
    came = np.minimum.reduceat(nodes.start[order], begins)
    seen = first_below[order] != NO_NS
    delivered = np.where(seen, nodes.start[order] + first_below[order], NO_NS)
    first = np.maximum.reduceat(delivered, begins)
    # Deliveries pair with deliveries and ends with ends: a pair of one and the other would compare two events.
    both = (first != NO_NS) & (nodes.first[caller] != NO_NS)
    left = np.where(both, first, np.maximum.reduceat(nodes.end[order], begins))
    back = np.where(both, nodes.start[caller] + nodes.first[caller], nodes.end[caller])
    spare = (back - sent[caller]) - (left - came)
    moved = shift[caller] + sent[caller] + np.maximum(spare, 0) // 2 - came
    size = np.diff(np.append(begins, len(order)))
    shift[order] = np.repeat(moved, size)
    error[order] = np.repeat(error[caller] + (np.abs(spare) + 1) // 2, size)
