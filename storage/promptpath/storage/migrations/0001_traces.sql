-- Spans: the columns of the OpenTelemetry Collector's ClickHouse exporter, then ours.
CREATE TABLE otel_traces
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
        Timestamp DateTime64(9),
        Name LowCardinality(String),
        Attributes Map(LowCardinality(String), String)
    ) CODEC(ZSTD(1)),
    Links Nested
    (
        TraceId String,
        SpanId String,
        TraceState String,
        Attributes Map(LowCardinality(String), String)
    ) CODEC(ZSTD(1)),
    -- promptpath.token.gaps_us and promptpath.token.counts, taken out of SpanAttributes.
    TokenGapsUs Array(UInt32) CODEC(T64('bit'), ZSTD(1)),
    TokenCounts Array(UInt16) CODEC(T64('bit'), ZSTD(1)),
    IngestedAt DateTime64(9) DEFAULT now64(9) CODEC(Delta(8), ZSTD(1)),
    -- OTLP's flags: bits 8 and 9 say whether the parent is in another process.
    Flags UInt32 CODEC(ZSTD(1)),
    ScopeAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    ResourceSchemaUrl LowCardinality(String) CODEC(ZSTD(1)),
    ScopeSchemaUrl LowCardinality(String) CODEC(ZSTD(1)),
    DroppedAttributesCount UInt32 CODEC(ZSTD(1)),
    DroppedEventsCount UInt32 CODEC(ZSTD(1)),
    DroppedLinksCount UInt32 CODEC(ZSTD(1)),
    INDEX idx_trace_id TraceId TYPE bloom_filter(0.001) GRANULARITY 1
)
ENGINE = MergeTree
PARTITION BY toDate(Timestamp, 'UTC')
ORDER BY (toStartOfMinute(Timestamp), TraceId, Timestamp)
SETTINGS ttl_only_drop_parts = 1, {{mergetree}};

-- From when to when a trace lasts, so that reading one touches few granules. One row an insert and trace.
CREATE TABLE otel_traces_trace_id_ts
(
    TraceId String CODEC(ZSTD(1)),
    Start DateTime CODEC(Delta(4), ZSTD(1)),
    End DateTime CODEC(Delta(4), ZSTD(1)),
    IngestedAt DateTime64(9) DEFAULT now64(9) CODEC(Delta(8), ZSTD(1)),
    INDEX idx_trace_id TraceId TYPE bloom_filter(0.01) GRANULARITY 1
)
ENGINE = MergeTree
PARTITION BY toDate(Start, 'UTC')
ORDER BY (TraceId, Start)
SETTINGS ttl_only_drop_parts = 1, {{mergetree}};

CREATE MATERIALIZED VIEW otel_traces_trace_id_ts_mv TO otel_traces_trace_id_ts AS
SELECT TraceId, min(Timestamp) AS Start, max(Timestamp) AS End
FROM otel_traces
WHERE TraceId != ''
GROUP BY TraceId;

-- Which traces changed when: what the assembler reads. Sorted by arrival, so that "since T" is a range.
CREATE TABLE trace_arrivals
(
    ArrivedAt DateTime64(9, 'UTC') DEFAULT now64(9) CODEC(Delta(8), ZSTD(1)),
    TraceId String CODEC(ZSTD(1)),
    FirstStart DateTime64(9, 'UTC') CODEC(Delta(8), ZSTD(1)),
    LastEnd DateTime64(9, 'UTC') CODEC(Delta(8), ZSTD(1)),
    Spans UInt32 CODEC(ZSTD(1))
)
ENGINE = MergeTree
PARTITION BY toDate(ArrivedAt, 'UTC')
ORDER BY (ArrivedAt, TraceId)
TTL toDateTime(ArrivedAt, 'UTC') + INTERVAL 30 DAY
SETTINGS ttl_only_drop_parts = 1, {{mergetree}};

CREATE MATERIALIZED VIEW trace_arrivals_mv TO trace_arrivals AS
SELECT
    TraceId,
    min(Timestamp) AS FirstStart,
    max(fromUnixTimestamp64Nano(toUnixTimestamp64Nano(Timestamp) + toInt64(Duration))) AS LastEnd,
    count() AS Spans
FROM otel_traces
WHERE TraceId != ''
GROUP BY TraceId;

