"""Whose time it was: every nanosecond of a prompt gets one owner.

Before the first token a span counts until its own first delivery, and no longer than its ancestors' first deliveries:
from then on the token is with them. After the first token, and in prompts without one, spans count as they are. The
owner of an instant is the deepest counting span with a stage; of several at one depth, the one that ends last. The
root counts always, so every instant has an owner and the parts sum to the TTFT by construction.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from promptpath.collector.assemble.attempts import Attempts
from promptpath.collector.assemble.clock import Axis
from promptpath.collector.assemble.delivery import FirstTokens, Prompts
from promptpath.collector.assemble.nodes import Nodes
from promptpath.collector.assemble.ragged import NONE
from promptpath.collector.assemble.schema import (
    IS_CALLER,
    NO_NS,
    PART_OF_STAGE,
    PARTS,
    STAGE_CODE,
    Ints,
    stage_set,
)
from promptpath.collector.assemble.sorting import exact_sums, order_by
from promptpath.collector.assemble.tree import Tree
from promptpath.semconv import Stage

_NOT_BEFORE_TOKEN = stage_set(Stage.DECODE, Stage.LOAD)
_NEVER = stage_set(Stage.LOAD)


@dataclass
class Painted:
    """Who owned what. Pieces are maximal, sorted by prompt and time, and partition [0, end) of every prompt.

    node: owner; stage: stage code of the piece; start, end: ns from the prompt's start; shape (p,) each. extent_start,
    extent_end: shape (n,), each node's whole extent on its prompt's axis. parts: shape (m, 9), ns before the first
    token. retry: shape (m,), ns.
    """

    node: Ints
    prompt: Ints
    stage: Ints
    start: Ints
    end: Ints
    extent_start: Ints
    extent_end: Ints
    parts: Ints
    retry: Ints


@dataclass
class _Entries:
    """Claims to time: a node counts from start to end (ns from the prompt's start).

    depth, until, since: what ranks it among its rivals, the last two not clipped to the window. lost: 0 or 1.
    """

    node: Ints
    prompt: Ints
    start: Ints
    end: Ints
    depth: Ints
    until: Ints
    since: Ints
    lost: Ints


def paint(nodes: Nodes, tree: Tree, axis: Axis, attempts: Attempts, prompts: Prompts, tokens: FirstTokens) -> Painted:
    """Paint every prompt's time."""
    member = prompts.order
    of = prompts.of
    origin = np.zeros(len(nodes), dtype=np.int64)
    origin[member] = nodes.start[prompts.root][of[member]]
    start = nodes.start + axis.shift - origin
    end = nodes.end + axis.shift - origin
    end[prompts.root] = tokens.end
    until = _until(nodes, tree, prompts, start, end)

    counted = end
    if attempts.over is not None:
        # What goes on in an attempt that its hop has given up is nobody's time.
        lost = member[attempts.lost[member]]
        over = attempts.over[lost] - origin[lost]
        counted = end.copy()
        counted[lost] = np.minimum(end[lost], over)
        until[lost] = np.minimum(until[lost], over)
    entries = _entries(nodes, tree, attempts, prompts, tokens, start, counted, until, origin - axis.shift)
    owner, piece_start, piece_end = _owners(entries, tokens.end)
    node, prompt = entries.node[owner], entries.prompt[owner]
    stage = _piece_stage(tree, attempts, node)
    stage[entries.lost[owner] == 1] = STAGE_CODE[Stage.ROUTER]

    before = piece_start < tokens.ttft[prompt]
    length = piece_end - piece_start
    part = prompt[before] * len(PARTS) + PART_OF_STAGE[stage[before]]
    parts = exact_sums(part, length[before], len(prompts) * len(PARTS)).reshape(-1, len(PARTS))
    wasted = (entries.lost[owner] == 1) & (before | (tokens.ttft[prompt] == NO_NS))
    retry = exact_sums(prompt[wasted], length[wasted], len(prompts))
    return Painted(node, prompt, stage, piece_start, piece_end, start, end, parts, retry)


def _until(nodes: Nodes, tree: Tree, prompts: Prompts, start: Ints, end: Ints) -> Ints:
    """Until when each node counts before the first token; shape (n,), ns from the prompt's start."""
    delivered = (nodes.first != NO_NS) & (prompts.of != NONE)
    until = np.where(delivered, np.minimum(start + nodes.first, end), end)
    limit = np.where(delivered, until, np.iinfo(np.int64).max)
    for level in tree.levels[1:]:
        above = limit[tree.parent[level]]
        limit[level] = np.minimum(limit[level], above)
        until[level] = np.minimum(until[level], above)
    return until


def _entries(
    nodes: Nodes,
    tree: Tree,
    attempts: Attempts,
    prompts: Prompts,
    tokens: FirstTokens,
    start: Ints,
    end: Ints,
    until: Ints,
    clock_origin: Ints,
) -> _Entries:
    """All claims: before the first token, after it, and the pauses between attempts in both."""
    staged = prompts.order[tree.stage[prompts.order] > 0]
    early = staged[~_NOT_BEFORE_TOKEN[tree.stage[staged]]]
    late = staged[~_NEVER[tree.stage[staged]]]
    pause = attempts.pause_entry
    pause_start = attempts.pause_start - clock_origin[pause]
    pause_end = attempts.pause_end - clock_origin[pause]
    yes = np.ones(len(pause), dtype=np.int64)
    lost = attempts.lost.astype(np.int64)

    node = np.concatenate((early, pause, late, pause))
    prompt = prompts.of[node]
    before = np.arange(len(node)) < len(early) + len(pause)
    begins = np.concatenate((start[early], pause_start, start[late], pause_start))
    ends = np.concatenate((until[early], pause_end, end[late], pause_end))
    token = np.maximum(tokens.ttft, 0)[prompt]
    claimed_from = np.maximum(begins, np.where(before, 0, token))
    claimed_to = np.minimum(ends, np.where(before, token, tokens.end[prompt]))
    kept = claimed_from < claimed_to
    return _Entries(
        node=node[kept],
        prompt=prompt[kept],
        start=claimed_from[kept],
        end=claimed_to[kept],
        depth=np.concatenate((tree.depth[early], attempts.pause_depth, tree.depth[late], attempts.pause_depth))[kept],
        until=ends[kept],
        since=begins[kept],
        lost=np.concatenate((lost[early], yes, lost[late], yes))[kept],
    )


def _owners(entries: _Entries, prompt_end: Ints) -> tuple[Ints, Ints, Ints]:
    """Maximal pieces: (entry that owns it, start, end), by prompt and time."""
    size = len(entries.node)
    if size == 0:
        empty = np.empty(0, dtype=np.int64)
        return empty, empty, empty
    order = order_by(entries.prompt, entries.depth, entries.until, entries.since, entries.node)
    # One line for all prompts, end to end, so that one sort and one sweep serve the whole batch.
    base = (np.cumsum(prompt_end + 1) - (prompt_end + 1))[entries.prompt[order]]
    cuts, at = _numbered(np.concatenate((entries.start[order] + base, entries.end[order] + base)))
    top = _highest(at[:size], at[size:], len(cuts) - 1)
    new = np.flatnonzero(np.diff(top, prepend=NONE, append=NONE))
    covered = np.flatnonzero(top[new[:-1]] != NONE)
    owner = top[new[covered]]
    return order[owner], cuts[new[covered]] - base[owner], cuts[new[covered + 1]] - base[owner]


def _numbered(values: Ints) -> tuple[Ints, Ints]:
    """The distinct values in order, and which of them each value is."""
    order = order_by(values)
    ordered = values[order]
    new = np.diff(ordered, prepend=ordered[0] - 1) != 0
    number = np.empty(len(values), dtype=np.int64)
    number[order] = np.cumsum(new) - 1
    return ordered[new], number


def _highest(begin: Ints, end: Ints, cells: int) -> Ints:
    """For each of `cells` cells the last of the ranges [begin, end) that covers it, else -1.

    A sparse table filled from the top: each range is two overlapping blocks of a power of two, and each level hands its
    blocks down in halves. O((ranges + cells) log cells), whatever the overlaps.
    """
    level_of = (np.frexp((end - begin).astype(np.float64))[1] - 1).astype(np.uint8)
    by_level = np.argsort(level_of, kind="stable")
    cuts = np.cumsum(np.bincount(level_of))[:-1]
    table = np.full(cells, NONE, dtype=np.int64)
    for level, chosen in reversed(list(enumerate(np.split(by_level, cuts)))):
        for place in (begin[chosen], end[chosen] - (1 << level)):
            # Of several ranges at one place the last written stays, which is the highest.
            higher = chosen > table[place]
            table[place[higher]] = chosen[higher]
        if level:
            half = 1 << (level - 1)
            lower = table.copy()
            np.maximum(lower[half:], table[:-half], out=lower[half:])
            table = lower
    return table


def _piece_stage(tree: Tree, attempts: Attempts, node: Ints) -> Ints:
    """The stage of own time: transit or unattributed for calls, unattributed for servers, else the span's stage; the
    guardrail's for whatever it called."""
    stage = tree.stage[node].copy()
    calls = IS_CALLER[stage]
    unexplained = (calls & ~attempts.answered[node]) | (stage == STAGE_CODE[Stage.SERVER])
    stage[calls] = STAGE_CODE[Stage.TRANSIT]
    stage[unexplained] = STAGE_CODE[Stage.UNATTRIBUTED]
    guard = attempts.guard[node]
    return np.where(guard > 0, guard, stage)
