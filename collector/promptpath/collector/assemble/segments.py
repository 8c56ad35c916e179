"""Every stage span of a prompt cut into maximal pieces of constant ownership: what a waterfall draws.

Critical pieces are the painted ones and partition the prompt. The rest of each span's extent, while something deeper
owned the time or after the token had left it, is not critical and keeps the span's own stage. All are cut at the
first token.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from promptpath.collector.assemble.breakdown import Painted
from promptpath.collector.assemble.delivery import FirstTokens, Prompts
from promptpath.collector.assemble.nodes import Nodes
from promptpath.collector.assemble.ragged import firsts, offsets_of
from promptpath.collector.assemble.schema import STAGE_CODE, STAGE_NAMES, Bools, Ints
from promptpath.collector.assemble.sorting import order_by, runs
from promptpath.collector.assemble.texts import take_ids
from promptpath.collector.assemble.tree import Tree
from promptpath.semconv import Stage

_STAGES: Final = pa.array(STAGE_NAMES, type=pa.string())
#: As long as all prompts together may be to lie on one line of 64 bits.
_LONGEST_NS: Final = float(1 << 62)


def build(nodes: Nodes, tree: Tree, prompts: Prompts, tokens: FirstTokens, painted: Painted) -> dict[str, pa.Array]:
    """The `segments.*` columns, m rows; pieces by start, then outermost first."""
    node, stage, start, end, owned = _pieces(tree, prompts, painted)
    piece = np.flatnonzero(start < end)
    piece, prompt, start, end = _cut(piece, prompts.of[node], start, end, owned, tokens)
    offsets = offsets_of(prompt, len(prompts))
    place = _places(prompts, tokens, painted, prompt, start)
    order = order_by(place)
    piece, start, end = piece.take(order), start.take(order), end.take(order)
    node = node.take(piece)
    again = _untie(place.take(order), tree.depth.take(node), end, node)
    if again is not None:
        piece, start, end, node = piece.take(again), start.take(again), end.take(again), node.take(again)
    hop_names = pa.array(nodes.service_names, type=pa.string())
    values = {
        "stage": _STAGES.take(pa.array(stage.take(piece))),
        "hop": hop_names.take(pa.array(nodes.service.take(tree.entry).take(node))),
        "span_id": take_ids(nodes.span_ids, nodes.owner.take(node)),
        "start_ns": pa.array(start),
        "duration_ns": pa.array(end - start),
        "critical": pa.array(owned.take(piece)),
    }
    return {f"segments.{name}": pa.ListArray.from_arrays(offsets, column) for name, column in values.items()}


def _pieces(tree: Tree, prompts: Prompts, painted: Painted) -> tuple[Ints, Ints, Ints, Ints, Bools]:
    """Of each stage span by turns what it did not own and what it did, outer spans of a prompt first: node, stage in
    the piece, start, end, whether it was owned. What was not owned may have no length, or less."""
    stage = tree.stage.take(prompts.order)
    member = prompts.order.compress((stage > 0) & (stage != STAGE_CODE[Stage.LOAD]))
    rank = np.full(len(tree.stage), -1, dtype=np.int64)
    rank[member] = np.arange(len(member))
    # What each member owned, in time order, which is that of painted pieces. A pause between attempts may be a node's
    # without being within it.
    owner = rank.take(painted.node)
    strange = np.flatnonzero(owner < 0)
    mine = np.flatnonzero(owner >= 0) if len(strange) else None
    owned = order_by(owner) if mine is None else mine.take(order_by(owner.take(mine)))
    owner = owner.take(owned)
    turns = 2 * np.bincount(owner, minlength=len(member)) + 1
    last = np.cumsum(turns) - 1
    at = 2 * np.arange(len(owned)) + owner + 1
    node, stage = np.repeat(member, turns), np.repeat(tree.stage.take(member), turns)
    start, end = np.empty(len(node), dtype=np.int64), np.empty(len(node), dtype=np.int64)
    start[last - turns + 1] = painted.extent_start.take(member)
    end[last] = painted.extent_end.take(member)
    begins, ends = painted.start.take(owned), painted.end.take(owned)
    start[at] = end[at - 1] = begins
    end[at] = start[at + 1] = ends
    stage[at] = painted.stage.take(owned)
    critical = np.zeros(len(node), dtype=np.bool_)
    critical[at] = True
    if len(strange):  # a pause may also be that of a node without a stage
        node = np.append(node, painted.node[strange])
        stage = np.append(stage, painted.stage[strange])
        start, end = np.append(start, painted.start[strange]), np.append(end, painted.end[strange])
        critical = np.append(critical, np.ones(len(strange), dtype=np.bool_))
    return node, stage, start, end, critical


def _cut(
    piece: Ints, prompt: Ints, start: Ints, end: Ints, owned: Bools, tokens: FirstTokens
) -> tuple[Ints, Ints, Ints, Ints]:
    """Those of the pieces that `piece` chooses, those across the first token as two: which, prompt, start, end."""
    prompt, start, end = prompt.take(piece), start.take(piece), end.take(piece)
    cut = tokens.ttft.take(prompt)
    across = np.flatnonzero((start < cut) & (cut < end) & ~owned.take(piece))
    cut = cut.take(across)
    # The later halves first: what is painted from the first token on is mostly further in.
    piece, prompt = np.append(piece.take(across), piece), np.append(prompt.take(across), prompt)
    start, end = np.append(cut, start), np.append(end.take(across), end)
    end[across + len(across)] = cut
    return piece, prompt, start, end


def _places(prompts: Prompts, tokens: FirstTokens, painted: Painted, prompt: Ints, start: Ints) -> Ints:
    """Numbers that sort pieces by prompt and start, and are equal where both are."""
    begins = firsts(prompts.of.take(prompts.order))
    low = np.minimum(np.minimum.reduceat(painted.extent_start.take(prompts.order), begins), 0)
    high = np.maximum(np.maximum.reduceat(painted.extent_end.take(prompts.order), begins), tokens.end)
    width = high - low + 1
    if width.astype(np.float64).sum() < _LONGEST_NS:
        # All prompts end to end.
        return (np.cumsum(width) - width - low).take(prompt) + start
    order = order_by(prompt, start)
    new = np.zeros(len(order), dtype=np.int64)
    new[runs(prompt[order], start[order])] = 1
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.cumsum(new)
    return place


def _untie(place: Ints, depth: Ints, end: Ints, node: Ints) -> Ints | None:
    """How to arrange pieces that are in the order of prompt and start (`place`), so that those that start together are
    outermost first, then longest, then in the order of nodes; None where they are."""
    suspect = np.flatnonzero((place[1:] == place[:-1]) & (depth[1:] <= depth[:-1]))
    behind = suspect + 1
    longer, beside = end[behind] - end[suspect], depth[behind] == depth[suspect]
    wrong = suspect[~beside | (longer > 0) | ((longer == 0) & (node[behind] < node[suspect]))]
    if len(wrong) == 0:
        return None
    apart = np.ones(len(place), dtype=np.int64)
    apart[1:] = place[1:] != place[:-1]
    run = np.cumsum(apart)
    mixed = np.zeros(int(run[-1]) + 1, dtype=np.bool_)
    mixed[run[wrong]] = True
    at = np.flatnonzero(mixed.take(run))
    order = np.arange(len(place), dtype=np.int64)
    order[at] = at[order_by(run[at], depth[at], -end[at], node[at])]
    return order
