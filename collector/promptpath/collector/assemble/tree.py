"""Who is whose parent, what is a prompt, which hop a span belongs to.

A prompt's root is the outermost inference span; inference spans under it are hops and attempts of the same prompt.
Cycles and missing parents survive: a cycle is cut at its earliest span, a span whose parent is missing starts a tree
of its own unless `repair` finds where it belongs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from promptpath.collector.assemble.climb import by_height, heights, mark_above, nearest, outermost
from promptpath.collector.assemble.join_trees import RANK
from promptpath.collector.assemble.joins import join
from promptpath.collector.assemble.keys import BY_TIME
from promptpath.collector.assemble.nodes import Nodes
from promptpath.collector.assemble.offsets import ClockPool
from promptpath.collector.assemble.ragged import NONE
from promptpath.collector.assemble.repair import nest_siblings, place_orphans
from promptpath.collector.assemble.schema import INBOUND, IS_CALLER, IS_RELAY, NO_NS, STAGE_CODE, Bools, Ints
from promptpath.collector.assemble.sorting import order_by
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


@dataclass
class Links:
    """Parents as the spans name them, siblings nested and trees of one prompt joined; arrays of shape (n,).

    nested: nodes put under a sibling. joined: by what a node was joined, as in `Tree`.
    """

    parent: Ints
    nested: Bools
    joined: Ints


def link(nodes: Nodes, table: pa.Table, clocks: ClockPool | None = None) -> Links:
    """Who belongs to whom across siblings and traces. table: the spans. clocks: what is known of offsets."""
    parent, nested = nest_siblings(nodes)
    parent, joined = join(nodes, table, parent, clocks)
    return Links(parent, nested, joined)


def build(nodes: Nodes, links: Links) -> Tree:
    """The tree of `nodes`, orphans placed."""
    parent, placed = place_orphans(nodes, links.parent)
    parent, height = _cut_cycles(nodes, parent)
    prompt = _prompts(nodes, parent)
    parent, adopted, nobody = _adopt(nodes, parent, prompt)
    if adopted.any():
        height, _ = heights(parent)
        prompt = _prompts(nodes, parent)
    prompt[np.isin(prompt, nobody)] = NONE
    stage = _stages(nodes, parent, prompt)
    root = prompt == nodes.own
    inside = np.where(root | (prompt == NONE), NONE, parent)
    staged_parent = nearest(inside, stage > 0)
    calls = IS_CALLER[stage]
    entry = _entries(nodes, inside, calls)
    is_server = stage == _SERVER
    workflow, nearest_agent = _agents(nodes, parent)
    return Tree(
        levels=by_height(height),
        parent=parent,
        prompt=prompt,
        stage=stage,
        staged_parent=staged_parent,
        depth=_depths(prompt, stage, height, staged_parent),
        entry=entry,
        caller=nearest(inside, calls | (entry == nodes.own)),
        server=nearest(np.where(is_server, nodes.own, inside), is_server),
        workflow=workflow,
        nearest_agent=nearest_agent,
        host=_hosts(nodes, parent, calls),
        repaired=links.nested | placed | adopted | (links.joined > 0),
        joined=np.where(placed | adopted, BY_TIME, links.joined),
    )


def orphans(nodes: Nodes, prompt: Ints) -> int:
    """How many spans that belong to some prompt, for they have a stage or are inference calls, lost their parent and
    are in none. prompt: as in `Tree`."""
    lost = np.flatnonzero(nodes.orphan & (prompt == NONE) & ~nodes.agent)
    stage = nodes.stage[lost]
    return int(np.count_nonzero(nodes.inference[lost] | ((stage > 0) & (stage != STAGE_CODE[Stage.LOAD]))))


def _depths(prompt: Ints, stage: Ints, height: Ints, staged_parent: Ints) -> Ints:
    """How many nodes with a stage are above each, in its prompt."""
    inside = prompt != NONE
    if (stage[inside] > 0).all():
        return np.where(inside, height - height[prompt], 0)
    return heights(staged_parent)[0]


def _cut_cycles(nodes: Nodes, parent: Ints) -> tuple[Ints, Ints]:
    """Parents without cycles, each cycle without the parent of its earliest node; and how many nodes are above each."""
    height, circling = heights(parent)
    if len(circling) == 0:
        return parent, height
    jump = np.where(parent == NONE, np.arange(len(parent)), parent)
    by_start = circling[order_by(nodes.start[circling])]
    lowest = np.full(len(parent), len(circling), dtype=np.int64)
    lowest[by_start] = np.arange(len(circling))
    # Each round doubles the steps climbed; with as many steps as nodes everyone stands on a cycle.
    for _ in range(len(circling).bit_length()):
        ahead = jump[circling]
        lowest[circling] = np.minimum(lowest[circling], lowest[ahead])
        jump[circling] = jump[ahead]
    on_cycle = np.unique(jump[circling])
    parent = parent.copy()
    parent[by_start[np.unique(lowest[on_cycle])]] = NONE
    return parent, heights(parent)[0]


def _prompts(nodes: Nodes, parent: Ints) -> Ints:
    """The root of each node's prompt: its outermost inference ancestor, or itself; -1 outside of prompts."""
    own = nodes.own
    closest = nearest(np.where(nodes.inference, own, parent), nodes.inference)
    above = np.where(parent == NONE, NONE, closest[parent])
    outer = nodes.inference & (above == NONE)
    return nearest(np.where(outer, own, np.where(nodes.inference, above, closest)), outer)


