-- Log records: the columns of the OpenTelemetry Collector's ClickHouse exporter, then ours.
CREATE TABLE otel_logs
(
    Timestamp DateTime64(9) CODEC(Delta(8), ZSTD(1)),
    TimestampTime DateTime DEFAULT toDateTime(Timestamp),
    TraceId String CODEC(ZSTD(1)),
    SpanId String CODEC(ZSTD(1)),
    TraceFlags UInt8,
    SeverityText LowCardinality(String) CODEC(ZSTD(1)),
    SeverityNumber UInt8,
    ServiceName LowCardinality(String) CODEC(ZSTD(1)),
    Body String CODEC(ZSTD(1)),
    ResourceSchemaUrl LowCardinality(String) CODEC(ZSTD(1)),
    ResourceAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    ScopeSchemaUrl LowCardinality(String) CODEC(ZSTD(1)),
    ScopeName String CODEC(ZSTD(1)),
    ScopeVersion LowCardinality(String) CODEC(ZSTD(1)),
    ScopeAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    LogAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    EventName LowCardinality(String) CODEC(ZSTD(1)),
    IngestedAt DateTime64(9) DEFAULT now64(9) CODEC(Delta(8), ZSTD(1)),
    INDEX idx_trace_id TraceId TYPE bloom_filter(0.001) GRANULARITY 1,
    INDEX idx_body Body TYPE tokenbf_v1(32768, 3, 0) GRANULARITY 8
)
ENGINE = MergeTree
PARTITION BY toDate(Timestamp, 'UTC')
ORDER BY (toStartOfMinute(Timestamp), TraceId, Timestamp)
SETTINGS ttl_only_drop_parts = 1, {{mergetree}};

CREATE TABLE otlp_logs
(
    resource_logs Array(Tuple(
        resource Tuple(attributes {{attributes}}),
        schema_url String,
        scope_logs Array(Tuple(
            scope Tuple(name String, version String, attributes {{attributes}}),
            schema_url String,
            log_records Array(Tuple(
                time_unix_nano UInt64, observed_time_unix_nano UInt64, severity_number Int32, severity_text String,
                body Tuple({{value}}), attributes {{attributes}}, flags UInt32,
                trace_id String, span_id String, event_name String
            ))
        ))
    ))
)
ENGINE = Null;

CREATE MATERIALIZED VIEW otlp_logs_mv TO otel_logs AS
WITH
{{functions}}
SELECT
    -- A record without a time of its own has the time at which it was seen.
    to_time(if(record.time_unix_nano != 0, record.time_unix_nano, record.observed_time_unix_nano)) AS Timestamp,
    to_hex(record.trace_id) AS TraceId,
    to_hex(record.span_id) AS SpanId,
    toUInt8(bitAnd(record.flags, 255)) AS TraceFlags,
    record.severity_text AS SeverityText,
    toUInt8(least(greatest(record.severity_number, 0), 255)) AS SeverityNumber,
    ServiceName,
    value_text(record.body) AS Body,
    ResourceSchemaUrl,
    ResourceAttributes,
    ScopeSchemaUrl,
    ScopeName,
    ScopeVersion,
    ScopeAttributes,
    to_map(record.attributes) AS LogAttributes,
    record.event_name AS EventName
FROM
(
    SELECT
        ResourceAttributes, ResourceSchemaUrl, ServiceName,
        scope.scope.name AS ScopeName, scope.scope.version AS ScopeVersion,
        to_map(scope.scope.attributes) AS ScopeAttributes, scope.schema_url AS ScopeSchemaUrl,
        arrayJoin(scope.log_records) AS record
    FROM
    (
        SELECT
            to_map(r.resource.attributes) AS ResourceAttributes, r.schema_url AS ResourceSchemaUrl,
            ResourceAttributes['service.name'] AS ServiceName, arrayJoin(r.scope_logs) AS scope
        FROM (SELECT arrayJoin(resource_logs) AS r FROM otlp_logs)
    )
);
