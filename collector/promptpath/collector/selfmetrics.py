"""The collector's figures about itself, in Prometheus's text format."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import Final

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
PREFIX: Final = "promptpath_collector_"
#: Upper bounds of the acknowledgement histogram, in seconds.
ACK_BUCKETS_S: Final = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.0, 2.5, 5.0)

#: Counters that exist from the start, with their help: name -> (help, label names).
COUNTERS: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "requests_total": ("Export requests acknowledged.", ("signal", "protocol")),
    "received_items_total": ("Spans, data points and log records acknowledged.", ("signal", "protocol")),
    "received_bytes_total": ("Bytes of acknowledged requests, in protobuf.", ("signal", "protocol")),
    "refused_requests_total": ("Export requests refused as a whole.", ("signal", "protocol", "reason")),
    "rejected_items_total": ("Invalid items taken out of accepted requests.", ("signal", "protocol")),
    "stored_items_total": ("Spans, data points and log records that storage has.", ("signal",)),
    "stored_segments_total": ("Journal segments that storage has.", ("signal",)),
    "store_failures_total": ("Inserts that failed and are tried again.", ("signal", "kind")),
    "quarantined_requests_total": ("Requests that storage cannot read, taken out of batches.", ("signal", "reason")),
    "quarantined_items_total": ("Items of requests that were taken out of batches.", ("signal", "reason")),
    "sql_queries_total": ("Queries answered by the SQL endpoint.", ("outcome",)),
}

#: One sample at the time of a scrape: (name, help, type, [(labels, value)]).
Sample = tuple[str, str, str, list[tuple[dict[str, str], float]]]


class SelfMetrics:
    """Counters, the acknowledgement histogram, and gauges read when asked. Safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, dict[tuple[str, ...], float]] = {name: {} for name in COUNTERS}
        self._ack_counts = [0] * (len(ACK_BUCKETS_S) + 1)
        self._ack_sum_s = 0.0
        self._sources: list[Callable[[], Iterable[Sample]]] = []

    def add(self, name: str, amount: float, *labels: str) -> None:
        """Adds to a counter of `COUNTERS`; labels in its order."""
        with self._lock:
            series = self._counts[name]
            series[labels] = series.get(labels, 0) + amount

    def observe_ack(self, seconds: float) -> None:
        """Time from a request's arrival to its acknowledgement."""
        with self._lock:
            self._ack_counts[bisect_left(ACK_BUCKETS_S, seconds)] += 1
            self._ack_sum_s += seconds

    def add_source(self, source: Callable[[], Iterable[Sample]]) -> None:
        """A function that gives samples at each scrape."""
        self._sources.append(source)

    def value(self, name: str, *labels: str) -> float:
        """A counter's value; labels not given are summed over."""
        with self._lock:
            return sum(count for key, count in self._counts[name].items() if key[: len(labels)] == labels)

    def render(self) -> str:
        """Everything in the text format."""
        lines: list[str] = []
        with self._lock:
            counts = {name: dict(series) for name, series in self._counts.items()}
            ack_counts, ack_sum_s = list(self._ack_counts), self._ack_sum_s
        for name, (text, label_names) in COUNTERS.items():
            samples = [(dict(zip(label_names, key, strict=True)), value) for key, value in sorted(counts[name].items())]
            lines += _block(name, text, "counter", samples)
        lines += _histogram(ack_counts, ack_sum_s)
        for source in self._sources:
            for name, text, kind, samples in source():
                lines += _block(name, text, kind, samples)
        return "\n".join(lines) + "\n"


def _block(name: str, text: str, kind: str, samples: list[tuple[dict[str, str], float]]) -> list[str]:
    head = [f"# HELP {PREFIX}{name} {text}", f"# TYPE {PREFIX}{name} {kind}"]
    return head + [f"{PREFIX}{name}{_labels(labels)} {_number(value)}" for labels, value in samples]


def _histogram(counts: list[int], sum_s: float) -> list[str]:
    name = f"{PREFIX}ack_seconds"
    lines = [f"# HELP {name} Time from a request's arrival to its acknowledgement.", f"# TYPE {name} histogram"]
    total = 0
    for bound, count in zip((*ACK_BUCKETS_S, None), counts, strict=True):
        total += count
        lines.append(f'{name}_bucket{{le="{"+Inf" if bound is None else bound}"}} {total}')
    return [*lines, f"{name}_sum {_number(sum_s)}", f"{name}_count {total}"]


def _labels(labels: dict[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{key}="{_escaped(value)}"' for key, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))
