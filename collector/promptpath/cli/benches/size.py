"""What spans, tokens and prompts take on disk, beside the same spans in the usual schema."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from promptpath.cli.benches import Figures
from promptpath.cli.benches.machine import machine
from promptpath.collector.simulate import Scenario, simulate
from promptpath.collector.simulate.encode import Encoder, Protobuf

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

#: As the collector's writer makes them.
_BATCH_SPANS: Final = 20_000
_COMPANIONS: Final = ("otel_traces_trace_id_ts", "trace_arrivals", "trace_join_keys")
#: Columns, codecs and order of the OpenTelemetry Collector's ClickHouse exporter; tokens are among the attributes.
_USUAL: Final = """
CREATE TABLE usual_traces
(
    Timestamp DateTime64(9) CODEC(Delta(8), ZSTD(1)),
    TraceId String CODEC(ZSTD(1)),
    SpanId String CODEC(ZSTD(1)),
    ParentSpanId String CODEC(ZSTD(1)),
    TraceState String CODEC(ZSTD(1)),
    SpanName LowCardinality(String) CODEC(ZSTD(1)),
    SpanKind LowCardinality(String) CODEC(ZSTD(1)),
    ServiceName LowCardinality(String) CODEC(ZSTD(1)),
    ResourceAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    ScopeName String CODEC(ZSTD(1)),
    ScopeVersion String CODEC(ZSTD(1)),
    SpanAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    Duration UInt64 CODEC(ZSTD(1)),
    StatusCode LowCardinality(String) CODEC(ZSTD(1)),
    StatusMessage String CODEC(ZSTD(1)),
    Events Nested
    (
        Timestamp DateTime64(9), Name LowCardinality(String), Attributes Map(LowCardinality(String), String)
    ) CODEC(ZSTD(1)),
    Links Nested (TraceId String, SpanId String, TraceState String, Attributes Map(LowCardinality(String), String))
        CODEC(ZSTD(1))
)
ENGINE = MergeTree
PARTITION BY toDate(Timestamp)
ORDER BY (ServiceName, SpanName, toDateTime(Timestamp), Timestamp)
"""
_COPY: Final = """
INSERT INTO usual_traces
SELECT
    Timestamp, TraceId, SpanId, ParentSpanId, TraceState, SpanName, SpanKind, ServiceName, ResourceAttributes,
    ScopeName, ScopeVersion,
    mapConcat(
        SpanAttributes,
        if(notEmpty(TokenGapsUs), map('promptpath.token.gaps_us', toJSONString(TokenGapsUs)), map()),
        if(notEmpty(TokenCounts), map('promptpath.token.counts', toJSONString(TokenCounts)), map())),
    Duration, StatusCode, StatusMessage, `Events.Timestamp`, `Events.Name`, `Events.Attributes`, `Links.TraceId`,
    `Links.SpanId`, `Links.TraceState`, `Links.Attributes`
FROM otel_traces
"""


class StoreSink:
    """A sink that stores what is simulated, in batches."""

    def __init__(self, client: Client) -> None:
        self.encoder: Encoder = Protobuf()
        self.bytes = 0
        self._client = client
        self._bodies: list[bytes] = []
        self._spans = self._batches = 0

    def write(self, body: bytes, spans: int) -> None:
        self._bodies.append(body)
        self._spans += spans
        self.bytes += len(body)
        if self._spans >= _BATCH_SPANS:
            self.close()

    def close(self) -> None:
        from promptpath.storage.ingest import insert

        insert(self._client, "traces", b"".join(self._bodies), f"size-{self._batches}")
        self._batches += 1
        self._bodies, self._spans = [], 0


def measure(prompts: int) -> Figures:
    """Simulates `prompts` prompts, stores and assembles them, merges, and weighs.

    bytes_per_span: of the columns of `otel_traces`. bytes_per_span_with_index: on disk, with the tables by which traces
    are found. bytes_per_token: of the columns of token times, per delivery of tokens. bytes_per_prompt: of
    `prompts_rows`. otlp_bytes_per_span: as it came. usual_schema: bytes of the same spans in the exporter's schema
    over ours.
    """
    from promptpath.collector.backfill import assemble_since
    from promptpath.storage import connect, migrate

    with tempfile.TemporaryDirectory() as folder:
        client = connect(f"chdb://{Path(folder)}/store")
        try:
            migrate(client)
            # A small part does not say what each column takes.
            client.command("ALTER TABLE otel_traces MODIFY SETTING min_bytes_for_wide_part = 0")
            sink = StoreSink(client)
            scenario = Scenario(prompts=prompts)
            simulate(scenario, [sink])
            day_ns = 86_400 * 10**9
            assemble_since(client, scenario.start_ns - day_ns, until_ns=scenario.start_ns + 30 * day_ns)
            client.command(_USUAL)
            client.command(_COPY)
            for table in ("otel_traces", "prompts_rows", "usual_traces", *_COMPANIONS):
                client.command(f"OPTIMIZE TABLE {table} FINAL")
            return _weigh(client, sink.bytes)
        finally:
            client.close()


def _weigh(client: Client, otlp_bytes: int) -> Figures:
    tables = {str(row["table"]): row for row in client.query("SELECT * FROM storage_tables").named_results()}
    spans, prompts = int(tables["otel_traces"]["rows"]), int(tables["prompts_rows"]["rows"])
    deliveries = int(client.query("SELECT sum(length(TokenGapsUs)) FROM otel_traces").result_rows[0][0])
    ours, usual = (int(tables[name]["bytes_compressed"]) for name in ("otel_traces", "usual_traces"))
    columns = _columns(client)
    tokens = columns["TokenGapsUs"] + columns["TokenCounts"]
    figures = {
        "bytes_per_span": round(ours / spans, 1),
        "bytes_per_span_with_index": round(
            sum(int(tables[name]["bytes_on_disk"]) for name in ("otel_traces", *_COMPANIONS)) / spans, 1
        ),
        "bytes_per_span_without_tokens": round((ours - tokens) / spans, 1),
        "bytes_per_token": round(tokens / deliveries, 2),
        "bytes_per_prompt": round(int(tables["prompts_rows"]["bytes_compressed"]) / prompts, 1),
        "otlp_bytes_per_span": round(otlp_bytes / spans, 1),
        "usual_schema_bytes_per_span": round(usual / spans, 1),
        "spans": spans,
        "prompts": prompts,
    }
    largest = sorted(columns.items(), key=lambda item: -item[1])[:6]
    figures |= {f"bytes_per_span_{name}": round(size / spans, 2) for name, size in largest}
    return Figures("size", machine(), figures, {"usual_schema": round(usual / ours, 2)})


def _columns(client: Client) -> Mapping[str, int]:
    """Compressed bytes of each column of `otel_traces`."""
    rows: Any = client.query(
        "SELECT column, sum(column_data_compressed_bytes) FROM system.parts_columns"
        " WHERE active AND database = currentDatabase() AND table = 'otel_traces' GROUP BY column"
    ).result_rows
    return {str(name): int(size) for name, size in rows}
