"""Who is whose parent, what is a prompt, which hop a span belongs to.

A prompt's root is the outermost inference span; inference spans under it are hops and attempts of the same prompt.
Cycles and missing parents survive: a cycle is cut at its earliest span, a span whose parent is missing starts a tree
of its own unless `repair` finds where it belongs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from promptpath.collector.assemble.joins import join
from promptpath.collector.assemble.keys import BY_TIME
from promptpath.collector.assemble.nodes import Nodes
from promptpath.collector.assemble.ragged import NONE, spans_of
from promptpath.collector.assemble.repair import nest_siblings, place_orphans
from promptpath.collector.assemble.schema import INBOUND, IS_CALLER, IS_RELAY, STAGE_CODE, Bools, Ints
from promptpath.semconv import Stage

_INBOUND = STAGE_CODE[INBOUND]
_SERVER = STAGE_CODE[Stage.SERVER]


@dataclass
class Tree:
    """Structure over n nodes, arrays of shape (n,) holding node indices, -1 for none.

    levels: node indices by distance from their tree's root. prompt: root node of the node's prompt. stage: stage
    codes with `inbound` decided and the root's call made `client`. staged_parent: nearest ancestor in the prompt that
    has a stage; depth: how many of them there are. entry: the node with which the prompt entered the node's hop.
    caller: nearest ancestor that is a call, or the hop's entry. server: the innermost server span that holds the node
    (itself included). workflow, nearest_agent: outermost and innermost agent span above. host: host codes, loopback
    peers made one. repaired: nodes whose parent is not the one they name. joined: by what, index into
    `keys.JOINED_BY`, 0 where by trace context alone.
    """

    levels: list[Ints]
    parent: Ints
    prompt: Ints
    stage: Ints
    staged_parent: Ints
    depth: Ints
    entry: Ints
    caller: Ints
    server: Ints
    workflow: Ints
    nearest_agent: Ints
    host: Ints
    repaired: Bools
    joined: Ints


def build(nodes: Nodes, table: pa.Table) -> Tree:
    """The tree of `nodes`, siblings nested, trees of one prompt joined and orphans placed. table: the spans."""
    parent, nested = nest_siblings(nodes)
    parent, joined = join(nodes, table, parent)
    parent, placed = place_orphans(nodes, parent)
    parent = _cut_cycles(nodes, parent)
    levels = levels_of(parent)
    prompt = _prompts(nodes, parent, levels)
    parent, adopted = _adopt(nodes, parent, prompt)
    if adopted.any():
        levels = levels_of(parent)
        prompt = _prompts(nodes, parent, levels)
    none = np.full(len(nodes), NONE, dtype=np.int64)
    tree = Tree(
        levels=levels,
        parent=parent,
        prompt=prompt,
        stage=_stages(nodes, parent, levels, prompt),
        staged_parent=none.copy(),
        depth=np.zeros(len(nodes), dtype=np.int64),
        entry=np.arange(len(nodes), dtype=np.int64),
        caller=none.copy(),
        server=none.copy(),
        workflow=none.copy(),
        nearest_agent=none.copy(),
        host=nodes.host.copy(),
        repaired=nested | placed | adopted | (joined > 0),
        joined=np.where(placed | adopted, BY_TIME, joined),
    )
    _descend(nodes, tree)
    return tree


def levels_of(parent: Ints) -> list[Ints]:
    """Node indices by distance from their root; `parent` must hold no cycle."""
    order = np.argsort(parent, kind="stable").astype(np.int64)
    children = np.bincount(parent[parent != NONE], minlength=len(parent)).astype(np.int64)
    begin = np.count_nonzero(parent == NONE) + np.cumsum(children) - children
    levels = []
    level = np.flatnonzero(parent == NONE).astype(np.int64)
    while len(level):
        levels.append(level)
        level = order[spans_of(begin[level], children[level])]
    return levels


def _cut_cycles(nodes: Nodes, parent: Ints) -> Ints:
    """Parents without cycles: each cycle loses the parent of its earliest node."""
    jump = np.where(parent == NONE, np.arange(len(parent)), parent)
    by_start = np.lexsort((np.arange(len(parent)), nodes.start))
    lowest = np.empty(len(parent), dtype=np.int64)
    lowest[by_start] = np.arange(len(parent))
    # Each round doubles the steps climbed; with as many steps as nodes everyone stands on a root or on a cycle.
    for _ in range(len(parent).bit_length()):
        lowest = np.minimum(lowest, lowest[jump])
        jump = jump[jump]
    on_cycle = np.unique(jump[parent[jump] != NONE])
    if len(on_cycle) == 0:
        return parent
    parent = parent.copy()
    parent[by_start[np.unique(lowest[on_cycle])]] = NONE
    return parent


def _prompts(nodes: Nodes, parent: Ints, levels: list[Ints]) -> Ints:
    """The root of each node's prompt: its outermost inference ancestor, or itself; -1 outside of prompts."""
    prompt = np.where(nodes.inference, np.arange(len(nodes)), NONE).astype(np.int64)
    for level in levels[1:]:
        above = prompt[parent[level]]
        prompt[level] = np.where(above != NONE, above, prompt[level])
    return prompt


