-- What the columns of the exporter do not say of metrics, as 0012 has it for spans and records, so that what was received can be
-- given back as it came: kinds of attributes, which numbers were integers (in full where a Float64 cannot hold them), what a
-- histogram did not say (0 in its column), and two fields that had no column. See docs/data-model.md.
ALTER TABLE otel_metrics_gauge ADD COLUMN IF NOT EXISTS Types LowCardinality(String) CODEC(ZSTD(1)), ADD COLUMN IF NOT EXISTS MetricMetadata Map(LowCardinality(String), String) CODEC(ZSTD(1));

ALTER TABLE otel_metrics_sum ADD COLUMN IF NOT EXISTS Types LowCardinality(String) CODEC(ZSTD(1)), ADD COLUMN IF NOT EXISTS MetricMetadata Map(LowCardinality(String), String) CODEC(ZSTD(1));

ALTER TABLE otel_metrics_histogram ADD COLUMN IF NOT EXISTS Types LowCardinality(String) CODEC(ZSTD(1)), ADD COLUMN IF NOT EXISTS MetricMetadata Map(LowCardinality(String), String) CODEC(ZSTD(1));

ALTER TABLE otel_metrics_exponential_histogram ADD COLUMN IF NOT EXISTS Types LowCardinality(String) CODEC(ZSTD(1)), ADD COLUMN IF NOT EXISTS MetricMetadata Map(LowCardinality(String), String) CODEC(ZSTD(1)), ADD COLUMN IF NOT EXISTS ZeroThreshold Float64 CODEC(ZSTD(1));

ALTER TABLE otel_metrics_summary ADD COLUMN IF NOT EXISTS Types LowCardinality(String) CODEC(ZSTD(1)), ADD COLUMN IF NOT EXISTS MetricMetadata Map(LowCardinality(String), String) CODEC(ZSTD(1));

ALTER TABLE otlp_metric_points ADD COLUMN IF NOT EXISTS Types LowCardinality(String), ADD COLUMN IF NOT EXISTS MetricMetadata Map(LowCardinality(String), String), ADD COLUMN IF NOT EXISTS ZeroThreshold Float64;

