"""What real systems sent: every request loads, and the rows are what opentelemetry-proto decodes from it."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest

from promptpath.storage import ingest

from .otlp_metric_rows import metric_rows
from .otlp_rows import CAPTURES, log_rows, requests, same_rows, span_rows, stored

_TRACES = sorted(path.parent.name for path in CAPTURES.glob("*/traces.pb"))
_METRICS = sorted(path.parent.name for path in CAPTURES.glob("*/metrics.pb"))
_LOGS = sorted(path.parent.name for path in CAPTURES.glob("*/logs.pb"))
_POINT = ("MetricName", "ServiceName", "TimeUnix", "StartTimeUnix", "Attributes", "ResourceAttributes", "ScopeName")


def test_there_are_captures() -> None:
    assert len(_TRACES) >= 16
    assert len(_METRICS) >= 4
    assert len(_LOGS) >= 2


@pytest.mark.parametrize("name", _TRACES)
def test_spans(shared_store: Any, name: str) -> None:
    bodies = requests(CAPTURES / name / "traces.pb")
    expected = list(span_rows(bodies))
    shared_store.client.command("TRUNCATE TABLE otel_traces")
    ingest.insert(shared_store.client, "traces", b"".join(bodies), f"{name}-traces")
    same_rows(stored(shared_store, "otel_traces"), expected, "TraceId", "SpanId", "Timestamp")


@pytest.mark.parametrize("name", _METRICS)
def test_metrics(shared_store: Any, name: str) -> None:
    bodies = requests(CAPTURES / name / "metrics.pb")
    expected: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for table, row in metric_rows(bodies):
        expected[table].append(row)
    for kind in ("gauge", "sum", "histogram", "exponential_histogram", "summary"):
        shared_store.client.command(f"TRUNCATE TABLE otel_metrics_{kind}")
    ingest.insert(shared_store.client, "metrics", b"".join(bodies), f"{name}-metrics")
    for kind in ("gauge", "sum", "histogram", "exponential_histogram", "summary"):
        same_rows(stored(shared_store, f"otel_metrics_{kind}"), expected[f"otel_metrics_{kind}"], *_POINT)


@pytest.mark.parametrize("name", _LOGS)
def test_logs(shared_store: Any, name: str) -> None:
    bodies = requests(CAPTURES / name / "logs.pb")
    expected = list(log_rows(bodies))
    shared_store.client.command("TRUNCATE TABLE otel_logs")
    ingest.insert(shared_store.client, "logs", b"".join(bodies), f"{name}-logs")
    same_rows(stored(shared_store, "otel_logs"), expected, "Timestamp", "TraceId", "Body")


def test_a_file_is_a_batch_too(shared_store: Any, tmp_path: Any) -> None:
    bodies = requests(CAPTURES / "litellm" / "traces.pb")
    segment = tmp_path / "segment"
    segment.write_bytes(b"".join(bodies))
    shared_store.client.command("TRUNCATE TABLE otel_traces")
    assert ingest.insert(shared_store.client, "traces", segment, "segment") == segment.stat().st_size
    same_rows(stored(shared_store, "otel_traces"), list(span_rows(bodies)), "TraceId", "SpanId", "Timestamp")
