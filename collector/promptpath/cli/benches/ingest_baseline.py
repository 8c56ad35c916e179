"""What most programs do with OTLP: protobuf into Python objects, those into columns, columns into an insert.

Kept beside the collector's own way as the measure of it. `python -m promptpath.cli.benches.ingest_baseline STORAGE`
reads requests behind 4-byte lengths from standard input, stores them in batches and prints its CPU seconds. It receives
nothing over a network and keeps no journal.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator
from typing import Any, BinaryIO, Final

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from promptpath.storage import connect, migrate

_BATCH_SPANS: Final = 20_000
_KINDS: Final = ("Unspecified", "Internal", "Server", "Client", "Producer", "Consumer")
_STATUSES: Final = ("Unset", "Ok", "Error")
_COLUMNS: Final = (
    "Timestamp",
    "TraceId",
    "SpanId",
    "ParentSpanId",
    "TraceState",
    "SpanName",
    "SpanKind",
    "ServiceName",
    "ResourceAttributes",
    "ScopeName",
    "ScopeVersion",
    "SpanAttributes",
    "Duration",
    "StatusCode",
    "StatusMessage",
    "Events.Timestamp",
    "Events.Name",
    "Events.Attributes",
)


def main() -> None:
    """Stores what standard input holds."""
    client = connect(sys.argv[1])
    migrate(client)
    before = cpu_s()
    for columns in _batches(sys.stdin.buffer):
        client.insert("otel_traces", columns, column_names=_COLUMNS, column_oriented=True)
    print(cpu_s() - before)
    client.close()


def cpu_s() -> float:
    """CPU seconds of this process so far, all threads."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _batches(stream: BinaryIO) -> Iterator[list[list[Any]]]:
    columns: list[list[Any]] = [[] for _ in _COLUMNS]
    while header := stream.read(4):
        _append(columns, stream.read(int.from_bytes(header, "big")))
        if len(columns[0]) >= _BATCH_SPANS:
            yield columns
            columns = [[] for _ in _COLUMNS]
    if columns[0]:
        yield columns


def _append(columns: list[list[Any]], body: bytes) -> None:
    for resource_spans in ExportTraceServiceRequest.FromString(body).resource_spans:
        resource_attributes = _map(resource_spans.resource.attributes)
        service = resource_attributes.get("service.name", "")
        for scope_spans in resource_spans.scope_spans:
            scope = scope_spans.scope
            for span in scope_spans.spans:
                row = (
                    span.start_time_unix_nano,
                    span.trace_id.hex(),
                    span.span_id.hex(),
                    span.parent_span_id.hex(),
                    span.trace_state,
                    span.name,
                    _KINDS[span.kind],
                    service,
                    resource_attributes,
                    scope.name,
                    scope.version,
                    _map(span.attributes),
                    max(span.end_time_unix_nano - span.start_time_unix_nano, 0),
                    _STATUSES[span.status.code],
                    span.status.message,
                    [event.time_unix_nano for event in span.events],
                    [event.name for event in span.events],
                    [_map(event.attributes) for event in span.events],
                )
                for column, value in zip(columns, row, strict=True):
                    column.append(value)


def _map(attributes: Any) -> dict[str, str]:
    texts = {}
    for pair in attributes:
        value = pair.value
        kind = value.WhichOneof("value")
        texts[pair.key] = value.string_value if kind == "string_value" else str(getattr(value, kind)) if kind else ""
    return texts


if __name__ == "__main__":
    main()
