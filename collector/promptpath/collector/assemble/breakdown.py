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
from promptpath.collector.assemble.delivery import FirstTokens, Prompts, passed_on
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

_LOADS = stage_set(Stage.LOAD)
#: Stages whose spans count before the first token, and from it on.
_EARLY = ~stage_set(Stage.DECODE) & ~_LOADS
_LATE = ~_LOADS
_EARLY[0] = _LATE[0] = False
#: What own time of a stage's span is, of calls if they were answered.
_OWN_STAGE = np.arange(len(STAGE_CODE), dtype=np.int64)
_OWN_STAGE[IS_CALLER] = STAGE_CODE[Stage.TRANSIT]
_OWN_STAGE[STAGE_CODE[Stage.SERVER]] = STAGE_CODE[Stage.UNATTRIBUTED]


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
    until = _until(passed_on(nodes, tree, attempts), tree, prompts, tokens, start, end)

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
    node, prompt = entries.node.take(owner), entries.prompt.take(owner)
    stage = _piece_stage(tree, attempts, node)
    lost = entries.lost.take(owner) == 1
    stage[lost] = STAGE_CODE[Stage.ROUTER]

    ttft = tokens.ttft.take(prompt)
    before = np.flatnonzero(piece_start < ttft)
    length = piece_end - piece_start
    part = prompt.take(before) * len(PARTS) + PART_OF_STAGE.take(stage.take(before))
    parts = exact_sums(part, length.take(before), len(prompts) * len(PARTS)).reshape(-1, len(PARTS))
    wasted = np.flatnonzero(lost & ((piece_start < ttft) | (ttft == NO_NS)))
    retry = exact_sums(prompt[wasted], length[wasted], len(prompts))
    return Painted(node, prompt, stage, piece_start, piece_end, start, end, parts, retry)


def _until(first: Ints, tree: Tree, prompts: Prompts, tokens: FirstTokens, start: Ints, end: Ints) -> Ints:
    """Until when each node counts before the first token; shape (n,), ns from the prompt's start.

    The root delivers when the prompt does, whatever its calls brought: else an instant would be nobody's.
    """
    delivered = (first != NO_NS) & (prompts.of != NONE)
    until = np.where(delivered, np.minimum(start + first, end), end)
    told = delivered[prompts.root] & (tokens.ttft != NO_NS)
    until[prompts.root[told]] = tokens.ttft[told]
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
    stage = tree.stage.take(prompts.order)
    early = prompts.order.compress(_EARLY.take(stage))
    late = prompts.order.compress(_LATE.take(stage))
    pause = attempts.pause_entry
    pause_start = attempts.pause_start - clock_origin[pause]
    pause_end = attempts.pause_end - clock_origin[pause]

    node = np.concatenate((early, pause, late, pause))
    prompt = prompts.of.take(node)
    first_late = len(early) + len(pause)
    since = np.concatenate((start.take(early), pause_start, start.take(late), pause_start))
    ends = np.concatenate((until.take(early), pause_end, end.take(late), pause_end))
    token = np.maximum(tokens.ttft, 0).take(prompt)
    begins, over = since.copy(), ends.copy()
    np.maximum(begins[:first_late], 0, out=begins[:first_late])
    np.minimum(over[:first_late], token[:first_late], out=over[:first_late])
    np.maximum(begins[first_late:], token[first_late:], out=begins[first_late:])
    np.minimum(over[first_late:], tokens.end.take(prompt[first_late:]), out=over[first_late:])
    kept = np.flatnonzero(begins < over)
    node = node.take(kept)
    depth, lost = tree.depth.take(node), attempts.lost.take(node).astype(np.int64)
    if len(pause):
        # What waited between attempts counts as deep as they, and is lost like them.
        pauses = np.searchsorted(
            kept, [len(early), first_late, first_late + len(late), first_late + len(late) + len(pause)]
        )
        for low, high, begin in ((pauses[0], pauses[1], len(early)), (pauses[2], pauses[3], first_late + len(late))):
            depth[low:high] = attempts.pause_depth.take(kept[low:high] - begin)
            lost[low:high] = 1
    return _Entries(
        node=node,
        prompt=prompt.take(kept),
        start=begins.take(kept),
        end=over.take(kept),
        depth=depth,
        until=ends.take(kept),
        since=since.take(kept),
        lost=lost,
    )


def _owners(entries: _Entries, prompt_end: Ints) -> tuple[Ints, Ints, Ints]:
    """Maximal pieces: (entry that owns it, start, end), by prompt and time."""
    size = len(entries.node)
    if size == 0:
        empty = np.empty(0, dtype=np.int64)
        return empty, empty, empty
    order = order_by(entries.prompt, entries.depth, entries.until, entries.since, entries.node)
    # One line for all prompts, end to end, so that one sort and one sweep serve the whole batch.
    base = (np.cumsum(prompt_end + 1) - (prompt_end + 1)).take(entries.prompt.take(order))
    places = np.empty(2 * size, dtype=np.int64)
    np.add(entries.start.take(order), base, out=places[:size])
    np.add(entries.end.take(order), base, out=places[size:])
    cuts, at = _numbered(places)
    top = _highest(at[:size], at[size:], len(cuts) - 1)
    new = np.ones(len(top) + 1, dtype=np.bool_)
    np.not_equal(top[1:], top[:-1], out=new[1:-1])
    border = np.flatnonzero(new)
    owner = top.take(border[:-1])
    if owner.min() == NONE:
        covered = np.flatnonzero(owner != NONE)
        owner, after = owner.take(covered), border.take(covered + 1)
        border = border.take(covered)
    else:
        border, after = border[:-1], border[1:]
    offset = base.take(owner)
    return order.take(owner), cuts.take(border) - offset, cuts.take(after) - offset


def _numbered(values: Ints) -> tuple[Ints, Ints]:
    """The distinct values in order, and which of them each value is."""
    order = order_by(values)
    ordered = values.take(order)
    new = np.ones(len(values), dtype=np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:])
    number = np.empty(len(values), dtype=np.int64)
    number[order] = np.cumsum(new) - 1
    return ordered.compress(new), number


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
    # Told of every node once: a node owns several pieces.
    stage = _OWN_STAGE.take(tree.stage)
    stage[IS_CALLER.take(tree.stage) & ~attempts.answered] = STAGE_CODE[Stage.UNATTRIBUTED]
    return np.where(attempts.guard > 0, attempts.guard, stage).take(node)
