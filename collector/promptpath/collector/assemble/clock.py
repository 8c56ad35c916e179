"""One axis for the spans of a prompt, without trusting that two hosts' clocks agree.

Spans of one host are never moved against each other. Where a call crosses to another host, the callee's spans are
moved as one block into the caller's call, the spare time split evenly before and after: what NTP assumes of a request
and its answer (offset = ((t1-t0)+(t2-t3))/2, error at most half the spare time). The axis so depends on durations
only, never on what two clocks said of each other, and no part of a TTFT moves when a clock is wrong.

Of a call that its caller gave up the end says nothing: the callee hears of it a transit later, so that both lasted
equally long however far apart they are. Its callee is put where the pooled offset between the two clocks says, where
there is one, else half of a round trip (of the connection, as the caller's kernel or its handshake says) after the
request was sent. That alone of what a prompt's time is told from is as good as an offset is.

Beside it stands what the clocks differ by as all requests together show it (`offsets`), which is what a prompt's
offset is told from and what its waterfall is drawn with: a block is moved by the pooled offset if that exceeds its
own error, not at all if it does not, and never out of its call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from promptpath.collector.assemble.columns import Columns
from promptpath.collector.assemble.nodes import Nodes
from promptpath.collector.assemble.offsets import NO_BOUND_NS, Bounds, ClockPool
from promptpath.collector.assemble.ragged import NONE, firsts, ints_of
from promptpath.collector.assemble.schema import (
    INBOUND,
    IS_CALLER,
    IS_CONNECT,
    IS_CONTAINER,
    NO_NS,
    STAGE_CODE,
    Bools,
    Ints,
    stage_set,
)
from promptpath.collector.assemble.sorting import order_by
from promptpath.collector.assemble.status import status_of_error
from promptpath.collector.assemble.tree import Tree
from promptpath.semconv import Abort, Stage, Status

#: A server notes what it sent after it has sent it, and ends its span after the answer's last byte: by so much its
#: bound may be late.
_NOTED_LATE_NS: Final = 50_000
_ENDED_LATE_NS: Final = 100_000
#: Stages that are over when the first token is.
_EARLY: Final = ~(IS_CONTAINER | stage_set(Stage.DECODE, Stage.LOAD))
_EARLY[[0, STAGE_CODE[INBOUND]]] = False


@dataclass
class Axis:
    """Placement of n nodes, arrays of shape (n,).

    shift: ns added to a node's times to put it on its root's axis. drawn: the same for what is
    drawn. offset, error: clock of the node's host minus the root's host's, and how wrong that may be.
    """

    shift: Ints
    drawn: Ints
    offset: Ints
    error: Ints


@dataclass
class Blocks:
    """What crosses to another host: nodes, sorted by block, and of each block, shape (k,), its first position in
    `nodes`, the node that called it, and from the two spans alone when the request was sent and came, and the answer
    left and came back.

    bounded: whether these bound the offset. late: by how much the answer's leaving may be late. given_up: whether the
    caller left before the answer was over. round_trip: of the caller's connection, 0 where nobody says.
    """

    nodes: Ints
    begins: Ints
    caller: Ints
    sent: Ints
    came: Ints
    left: Ints
    back: Ints
    bounded: Bools
    late: Ints
    given_up: Bools
    round_trip: Ints


def measure(nodes: Nodes, tree: Tree, columns: Columns) -> Blocks | None:
    """What crosses to another host; None where nothing does."""
    size = len(nodes)
    inside = (tree.prompt != NONE) & (tree.prompt != np.arange(size)) & (tree.parent != NONE)
    across = np.flatnonzero(inside & (tree.host != tree.host[np.where(inside, tree.parent, 0)]))
    return _blocks(nodes, tree, columns, across) if len(across) else None


def tell(pool: ClockPool, windows: Sequence[tuple[Nodes, Tree, Blocks | None]]) -> None:
    """Add to `pool` what the requests of all windows say."""
    told = []
    for nodes, tree, blocks in windows:
        if blocks is not None:
            bounds, sure = _bounds(nodes, tree, blocks)
            told.append(bounds.take(np.flatnonzero(sure)))
    if told:
        columns = [np.concatenate([getattr(one, name) for one in told]) for name in ("a", "b", "at", "low", "high")]
        pool.add(Bounds(told[0].names, *columns))


def place(nodes: Nodes, tree: Tree, blocks: Blocks | None, pool: ClockPool | None = None) -> Axis:
    """The axis of every prompt. Nodes outside of prompts are not moved.

    blocks: as `measure` gives them. pool: knows the offsets of all requests.
    """
    size = len(nodes)
    zero = np.zeros(size, dtype=np.int64)
    if blocks is None:
        return Axis(zero, zero, zero, zero)
    inside = (tree.prompt != NONE) & (tree.prompt != np.arange(size)) & (tree.parent != NONE)
    spare = (blocks.back - blocks.sent) - (blocks.left - blocks.came)
    half = np.where(blocks.given_up & (blocks.round_trip > 0), blocks.round_trip, np.maximum(spare, 0)) // 2
    moved = blocks.sent + half - blocks.came
    unsure = np.where(blocks.round_trip > 0, half, np.maximum(blocks.back - blocks.sent, half))
    own_error = np.where(blocks.given_up, unsure, (np.abs(spare) + 1) // 2)
    offset, error, pooled = _offsets(nodes, tree, blocks, -moved, own_error, pool)
    moved = np.where(blocks.given_up & pooled, np.maximum(-offset, blocks.sent - blocks.came), moved)
    drawn = -np.where(np.abs(offset) > error, offset, 0)
    earliest, latest = blocks.sent - blocks.came, blocks.back - blocks.left
    drawn = np.where((spare >= 0) & ~blocks.given_up, np.clip(drawn, earliest, np.maximum(latest, earliest)), moved)
    steps = [np.zeros(size, dtype=np.int64) for _ in range(4)]
    counts = np.diff(np.append(blocks.begins, len(blocks.nodes)))
    for step, values in zip(steps, (moved, drawn, offset, error), strict=True):
        step[blocks.nodes] = np.repeat(values, counts)
    for level in tree.levels[1:]:
        moving = level.compress(inside.take(level))
        above = tree.parent.take(moving)
        for step in steps:
            step[moving] += step.take(above)
    return Axis(*steps)


def _offsets(
    nodes: Nodes, tree: Tree, blocks: Blocks, own: Ints, own_error: Ints, pool: ClockPool | None
) -> tuple[Ints, Ints, Bools]:
    """Offset and error of each block's host against its caller's: pooled where that is tighter than its own; and where
    it is."""
    if pool is None:
        return own, own_error, np.zeros(len(own), dtype=np.bool_)
    bounds, sure = _bounds(nodes, tree, blocks)
    pooled, error, known = pool.offsets(bounds)
    better = known & ((error < own_error) | ~sure)
    forward = tree.host[blocks.caller] == bounds.a
    offset = np.where(better, np.where(forward, pooled, -pooled), own)
    return offset, np.where(better, error, own_error), better


def _bounds(nodes: Nodes, tree: Tree, blocks: Blocks) -> tuple[Bounds, Bools]:
    """What each block says of two hosts' clocks, and whether it may."""
    host, callee = tree.host[blocks.caller], tree.host[blocks.nodes[blocks.begins]]
    # The codes of hosts rank their names.
    forward = host < callee
    low, high = blocks.left - blocks.back - blocks.late, blocks.came - blocks.sent
    sure = blocks.bounded & (low <= high)
    # That a request came after it was sent holds whatever became of its answer.
    low = np.where(sure, low, NO_BOUND_NS)
    bounds = Bounds(
        nodes.host_names,
        np.minimum(host, callee),
        np.maximum(host, callee),
        np.where(forward, blocks.sent, blocks.came),
        np.where(forward, low, -high),
        np.where(forward, high, -low),
    )
    return bounds, sure


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


