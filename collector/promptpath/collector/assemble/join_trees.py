"""Trees of spans that may be parts of one prompt: what they start with, and which is further out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from promptpath.collector.assemble.nodes import Nodes
from promptpath.collector.assemble.ragged import NONE
from promptpath.collector.assemble.schema import INBOUND, IS_CALLER, STAGE_CODE, Bools, Ints
from promptpath.semconv import Stage

#: How far in a tree is that starts with a stage: calls and whatever is no stage 0.
RANK: Final = np.zeros(len(STAGE_CODE), dtype=np.int64)
BARE, ENGINE, PART = 4, 5, 6
RANK[:] = PART
for _stage, _rank in (
    ("", 0),
    (Stage.CLIENT, 0),
    (Stage.CALL, 0),
    (Stage.EDGE, 1),
    (Stage.GATEWAY, 2),
    (Stage.ROUTER, 3),
    (INBOUND, BARE),
    (Stage.SERVER, ENGINE),
):
    RANK[STAGE_CODE[_stage]] = _rank


@dataclass
class Trees:
    """Trees by node: top, shape (n,), -1 on cycles. rank, place: shape (n,), of a top: what it starts with, its place
    in the order of outer to inner. inner: tops that may be put under others."""

    top: Ints
    rank: Ints
    place: Ints
    inner: Bools


def tops_of(parent: Ints) -> Ints:
    """The top of each node's tree, -1 on cycles; shape (n,)."""
    count = len(parent)
    top = np.where(parent == NONE, np.arange(count), parent)
    for _ in range(count.bit_length()):
        further = top[top]
        if np.array_equal(further, top):
            break
        top = further
    return np.where((parent == NONE)[top], top, NONE)


def trees_of(nodes: Nodes, parent: Ints) -> Trees:
    count = len(nodes)
    top = tops_of(parent)
    is_top = parent == NONE
    rank = RANK[nodes.stage]
    inside = top != NONE

    def holds(chosen: Bools) -> Bools:
        some = np.zeros(count, dtype=np.bool_)
        some[top[chosen & inside]] = True
        return some

    inbound = nodes.stage == STAGE_CODE[INBOUND]
    rank[inbound & holds(IS_CALLER[nodes.stage])] = RANK[STAGE_CODE[Stage.GATEWAY]]
    engine = holds((RANK[nodes.stage] >= ENGINE) & (nodes.process == nodes.process[np.maximum(top, 0)]))
    rank[inbound & (rank == BARE) & engine] = ENGINE
    place = np.empty(count, dtype=np.int64)
    place[np.lexsort((np.arange(count), nodes.start, nodes.start - nodes.end, rank))] = np.arange(count)
    inner = is_top & (rank > 0) & ~nodes.agent & (nodes.inference | (nodes.stage > 0))
    return Trees(top, rank, place, inner)
