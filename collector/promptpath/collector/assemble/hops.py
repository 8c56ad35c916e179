"""The processes and hosts that a prompt passed, in the order it passed them, and the GPUs that served it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from promptpath.collector.assemble.clock import Axis
from promptpath.collector.assemble.columns import Columns
from promptpath.collector.assemble.delivery import Prompts
from promptpath.collector.assemble.nodes import Nodes
from promptpath.collector.assemble.ragged import list_array, spans_of
from promptpath.collector.assemble.schema import Ints
from promptpath.collector.assemble.sorting import order_by, runs
from promptpath.collector.assemble.tree import Tree


def build(nodes: Nodes, tree: Tree, axis: Axis, prompts: Prompts, columns: Columns) -> dict[str, pa.Array]:
    """The columns `hops`, `hosts` (parallel) and `gpu_uuids`, m rows each."""
    is_entry = np.zeros(len(nodes), dtype=np.bool_)
    is_entry[tree.entry[prompts.order]] = True
    entry = np.flatnonzero(is_entry)
    of = prompts.of[entry]
    start = nodes.start[entry] + axis.shift[entry] - nodes.start[prompts.root][of]
    order = entry[order_by(of, start, tree.depth[entry])]
    width = len(nodes.host_names) + 1
    hop = nodes.service[order] * width + tree.host[order]
    # One service on one host is one hop, however often the prompt came by (attempts on the same replica, say).
    first = _first_of_each(prompts.of[order], hop)
    order = order[first]
    services = pa.array(nodes.service_names, type=pa.string()).take(pa.array(nodes.service[order]))
    hosts = pa.array(nodes.host_names, type=pa.string()).take(pa.array(tree.host[order]))
    return {
        "hops": list_array(prompts.of[order], services, len(prompts)),
        "hosts": list_array(prompts.of[order], hosts, len(prompts)),
        "gpu_uuids": _gpus(nodes, prompts, columns),
    }


def _first_of_each(prompt: Ints, value: Ints) -> Ints:
    """Positions of the first occurrence of each (prompt, value), in order."""
    order = order_by(prompt, value)
    return np.sort(order[runs(prompt[order], value[order])])


def _gpus(nodes: Nodes, prompts: Prompts, columns: Columns) -> pa.Array:
    """The GPUs named by the resources of each prompt's spans, sorted."""
    offsets = columns["gpu_uuids"].offsets.to_numpy()
    codes, names = columns.ranked("gpu_uuids")
    node = prompts.order[columns.filled("gpu_uuids")[nodes.row[prompts.order]]]
    begin = offsets[nodes.row[node]].astype(np.int64)
    count = offsets[nodes.row[node] + 1] - begin
    code = codes[spans_of(begin, count)]
    prompt = np.repeat(prompts.of[node], count)
    order = order_by(prompt, code)
    prompt, code = prompt[order], code[order]
    first = runs(prompt, code)
    uuids = pa.array(names, type=pa.string()).take(pa.array(code[first]))
    return list_array(prompt[first], uuids, len(prompts))