def _adopt(nodes: Nodes, parent: Ints, prompt: Ints) -> tuple[Ints, Bools, Ints]:
    """Spans that lost their parent go to the prompt of their trace, if it has exactly one. Returns the parents, which
    nodes were adopted, and the roots that are no prompts.

    An inference span among them is a hop of a prompt that is there, unless it is a call of the process that a prompt
    came from: then the root of another prompt is what is lost. Where there are several prompts and nothing says whose
    hop it is, it is nobody's, rather than one prompt too many; but where each of them was served all the way, it is
    what is left of another prompt.
    """
    root = prompt == nodes.own
    alone = nodes.orphan & (parent == NONE) & (nodes.parent_key != nodes.own)
    lost = np.flatnonzero(alone & ((prompt == NONE) | root) & (nodes.stage > 0))
    adopted = np.zeros(len(nodes), dtype=np.bool_)
    if len(lost) == 0:
        return parent, adopted, lost
    firm = np.flatnonzero(root & ~alone)
    traces = int(nodes.trace.max()) + 1
    of_trace = np.bincount(nodes.trace[firm], minlength=traces)
    width = int(nodes.process.max()) + 1
    from_outside = root[lost] & ~nodes.server_kind[lost]
    from_outside &= np.isin(
        nodes.trace[lost] * width + nodes.process[lost], nodes.trace[firm] * width + nodes.process[firm]
    )
    # Where every prompt's root is lost, the outermost spans that are left stand for them.
    top = _outermost_left(nodes, np.flatnonzero(root & ~(alone & (of_trace[nodes.trace] > 0))), of_trace)
    root_of_trace = np.full(traces, NONE, dtype=np.int64)
    root_of_trace[nodes.trace[top]] = top
    only = np.bincount(nodes.trace[top], minlength=traces) == 1
    # Not what holds the prompt: it is around it, not in it.
    into = root_of_trace[nodes.trace[lost]]
    fits = only[nodes.trace[lost]] & (into != lost) & (outermost(parent)[into] != lost) & ~from_outside
    nobody = lost[root[lost] & ~from_outside & (of_trace[nodes.trace[lost]] > 1)]
    nobody = nobody[_may_lack_a_hop(nodes, parent, prompt, firm, nobody)]
    into = np.where(fits, _silent_relays(nodes, parent, prompt, lost, into), into)
    parent = parent.copy()
    parent[lost[fits]] = into[fits]
    adopted[lost[fits]] = True
    return parent, adopted, nobody