-- Where OTLP requests enter: one row a request, kept by nobody. The view below takes it apart.
-- Values are declared one level deep; a deeper array or list arrives as its undecoded bytes, which the view refuses.
CREATE TABLE otlp_traces
(
    resource_spans Array(Tuple(
        resource Tuple(attributes {{attributes}}),
        schema_url String,
        scope_spans Array(Tuple(
            scope Tuple(name String, version String, attributes {{attributes}}),
            schema_url String,
            spans Array(Tuple(
                trace_id String, span_id String, trace_state String, parent_span_id String, flags UInt32,
                name String, kind Int32, start_time_unix_nano UInt64, end_time_unix_nano UInt64,
                attributes {{attributes}}, dropped_attributes_count UInt32,
                events Array(Tuple(time_unix_nano UInt64, name String, attributes {{attributes}})),
                dropped_events_count UInt32,
                links Array(Tuple(trace_id String, span_id String, trace_state String, attributes {{attributes}})),
                dropped_links_count UInt32,
                status Tuple(message String, code Int32)
            ))
        ))
    ))
)
ENGINE = Null;

CREATE MATERIALIZED VIEW otlp_traces_mv TO otel_traces AS
WITH
{{functions}},
    -- Token attributes move to their own columns only if they are what they should be: lists of integers.
    (a -> (a.key IN ('promptpath.token.gaps_us', 'promptpath.token.counts')
        AND a.value.value = 'array_value'
        AND arrayAll(e -> e.value = 'int_value', a.value.array_value.values))) AS is_token_list,
    ((attributes, name) -> arrayFirst(a -> a.key = name AND is_token_list(a), attributes).value.array_value.values.int_value) AS token_list
SELECT
    to_time(span.start_time_unix_nano) AS Timestamp,
    to_hex(span.trace_id) AS TraceId,
    to_hex(span.span_id) AS SpanId,
    to_hex(span.parent_span_id) AS ParentSpanId,
    span.trace_state AS TraceState,
    span.name AS SpanName,
    transform(span.kind, [1, 2, 3, 4, 5], ['Internal', 'Server', 'Client', 'Producer', 'Consumer'], 'Unspecified') AS SpanKind,
    ServiceName,
    ResourceAttributes,
    ScopeName,
    ScopeVersion,
    to_map(arrayFilter(a -> NOT is_token_list(a), span.attributes)) AS SpanAttributes,
    -- A span that ends before it starts lasts 0, as its clock was set back.
    if(span.end_time_unix_nano > span.start_time_unix_nano, span.end_time_unix_nano - span.start_time_unix_nano, 0) AS Duration,
    transform(span.status.code, [1, 2], ['Ok', 'Error'], 'Unset') AS StatusCode,
    span.status.message AS StatusMessage,
    arrayMap(ns -> to_time(ns), span.events.time_unix_nano) AS `Events.Timestamp`,
    span.events.name AS `Events.Name`,
    arrayMap(a -> to_map(a), span.events.attributes) AS `Events.Attributes`,
    arrayMap(id -> to_hex(id), span.links.trace_id) AS `Links.TraceId`,
    arrayMap(id -> to_hex(id), span.links.span_id) AS `Links.SpanId`,
    span.links.trace_state AS `Links.TraceState`,
    arrayMap(a -> to_map(a), span.links.attributes) AS `Links.Attributes`,
    arrayMap(us -> toUInt32(least(greatest(us, 0), 4294967295)), token_list(span.attributes, 'promptpath.token.gaps_us')) AS TokenGapsUs,
    arrayMap(n -> toUInt16(least(greatest(n, 0), 65535)), token_list(span.attributes, 'promptpath.token.counts')) AS TokenCounts,
    span.flags AS Flags,
    ScopeAttributes,
    ResourceSchemaUrl,
    ScopeSchemaUrl,
    span.dropped_attributes_count AS DroppedAttributesCount,
    span.dropped_events_count AS DroppedEventsCount,
    span.dropped_links_count AS DroppedLinksCount
FROM
(
    SELECT
        ResourceAttributes, ResourceSchemaUrl, ServiceName,
        scope.scope.name AS ScopeName, scope.scope.version AS ScopeVersion,
        to_map(scope.scope.attributes) AS ScopeAttributes, scope.schema_url AS ScopeSchemaUrl,
        arrayJoin(scope.spans) AS span
    FROM
    (
        SELECT
            to_map(r.resource.attributes) AS ResourceAttributes, r.schema_url AS ResourceSchemaUrl,
            ResourceAttributes['service.name'] AS ServiceName, arrayJoin(r.scope_spans) AS scope
        FROM (SELECT arrayJoin(resource_spans) AS r FROM otlp_traces)
    )
);