ALTER TABLE otlp_metrics MODIFY COLUMN resource_metrics Array(Tuple(
    resource Tuple(attributes {{attributes}}, dropped_attributes_count UInt32),
    schema_url String,
    tenant String,
    scope_metrics Array(Tuple(
        scope Tuple(name String, version String, attributes {{attributes}}, dropped_attributes_count UInt32),
        schema_url String,
        metrics Array(Tuple(
            name String, description String, unit String, metadata {{attributes}},
            gauge Tuple(data_points Array(Tuple({{number_point}}))),
            sum Tuple(data_points Array(Tuple({{number_point}})), aggregation_temporality Int32, is_monotonic Bool),
            histogram Tuple(
                data_points Array(Tuple(
                    attributes {{attributes}}, start_time_unix_nano UInt64, time_unix_nano UInt64, count UInt64,
                    sum Nullable(Float64), bucket_counts Array(UInt64), explicit_bounds Array(Float64), {{exemplar}},
                    flags UInt32, min Nullable(Float64), max Nullable(Float64)
                )),
                aggregation_temporality Int32
            ),
            exponential_histogram Tuple(
                data_points Array(Tuple(
                    attributes {{attributes}}, start_time_unix_nano UInt64, time_unix_nano UInt64, count UInt64,
                    sum Nullable(Float64), scale Int32, zero_count UInt64,
                    positive Tuple(offset Int32, bucket_counts Array(UInt64)),
                    negative Tuple(offset Int32, bucket_counts Array(UInt64)), {{exemplar}},
                    flags UInt32, min Nullable(Float64), max Nullable(Float64), zero_threshold Float64
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

ALTER TABLE otlp_metrics_mv MODIFY QUERY
WITH
{{functions}},
{{types}},
{{times}},
    -- Nothing for a double; an integer in full where a Float64 cannot hold it.
    ((kind, number) -> multiIf(kind = 'as_double', '', kind = 'none', 'n', abs(number) <= 9007199254740992, 'i', concat('i', toString(number)))) AS number_type,
    -- What is not there: s(um) m(inimum) x (maximum).
    ((sums, lows, highs) -> arrayMap((total, low, high) -> concat(if(isNull(total), 's', ''), if(isNull(low), 'm', ''), if(isNull(high), 'x', '')), sums, lows, highs)) AS missing,
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
    if(is_sound, 0, time_ns) AS SentTime,
    -- Attributes of the point, resource, scope, metric; its number or what it lacks; exemplars' attributes and numbers; a count of
    -- the dropped.
    trimRight(concat(
        types_of(attributes), '|', ResourceTypes, '|', ScopeTypes, '|', MetadataTypes, '|', said, '|',
        trimRight(arrayStringConcat(arrayMap(a -> types_of(a), exemplars.filtered_attributes), ','), ','), '|',
        trimRight(arrayStringConcat(arrayMap(e -> number_type(e.value, e.as_int), exemplars), ','), ','), '|',
        if(ResourceDropped = 0, '', toString(ResourceDropped))), '|') AS Types,
    MetricMetadata,
    ZeroThreshold
FROM
(
    SELECT
        received_ns, oldest_ns, newest_ns, ResourceAttributes, ResourceSchemaUrl, ServiceName, Tenant, ResourceTypes, ResourceDropped,
        types_of(scope.scope.attributes) AS ScopeTypes,
        scope.scope.name AS ScopeName, scope.scope.version AS ScopeVersion,
        to_map(scope.scope.attributes) AS ScopeAttributes,
        scope.scope.dropped_attributes_count AS ScopeDroppedAttrCount, scope.schema_url AS ScopeSchemaUrl,
        arrayJoin(scope.metrics) AS metric,
        to_map(metric.metadata) AS MetricMetadata, types_of(metric.metadata) AS MetadataTypes,
        metric.gauge.data_points AS g, metric.sum.data_points AS s, metric.histogram.data_points AS h,
        metric.exponential_histogram.data_points AS e, metric.summary.data_points AS q,
        multiIf(notEmpty(g), 'gauge', notEmpty(s), 'sum', notEmpty(h), 'histogram', notEmpty(e), 'exponential_histogram', 'summary') AS Kind,
        length(g) + length(s) + length(h) + length(e) + length(q) AS points
    FROM
    (
        SELECT
            received_ns, oldest_ns, newest_ns, to_map(r.resource.attributes) AS ResourceAttributes, r.schema_url AS ResourceSchemaUrl, r.tenant AS Tenant,
            types_of(r.resource.attributes) AS ResourceTypes, r.resource.dropped_attributes_count AS ResourceDropped,
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
    arrayResize(arrayConcat(
        arrayMap(p -> number_type(p.value, p.as_int), arrayConcat(g, s)),
        missing(h.sum, h.min, h.max), missing(e.sum, e.min, e.max)), points) AS said,
    arrayResize(arrayMap(v -> ifNull(v, 0), arrayConcat(h.sum, e.sum, q.sum)), points) AS Sum,
    arrayResize(arrayMap(v -> ifNull(v, 0), arrayConcat(h.min, e.min)), points) AS Min,
    arrayResize(arrayMap(v -> ifNull(v, 0), arrayConcat(h.max, e.max)), points) AS Max,
    arrayResize(e.zero_threshold, points) AS ZeroThreshold,
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
    SentTime,
    Types,
    MetricMetadata
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
    SentTime,
    Types,
    MetricMetadata,
    ZeroThreshold
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
    SentTime,
    Types,
    MetricMetadata
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
    SentTime,
    Types,
    MetricMetadata
FROM otlp_metric_points
WHERE Kind = 'sum';

ALTER TABLE otlp_metrics_gauge_mv MODIFY QUERY
SELECT
{{metric_select}},
    Value,
{{exemplar_select}},
    Tenant,
    Clamped,
    SentTime,
    Types,
    MetricMetadata
FROM otlp_metric_points
WHERE Kind = 'gauge';
