"""From spans in true time to requests: each process's clock is read, spans are batched, some come late, twice or never.

As real exporters do, each process sends what has ended every half second, so that a prompt's spans are split over
requests and hops overtake each other.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np

from promptpath.collector.simulate.encode import Encoder
from promptpath.collector.simulate.scenario import Scenario
from promptpath.collector.simulate.spans import Span
from promptpath.collector.simulate.stack import Node

_RHYTHM_NS: Final = 500_000_000
_REQUEST_SPANS: Final = 512


class Sink(Protocol):
    """Takes requests. `write`: one, encoded as the sink's encoder does, and how many spans it holds."""

    encoder: Encoder

    def write(self, body: bytes, spans: int) -> None: ...

    def close(self) -> None: ...


@dataclass
class Counts:
    """What was sent: requests; spans made, lost, sent late, sent twice."""

    requests: int = 0
    spans: int = 0
    lost: int = 0
    late: int = 0
    doubled: int = 0


@dataclass(eq=False, slots=True)
class _Batch:
    """Spans of one process that go out at one time; per sink and scope."""

    node: Node
    size: int
    scopes: list[dict[str, list[bytes]]] = field(default_factory=list)


class Exporter:
    """Sends spans to sinks, in the order of simulated time."""

    def __init__(self, scenario: Scenario, sinks: list[Sink]) -> None:
        self.counts = Counts()
        self._scenario = scenario
        self._sinks = sinks
        self._rng = random.Random(f"{scenario.seed} export")
        self._batches: dict[tuple[int, int], _Batch] = {}
        self._due: list[tuple[int, int, tuple[int, int]]] = []
        self._made = 0

    def add(self, spans: Iterable[Span]) -> bool:
        """Take spans that have ended. Returns whether all of them are sent."""
        scenario, rng, counts = self._scenario, self._rng, self.counts
        whole = True
        for span in spans:
            counts.spans += 1
            chance = rng.random()
            if chance < scenario.lost:
                counts.lost += 1
                whole = False
                continue
            encoded = self._encode(span)
            at = span.end_ns
            if rng.random() < scenario.late:
                counts.late += 1
                at += int(rng.uniform(1.0, max(1.0, scenario.late_s)) * 1e9)
            self._put(span, at, encoded)
            if rng.random() < scenario.doubled:
                counts.doubled += 1
                self._put(span, at + int(rng.choice((0, 1, 5)) * 1e9), encoded)
        return whole

    def flush(self, until_ns: int) -> None:
        """Send everything that is due before an instant: nothing that ended before it will be added any more."""
        while self._due and self._due[0][0] <= until_ns:
            _, _, key = heapq.heappop(self._due)
            self._send(self._batches.pop(key))

    def close(self) -> None:
        """Send the rest and close the sinks."""
        while self._due:
            _, _, key = heapq.heappop(self._due)
            self._send(self._batches.pop(key))
        for sink in self._sinks:
            sink.close()

    def _put(self, span: Span, at_ns: int, encoded: list[bytes]) -> None:
        node = span.node
        beat = (at_ns + node.phase_ns) // _RHYTHM_NS + 1
        key = (node.number, beat)
        batch = self._batches.get(key)
        if batch is None:
            batch = self._batches[key] = _Batch(node, 0, [{} for _ in self._sinks])
            self._made += 1
            due = beat * _RHYTHM_NS - node.phase_ns + int(self._rng.uniform(0, 0.3e9))
            heapq.heappush(self._due, (due, self._made, key))
        batch.size += 1
        for scopes, body in zip(batch.scopes, encoded, strict=True):
            scopes.setdefault(span.scope, []).append(body)

    def _encode(self, span: Span) -> list[bytes]:
        clock = span.node.host.clock
        start = clock.read(span.start_ns, span.since_ns)
        end = clock.read(span.end_ns, span.since_ns)
        gaps = counts = None
        found = span.found
        if found is not None and len(found):
            offsets = clock.elapsed(span.start_ns, found.at_ns)
            offsets += 500
            offsets //= 1000
            # From the start to the first, then from each to the next; rounding does not add up.
            gaps = np.diff(offsets, prepend=0)
            np.maximum(gaps, 0, out=gaps)
            if int(found.tokens.max()) > 1:
                counts = found.tokens
        return [sink.encoder.span(span, start, end, gaps, counts) for sink in self._sinks]

    def _send(self, batch: _Batch) -> None:
        for index, sink in enumerate(self._sinks):
            for scopes, size in _split(batch.scopes[index]):
                sink.write(sink.encoder.request(batch.node.resource, scopes), size)
                if index == 0:
                    self.counts.requests += 1


def _split(scopes: dict[str, list[bytes]]) -> Iterable[tuple[dict[str, list[bytes]], int]]:
    """Requests of a bounded number of spans each."""
    total = sum(map(len, scopes.values()))
    if total <= _REQUEST_SPANS:
        yield scopes, total
        return
    flat = [(scope, span) for scope, spans in scopes.items() for span in spans]
    for first in range(0, len(flat), _REQUEST_SPANS):
        some: dict[str, list[bytes]] = {}
        for scope, span in flat[first : first + _REQUEST_SPANS]:
            some.setdefault(scope, []).append(span)
        yield some, min(_REQUEST_SPANS, len(flat) - first)
