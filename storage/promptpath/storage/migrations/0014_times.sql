-- Times that cannot be (zero, 1970, 2100, an end before its start, a duration of years) cost nobody a batch or a partition a day:
-- rows get times that can be, `Clamped` says so, and what was sent stands beside them, in ns since the epoch. Which times can
-- be comes with the batch, in its envelope (field 2045, see otlp/*.proto), so that a batch that is sent again is the same rows.
ALTER TABLE otel_traces ADD COLUMN IF NOT EXISTS Clamped LowCardinality(String) CODEC(ZSTD(1)), ADD COLUMN IF NOT EXISTS SentStart UInt64 CODEC(ZSTD(1)), ADD COLUMN IF NOT EXISTS SentEnd UInt64 CODEC(ZSTD(1));

ALTER TABLE otel_logs ADD COLUMN IF NOT EXISTS Clamped LowCardinality(String) CODEC(ZSTD(1)), ADD COLUMN IF NOT EXISTS SentTime UInt64 CODEC(ZSTD(1));

ALTER TABLE otel_metrics_gauge ADD COLUMN IF NOT EXISTS Clamped LowCardinality(String) CODEC(ZSTD(1)), ADD COLUMN IF NOT EXISTS SentTime UInt64 CODEC(ZSTD(1));

ALTER TABLE otel_metrics_sum ADD COLUMN IF NOT EXISTS Clamped LowCardinality(String) CODEC(ZSTD(1)), ADD COLUMN IF NOT EXISTS SentTime UInt64 CODEC(ZSTD(1));

ALTER TABLE otel_metrics_histogram ADD COLUMN IF NOT EXISTS Clamped LowCardinality(String) CODEC(ZSTD(1)), ADD COLUMN IF NOT EXISTS SentTime UInt64 CODEC(ZSTD(1));

ALTER TABLE otel_metrics_exponential_histogram ADD COLUMN IF NOT EXISTS Clamped LowCardinality(String) CODEC(ZSTD(1)), ADD COLUMN IF NOT EXISTS SentTime UInt64 CODEC(ZSTD(1));

ALTER TABLE otel_metrics_summary ADD COLUMN IF NOT EXISTS Clamped LowCardinality(String) CODEC(ZSTD(1)), ADD COLUMN IF NOT EXISTS SentTime UInt64 CODEC(ZSTD(1));

ALTER TABLE otlp_metric_points ADD COLUMN IF NOT EXISTS Clamped LowCardinality(String), ADD COLUMN IF NOT EXISTS SentTime UInt64;

ALTER TABLE otlp_traces ADD COLUMN IF NOT EXISTS envelope Array(UInt64);

ALTER TABLE otlp_logs ADD COLUMN IF NOT EXISTS envelope Array(UInt64);

ALTER TABLE otlp_metrics ADD COLUMN IF NOT EXISTS envelope Array(UInt64);

ALTER TABLE otlp_traces_mv MODIFY QUERY
WITH
{{functions}},
{{types}},
    -- Token attributes move to their own columns only if they are what they should be: lists of integers.
    (a -> (a.key IN ('promptpath.token.gaps_us', 'promptpath.token.counts')
        AND a.value.value = 'array_value'
        AND arrayAll(e -> e.value = 'int_value', a.value.array_value.values))) AS is_token_list,
    ((attributes, name) -> arrayFirst(a -> a.key = name AND is_token_list(a), attributes).value.array_value.values.int_value) AS token_list,
{{times}},
    span.start_time_unix_nano AS start_ns,
    span.end_time_unix_nano AS end_ns,
    can_be(start_ns, oldest_ns, newest_ns) AS start_can_be,
    can_be(end_ns, oldest_ns, newest_ns) AS end_can_be,
    toUInt64(end_ns - start_ns) AS length_ns,
    -- At most 30 days.
    toUInt8((end_ns >= start_ns) * (length_ns <= 2592000000000000)) AS lasts,
    toUInt8(start_can_be * end_can_be * lasts) AS is_sound,
    -- Of two that could be, but are too far apart, the later one counts.
    toUInt8(start_ns * start_can_be >= end_ns * end_can_be) AS start_is_later,
    toUInt8(start_can_be + end_can_be > 0) AS one_can_be,
    toUInt8(is_sound + (1 - is_sound) * one_can_be * start_is_later) AS is_start,
    toUInt8((1 - is_sound) * one_can_be * (1 - start_is_later)) AS is_end,
    -- A clock that was set to another year still tells how long things took, but not an instant that may stand for none.
    toUInt8((1 - start_can_be) * (1 - end_can_be) * lasts * (start_ns > 0) * (end_ns > start_ns)) AS is_moved
SELECT
    to_time(start_ns * is_start + end_ns * is_end + moved(start_ns, received_ns) * is_moved
        + received_ns * toUInt8(is_start + is_end + is_moved = 0)) AS Timestamp,
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
    if(is_sound + is_moved > 0, length_ns, 0) AS Duration,
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
    Tenant,
    -- Attributes of the span, resource, scope, events, links; then counts of the dropped, where there are any.
    trimRight(concat(
        types_of(arrayFilter(a -> NOT is_token_list(a), span.attributes)), '|', ResourceTypes, '|', ScopeTypes, '|',
        arrayStringConcat(arrayMap(a -> types_of(a), span.events.attributes), ','), '|',
        arrayStringConcat(arrayMap(a -> types_of(a), span.links.attributes), ','), '|',
        if(ResourceDropped + ScopeDropped + arraySum(span.events.dropped_attributes_count) + arraySum(span.links.dropped_attributes_count) = 0, '',
            concat(toString(ResourceDropped), ',', toString(ScopeDropped), ';',
                arrayStringConcat(span.events.dropped_attributes_count, ','), ';',
                arrayStringConcat(span.links.dropped_attributes_count, ','))), '|',
        if(arraySum(span.links.flags) = 0, '', arrayStringConcat(span.links.flags, ','))), '|,') AS Types,
    -- What could not be.
    multiIf(is_sound, '', is_start, 'end', is_end, 'start', is_moved, 'moved', 'start,end') AS Clamped,
    if(is_sound, 0, start_ns) AS SentStart,
    if(is_sound, 0, end_ns) AS SentEnd
FROM
(
    SELECT
        received_ns, oldest_ns, newest_ns, ResourceAttributes, ResourceSchemaUrl, ServiceName, Tenant, ResourceTypes, ResourceDropped,
        types_of(scope.scope.attributes) AS ScopeTypes, scope.scope.dropped_attributes_count AS ScopeDropped,
        scope.scope.name AS ScopeName, scope.scope.version AS ScopeVersion,
        to_map(scope.scope.attributes) AS ScopeAttributes, scope.schema_url AS ScopeSchemaUrl,
        arrayJoin(scope.spans) AS span
    FROM
    (
        SELECT
            received_ns, oldest_ns, newest_ns, to_map(r.resource.attributes) AS ResourceAttributes, r.schema_url AS ResourceSchemaUrl, r.tenant AS Tenant,
            types_of(r.resource.attributes) AS ResourceTypes, r.resource.dropped_attributes_count AS ResourceDropped,
            ResourceAttributes['service.name'] AS ServiceName, arrayJoin(r.scope_spans) AS scope
        FROM
        (
            SELECT
{{envelope}},
                arrayJoin(resource_spans) AS r
            FROM otlp_traces
        )
    )
);

ALTER TABLE otlp_logs_mv MODIFY QUERY
WITH
{{functions}},
{{types}},
{{times}},
    record.time_unix_nano AS own_ns,
    record.observed_time_unix_nano AS observed_ns,
    -- A record without a time of its own has the time at which it was seen.
    if(own_ns != 0, own_ns, observed_ns) AS time_ns,
    can_be(time_ns, oldest_ns, newest_ns) AS is_sound,
    can_be(observed_ns, oldest_ns, newest_ns) AS observed_can_be
SELECT
    to_time(multiIf(
        is_sound, time_ns, observed_can_be, observed_ns, time_ns > 0, moved(time_ns, received_ns), received_ns)) AS Timestamp,
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
    Tenant,
    -- Attributes of the record, resource, scope; the body; t where it had no time of its own; counts of the dropped.
    trimRight(concat(
        types_of(record.attributes), '|', ResourceTypes, '|', ScopeTypes, '|', value_type(record.body), '|',
        if(record.time_unix_nano = 0, 't', ''), '|',
        if(ResourceDropped + ScopeDropped = 0, '', concat(toString(ResourceDropped), ',', toString(ScopeDropped)))), '|') AS Types,
    to_time(record.observed_time_unix_nano) AS ObservedTimestamp,
    record.dropped_attributes_count AS DroppedAttributesCount,
    record.flags AS Flags,
    multiIf(is_sound, '', observed_can_be + (time_ns = 0) > 0, 'time', 'moved') AS Clamped,
    if(is_sound, 0, own_ns) AS SentTime
FROM
(
    SELECT
        received_ns, oldest_ns, newest_ns, ResourceAttributes, ResourceSchemaUrl, ServiceName, Tenant, ResourceTypes, ResourceDropped,
        types_of(scope.scope.attributes) AS ScopeTypes, scope.scope.dropped_attributes_count AS ScopeDropped,
        scope.scope.name AS ScopeName, scope.scope.version AS ScopeVersion,
        to_map(scope.scope.attributes) AS ScopeAttributes, scope.schema_url AS ScopeSchemaUrl,
        arrayJoin(scope.log_records) AS record
    FROM
    (
        SELECT
            received_ns, oldest_ns, newest_ns, to_map(r.resource.attributes) AS ResourceAttributes, r.schema_url AS ResourceSchemaUrl, r.tenant AS Tenant,
            types_of(r.resource.attributes) AS ResourceTypes, r.resource.dropped_attributes_count AS ResourceDropped,
            ResourceAttributes['service.name'] AS ServiceName, arrayJoin(r.scope_logs) AS scope
        FROM
        (
            SELECT
{{envelope}},
                arrayJoin(resource_logs) AS r
            FROM otlp_logs
        )
    )
);

ALTER TABLE otlp_metrics_mv MODIFY QUERY
WITH
{{functions}},
{{times}},
    can_be(time_ns, oldest_ns, newest_ns) AS is_sound
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
    to_time(multiIf(is_sound, time_ns, time_ns > 0, moved(time_ns, received_ns), received_ns)) AS TimeUnix,
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
    Tenant,
    multiIf(is_sound, '', time_ns > 0, 'moved', 'time') AS Clamped,
    if(is_sound, 0, time_ns) AS SentTime
FROM
(
    SELECT
        received_ns, oldest_ns, newest_ns, ResourceAttributes, ResourceSchemaUrl, ServiceName, Tenant,
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
            received_ns, oldest_ns, newest_ns, to_map(r.resource.attributes) AS ResourceAttributes, r.schema_url AS ResourceSchemaUrl, r.tenant AS Tenant,
            ResourceAttributes['service.name'] AS ServiceName, arrayJoin(r.scope_metrics) AS scope
        FROM
        (
            SELECT
{{envelope}},
                arrayJoin(resource_metrics) AS r
            FROM otlp_metrics
        )
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

ALTER TABLE otlp_metrics_summary_mv MODIFY QUERY
SELECT
{{metric_select}},
    Count,
    Sum,
    `ValueAtQuantiles.Quantile`,
    `ValueAtQuantiles.Value`,
    Tenant,
    Clamped,
    SentTime
FROM otlp_metric_points
WHERE Kind = 'summary';

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
    Tenant,
    Clamped,
    SentTime
FROM otlp_metric_points
WHERE Kind = 'exponential_histogram';

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
    Tenant,
    Clamped,
    SentTime
FROM otlp_metric_points
WHERE Kind = 'histogram';

ALTER TABLE otlp_metrics_sum_mv MODIFY QUERY
SELECT
{{metric_select}},
    Value,
    AggregationTemporality,
    IsMonotonic,
{{exemplar_select}},
    Tenant,
    Clamped,
    SentTime
FROM otlp_metric_points
WHERE Kind = 'sum';

ALTER TABLE otlp_metrics_gauge_mv MODIFY QUERY
SELECT
{{metric_select}},
    Value,
{{exemplar_select}},
    Tenant,
    Clamped,
    SentTime
FROM otlp_metric_points
WHERE Kind = 'gauge';

-- A batch may touch many days, each a block to remember for deduplication.
ALTER TABLE otel_traces MODIFY SETTING non_replicated_deduplication_window = 10000;

ALTER TABLE otel_traces_trace_id_ts MODIFY SETTING non_replicated_deduplication_window = 10000;

ALTER TABLE trace_arrivals MODIFY SETTING non_replicated_deduplication_window = 10000;

ALTER TABLE otel_logs MODIFY SETTING non_replicated_deduplication_window = 10000;

ALTER TABLE otel_metrics_gauge MODIFY SETTING non_replicated_deduplication_window = 10000;

ALTER TABLE otel_metrics_sum MODIFY SETTING non_replicated_deduplication_window = 10000;

ALTER TABLE otel_metrics_histogram MODIFY SETTING non_replicated_deduplication_window = 10000;

ALTER TABLE otel_metrics_exponential_histogram MODIFY SETTING non_replicated_deduplication_window = 10000;

ALTER TABLE otel_metrics_summary MODIFY SETTING non_replicated_deduplication_window = 10000;