def _blocks(nodes: Nodes, tree: Tree, columns: Columns, across: Ints) -> Blocks:
    """The children on one other host of one parent are one block."""
    sent = _sent(nodes, tree)
    first_below = _first_below(nodes, tree, sent)
    order = across[order_by(tree.parent[across], tree.host[across])]
    width = int(tree.host.max()) + 1
    begins = firsts(tree.parent[order] * width + tree.host[order])
    caller = tree.parent[order[begins]]
    seen = first_below[order] != NO_NS
    delivered = np.where(seen, nodes.start[order] + first_below[order], NO_NS)
    delivered = np.where(_last_before_token(tree, order, begins, caller) & ~seen, nodes.end[order], delivered)
    first = np.maximum.reduceat(delivered, begins)
    # Deliveries pair with deliveries and ends with ends: a pair of one and the other would compare two events.
    both = (first != NO_NS) & (nodes.first[caller] != NO_NS)
    # An answer that was cut short ends on either side for reasons of its own.
    short = nodes.failed | columns.filled("abort")[nodes.row]
    whole = ~np.logical_or.reduceat(short[order], begins) & ~short[caller]
    told = np.logical_and.reduceat(nodes.first[order] != NO_NS, begins)
    one_event = np.where(both, told, whole)
    served = np.logical_and.reduceat(nodes.server_kind[order] & IS_CONTAINER[tree.stage[order]], begins)
    return Blocks(
        nodes=order,
        begins=begins,
        caller=caller,
        sent=sent[caller],
        came=np.minimum.reduceat(nodes.start[order], begins),
        left=np.where(both, first, np.maximum.reduceat(nodes.end[order], begins)),
        back=np.where(both, nodes.start[caller] + nodes.first[caller], nodes.end[caller]),
        bounded=one_event & served & IS_CALLER[tree.stage[caller]],
        late=np.where(both, _NOTED_LATE_NS, _ENDED_LATE_NS),
        given_up=~both & short[caller] & _left(nodes, columns, caller),
        round_trip=_round_trips(nodes, tree, columns, caller),
    )


