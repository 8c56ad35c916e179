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
from promptpath.collector.assemble.schema import STAGE_CODE, STAGE_NAMES, Ints
from promptpath.collector.assemble.sorting import order_by
from promptpath.collector.assemble.texts import take_ids
from promptpath.collector.assemble.tree import Tree
from promptpath.semconv import Stage

#: As long as all prompts together may be to lie on one line of 64 bits.
_LONGEST_NS: Final = float(1 << 62)


def build(nodes: Nodes, tree: Tree, prompts: Prompts, tokens: FirstTokens, painted: Painted) -> dict[str, pa.Array]:
    """The `segments.*` columns, m rows; pieces by start, then outermost first."""
    idle_node, idle_start, idle_end = _idle(tree, prompts, tokens, painted)
    node = np.concatenate((painted.node, idle_node))
    start = np.concatenate((painted.start, idle_start))
    end = np.concatenate((painted.end, idle_end))
    stage = np.concatenate((painted.stage, tree.stage[idle_node]))
    prompt = prompts.of[node]
    order = order_by(*_line(prompts, tokens, painted, prompt, start), tree.depth[node], -end, node)
    node, prompt = node[order], prompt[order]
    hop_names = pa.array(nodes.service_names, type=pa.string())
    values = {
        "stage": pa.array(STAGE_NAMES, type=pa.string()).take(pa.array(stage[order])),
        "hop": hop_names.take(pa.array(nodes.service[tree.entry][node])),
        "span_id": take_ids(nodes.span_ids, nodes.owner[node]),
        "start_ns": pa.array(start[order]),
        "duration_ns": pa.array((end - start)[order]),
        "critical": pa.array(order < len(painted.node)),
    }
    offsets = offsets_of(prompt, len(prompts))
    return {f"segments.{name}": pa.ListArray.from_arrays(offsets, column) for name, column in values.items()}


def _line(
    prompts: Prompts, tokens: FirstTokens, painted: Painted, prompt: Ints, start: Ints
) -> tuple[Ints] | tuple[Ints, Ints]:
    """Keys that sort by prompt and start: one for both, the prompts end to end, unless they are too long together."""
    begins = firsts(prompts.of[prompts.order])
    low = np.minimum(np.minimum.reduceat(painted.extent_start[prompts.order], begins), 0)
    high = np.maximum(np.maximum.reduceat(painted.extent_end[prompts.order], begins), tokens.end)
    width = high - low + 1
    if width.astype(np.float64).sum() >= _LONGEST_NS:
        return prompt, start
    return ((np.cumsum(width) - width - low)[prompt] + start,)


def _idle(tree: Tree, prompts: Prompts, tokens: FirstTokens, painted: Painted) -> tuple[Ints, Ints, Ints]:
    """Pieces of stage spans that they did not own: (node, start, end)."""
    stage = tree.stage[prompts.order]
    member = prompts.order[(stage > 0) & (stage != STAGE_CODE[Stage.LOAD])]
    rank = np.full(len(tree.stage), -1, dtype=np.int64)
    rank[member] = np.arange(len(member))
    # What each member owned, in time order, which is that of painted pieces. (A pause between attempts may be a node's
    # without being within it, or be that of a node without a stage; pieces that end before they start are dropped
    # below.)
    mine = np.flatnonzero(rank[painted.node] >= 0)
    owned = mine[order_by(rank[painted.node[mine]])]
    owner = rank[painted.node[owned]]
    count = np.bincount(owner, minlength=len(member))
    last = np.cumsum(count + 1) - 1
    first = last - count
    at = np.arange(len(owned)) + owner
    start = np.empty(int((count + 1).sum()), dtype=np.int64)
    end = np.empty_like(start)
    start[first] = painted.extent_start[member]
    end[last] = painted.extent_end[member]
    end[at] = painted.start[owned]
    start[at + 1] = painted.end[owned]
    real = np.flatnonzero(start < end)
    node, start, end = np.repeat(member, count + 1)[real], start[real], end[real]
    cut = tokens.ttft[prompts.of[node]]
    across = np.flatnonzero((start < cut) & (cut < end))
    cut = cut[across]
    after = node[across], cut, end[across]
    end[across] = cut
    node, start, end = (np.concatenate(both) for both in zip((node, start, end), after, strict=True))
    return node, start, end
