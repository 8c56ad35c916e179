"""Numbers of points come back as they were sent: integers in full, doubles to the bit, what was not said unsaid."""

from __future__ import annotations

import json
import math
import random
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from promptpath.collector.otlp import Signal
from promptpath.collector.otlp.json_format import to_protobuf
from promptpath.storage import ingest
from promptpath.storage.exporting import export_json

AT_NS = 1_760_000_000_000_000_000
Number = int | float | None

integers = st.integers(-(2**63), 2**63 - 1) | st.integers(2**53 - 2, 2**53 + 2) | st.integers(-3, 3)
numbers = st.none() | integers | st.floats()
maybe = st.none() | st.floats()


def _put(point: Any, number: Number) -> None:
    if isinstance(number, int):
        point.as_int = number
    elif number is not None:
        point.as_double = number


def _said(point: Any) -> Number:
    kind = point.WhichOneof("value")
    value: Number = None if kind is None else getattr(point, kind)
    return value


def _optional(point: Any, name: str) -> float | None:
    return float(getattr(point, name)) if point.HasField(name) else None


def _text(*values: Any) -> str:
    """Equal only where kind and value are; NaN is itself, and 0.0 is not 0. A zero has no sign: a column of zeros is
    stored as their number."""
    plain = ["nan" if isinstance(value, float) and math.isnan(value) else value for value in values]
    return repr([0.0 if isinstance(value, float) and value == 0 else value for value in plain])


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(st.tuples(numbers, st.lists(numbers, max_size=3)), max_size=6),
    st.lists(st.tuples(maybe, maybe, maybe, st.floats()), max_size=6),
)
def test_numbers_come_back(shared_store: Any, points: list[Any], distributions: list[Any]) -> None:
    for kind in ("gauge", "sum", "exponential_histogram"):
        shared_store.client.command(f"TRUNCATE TABLE otel_metrics_{kind}")
    request = ExportMetricsServiceRequest()
    metrics = request.resource_metrics.add().scope_metrics.add().metrics
    gauge, total, wide = metrics.add(name="g").gauge, metrics.add(name="s").sum, metrics.add(name="e")
    sent = []
    for at, (number, exemplars) in enumerate(points):
        for kind, holder in (("g", gauge), ("s", total)):
            point = holder.data_points.add(time_unix_nano=AT_NS + at)
            _put(point, number)
            for exemplar in exemplars:
                _put(point.exemplars.add(time_unix_nano=AT_NS), exemplar)
            sent.append((kind, at, _text(number, *exemplars)))
    for at, (total_of, low, high, threshold) in enumerate(distributions):
        said = {name: v for name, v in (("sum", total_of), ("min", low), ("max", high)) if v is not None}
        wide.exponential_histogram.data_points.add(time_unix_nano=AT_NS + at, zero_threshold=threshold, **said)
        sent.append(("e", at, _text(total_of, low, high, threshold)))
    ingest.insert(shared_store.client, "metrics", request.SerializeToString(), random.randbytes(8).hex())

    given_back = []
    for line in export_json(shared_store.client, "metrics"):
        assert json.loads(line)
        back = ExportMetricsServiceRequest.FromString(to_protobuf(Signal.METRICS, line))
        for metric in back.resource_metrics[0].scope_metrics[0].metrics:
            for point in (*metric.gauge.data_points, *metric.sum.data_points):
                found = _text(_said(point), *map(_said, point.exemplars))
                given_back.append((metric.name, point.time_unix_nano - AT_NS, found))
            for point in metric.exponential_histogram.data_points:
                values = (_optional(point, "sum"), _optional(point, "min"), _optional(point, "max"))
                found = _text(*values, point.zero_threshold)
                given_back.append((metric.name, point.time_unix_nano - AT_NS, found))
    assert sorted(given_back) == sorted(sent)