def _may_lack_a_hop(nodes: Nodes, parent: Ints, prompt: Ints, firm: Ints, lost: Ints) -> Bools:
    """Whether some prompt of the trace of each span in `lost` may have called it: one of its calls or relays failed, or
    nobody is known to have answered it. Shape of `lost`."""
    if len(lost) == 0:
        return np.zeros(0, dtype=np.bool_)
    is_firm = np.zeros(len(nodes), dtype=np.bool_)
    is_firm[firm] = True
    inside = (prompt != NONE) & is_firm[prompt]
    busy = _answered(nodes, parent, prompt)
    calls = IS_CALLER[nodes.stage] | (IS_RELAY[nodes.stage] & nodes.server_kind)
    open_ended = inside & calls & (nodes.failed | ~busy)
    return np.isin(nodes.trace[lost], nodes.trace[open_ended])


def _silent_relays(nodes: Nodes, parent: Ints, prompt: Ints, lost: Ints, root: Ints) -> Ints:
    """Of each span that lost its parent the hop that must have called it: the innermost relay of the prompt at `root`
    that did not fail, if of one only nobody is known to have answered it and it lasted long enough; of a span that
    failed the only innermost relay, which may have called another since; else `root`. Shape of `lost`."""
    relay = IS_RELAY[nodes.stage] & nodes.server_kind & (prompt != NONE) & ~nodes.failed
    if not relay.any():
        return root
    innermost = relay & ~mark_above(parent, np.flatnonzero(relay))

    def only(chosen: Bools) -> Ints:
        """Of each root in `root` the one chosen node of its prompt; -1 if there are none or several."""
        node = np.flatnonzero(chosen)
        of_root = np.full(len(nodes), NONE, dtype=np.int64)
        of_root[prompt[node]] = node
        return np.where(np.bincount(prompt[node], minlength=len(nodes))[root] == 1, of_root[root], NONE)

    found = only(innermost & ~_answered(nodes, parent, prompt))
    found = np.where(nodes.failed[lost], only(innermost), found)
    long_enough = nodes.end[lost] - nodes.start[lost] <= nodes.end[found] - nodes.start[found]
    called = nodes.server_kind[lost] & nodes.inference[lost] & (nodes.process[lost] != nodes.process[found])
    return np.where((found != NONE) & called & long_enough, found, root)


def _answered(nodes: Nodes, parent: Ints, prompt: Ints) -> Bools:
    """Spans of prompts below which another process was seen at work, and did not fail; shape (n,)."""
    answers = (prompt != NONE) & (parent != NONE) & (nodes.process != nodes.process[parent]) & ~nodes.failed
    return mark_above(parent, np.flatnonzero(answers))


def _outermost_left(nodes: Nodes, top: Ints, of_trace: Ints) -> Ints:
    """Of spans that stand for lost roots the one that is surely further out than the others of its trace, if one is: by
    what it is and by how long it took."""
    loose = of_trace[nodes.trace[top]] == 0
    trace, rank = nodes.trace[top], RANK[nodes.stage[top]]
    lowest = np.full(len(of_trace), RANK.max() + 1, dtype=np.int64)
    np.minimum.at(lowest, trace[loose], rank[loose])
    first = loose & (rank == lowest[trace])
    alone = np.bincount(trace[first], minlength=len(of_trace)) == 1
    length = nodes.end[top] - nodes.start[top]
    longest = np.zeros(len(of_trace), dtype=np.int64)
    longest[trace[first]] = length[first]
    kept: Ints = top[~loose | first | ~alone[trace] | (length > longest[trace])]
    return kept


