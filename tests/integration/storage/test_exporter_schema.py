"""Names and types of columns as the OpenTelemetry Collector's ClickHouse exporter makes them: what reads its tables
reads ours. Looked up in the exporter's table templates; ours may have more columns, never fewer or other ones."""

from __future__ import annotations

from typing import Any

import pytest

_MAP = "Map(LowCardinality(String), String)"
_NS = "DateTime64(9)"
_LOW = "LowCardinality(String)"
_METRIC = {
    "ResourceAttributes": _MAP,
    "ResourceSchemaUrl": "String",
    "ScopeName": "String",
    "ScopeVersion": "String",
    "ScopeAttributes": _MAP,
    "ScopeDroppedAttrCount": "UInt32",
    "ScopeSchemaUrl": "String",
    "ServiceName": _LOW,
    "MetricName": "String",
    "MetricDescription": "String",
    "MetricUnit": "String",
    "Attributes": _MAP,
    "StartTimeUnix": _NS,
    "TimeUnix": _NS,
    "Flags": "UInt32",
}
_EXEMPLARS = {
    "Exemplars.FilteredAttributes": f"Array({_MAP})",
    "Exemplars.TimeUnix": f"Array({_NS})",
    "Exemplars.Value": "Array(Float64)",
    "Exemplars.SpanId": "Array(String)",
    "Exemplars.TraceId": "Array(String)",
}
_TOTAL = {"Count": "UInt64", "Sum": "Float64"}
_RANGE = {"Min": "Float64", "Max": "Float64", "AggregationTemporality": "Int32"}
_TABLES = {
    "otel_traces": {
        "Timestamp": _NS,
        "TraceId": "String",
        "SpanId": "String",
        "ParentSpanId": "String",
        "TraceState": "String",
        "SpanName": _LOW,
        "SpanKind": _LOW,
        "ServiceName": _LOW,
        "ResourceAttributes": _MAP,
        "ScopeName": "String",
        "ScopeVersion": "String",
        "SpanAttributes": _MAP,
        "Duration": "UInt64",
        "StatusCode": _LOW,
        "StatusMessage": "String",
        "Events.Timestamp": f"Array({_NS})",
        "Events.Name": f"Array({_LOW})",
        "Events.Attributes": f"Array({_MAP})",
        "Links.TraceId": "Array(String)",
        "Links.SpanId": "Array(String)",
        "Links.TraceState": "Array(String)",
        "Links.Attributes": f"Array({_MAP})",
    },
    "otel_traces_trace_id_ts": {"TraceId": "String", "Start": "DateTime", "End": "DateTime"},
    "otel_logs": {
        "Timestamp": _NS,
        "TimestampTime": "DateTime",
        "TraceId": "String",
        "SpanId": "String",
        "TraceFlags": "UInt8",
        "SeverityText": _LOW,
        "SeverityNumber": "UInt8",
        "ServiceName": _LOW,
        "Body": "String",
        "ResourceSchemaUrl": _LOW,
        "ResourceAttributes": _MAP,
        "ScopeSchemaUrl": _LOW,
        "ScopeName": "String",
        "ScopeVersion": _LOW,
        "ScopeAttributes": _MAP,
        "LogAttributes": _MAP,
    },
    "otel_metrics_gauge": _METRIC | _EXEMPLARS | {"Value": "Float64"},
    "otel_metrics_sum": _METRIC
    | _EXEMPLARS
    | {"Value": "Float64", "AggregationTemporality": "Int32", "IsMonotonic": "Bool"},
    "otel_metrics_histogram": _METRIC
    | _EXEMPLARS
    | _TOTAL
    | _RANGE
    | {"BucketCounts": "Array(UInt64)", "ExplicitBounds": "Array(Float64)"},
    "otel_metrics_exponential_histogram": _METRIC
    | _EXEMPLARS
    | _TOTAL
    | _RANGE
    | {
        "Scale": "Int32",
        "ZeroCount": "UInt64",
        "PositiveOffset": "Int32",
        "PositiveBucketCounts": "Array(UInt64)",
        "NegativeOffset": "Int32",
        "NegativeBucketCounts": "Array(UInt64)",
    },
    "otel_metrics_summary": _METRIC
    | _TOTAL
    | {"ValueAtQuantiles.Quantile": "Array(Float64)", "ValueAtQuantiles.Value": "Array(Float64)"},
}
#: Same values, stored smaller: the exporter itself has both types for this column, depending on the table.
_SMALLER = {"MetricName": _LOW}
#: What is ours, in every such table.
_OURS = {"IngestedAt", "Tenant", "Clamped", "SentTime"}


@pytest.mark.parametrize("table", _TABLES)
def test_columns(shared_store: Any, table: str) -> None:
    rows = shared_store.dicts(
        "SELECT name, type FROM system.columns WHERE database = currentDatabase() AND table = {table:String}",
        table=table,
    )
    found = {row["name"]: row["type"] for row in rows}
    expected = {name: _SMALLER.get(name, kind) for name, kind in _TABLES[table].items()}
    assert {name: found.get(name) for name in expected} == expected
    more = set(found) - set(expected) - _OURS
    assert more <= {
        "otel_traces": {
            "TokenGapsUs",
            "TokenCounts",
            "Flags",
            "ScopeAttributes",
            "ResourceSchemaUrl",
            "ScopeSchemaUrl",
            "DroppedAttributesCount",
            "DroppedEventsCount",
            "DroppedLinksCount",
            "Types",
            "SentStart",
            "SentEnd",
        },
        "otel_logs": {"EventName", "ObservedTimestamp", "Flags", "DroppedAttributesCount", "Types"},
        "otel_metrics_exponential_histogram": {"Types", "MetricMetadata", "ZeroThreshold"},
    }.get(table, {"Types", "MetricMetadata"} if table.startswith("otel_metrics_") else set())
