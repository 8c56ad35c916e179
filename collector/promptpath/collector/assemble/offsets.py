"""What the clocks of two hosts differ by, pooled over the requests between them.

Every request and its answer bound the difference from both sides: it was sent before it came, and answered before the
answer came back (t1 - t0 >= offset >= t2 - t3). As NTP does, only the pairs with the least delay of each second are
kept. All bounds of a sliding window together, each widened by how far two clocks may drift apart until the instant
asked for, give the offset and how wrong it can be. Where bounds contradict each other a clock was set: from there on
the earlier ones say nothing. A single pair that contradicts those before and after it is left out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from promptpath.collector.assemble.ragged import codes_of, ints_of
from promptpath.collector.assemble.schema import Bools, Ints

_S: Final = 1_000_000_000
#: Pairs kept of each second, those with the least delay.
_KEPT: Final = 4
#: Pairs further than this from the instant asked for say nothing of it, unless there is no nearer one.
WINDOW_NS: Final = 20 * _S
#: Pairs older than this before the newest ones are forgotten.
HORIZON_NS: Final = 300 * _S
_MAX_PAIRS: Final = 20_000
#: Pairs looked at to tell a clock that was set from a pair that is wrong.
_WITNESSES: Final = 5
#: A pair of hosts is told anew each so many seconds of its own time.
_TOLD_NS: Final = 10 * _S
_FAR: Final = 1 << 60
#: The low bound of an offset that has none.
NO_BOUND_NS: Final = -_FAR


@dataclass(frozen=True)
class Bounds:
    """Bounds of k offsets, b's clock minus a's: arrays of shape (k,).

    names: of hosts. a, b: codes into them, names[a] < names[b]. at: ns on a's clock. low, high: ns.
    """

    names: list[str]
    a: Ints
    b: Ints
    at: Ints
    low: Ints
    high: Ints

    def take(self, which: Ints) -> Bounds:
        """Some of them."""
        return Bounds(self.names, self.a[which], self.b[which], self.at[which], self.low[which], self.high[which])


@dataclass
class _Pair:
    """What is known of two hosts: bounds by time, and the runs of them that agree (first index of each)."""

    at: Ints
    low: Ints
    high: Ints
    runs: list[tuple[Ints, Ints, Ints]] = field(default_factory=list)
    told: dict[int, tuple[int, int]] = field(default_factory=dict)


class ClockPool:
    """Offsets between hosts, from all bounds that were added. Not for several threads at once.

    drift_ppm: by how much two clocks may run apart.
    """

    def __init__(self, drift_ppm: int = 120) -> None:
        self._ppm = drift_ppm
        self._pairs: dict[tuple[str, str], _Pair] = {}

    def add(self, bounds: Bounds) -> None:
        """Take in more bounds; the same ones again change nothing."""
        for key, which in _by_pair(bounds).items():
            at, low, high = bounds.at[which], bounds.low[which], bounds.high[which]
            known = self._pairs.get(key)
            if known is not None:
                recent = known.at >= int(at.min()) - HORIZON_NS
                at = np.concatenate((known.at[recent], at))
                low, high = np.concatenate((known.low[recent], low)), np.concatenate((known.high[recent], high))
            at, low, high = _least_delays(at, low, high)
            told = known.told if known is not None else {}
            pair = _Pair(at[-_MAX_PAIRS:], low[-_MAX_PAIRS:], high[-_MAX_PAIRS:], told=told)
            pair.runs = self._runs(pair)
            self._pairs[key] = pair

    def offsets(self, bounds: Bounds) -> tuple[Ints, Ints, Bools]:
        """Offset and error of each of `bounds`, pooled; and whether there is one that does not contradict it."""
        offset = np.zeros(len(bounds.at), dtype=np.int64)
        error = np.zeros(len(bounds.at), dtype=np.int64)
        known = np.zeros(len(bounds.at), dtype=np.bool_)
        for key, which in _by_pair(bounds).items():
            pair = self._pairs.get(key)
            if pair is None or not pair.runs:
                continue
            low, high = self._pooled(pair, bounds.at[which])
            offset[which] = (low + high) // 2
            error[which] = (high - low + 1) // 2
            known[which] = (low <= high) & (low <= bounds.high[which]) & (bounds.low[which] <= high)
        return offset, error, known

    def new(self) -> pa.Table:
        """Rows for `clock_offsets`: of each pair and each ten seconds what has become known, or known a good deal
        better, since the last time."""
        rows: list[tuple[str, str, int, int, int, int]] = []
        for (a, b), pair in sorted(self._pairs.items()):
            if len(pair.at) == 0:
                continue
            cell = pair.at // _TOLD_NS
            last = np.append(np.flatnonzero(np.diff(cell)), len(cell) - 1)
            low, high = self._pooled(pair, pair.at[last])
            count = np.diff(np.append(-1, last))
            for index in np.flatnonzero(low <= high).tolist():
                at, error = int(pair.at[last[index]]), int(high[index] - low[index] + 1) // 2
                said_at, said_error = pair.told.get(int(cell[last[index]]), (-1, 0))
                if said_at < 0 or (at > said_at and error < 0.8 * said_error):
                    pair.told[int(cell[last[index]])] = (at, error)
                    rows.append((a, b, at, int(low[index] + high[index]) // 2, error, int(count[index])))
            oldest = int(cell[0])
            pair.told = {one: said for one, said in pair.told.items() if one >= oldest}
        columns = list(zip(*rows, strict=True)) or [()] * 6
        types = (pa.string(), pa.string(), pa.int64(), pa.int64(), pa.int64(), pa.uint32())
        names = ["host_a", "host_b", "at", "offset_ns", "error_ns", "pairs"]
        arrays = [pa.array(column, type=kind) for column, kind in zip(columns, types, strict=True)]
        arrays[2] = arrays[2].cast(pa.timestamp("ns", "UTC"))
        return pa.table(arrays, names=names)

    def _pooled(self, pair: _Pair, at: Ints) -> tuple[Ints, Ints]:
        """The tightest bounds at some instants, from the run of pairs that each instant falls into."""
        starts = np.array([run[0][0] for run in pair.runs[1:]], dtype=np.int64)
        ends = np.array([run[0][-1] for run in pair.runs[:-1]], dtype=np.int64)
        which = np.searchsorted((starts + ends) // 2, at)
        low, high = np.full(len(at), -_FAR, dtype=np.int64), np.full(len(at), _FAR, dtype=np.int64)
        for index in np.unique(which).tolist():
            mine = which == index
            times, lows, highs = pair.runs[index]
            low[mine] = self._greatest(times, lows, at[mine])
            high[mine] = -self._greatest(times, -highs, at[mine])
        return low, high

    def _drift(self, span: Ints) -> Ints:
        return span * self._ppm // 1_000_000

    def _greatest(self, times: Ints, values: Ints, at: Ints) -> Ints:
        """max of values[i] - drift(|at - times[i]|) over those within the window, or the nearest; times sorted."""
        base = int(times[0])
        since, now = self._drift(times - base), self._drift(at - base)
        middle = np.searchsorted(times, at, side="right")
        first = np.minimum(np.searchsorted(times, at - WINDOW_NS), np.maximum(middle - 1, 0))
        last = np.maximum(np.searchsorted(times, at + WINDOW_NS), np.minimum(middle + 1, len(times)))
        before = _greatest_of(values + since, first, middle) - now
        after = _greatest_of(values - since, middle, last) + now
        greatest: Ints = np.maximum(np.maximum(before, after), -_FAR)
        return greatest

    def _runs(self, pair: _Pair) -> list[tuple[Ints, Ints, Ints]]:
        """Stretches of bounds that agree with each other; a new one begins where a clock was set."""
        at, low, high = pair.at, pair.low, pair.high
        runs = []
        while len(at):
            since = self._drift(at - at[0])
            lowest = np.maximum.accumulate(low + since) - since
            highest = np.minimum.accumulate(high - since) + since
            wrong = np.flatnonzero(lowest > highest)
            if len(wrong) == 0:
                runs.append((at, low, high))
                break
            first = int(wrong[0])
            ahead = slice(first + 1, first + 1 + _WITNESSES)
            apart = self._drift(at[ahead] - at[first])
            with_it = (low[first] - apart <= high[ahead]) & (low[ahead] <= high[first] + apart)
            apart = self._drift(at[ahead] - at[first - 1])
            with_others = (lowest[first - 1] - apart <= high[ahead]) & (low[ahead] <= highest[first - 1] + apart)
            if int(with_others.sum()) > int(with_it.sum()):
                keep = np.arange(len(at)) != first
                at, low, high = at[keep], low[keep], high[keep]
                continue
            runs.append((at[:first], low[:first], high[:first]))
            at, low, high = at[first:], low[first:], high[first:]
        return runs


def _greatest_of(values: Ints, first: Ints, last: Ints) -> Ints:
    """max of values[first:last] of each pair of positions, far below where the range is empty."""
    result = np.full(len(first), -2 * _FAR, dtype=np.int64)
    level_of = np.frexp(np.maximum(last - first, 0).astype(np.float64))[1] - 1
    table = values
    for level in range(int(level_of.max(initial=-1)) + 1):
        if level:
            table = np.maximum(table[: -(1 << (level - 1))], table[1 << (level - 1) :])
        chosen = level_of == level
        result[chosen] = np.maximum(table[first[chosen]], table[last[chosen] - (1 << level)])
    return result


def _by_pair(bounds: Bounds) -> dict[tuple[str, str], Ints]:
    """Indices of the bounds of each pair of hosts."""
    codes = bounds.a * len(bounds.names) + bounds.b
    order = np.argsort(codes, kind="stable").astype(np.int64)
    cuts = np.flatnonzero(np.diff(codes[order])) + 1
    groups = [some for some in np.split(order, cuts) if len(some)]
    return {(bounds.names[bounds.a[some[0]]], bounds.names[bounds.b[some[0]]]): some for some in groups}


def _least_delays(at: Ints, low: Ints, high: Ints) -> tuple[Ints, Ints, Ints]:
    """Of each second the distinct bounds that are least apart, by time."""
    second = at // _S
    order = np.lexsort((high, low, at, high - low, second))
    at, low, high, second = at[order], low[order], high[order], second[order]
    same = np.zeros(len(at), dtype=np.bool_)
    same[1:] = (at[1:] == at[:-1]) & (low[1:] == low[:-1]) & (high[1:] == high[:-1])
    at, low, high, second = at[~same], low[~same], high[~same], second[~same]
    begin = np.flatnonzero(np.diff(second, prepend=second[0] - 1))
    place = np.arange(len(at)) - np.repeat(begin, np.diff(np.append(begin, len(at))))
    kept = np.flatnonzero(place < _KEPT)
    kept = kept[np.argsort(at[kept], kind="stable")]
    return at[kept], low[kept], high[kept]


def of_table(rows: pa.Table) -> Bounds:
    """Bounds of stored offsets: `host_a host_b at_ns offset_ns error_ns`."""
    both = pa.concat_arrays([rows[name].combine_chunks().cast(pa.string()) for name in ("host_a", "host_b")])
    codes, names = codes_of(both)
    at, offset, error = (ints_of(rows[name].combine_chunks(), 0) for name in ("at_ns", "offset_ns", "error_ns"))
    return Bounds(names, codes[: len(at)], codes[len(at) :], at, offset - error, offset + error)