def _adopt(nodes: Nodes, parent: Ints, prompt: Ints) -> tuple[Ints, Bools]:
    """Stage spans that lost their parent go to the prompt of their trace, if it has exactly one."""
    adopted = np.zeros(len(nodes), dtype=np.bool_)
    lost = np.flatnonzero(nodes.orphan & (parent == NONE) & (prompt == NONE) & (nodes.stage > 0))
    if len(lost) == 0:
        return parent, adopted
    roots = np.flatnonzero(prompt == np.arange(len(nodes)))
    traces = int(nodes.trace.max()) + 1
    prompts = np.bincount(nodes.trace[roots], minlength=traces)
    root_of_trace = np.full(traces, NONE, dtype=np.int64)
    root_of_trace[nodes.trace[roots]] = roots
    lost = lost[prompts[nodes.trace[lost]] == 1]
    parent = parent.copy()
    parent[lost] = root_of_trace[nodes.trace[lost]]
    adopted[lost] = True
    return parent, adopted


def _stages(nodes: Nodes, parent: Ints, levels: list[Ints], prompt: Ints) -> Ints:
    """Stage codes: `inbound` becomes a gateway where a call leaves it, else a server; a root's call is the client's."""
    stage = np.where(prompt == NONE, 0, nodes.stage).astype(np.int64)
    stage[nodes.inference & (stage == 0) & nodes.server_kind] = _INBOUND
    stage[nodes.inference & (stage == 0)] = STAGE_CODE[Stage.CALL]
    leaves = np.zeros(len(nodes), dtype=np.bool_)
    passes_on = IS_CALLER[stage] | IS_RELAY[stage]
    served = (stage == _SERVER) | (stage == _INBOUND)
    for level in reversed(levels[1:]):
        above = parent[level]
        # A server span of the same service is the server's own view of the request, not another hop.
        elsewhere = served[level] & (nodes.service[level] != nodes.service[above])
        np.logical_or.at(leaves, above, leaves[level] | passes_on[level] | elsewhere)
    inbound = stage == _INBOUND
    stage[inbound & leaves] = STAGE_CODE[Stage.GATEWAY]
    stage[inbound & ~leaves] = _SERVER
    root = prompt == np.arange(len(nodes))
    stage[root & (stage == STAGE_CODE[Stage.CALL])] = STAGE_CODE[Stage.CLIENT]
    # A root owns whatever nothing else does, so its stage must be one that counts before the first token.
    stage[root & ((stage == STAGE_CODE[Stage.DECODE]) | (stage == STAGE_CODE[Stage.LOAD]))] = _SERVER
    return stage


def _descend(nodes: Nodes, tree: Tree) -> None:
    """Fill what is inherited from above, level by level."""
    stage = tree.stage
    root = tree.prompt == np.arange(len(nodes))
    staged = stage > 0
    is_server = stage == _SERVER
    calls = IS_CALLER[stage]
    for number, level in enumerate(tree.levels):
        if number == 0:
            tree.server[level] = np.where(is_server[level], level, NONE)
            continue
        above = tree.parent[level]
        inside = ~root[level]
        tree.staged_parent[level] = np.where(inside, np.where(staged[above], above, tree.staged_parent[above]), NONE)
        tree.depth[level] = np.where(inside, tree.depth[above] + staged[above], 0)
        new_hop = nodes.process[level] != nodes.process[above]
        new_hop |= nodes.server_kind[level] & calls[above]
        tree.entry[level] = np.where(new_hop | ~inside, level, tree.entry[above])
        is_caller = calls[above] | (tree.entry[above] == above)
        tree.caller[level] = np.where(inside, np.where(is_caller, above, tree.caller[above]), NONE)
        tree.server[level] = np.where(is_server[level], level, np.where(inside, tree.server[above], NONE))
        agent = np.where(nodes.agent[above], above, NONE)
        tree.workflow[level] = np.where(tree.workflow[above] != NONE, tree.workflow[above], agent)
        tree.nearest_agent[level] = np.where(agent != NONE, agent, tree.nearest_agent[above])
        one_host = (nodes.host[level] == nodes.host[above]) | (new_hop & calls[above] & nodes.loopback[above])
        tree.host[level] = np.where(one_host, tree.host[above], nodes.host[level])
