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
from promptpath.collector.assemble.ragged import firsts, offsets_of, spans_of
from promptpath.collector.assemble.schema import STAGE_CODE, STAGE_NAMES, Ints
from promptpath.collector.assemble.sorting import order_by, runs
from promptpath.collector.assemble.texts import take_ids
from promptpath.collector.assemble.tree import Tree
from promptpath.semconv import Stage

_STAGES: Final = pa.array(STAGE_NAMES, type=pa.string())
#: As long as all prompts together may be to lie on one line of 64 bits.
_LONGEST_NS: Final = float(1 << 62)


def build(nodes: Nodes, tree: Tree, prompts: Prompts, tokens: FirstTokens, painted: Painted) -> dict[str, pa.Array]:
    """The `segments.*` columns, m rows; pieces by start, then outermost first."""
    idle_node, idle_start, idle_end = _idle(tree, prompts, tokens, painted)
    node = np.concatenate((idle_node, painted.node))
    start = np.concatenate((idle_start, painted.start))
    prompt = np.concatenate((prompts.of.take(idle_node), painted.prompt))
    offsets = offsets_of(prompt, len(prompts))
    place = _places(prompts, tokens, painted, prompt, start)
    order = order_by(place)
    # Of pieces that start together what was painted, which stands last, is mostly further in: few are not in order yet.
    node, start = node.take(order), start.take(order)
    end = np.concatenate((idle_end, painted.end)).take(order)
    at, tied = _ties(place.take(order), tree.depth.take(node), end, node)
    for column in (order, node, start, end):
        column[at] = column[tied]
    stage = np.concatenate((tree.stage.take(idle_node), painted.stage)).take(order)
    hop_names = pa.array(nodes.service_names, type=pa.string())
    values = {
        "stage": _STAGES.take(pa.array(stage)),
        "hop": hop_names.take(pa.array(nodes.service.take(tree.entry).take(node))),
        "span_id": take_ids(nodes.span_ids, nodes.owner.take(node)),
        "start_ns": pa.array(start),
        "duration_ns": pa.array(end - start),
        "critical": pa.array(order >= len(idle_node)),
    }
    return {f"segments.{name}": pa.ListArray.from_arrays(offsets, column) for name, column in values.items()}


def _idle(tree: Tree, prompts: Prompts, tokens: FirstTokens, painted: Painted) -> tuple[Ints, Ints, Ints]:
    """Pieces of stage spans that they did not own: (node, start, end); outer spans of a prompt first."""
    stage = tree.stage.take(prompts.order)
    member = prompts.order.compress((stage > 0) & (stage != STAGE_CODE[Stage.LOAD]))
    rank = np.full(len(tree.stage), -1, dtype=np.int64)
    rank[member] = np.arange(len(member))
    # What each member owned, in time order, which is that of painted pieces. (A pause between attempts may be a node's
    # without being within it, or be that of a node without a stage; pieces that end before they start are dropped
    # below.)
    owner = rank.take(painted.node)
    if len(owner) and owner.min() < 0:
        mine = np.flatnonzero(owner >= 0)
        owned = mine.take(order_by(owner.take(mine)))
    else:
        owned = order_by(owner)
    owner = owner.take(owned)
    count = np.bincount(owner, minlength=len(member)) + 1
    last = np.cumsum(count) - 1
    at = np.arange(len(owned)) + owner
    start = np.empty(len(owned) + len(member), dtype=np.int64)
    end = np.empty_like(start)
    start[last - count + 1] = painted.extent_start.take(member)
    end[last] = painted.extent_end.take(member)
    end[at] = painted.start.take(owned)
    start[at + 1] = painted.end.take(owned)
    real = np.flatnonzero(start < end)
    node, start, end = np.repeat(member, count).take(real), start.take(real), end.take(real)
    cut = tokens.ttft.take(prompts.of.take(node))
    across = np.flatnonzero((start < cut) & (cut < end))
    cut = cut.take(across)
    after = node.take(across), cut, end.take(across)
    end[across] = cut
    node, start, end = (np.concatenate(both) for both in zip((node, start, end), after, strict=True))
    return node, start, end


def _places(prompts: Prompts, tokens: FirstTokens, painted: Painted, prompt: Ints, start: Ints) -> Ints:
    """Numbers that sort pieces by prompt and start, and are equal where both are."""
    begins = firsts(prompts.of.take(prompts.order))
    low = np.minimum(np.minimum.reduceat(painted.extent_start.take(prompts.order), begins), 0)
    high = np.maximum(np.maximum.reduceat(painted.extent_end.take(prompts.order), begins), tokens.end)
    width = high - low + 1
    if width.astype(np.float64).sum() < _LONGEST_NS:
        # All prompts end to end.
        begin: Ints = np.cumsum(width) - width - low
        return begin.take(prompt) + start
    order = order_by(prompt, start)
    new = np.zeros(len(order), dtype=np.int64)
    new[runs(prompt[order], start[order])] = 1
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.cumsum(new)
    return place


def _ties(place: Ints, depth: Ints, end: Ints, node: Ints) -> tuple[Ints, Ints]:
    """Of pieces in the order of prompt and start (`place`): where to put which, so that those that start together are
    outermost first, then longest, then in the order of nodes."""
    suspect = np.flatnonzero((place[1:] == place[:-1]) & (depth[1:] <= depth[:-1]))
    behind = suspect + 1
    longer, beside = end[behind] - end[suspect], depth[behind] == depth[suspect]
    wrong = suspect[~beside | (longer > 0) | ((longer == 0) & (node[behind] < node[suspect]))]
    if len(wrong) == 0:
        return wrong, wrong
    first = np.searchsorted(place, place[wrong])
    first = first[firsts(first)]
    count = np.searchsorted(place, place[first], side="right") - first
    at = spans_of(first, count)
    tied = at[order_by(np.repeat(first, count), depth[at], -end[at], node[at])]
    return at, tied
