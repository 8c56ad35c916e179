"""The collector's figures about itself, in Prometheus's text format and in OpenMetrics'."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import Final

PREFIX: Final = "promptpath_collector_"
TEXT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_TYPE: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"

#: Counters that exist from the start: name -> (help, label names).
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
    "own_spans_dropped_total": ("Spans of the collector's own work that found no room.", ()),
    "sql_queries_total": ("Queries to the SQL endpoint, by how they ended.", ("outcome",)),
    "sql_read_rows_total": ("Rows that queries read which were answered in full.", ()),
    "sql_read_bytes_total": ("Bytes that queries read which were answered in full.", ()),
}
#: Upper bounds in seconds: of what takes a disk's sync, of an insert, of a query.
_SYNC_S: Final = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.0, 2.5, 5.0)
_WORK_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
#: Histograms that exist from the start: name -> (help, label names, bounds).
HISTOGRAMS: Final[dict[str, tuple[str, tuple[str, ...], tuple[float, ...]]]] = {
    "ack_seconds": ("Time from a request's arrival to its acknowledgement.", (), _SYNC_S),
    "store_seconds": ("Time of inserts into storage that succeeded.", ("signal",), _WORK_S),
    "sql_query_seconds": ("Time from a query's arrival to the end of its answer.", ("outcome",), _WORK_S),
}

#: One sample at the time of a scrape: (name, help, type, [(labels, value)]).
Sample = tuple[str, str, str, list[tuple[dict[str, str], float]]]


class _Histogram:
    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


class SelfMetrics:
    """Counters, histograms, and gauges read when asked. Safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, dict[tuple[str, ...], float]] = {
            name: {} if labels else {(): 0.0} for name, (_, labels) in COUNTERS.items()
        }
        self._histograms: dict[str, dict[tuple[str, ...], _Histogram]] = {
            name: {} if labels else {(): _Histogram(bounds)} for name, (_, labels, bounds) in HISTOGRAMS.items()
        }
        self._sources: list[Callable[[], Iterable[Sample]]] = []

    def add(self, name: str, amount: float, *labels: str) -> None:
        """Adds to a counter of `COUNTERS`; labels in its order."""
        with self._lock:
            series = self._counts[name]
            series[labels] = series.get(labels, 0) + amount

    def observe(self, name: str, seconds: float, *labels: str) -> None:
        """Counts a duration in a histogram of `HISTOGRAMS`; labels in its order."""
        with self._lock:
            series = self._histograms[name]
            found = series.get(labels)
            if found is None:
                found = series[labels] = _Histogram(HISTOGRAMS[name][2])
            found.observe(seconds)

    def observe_ack(self, seconds: float) -> None:
        """Time from a request's arrival to its acknowledgement."""
        self.observe("ack_seconds", seconds)

    def add_source(self, source: Callable[[], Iterable[Sample]]) -> None:
        """A function that gives samples at each scrape."""
        self._sources.append(source)

    def value(self, name: str, *labels: str) -> float:
        """A counter's value; labels not given are summed over."""
        with self._lock:
            return sum(count for key, count in self._counts[name].items() if key[: len(labels)] == labels)

    def render(self, *, openmetrics: bool = False) -> str:
        """Everything, in Prometheus's text format or in OpenMetrics'."""
        lines: list[str] = []
        with self._lock:
            counts = {name: dict(series) for name, series in self._counts.items()}
            histograms = {
                name: {key: (list(one.counts), one.sum) for key, one in series.items()}
                for name, series in self._histograms.items()
            }
        for name, (text, label_names) in COUNTERS.items():
            samples = [(dict(zip(label_names, key, strict=True)), value) for key, value in sorted(counts[name].items())]
            lines += _block(name, text, "counter", samples, openmetrics)
        for name, (text, label_names, bounds) in HISTOGRAMS.items():
            lines += _head(name, text, "histogram")
            for key, (buckets, total) in sorted(histograms[name].items()):
                lines += _histogram(name, dict(zip(label_names, key, strict=True)), bounds, buckets, total)
        for source in self._sources:
            for name, text, kind, samples in source():
                lines += _block(name, text, kind, samples, openmetrics)
        return "\n".join(lines) + ("\n# EOF\n" if openmetrics else "\n")


def answer_to(accept: str) -> tuple[bool, str]:
    """Whether a scraper that accepts this wants OpenMetrics, and the content type of the answer."""
    wants = "application/openmetrics-text" in accept
    return wants, OPENMETRICS_TYPE if wants else TEXT_TYPE


def _head(name: str, text: str, kind: str) -> list[str]:
    return [f"# HELP {PREFIX}{name} {text}", f"# TYPE {PREFIX}{name} {kind}"]


def _block(
    name: str, text: str, kind: str, samples: list[tuple[dict[str, str], float]], openmetrics: bool
) -> list[str]:
    # OpenMetrics names a counter without the ending that its samples have.
    family = name.removesuffix("_total") if openmetrics and kind == "counter" else name
    return _head(family, text, kind) + [
        f"{PREFIX}{name}{_labels(labels)} {_number(value)}" for labels, value in samples
    ]


def _histogram(
    name: str, labels: dict[str, str], bounds: tuple[float, ...], counts: list[int], total: float
) -> list[str]:
    lines = []
    below = 0
    for bound, count in zip((*bounds, None), counts, strict=True):
        below += count
        with_bound = _labels({**labels, "le": "+Inf" if bound is None else str(bound)})
        lines.append(f"{PREFIX}{name}_bucket{with_bound} {below}")
    return [
        *lines,
        f"{PREFIX}{name}_sum{_labels(labels)} {_number(total)}",
        f"{PREFIX}{name}_count{_labels(labels)} {below}",
    ]


def _labels(labels: dict[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{key}="{_escaped(value)}"' for key, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))
