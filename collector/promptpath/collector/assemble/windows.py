"""Large batches in windows of whole prompts, so that what is worked on stays in a processor's cache."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any, Final

import numpy as np
import pyarrow as pa

from promptpath.collector.assemble.nodes import Nodes
from promptpath.collector.assemble.ragged import NONE
from promptpath.collector.assemble.schema import Bools, Ints
from promptpath.collector.assemble.sorting import order_by
from promptpath.collector.assemble.tree import Links

#: Nodes of a window, unless one trace, or several joined, have more.
_WINDOW: Final = 50_000


def split(nodes: Nodes, links: Links) -> Iterator[tuple[Nodes, Links]]:
    """The nodes in windows: traces are never split, nor those that links join apart. Windows are by trace."""
    count = len(nodes)
    if count <= _WINDOW:
        yield nodes, links
        return
    window = _windows(nodes, links)[nodes.trace]
    order = order_by(window)
    ordered = window[order]
    cuts = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
    # Without parts of spans, which stand behind all spans, and without joined traces this is the order they have.
    in_place = bool((order[1:] > order[:-1]).all())
    local = np.full(count + 1, NONE, dtype=np.int64)
    for low, high in zip([0, *cuts.tolist()], [*cuts.tolist(), count], strict=True):
        chosen: slice | Ints = slice(low, high) if in_place else order[low:high]
        local[:-1][chosen] = np.arange(high - low, dtype=np.int64)
        yield _part(nodes, chosen, local), _links(links, chosen, local)


def _windows(nodes: Nodes, links: Links) -> Ints:
    """The window of each trace."""
    size = np.bincount(nodes.trace)
    window = (np.cumsum(size) - size) // _WINDOW
    child = np.flatnonzero(links.parent != NONE)
    ends = nodes.trace[child], nodes.trace[links.parent[child]]
    across = np.flatnonzero(ends[0] != ends[1])
    one, other = ends[0][across], ends[1][across]
    # Joined traces go where the first of them is.
    while True:
        lowest = np.minimum(window[one], window[other])
        before = window.copy()
        np.minimum.at(window, one, lowest)
        np.minimum.at(window, other, lowest)
        if np.array_equal(before, window):
            return window


def _part(nodes: Nodes, chosen: slice | Ints, local: Ints) -> Nodes:
    values: dict[str, Any] = {}
    places = np.arange(chosen.start, chosen.stop) if isinstance(chosen, slice) else chosen
    spans = places < nodes.spans
    for field in fields(Nodes):
        value = getattr(nodes, field.name)
        values[field.name] = value[chosen] if isinstance(value, np.ndarray) else value
    values["spans"] = int(np.count_nonzero(spans))
    values["trace"] = values["trace"] - values["trace"].min()
    # Parents that are not there are numbered behind the spans.
    key = values["parent_key"]
    absent = len(values["owner"]) + key - nodes.spans
    values["parent_key"] = np.where(key < nodes.spans, local[np.minimum(key, len(nodes))], absent)
    values["owner"] = local[values["owner"]]
    values["parent"] = local[values["parent"]]
    some = chosen if isinstance(chosen, slice) else pa.array(chosen[spans])
    ids = nodes.span_ids
    values["span_ids"] = ids[some] if isinstance(some, slice) else ids.take(some)
    return Nodes(**values)


def _links(links: Links, chosen: slice | Ints, local: Ints) -> Links:
    nested: Bools = links.nested[chosen]
    return Links(local[links.parent[chosen]], nested, links.joined[chosen])
