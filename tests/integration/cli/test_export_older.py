"""Points that were stored before kinds of values were kept are exported as what their rows say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from promptpath.collector.otlp import Signal
from promptpath.collector.otlp.json_format import to_protobuf
from promptpath.storage import connect, ingest
from promptpath.storage.exporting import export_json
from promptpath.storage.schema import migrations

from .test_export import AT, items, put_number, stamped

#: The migration since which they are kept.
_KEPT_SINCE = 18


def _points(text: Any) -> ExportMetricsServiceRequest:
    """A point of each kind. `text` gets each set of attributes, to put there what is expected of it."""
    request = ExportMetricsServiceRequest()
    resource = request.resource_metrics.add()
    resource.resource.attributes.add(key="process.pid").value.int_value = 17
    scope = resource.scope_metrics.add()
    scope.scope.name = "scope"
    scope.scope.attributes.add(key="on").value.bool_value = True
    text(resource.resource.attributes)
    text(scope.scope.attributes)
    gauge, total, histogram, exponential, summary = (scope.metrics.add(name=name) for name in "gshes")

    def point(data: Any, **fields: Any) -> Any:
        found = stamped(data.data_points.add(**fields))
        found.attributes.add(key="ports").value.array_value.values.add().int_value = 80
        found.attributes.add(key="name").value.string_value = "80"
        text(found.attributes)
        return found

    for data in (gauge.gauge, total.sum):
        for number in (7, 0, 3.0, None):
            found = point(data)
            put_number(found, number)
            exemplar = found.exemplars.add(time_unix_nano=AT, trace_id=b"t" * 16)
            put_number(exemplar, number)
            exemplar.filtered_attributes.add(key="try").value.int_value = 2
            text(exemplar.filtered_attributes)
    for data in (histogram.histogram, exponential.exponential_histogram):
        data.aggregation_temporality = 2
        for figures in ({}, {"sum": 0.0}, {"sum": -1.5, "max": 0.5}, {"sum": 2.0, "min": 1.0, "max": 2.0}):
            point(data, count=2, **figures)
    exponential.exponential_histogram.data_points[0].zero_threshold = 0.25
    point(summary.summary, count=1, sum=0.5).quantile_values.add(quantile=0.5, value=2.0)
    return request


def _as_strings(attributes: Any) -> None:
    for pair in attributes:
        kind = pair.value.WhichOneof("value")
        if kind == "array_value":
            pair.value.string_value = json.dumps([one.int_value for one in pair.value.array_value.values])
        elif kind != "string_value":
            pair.value.string_value = json.dumps(getattr(pair.value, kind))


def _as_rows_say(request: ExportMetricsServiceRequest) -> bytes:
    """Doubles for integers, zero for what was not said: the columns know no other."""
    for metric in request.resource_metrics[0].scope_metrics[0].metrics:
        kind = str(metric.WhichOneof("data"))
        for point in getattr(metric, kind).data_points:
            if kind in ("gauge", "sum"):
                for number in (point, *point.exemplars):
                    number.as_double = float(number.as_int or number.as_double)
            elif kind != "summary":
                point.sum, point.min, point.max = point.sum, point.min, point.max
            if kind == "exponential_histogram":
                point.zero_threshold = 0.0
    return request.SerializeToString()


def test_points_from_before_are_exported_and_still_known(tmp_path: Path) -> None:
    """Strings, doubles and zeros, beside newer points in full; and a batch from before that is sent again is known."""
    older, newer = migrations()[: _KEPT_SINCE - 1], migrations()[_KEPT_SINCE - 1 :]
    body = _points(lambda _: None).SerializeToString()
    client = connect(f"chdb://{tmp_path}/store")
    try:
        for statement in (one for migration in older for one in migration.script()):
            client.command(statement)
        ingest.insert(client, "metrics", body, "before")
        for statement in (one for migration in newer for one in migration.script()):
            client.command(statement)
        ingest.insert(client, "metrics", body, "before")
        ingest.insert(client, "metrics", body, "after")
        given = [to_protobuf(Signal.METRICS, line) for line in export_json(client, "metrics")]
    finally:
        client.close()
    from_before = _as_rows_say(_points(_as_strings))
    expected = items(ExportMetricsServiceRequest, iter([from_before, body]))
    found = items(ExportMetricsServiceRequest, iter(given))
    assert sorted((found - expected).elements()) == sorted((expected - found).elements()) == []
    assert sum(expected.values()) == 2 * 17