def _last_before_token(tree: Tree, order: Ints, begins: Ints, caller: Ints) -> Bools:
    """Stages that end by the first token, where of the server that went through them they are all that came.

    order, begins, caller: as in `Blocks`; shape of `order`.
    """
    bare = IS_CALLER[tree.stage[caller]] & ~np.logical_or.reduceat(IS_CONTAINER[tree.stage[order]], begins)
    found: Bools = np.repeat(bare, np.diff(begins, append=len(order))) & _EARLY[tree.stage[order]]
    return found


def _left(nodes: Nodes, columns: Columns, caller: Ints) -> Bools:
    """Which callers did not wait for the answer: somebody hung up, or a time limit was over."""
    aborts, abort_names = columns.coded("abort")
    errors, error_names = columns.coded("error_type")
    left = np.array([name in (Abort.CLIENT, Abort.TIMEOUT) for name in abort_names])
    over = np.array([status_of_error(name) in (Status.TIMEOUT, Status.CLIENT_ABORT) for name in error_names])
    row = nodes.row[caller]
    gone: Bools = left[aborts[row]] | over[errors[row]]
    return gone & (caller < nodes.spans)


def _round_trips(nodes: Nodes, tree: Tree, columns: Columns, caller: Ints) -> Ints:
    """The round trip of each caller's connection [ns], as the kernel says, else as its handshake took; else 0."""
    said = ints_of(columns["tcp_rtt_us"].take(pa.array(nodes.row[caller])), 0) * 1000
    shaken = np.zeros(len(nodes), dtype=np.int64)
    handshake = np.flatnonzero((tree.stage == STAGE_CODE[Stage.TCP]) & (tree.parent != NONE) & ~nodes.failed)
    np.maximum.at(shaken, tree.parent[handshake], nodes.end[handshake] - nodes.start[handshake])
    return np.where((said > 0) & (caller < nodes.spans), said, shaken[caller])
