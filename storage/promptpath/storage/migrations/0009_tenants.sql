-- Whose rows are whose. `Tenant` is of the token that a request came with: the collector writes it into the envelope of each
-- resource (field 2046, see otlp/*.proto), in the place of whatever its sender had there. Empty where no tokens are asked for.
-- Everything that reads a trace for the assembler goes by both, so that two tenants may use one trace id.

ALTER TABLE otel_traces ADD COLUMN IF NOT EXISTS Tenant LowCardinality(String) CODEC(ZSTD(1));

ALTER TABLE otel_logs ADD COLUMN IF NOT EXISTS Tenant LowCardinality(String) CODEC(ZSTD(1));

ALTER TABLE otel_metrics_gauge ADD COLUMN IF NOT EXISTS Tenant LowCardinality(String) CODEC(ZSTD(1));

ALTER TABLE otel_metrics_sum ADD COLUMN IF NOT EXISTS Tenant LowCardinality(String) CODEC(ZSTD(1));

ALTER TABLE otel_metrics_histogram ADD COLUMN IF NOT EXISTS Tenant LowCardinality(String) CODEC(ZSTD(1));

ALTER TABLE otel_metrics_exponential_histogram ADD COLUMN IF NOT EXISTS Tenant LowCardinality(String) CODEC(ZSTD(1));

ALTER TABLE otel_metrics_summary ADD COLUMN IF NOT EXISTS Tenant LowCardinality(String) CODEC(ZSTD(1));

ALTER TABLE trace_arrivals ADD COLUMN IF NOT EXISTS Tenant LowCardinality(String) CODEC(ZSTD(1));

ALTER TABLE clock_offsets ADD COLUMN IF NOT EXISTS Tenant LowCardinality(String) CODEC(ZSTD(1));

ALTER TABLE otlp_metric_points ADD COLUMN IF NOT EXISTS Tenant LowCardinality(String);

ALTER TABLE otlp_traces MODIFY COLUMN resource_spans Array(Tuple(
    resource Tuple(attributes {{attributes}}),
    schema_url String,
    tenant String,
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
));

ALTER TABLE otlp_logs MODIFY COLUMN resource_logs Array(Tuple(
    resource Tuple(attributes {{attributes}}),
    schema_url String,
    tenant String,
    scope_logs Array(Tuple(
        scope Tuple(name String, version String, attributes {{attributes}}),
        schema_url String,
        log_records Array(Tuple(
            time_unix_nano UInt64, observed_time_unix_nano UInt64, severity_number Int32, severity_text String,
            body Tuple({{value}}), attributes {{attributes}}, flags UInt32,
            trace_id String, span_id String, event_name String
        ))
    ))
));

ALTER TABLE otlp_metrics MODIFY COLUMN resource_metrics Array(Tuple(
    resource Tuple(attributes {{attributes}}),
    schema_url String,
    tenant String,
    scope_metrics Array(Tuple(
        scope Tuple(name String, version String, attributes {{attributes}}, dropped_attributes_count UInt32),
        schema_url String,
        metrics Array(Tuple(
            name String, description String, unit String,
            gauge Tuple(data_points Array(Tuple({{number_point}}))),
            sum Tuple(data_points Array(Tuple({{number_point}})), aggregation_temporality Int32, is_monotonic Bool),
            histogram Tuple(
                data_points Array(Tuple(
                    attributes {{attributes}}, start_time_unix_nano UInt64, time_unix_nano UInt64, count UInt64,
                    sum Float64, bucket_counts Array(UInt64), explicit_bounds Array(Float64), {{exemplar}},
                    flags UInt32, min Float64, max Float64
                )),
                aggregation_temporality Int32
            ),
            exponential_histogram Tuple(
                data_points Array(Tuple(
                    attributes {{attributes}}, start_time_unix_nano UInt64, time_unix_nano UInt64, count UInt64,
                    sum Float64, scale Int32, zero_count UInt64,
                    positive Tuple(offset Int32, bucket_counts Array(UInt64)),
                    negative Tuple(offset Int32, bucket_counts Array(UInt64)), {{exemplar}},
                    flags UInt32, min Float64, max Float64
                )),
                aggregation_temporality Int32
            ),
            summary Tuple(data_points Array(Tuple(
                attributes {{attributes}}, start_time_unix_nano UInt64, time_unix_nano UInt64, count UInt64,
                sum Float64, quantile_values Array(Tuple(quantile Float64, value Float64)), flags UInt32
            )))
        ))
    ))
));

ALTER TABLE otlp_traces_mv MODIFY QUERY
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
    span.dropped_links_count AS DroppedLinksCount,
    Tenant
FROM
(
    SELECT
        ResourceAttributes, ResourceSchemaUrl, ServiceName, Tenant,
        scope.scope.name AS ScopeName, scope.scope.version AS ScopeVersion,
        to_map(scope.scope.attributes) AS ScopeAttributes, scope.schema_url AS ScopeSchemaUrl,
        arrayJoin(scope.spans) AS span
    FROM
    (
        SELECT
            to_map(r.resource.attributes) AS ResourceAttributes, r.schema_url AS ResourceSchemaUrl, r.tenant AS Tenant,
            ResourceAttributes['service.name'] AS ServiceName, arrayJoin(r.scope_spans) AS scope
        FROM (SELECT arrayJoin(resource_spans) AS r FROM otlp_traces)
    )
);

ALTER TABLE otlp_logs_mv MODIFY QUERY
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
    record.event_name AS EventName,
    Tenant
FROM
(
    SELECT
        ResourceAttributes, ResourceSchemaUrl, ServiceName, Tenant,
        scope.scope.name AS ScopeName, scope.scope.version AS ScopeVersion,
        to_map(scope.scope.attributes) AS ScopeAttributes, scope.schema_url AS ScopeSchemaUrl,
        arrayJoin(scope.log_records) AS record
    FROM
    (
        SELECT
            to_map(r.resource.attributes) AS ResourceAttributes, r.schema_url AS ResourceSchemaUrl, r.tenant AS Tenant,
            ResourceAttributes['service.name'] AS ServiceName, arrayJoin(r.scope_logs) AS scope
        FROM (SELECT arrayJoin(resource_logs) AS r FROM otlp_logs)
    )
);

ALTER TABLE otlp_metrics_mv MODIFY QUERY
WITH
{{functions}}
SELECT
    Kind,
    ResourceAttributes,
    ResourceSchemaUrl,
    ScopeName,
    ScopeVersion,
    ScopeAttributes,
    ScopeDroppedAttrCount,
    ScopeSchemaUrl,
    ServiceName,
    metric.name AS MetricName,
    metric.description AS MetricDescription,
    metric.unit AS MetricUnit,
    to_map(attributes) AS Attributes,
    to_time(start_ns) AS StartTimeUnix,
    to_time(time_ns) AS TimeUnix,
    Flags,
    arrayMap(a -> to_map(a), exemplars.filtered_attributes) AS `Exemplars.FilteredAttributes`,
    arrayMap(ns -> to_time(ns), exemplars.time_unix_nano) AS `Exemplars.TimeUnix`,
    arrayMap(e -> if(e.value = 'as_int', toFloat64(e.as_int), e.as_double), exemplars) AS `Exemplars.Value`,
    arrayMap(id -> to_hex(id), exemplars.span_id) AS `Exemplars.SpanId`,
    arrayMap(id -> to_hex(id), exemplars.trace_id) AS `Exemplars.TraceId`,
    metric.sum.aggregation_temporality + metric.histogram.aggregation_temporality
        + metric.exponential_histogram.aggregation_temporality AS AggregationTemporality,
    metric.sum.is_monotonic AS IsMonotonic,
    Value,
    Count,
    Sum,
    Min,
    Max,
    BucketCounts,
    ExplicitBounds,
    Scale,
    ZeroCount,
    PositiveOffset,
    PositiveBucketCounts,
    NegativeOffset,
    NegativeBucketCounts,
    quantiles.quantile AS `ValueAtQuantiles.Quantile`,
    quantiles.value AS `ValueAtQuantiles.Value`,
    Tenant
FROM
(
    SELECT
        ResourceAttributes, ResourceSchemaUrl, ServiceName, Tenant,
        scope.scope.name AS ScopeName, scope.scope.version AS ScopeVersion,
        to_map(scope.scope.attributes) AS ScopeAttributes,
        scope.scope.dropped_attributes_count AS ScopeDroppedAttrCount, scope.schema_url AS ScopeSchemaUrl,
        arrayJoin(scope.metrics) AS metric,
        metric.gauge.data_points AS g, metric.sum.data_points AS s, metric.histogram.data_points AS h,
        metric.exponential_histogram.data_points AS e, metric.summary.data_points AS q,
        multiIf(notEmpty(g), 'gauge', notEmpty(s), 'sum', notEmpty(h), 'histogram', notEmpty(e), 'exponential_histogram', 'summary') AS Kind,
        length(g) + length(s) + length(h) + length(e) + length(q) AS points
    FROM
    (
        SELECT
            to_map(r.resource.attributes) AS ResourceAttributes, r.schema_url AS ResourceSchemaUrl, r.tenant AS Tenant,
            ResourceAttributes['service.name'] AS ServiceName, arrayJoin(r.scope_metrics) AS scope
        FROM (SELECT arrayJoin(resource_metrics) AS r FROM otlp_metrics)
    )
)
ARRAY JOIN
    arrayConcat(g.attributes, s.attributes, h.attributes, e.attributes, q.attributes) AS attributes,
    arrayConcat(g.start_time_unix_nano, s.start_time_unix_nano, h.start_time_unix_nano, e.start_time_unix_nano, q.start_time_unix_nano) AS start_ns,
    arrayConcat(g.time_unix_nano, s.time_unix_nano, h.time_unix_nano, e.time_unix_nano, q.time_unix_nano) AS time_ns,
    arrayConcat(g.flags, s.flags, h.flags, e.flags, q.flags) AS Flags,
    arrayResize(arrayConcat(g.exemplars, s.exemplars, h.exemplars, e.exemplars), points) AS exemplars,
    arrayResize(arrayMap(p -> if(p.value = 'as_int', toFloat64(p.as_int), p.as_double), arrayConcat(g, s)), points) AS Value,
    arrayResize(arrayConcat(h.count, e.count, q.count), points) AS Count,
    arrayResize(arrayConcat(h.sum, e.sum, q.sum), points) AS Sum,
    arrayResize(arrayConcat(h.min, e.min), points) AS Min,
    arrayResize(arrayConcat(h.max, e.max), points) AS Max,
    arrayResize(h.bucket_counts, points) AS BucketCounts,
    arrayResize(h.explicit_bounds, points) AS ExplicitBounds,
    arrayResize(e.scale, points) AS Scale,
    arrayResize(e.zero_count, points) AS ZeroCount,
    arrayResize(e.positive.offset, points) AS PositiveOffset,
    arrayResize(e.positive.bucket_counts, points) AS PositiveBucketCounts,
    arrayResize(e.negative.offset, points) AS NegativeOffset,
    arrayResize(e.negative.bucket_counts, points) AS NegativeBucketCounts,
    arrayResize(q.quantile_values, points) AS quantiles;

ALTER TABLE otlp_metrics_gauge_mv MODIFY QUERY
SELECT
{{metric_select}},
    Value,
{{exemplar_select}},
    Tenant
FROM otlp_metric_points
WHERE Kind = 'gauge';

ALTER TABLE otlp_metrics_sum_mv MODIFY QUERY
SELECT
{{metric_select}},
    Value,
    AggregationTemporality,
    IsMonotonic,
{{exemplar_select}},
    Tenant
FROM otlp_metric_points
WHERE Kind = 'sum';

ALTER TABLE otlp_metrics_histogram_mv MODIFY QUERY
SELECT
{{metric_select}},
    Count,
    Sum,
    Min,
    Max,
    BucketCounts,
    ExplicitBounds,
    AggregationTemporality,
{{exemplar_select}},
    Tenant
FROM otlp_metric_points
WHERE Kind = 'histogram';

ALTER TABLE otlp_metrics_exponential_histogram_mv MODIFY QUERY
SELECT
{{metric_select}},
    Count,
    Sum,
    Min,
    Max,
    Scale,
    ZeroCount,
    PositiveOffset,
    PositiveBucketCounts,
    NegativeOffset,
    NegativeBucketCounts,
    AggregationTemporality,
{{exemplar_select}},
    Tenant
FROM otlp_metric_points
WHERE Kind = 'exponential_histogram';

ALTER TABLE otlp_metrics_summary_mv MODIFY QUERY
SELECT
{{metric_select}},
    Count,
    Sum,
    `ValueAtQuantiles.Quantile`,
    `ValueAtQuantiles.Value`,
    Tenant
FROM otlp_metric_points
WHERE Kind = 'summary';

ALTER TABLE trace_arrivals_mv MODIFY QUERY
SELECT
    Tenant,
    TraceId,
    min(Timestamp) AS FirstStart,
    max(fromUnixTimestamp64Nano(toUnixTimestamp64Nano(Timestamp) + toInt64(Duration))) AS LastEnd,
    count() AS Spans
FROM otel_traces
WHERE TraceId != ''
GROUP BY Tenant, TraceId;

-- A prompt is known by its root span and its tenant; `tenant` stays what is shown, and is this where there is one.
ALTER TABLE prompts_rows ADD COLUMN IF NOT EXISTS token_tenant LowCardinality(String) AFTER workflow_end, MODIFY ORDER BY (start_time, prompt_id, token_tenant);

CREATE OR REPLACE VIEW prompts AS SELECT * EXCEPT (is_deleted) FROM prompts_rows FINAL WHERE is_deleted = 0;