def _stages(nodes: Nodes, parent: Ints, prompt: Ints) -> Ints:
    """Stage codes: `inbound` becomes a gateway where a call leaves it, else a server, or nothing where it says nothing;
    a root's call is the client's."""
    stage = np.where(prompt == NONE, 0, nodes.stage).astype(np.int64)
    unnamed = nodes.inference & (stage == 0)
    stage[unnamed] = np.where(nodes.server_kind[unnamed], _INBOUND, STAGE_CODE[Stage.CALL])
    inbound = np.flatnonzero(stage == _INBOUND)
    if len(inbound):
        bare = _bare_views(nodes, parent, prompt, stage, inbound)
        stage[bare] = 0
        inbound = inbound[stage[inbound] > 0]
        served = (stage == _SERVER) | (stage == _INBOUND)
        # A server span of the same service is the server's own view of the request, not another hop.
        leaves = IS_CALLER[stage] | IS_RELAY[stage] | (served & (nodes.service != nodes.service[parent]))
        passes_on = mark_above(parent, np.flatnonzero(leaves & (parent != NONE)))
        stage[inbound] = np.where(passes_on[inbound], STAGE_CODE[Stage.GATEWAY], _SERVER)
    root = np.flatnonzero(prompt == nodes.own)
    of_root = stage[root]
    of_root[of_root == STAGE_CODE[Stage.CALL]] = STAGE_CODE[Stage.CLIENT]
    # A root owns whatever nothing else does, so its stage must be one that counts before the first token.
    of_root[(of_root == STAGE_CODE[Stage.DECODE]) | (of_root == STAGE_CODE[Stage.LOAD])] = _SERVER
    stage[root] = of_root
    return stage


def _bare_views(nodes: Nodes, parent: Ints, prompt: Ints, stage: Ints, inbound: Ints) -> Ints:
    """Those of `inbound` that are another view of the request that the server span around them is of, in one process,
    and of which nothing more is known: they are no hop, and no time is theirs."""
    above = parent[inbound]
    bare = (prompt[inbound] != inbound) & (above != NONE) & (nodes.process[inbound] == nodes.process[above])
    bare &= nodes.server_kind[inbound] & nodes.server_kind[above] & (nodes.first[inbound] == NO_NS)
    bare &= IS_RELAY[stage[above]] | (stage[above] == _SERVER) | (stage[above] == _INBOUND)
    inbound = inbound[bare]
    if len(inbound) == 0:
        return inbound
    return inbound[~mark_above(parent, np.flatnonzero((stage > 0) & (parent != NONE)))[inbound]]


def _entries(nodes: Nodes, inside: Ints, calls: Bools) -> Ints:
    """The node with which the prompt entered each node's hop. inside: parents within the prompt, -1 for none."""
    new_hop = nodes.process != nodes.process[inside]
    new_hop |= nodes.server_kind & calls[inside]
    new_hop |= inside == NONE
    return nearest(np.where(new_hop, nodes.own, inside), new_hop)


def _hosts(nodes: Nodes, parent: Ints, calls: Bools) -> Ints:
    """Host codes; where a call went to a loopback address, the callee's host is the caller's."""
    if not nodes.loopback.any():
        return nodes.host.copy()
    new_hop = (nodes.process != nodes.process[parent]) | (nodes.server_kind & calls[parent])
    other = (nodes.host != nodes.host[parent]) & ~(new_hop & calls[parent] & nodes.loopback[parent])
    other |= parent == NONE
    return nodes.host[nearest(np.where(other, nodes.own, parent), other)]


def _agents(nodes: Nodes, parent: Ints) -> tuple[Ints, Ints]:
    """The outermost and the innermost agent span above each node."""
    if not nodes.agent.any():
        none = np.full(len(nodes), NONE, dtype=np.int64)
        return none, none.copy()
    closest = nearest(parent, nodes.agent)
    return np.where(closest == NONE, NONE, outermost(closest)[closest]), closest
