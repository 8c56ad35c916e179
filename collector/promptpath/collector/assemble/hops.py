"""The processes and hosts that a prompt passed, in the order it passed them, and the GPUs that served it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from promptpath.collector.assemble.clock import Axis
from promptpath.collector.assemble.delivery import Prompts
from promptpath.collector.assemble.nodes import Nodes
from promptpath.collector.assemble.ragged import codes_of, firsts, list_array, spans_of
from promptpath.collector.assemble.schema import Ints
from promptpath.collector.assemble.tree import Tree


def build(nodes: Nodes, tree: Tree, axis: Axis, prompts: Prompts, gpu_uuids: pa.Array) -> dict[str, pa.Array]:
    """The columns `hops`, `hosts` (parallel) and `gpu_uuids`, m rows each."""
    entry = np.unique(tree.entry[prompts.order])
    start = nodes.start[entry] + axis.shift[entry]
    order = entry[np.lexsort((entry, tree.depth[entry], start, prompts.of[entry]))]
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
        "gpu_uuids": _gpus(nodes, prompts, gpu_uuids),
    }


def _first_of_each(prompt: Ints, value: Ints) -> Ints:
    """Positions of the first occurrence of each (prompt, value), in order."""
    order = np.lexsort((np.arange(len(value)), value, prompt))
    width = int(value.max()) + 1 if len(value) else 1
    return np.sort(order[firsts(prompt[order] * width + value[order])])


def _gpus(nodes: Nodes, prompts: Prompts, column: pa.Array) -> pa.Array:
    """The GPUs named by the resources of each prompt's spans, sorted."""
    offsets = column.offsets.to_numpy().astype(np.int64)
    codes, names = codes_of(column.values)
    count = (offsets[1:] - offsets[:-1])[nodes.row[prompts.order]]
    code = codes[spans_of(offsets[nodes.row[prompts.order]], count)]
    prompt = np.repeat(prompts.of[prompts.order], count)
    order = np.lexsort((code, prompt))
    prompt, code = prompt[order], code[order]
    first = firsts(prompt * (len(names) + 1) + code)
    uuids = pa.array(names, type=pa.string()).take(pa.array(code[first]))
    return list_array(prompt[first], uuids, len(prompts))
