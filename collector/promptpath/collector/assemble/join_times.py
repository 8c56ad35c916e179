"""Whether two spans may be of one request by their times, as far as their clocks are known."""

from __future__ import annotations

from typing import Final

import numpy as np

from promptpath.collector.assemble.nodes import Nodes
from promptpath.collector.assemble.offsets import NO_BOUND_NS, Bounds, ClockPool
from promptpath.collector.assemble.schema import Ints

#: By how much the clocks of two hosts may differ for their spans to be of one request.
TOLERANCE_NS: Final = 15_000_000_000
#: How late or early clocks of one host may be read.
ONE_HOST_NS: Final = 1_000_000
#: Where an offset is known, by so much more than its error two spans of one request may still miss each other: ends
#: are noted late, work is handed on.
_SURE_NS: Final = 100_000_000


def overlap(nodes: Nodes, one: Ints, other: Ints, ahead: Ints | int = 0) -> Ints:
    """For how long two spans overlap as their clocks say; negative: how far apart they are. ahead: of the first's
    clock."""
    ends = np.minimum(nodes.end[one] - ahead, nodes.end[other])
    overlap: Ints = ends - np.maximum(nodes.start[one] - ahead, nodes.start[other])
    return overlap


def apart(nodes: Nodes, one: Ints, other: Ints, clocks: ClockPool | None) -> tuple[Ints, Ints]:
    """By how much the first span's clock is ahead of the other's, and how wrong that may be [ns]."""
    offset, error = np.zeros(len(one), dtype=np.int64), np.full(len(one), TOLERANCE_NS, dtype=np.int64)
    across = np.flatnonzero(nodes.host[one] != nodes.host[other])
    if clocks is None or len(across) == 0:
        return offset, error
    # The codes of hosts rank their names. Instants are told on the clock of the host named first.
    first, second = nodes.host[one[across]], nodes.host[other[across]]
    forward = first > second
    at = np.where(forward, nodes.start[other[across]], nodes.start[one[across]])
    any_low, any_high = np.full(len(across), NO_BOUND_NS), np.full(len(across), -NO_BOUND_NS)
    pair = np.minimum(first, second), np.maximum(first, second)
    found, wrong, known = clocks.offsets(Bounds(nodes.host_names, *pair, at, any_low, any_high))
    known &= wrong + _SURE_NS < TOLERANCE_NS
    offset[across[known]] = np.where(forward, found, -found)[known]
    error[across[known]] = wrong[known] + _SURE_NS
    return offset, error
