"""Where a prompt's pieces are drawn: spans of other hosts where their clocks say, within the call that led to them.

Who owned how much time is found on an axis of durations alone (`clock`, `breakdown`). What is drawn may lie elsewhere
within the time a call waited: a piece moves with its host, and the call's own time before and after it takes up the
difference. Where that would change an order or a sum, the prompt is drawn as it was painted.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from promptpath.collector.assemble.breakdown import Painted
from promptpath.collector.assemble.clock import Axis
from promptpath.collector.assemble.delivery import FirstTokens, Prompts
from promptpath.collector.assemble.schema import NO_NS
from promptpath.collector.assemble.sorting import exact_sums
from promptpath.collector.assemble.tree import Tree


def redraw(painted: Painted, tree: Tree, axis: Axis, prompts: Prompts, tokens: FirstTokens) -> Painted:
    """`painted` with its pieces and extents where they are to be drawn; parts and owners are the same."""
    move = axis.drawn - axis.shift
    if len(painted.node) == 0 or not move.any():
        return painted
    node, prompt = painted.node, painted.prompt
    # A border between two owners moves with the deeper of them: the other one is the call around it.
    left, right = node[:-1], node[1:]
    deeper = np.where(tree.depth[right] >= tree.depth[left], right, left)
    border = painted.start[1:] + move[deeper]
    inner = prompt[1:] == prompt[:-1]
    # The first token at the root, the prompt's start and its end stay where they are.
    fixed = painted.start[1:] == tokens.ttft[prompt[1:]]
    border = np.where(inner & ~fixed, border, painted.start[1:])
    start = np.concatenate((painted.start[:1], border))
    end = np.concatenate((np.where(inner, border, painted.end[:-1]), painted.end[-1:]))

    good = np.ones(len(prompts), dtype=np.bool_)
    good[prompt[start >= end]] = False
    ttft = tokens.ttft[prompt]
    streamed = ttft != NO_NS
    good[prompt[streamed & (start < ttft) & (end > ttft)]] = False
    # Nobody may own more or less than before; after the first token what its way back took is not told apart.
    counts = ~streamed | (start < ttft)
    longer = np.where(counts, (end - start) - (painted.end - painted.start), 0)
    changed = np.flatnonzero(exact_sums(node, longer, len(tree.depth)))
    good[prompts.of[changed]] = False
    kept = good[prompt]
    moved = np.where(prompts.of >= 0, np.where(good[np.maximum(prompts.of, 0)], move, 0), 0)
    return replace(
        painted,
        start=np.where(kept, start, painted.start),
        end=np.where(kept, end, painted.end),
        extent_start=painted.extent_start + moved,
        extent_end=painted.extent_end + moved,
    )
