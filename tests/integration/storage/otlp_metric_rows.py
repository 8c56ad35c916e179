"""The rows that points of metrics become, in plain Python."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from .otlp_rows import RECEIVED_NS, attributes, can_be, kinds, moved, resource_columns, signed


def _point_times(time_ns: int) -> dict[str, Any]:
    if can_be(time_ns):
        return {"TimeUnix": time_ns, "Clamped": "", "SentTime": 0}
    at = moved(time_ns) if time_ns else RECEIVED_NS
    return {"TimeUnix": at, "Clamped": "moved" if time_ns else "time", "SentTime": time_ns}


def metric_rows(bodies: list[bytes]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Table and row of every point."""
    for body in bodies:
        for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    kind = metric.WhichOneof("data")
                    for point in getattr(metric, kind).data_points:
                        shared = resource_columns(resource, scope) | _metric(scope, metric, point)
                        shared["Types"] = _types(resource, scope, metric, point)
                        yield f"otel_metrics_{kind}", shared | _POINTS[kind](getattr(metric, kind), point)


def _metric(scope: Any, metric: Any, point: Any) -> dict[str, Any]:
    return {
        "ScopeDroppedAttrCount": scope.scope.dropped_attributes_count,
        "MetricName": metric.name,
        "MetricDescription": metric.description,
        "MetricUnit": metric.unit,
        "MetricMetadata": attributes(metric.metadata),
        "Attributes": attributes(point.attributes),
        "StartTimeUnix": signed(point.start_time_unix_nano),
        **_point_times(point.time_unix_nano),
        "Flags": point.flags,
    }


def _types(resource: Any, scope: Any, metric: Any, point: Any) -> str:
    exemplars = getattr(point, "exemplars", ())
    dropped = resource.resource.dropped_attributes_count
    if hasattr(point, "as_int"):
        said = _number_type(point)
    else:
        # Of a summary the sum is always there.
        can_lack = (("s", "sum"), ("m", "min"), ("x", "max")) if hasattr(point, "min") else ()
        said = "".join(letter for letter, name in can_lack if not point.HasField(name))
    parts = [
        kinds(point.attributes),
        kinds(resource.resource.attributes),
        kinds(scope.scope.attributes),
        kinds(metric.metadata),
        said,
        ",".join(kinds(exemplar.filtered_attributes) for exemplar in exemplars).rstrip(","),
        ",".join(map(_number_type, exemplars)).rstrip(","),
        str(dropped) if dropped else "",
    ]
    return "|".join(parts).rstrip("|")


def _number_type(point: Any) -> str:
    kind = point.WhichOneof("value")
    if kind == "as_int":
        return "i" if abs(point.as_int) <= 2**53 else f"i{point.as_int}"
    return "" if kind == "as_double" else "n"


def _number(point: Any) -> float:
    return float(point.as_int) if point.WhichOneof("value") == "as_int" else point.as_double


def _exemplars(point: Any) -> dict[str, Any]:
    return {
        "Exemplars.FilteredAttributes": [attributes(exemplar.filtered_attributes) for exemplar in point.exemplars],
        "Exemplars.TimeUnix": [signed(exemplar.time_unix_nano) for exemplar in point.exemplars],
        "Exemplars.Value": [_number(exemplar) for exemplar in point.exemplars],
        "Exemplars.SpanId": [exemplar.span_id.hex() for exemplar in point.exemplars],
        "Exemplars.TraceId": [exemplar.trace_id.hex() for exemplar in point.exemplars],
    }


def _gauge(_: Any, point: Any) -> dict[str, Any]:
    return {"Value": _number(point)} | _exemplars(point)


def _sum(data: Any, point: Any) -> dict[str, Any]:
    return _gauge(data, point) | {
        "AggregationTemporality": data.aggregation_temporality,
        "IsMonotonic": data.is_monotonic,
    }


def _distribution(data: Any, point: Any) -> dict[str, Any]:
    return _exemplars(point) | {
        "Count": point.count,
        "Sum": point.sum,
        "Min": point.min,
        "Max": point.max,
        "AggregationTemporality": data.aggregation_temporality,
    }


def _histogram(data: Any, point: Any) -> dict[str, Any]:
    return _distribution(data, point) | {
        "BucketCounts": list(point.bucket_counts),
        "ExplicitBounds": list(point.explicit_bounds),
    }


def _exponential(data: Any, point: Any) -> dict[str, Any]:
    return _distribution(data, point) | {
        "Scale": point.scale,
        "ZeroCount": point.zero_count,
        "ZeroThreshold": point.zero_threshold,
        "PositiveOffset": point.positive.offset,
        "PositiveBucketCounts": list(point.positive.bucket_counts),
        "NegativeOffset": point.negative.offset,
        "NegativeBucketCounts": list(point.negative.bucket_counts),
    }


def _summary(_: Any, point: Any) -> dict[str, Any]:
    return {
        "Count": point.count,
        "Sum": point.sum,
        "ValueAtQuantiles.Quantile": [item.quantile for item in point.quantile_values],
        "ValueAtQuantiles.Value": [item.value for item in point.quantile_values],
    }


_POINTS: dict[str, Any] = {
    "gauge": _gauge,
    "sum": _sum,
    "histogram": _histogram,
    "exponential_histogram": _exponential,
    "summary": _summary,
}
