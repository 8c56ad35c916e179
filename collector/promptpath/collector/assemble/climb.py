"""Walking up trees, all nodes at once: in as many rounds as the depth has bits, or touching each node once."""

from __future__ import annotations

import numpy as np

from promptpath.collector.assemble.ragged import NONE
from promptpath.collector.assemble.schema import Bools, Ints


def nearest(step: Ints, stop: Bools) -> Ints:
    """The first node that stops on the way up from each node, -1 if none does; shape (n,).

    step: where each node's way begins (its parent, or the node itself, which then must stop), -1 for nowhere. Must
    not lead round in a circle of nodes that do not stop.
    """
    at = step.copy()
    pending = np.flatnonzero((at != NONE) & ~stop[at])
    while len(pending):
        # Who stands on a node that does not stop takes over how far that one has come: each round doubles the steps.
        ahead = at[at[pending]]
        at[pending] = ahead
        pending = pending[(ahead != NONE) & ~stop[ahead]]
    return at


def outermost(above: Ints) -> Ints:
    """The last node on each node's way up along `above`, itself where that is -1; shape (n,)."""
    own = np.arange(len(above), dtype=np.int64)
    top = above == NONE
    return nearest(np.where(top, own, above), top)


def heights(parent: Ints) -> tuple[Ints, Ints]:
    """How many nodes stand above each, shape (n,); and the nodes that reach no root but lead into a circle."""
    height = (parent != NONE).astype(np.int64)
    jump = np.where(height == 0, np.arange(len(parent), dtype=np.int64), parent)
    pending = np.flatnonzero(height[jump])
    for _ in range(len(parent).bit_length() + 1):
        if len(pending) == 0:
            break
        ahead = jump[pending]
        more, further = height[ahead], jump[ahead]
        height[pending] += more
        jump[pending] = further
        pending = pending[height[further] > 0]
    return height, pending


def by_height(height: Ints) -> list[Ints]:
    """Node indices by height, ascending within each."""
    if len(height) == 0:
        return []
    deepest = int(height.max())
    small = height.astype(np.uint16) if deepest <= np.iinfo(np.uint16).max else height
    order = np.argsort(small, kind="stable").astype(np.int64)
    cuts = np.cumsum(np.bincount(height))[:-1]
    return np.split(order, cuts)


def mark_above(parent: Ints, starts: Ints, through: Bools | None = None) -> Bools:
    """Nodes above any of `starts`; shape (n,). The way ends above a node that is not `through`."""
    marked = np.zeros(len(parent), dtype=np.bool_)
    winner = np.empty(len(parent), dtype=np.int64)
    front = starts
    while len(front):
        above = parent[front]
        above = above[above != NONE]
        above = above[~marked[above]]
        marked[above] = True
        if through is not None:
            above = above[through[above]]
        # Of several children one goes on for all.
        place = np.arange(len(above), dtype=np.int64)
        winner[above] = place
        front = above[winner[above] == place]
    return marked
