"""Where the first token of each prompt was seen, and by whom."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from promptpath.collector.assemble.attempts import Attempts
from promptpath.collector.assemble.clock import Axis
from promptpath.collector.assemble.nodes import Nodes
from promptpath.collector.assemble.ragged import NONE, first_of_group, firsts
from promptpath.collector.assemble.schema import IS_CALLER, IS_CONTAINER, IS_RELAY, NO_NS, STAGE_CODE, Bools, Ints
from promptpath.collector.assemble.sorting import order_by
from promptpath.collector.assemble.tree import Tree
from promptpath.semconv import Stage

#: Who saw the tokens, by the stage of the hop's entry; `engine` for servers and what they hold.
SOURCES: Final[tuple[str, ...]] = ("", "client", "gateway", "router", "engine")
_SOURCE_OF_STAGE: Final = np.zeros(len(STAGE_CODE), dtype=np.int64)
for _stage, _source in (
    (Stage.CLIENT, "client"),
    (Stage.CALL, "client"),
    (Stage.EDGE, "gateway"),
    (Stage.GATEWAY, "gateway"),
    (Stage.ROUTER, "router"),
    (Stage.SERVER, "engine"),
):
    _SOURCE_OF_STAGE[STAGE_CODE[_stage]] = SOURCES.index(_source)


@dataclass
class Prompts:
    """The prompts of a batch, m of them: root node indices in canonical order, and `of`, shape (n,), node -> prompt,
    -1.

    order: nodes inside prompts, sorted by prompt, then answering attempts before lost ones and what guardrails called,
    then outermost first.
    """

    root: Ints
    of: Ints
    order: Ints

    def __len__(self) -> int:
        return len(self.root)


@dataclass
class FirstTokens:
    """First tokens of m prompts, arrays of shape (m,). ttft: ns from the root's start, NO_NS where no hop saw it.

    source: index into SOURCES. engine: ns from the engine's request start to its first token computed, NO_NS if
    unknown. end: ns from the root's start to its end, or to the first token where a root ended with the headers of
    its answer. server: the node of the engine's
    request span that answered, -1.
    """

    ttft: Ints
    source: Ints
    engine: Ints
    end: Ints
    server: Ints


def prompts_of(nodes: Nodes, tree: Tree, attempts: Attempts, axis: Axis) -> Prompts:
    """Number the prompts and order what is in them."""
    root = np.flatnonzero(tree.prompt == nodes.own).astype(np.int64)
    root = root[order_by(nodes.trace[root], nodes.start[root])]
    number = np.full(len(nodes) + 1, NONE, dtype=np.int64)
    number[root] = np.arange(len(root))
    of = number[tree.prompt]
    member = np.flatnonzero(of != NONE).astype(np.int64)
    mine = of[member]
    start = nodes.start[member] + axis.shift[member] - nodes.start[root][mine]
    order = member[order_by(mine, attempts.beside[member].astype(np.int64), tree.depth[member], start)]
    return Prompts(root, of, order)


def source_of(tree: Tree, node: Ints) -> Ints:
    """Index into SOURCES of the hop a node belongs to; 0 where node is -1."""
    hop = tree.stage[tree.entry[node]]
    source = np.where(tree.server[node] != NONE, SOURCES.index("engine"), _SOURCE_OF_STAGE[hop])
    return np.where(node == NONE, 0, source)


def find(
    nodes: Nodes,
    tree: Tree,
    axis: Axis,
    attempts: Attempts,
    prompts: Prompts,
    not_streaming: Bools,
    cut_short: Bools,
) -> FirstTokens:
    """First tokens: of the outermost hop that saw one, else of the engine's decode or prefill.

    not_streaming: shape (m,), prompts known not to stream, which have no TTFT. cut_short: shape (n,), spans that failed
    or were given up: such a prefill made no token.
    """
    size, order, of = len(prompts), prompts.order, prompts.of
    alive = ~attempts.beside
    root_start = nodes.start[prompts.root]

    def pick(valid: Bools) -> Ints:
        return first_of_group(of, order, valid, size)

    saw = pick(IS_CONTAINER[tree.stage] & (nodes.first != NO_NS) & alive)
    server = pick((tree.stage == STAGE_CODE[Stage.SERVER]) & alive)
    computed = _computed(nodes, tree, axis, prompts, alive, cut_short)
    at = nodes.start + axis.shift
    seen_at = at[saw] + nodes.first[saw] - root_start
    ttft = np.where(saw != NONE, seen_at, np.where(computed != NO_NS, computed - root_start, NO_NS))
    ttft = np.where(ttft == NO_NS, NO_NS, np.maximum(ttft, 0))
    source = np.where(saw != NONE, source_of(tree, saw), np.where(computed != NO_NS, SOURCES.index("engine"), 0))
    ttft[not_streaming] = NO_NS
    source[not_streaming] = 0

    said = nodes.said_first[server]
    by_stages = np.where(computed != NO_NS, computed - at[server], NO_NS)
    engine = np.where(said != NO_NS, said, np.where(by_stages >= 0, by_stages, nodes.first[server]))
    engine[server == NONE] = NO_NS
    end = nodes.end[prompts.root] - root_start
    return FirstTokens(ttft, source, engine, np.maximum(end, ttft), server)


def passed_on(nodes: Nodes, tree: Tree, attempts: Attempts) -> Ints:
    """First deliveries as `Nodes.first` has them, and of relays that saw no tokens themselves as another server span of
    their request in the same process did, else as their only call did.

    A relay hands on at once what its call brings: from then on the token is on its way to the relay's caller. Both are
    of one process, so this too is a difference of durations on one clock. Of several calls it is not known whose tokens
    it handed on.
    """
    first = _seen_inside(nodes, tree, attempts)
    call = np.flatnonzero(IS_CALLER[tree.stage] & (tree.prompt != NONE) & (tree.prompt != nodes.own) & ~attempts.lost)
    relay = tree.entry[call]
    # Of a call that is seen twice in its hop the outer view.
    silent = IS_RELAY[tree.stage[relay]] & (first[relay] == NO_NS) & (tree.caller[call] == relay)
    call, relay = call[silent], relay[silent]
    if not (nodes.first[call] != NO_NS).any():
        return first
    only = np.bincount(relay, minlength=len(nodes))[relay] == 1
    call, relay = call[only], relay[only]
    some = nodes.first[call] != NO_NS
    call, relay = call[some], relay[some]
    first = first.copy()
    first[relay] = np.maximum(nodes.start[call] + nodes.first[call] - nodes.start[relay], 0)
    return first


def _seen_inside(nodes: Nodes, tree: Tree, attempts: Attempts) -> Ints:
    """First deliveries as `Nodes.first` has them, and of relays that saw no tokens themselves as another server span of
    the same request in their hop did, the outermost one that did: it is around nothing else."""
    view = nodes.server_kind & (nodes.first != NO_NS) & (tree.prompt != NONE) & (tree.entry != nodes.own)
    view = np.flatnonzero(view & IS_RELAY[tree.stage] & ~attempts.lost)
    relay = tree.entry[view]
    silent = IS_RELAY[tree.stage[relay]] & nodes.server_kind[relay] & (nodes.first[relay] == NO_NS)
    view, relay = view[silent], relay[silent]
    if len(view) == 0:
        return nodes.first
    order = order_by(relay, tree.depth[view])
    at = firsts(relay[order])
    view, relay = view[order[at]], relay[order[at]]
    first = nodes.first.copy()
    first[relay] = np.maximum(nodes.start[view] + nodes.first[view] - nodes.start[relay], 0)
    return first


def _computed(nodes: Nodes, tree: Tree, axis: Axis, prompts: Prompts, alive: Bools, cut_short: Bools) -> Ints:
    """When the engine of each prompt had computed its first token, on the prompt's axis; NO_NS where no stage tells."""
    size = len(prompts)
    inside = (prompts.of != NONE) & alive & ~_elsewhere(nodes, tree)
    decode = np.flatnonzero(inside & (tree.stage == STAGE_CODE[Stage.DECODE]))
    prefill = np.flatnonzero(inside & ~cut_short & (tree.stage == STAGE_CODE[Stage.PREFILL]))
    latest = np.iinfo(np.int64).max
    began = np.full(size, latest, dtype=np.int64)
    np.minimum.at(began, prompts.of[decode], nodes.start[decode] + axis.shift[decode])
    filled = np.full(size, NO_NS, dtype=np.int64)
    np.maximum.at(filled, prompts.of[prefill], nodes.end[prefill] + axis.shift[prefill])
    # A prefill that ends after decoding began was not the first one, or holds decoding too.
    computed = np.where(filled != NO_NS, np.minimum(filled, began), began)
    return np.where(computed != latest, computed, NO_NS)


def _elsewhere(nodes: Nodes, tree: Tree) -> Bools:
    """Spans that lie before or after the engine's request span of their process: their times are not of this request,
    whatever they are of; shape (n,)."""
    held = tree.server != NONE
    server = np.where(held, tree.server, 0)
    apart = (nodes.end < nodes.start[server]) | (nodes.start > nodes.end[server])
    result: Bools = held & apart & (nodes.process == nodes.process[server])
    return result
