"""`promptpath export` of a store that a collector has, over its SQL endpoint; and what dashboards ask there."""

from __future__ import annotations

import json
from urllib.parse import urlencode

import pytest

from promptpath import storage
from promptpath.collector.otlp import Signal
from promptpath.collector.otlp.json_format import to_protobuf
from promptpath.storage.exporting import Filter, export_json

from .running import RunningCollector, fetch, make_spans

SPANS = 12_000


@pytest.fixture(scope="module")
def filled(collector: RunningCollector) -> RunningCollector:
    for first in range(1, SPANS, 4000):
        assert collector.post(make_spans(4000, first=first).SerializeToString()).status == 200
    collector.wait_stored(SPANS)
    return collector


def test_an_export_reads_a_running_collector_in_parts(filled: RunningCollector) -> None:
    """More spans of one minute than go into a request: each is given once."""
    client = storage.connect(filled.collector.sql_url, readonly=True)
    seen: list[tuple[int, int]] = []
    lines = list(export_json(client, "traces", progress=lambda done, total: seen.append((done, total))))
    client.close()
    assert len(lines) == 3
    assert [total for _, total in seen] == [SPANS] * 3
    spans = [
        span
        for line in lines
        for resource in Signal.TRACES.request.FromString(to_protobuf(Signal.TRACES, line)).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
    assert sorted(int.from_bytes(span.span_id, "big") for span in spans) == list(range(1, SPANS + 1))
    sent = make_spans(SPANS).resource_spans[0].scope_spans[0].spans
    given = {span.span_id: span for span in spans}
    for span in sent[::1000]:
        span.status.SetInParent()
        assert given[span.span_id] == span


def test_a_filter_on_what_is_not_there_gives_nothing(filled: RunningCollector) -> None:
    client = storage.connect(filled.collector.sql_url, readonly=True)
    assert list(export_json(client, "traces", Filter(service="nobody"))) == []
    assert list(export_json(client, "metrics")) == []
    assert list(export_json(client, "logs")) == []
    client.close()


@pytest.mark.parametrize(
    "query",
    [
        "SELECT 1",
        "SELECT name FROM system.databases",
        "SELECT name FROM system.tables WHERE database = 'default' OR database = 'promptpath'",
        "SELECT name, type, table FROM system.columns WHERE database = 'promptpath' AND table = 'otel_traces'",
        "SELECT DISTINCT arrayJoin(SpanAttributes.keys) AS k FROM otel_traces LIMIT 1000",
        "SELECT toStartOfInterval(toDateTime(Timestamp), INTERVAL 20 second) AS time, count() AS n FROM otel_traces "
        "WHERE (Timestamp >= toDateTime64(1759999000, 3)) AND (Timestamp <= toDateTime64(1760001000, 3)) "
        "GROUP BY time ORDER BY time ASC LIMIT 1000",
        "WITH 'x' AS trace_id, (SELECT min(Start) FROM otel_traces_trace_id_ts WHERE TraceId = trace_id) AS start, "
        "(SELECT max(End) + 1 FROM otel_traces_trace_id_ts WHERE TraceId = trace_id) AS end SELECT TraceId AS traceID, "
        "SpanId AS spanID, ParentSpanId AS parentSpanID, ServiceName AS serviceName, SpanName AS operationName, "
        "Timestamp AS startTime, multiply(Duration, 0.000001) AS duration, "
        "arrayMap(key -> map('key', key, 'value', SpanAttributes[key]), mapKeys(SpanAttributes)) AS tags "
        "FROM otel_traces WHERE traceID = trace_id AND Timestamp >= start AND Timestamp <= end LIMIT 1000",
        "SELECT t, groupArray((ServiceName, n)) FROM (SELECT toStartOfMinute(Timestamp) AS t, ServiceName, count() "
        "AS n FROM otel_traces GROUP BY t, ServiceName ORDER BY t) GROUP BY t ORDER BY t",
    ],
)
def test_what_grafana_asks(filled: RunningCollector, query: str) -> None:
    settings = {"database": "default", "max_execution_time": 20, "enable_http_compression": 1, "wait_end_of_query": 1}
    address = f"http://127.0.0.1:{filled.ports.sql}/?{urlencode(settings | {'default_format': 'JSON'})}"
    answer = fetch(address, query.encode(), {"User-Agent": "Grafana"})
    assert answer.status == 200, answer.body
    assert "data" in json.loads(answer.body)
