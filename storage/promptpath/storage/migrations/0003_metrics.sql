-- Metric points, a table a kind: the columns of the OpenTelemetry Collector's ClickHouse exporter.
-- Integer values are stored as Float64, as there; a missing sum, minimum or maximum is 0.
CREATE TABLE otel_metrics_gauge
(
{{metric_columns}}
    Value Float64 CODEC(ZSTD(1)),
    Flags UInt32 CODEC(ZSTD(1)),
{{exemplar_columns}}
    IngestedAt DateTime64(9) DEFAULT now64(9) CODEC(Delta(8), ZSTD(1))
)
{{metric_engine}};

CREATE TABLE otel_metrics_sum
(
{{metric_columns}}
    Value Float64 CODEC(ZSTD(1)),
    Flags UInt32 CODEC(ZSTD(1)),
{{exemplar_columns}}
    -- 1 delta, 2 cumulative.
    AggregationTemporality Int32 CODEC(ZSTD(1)),
    IsMonotonic Bool CODEC(ZSTD(1)),
    IngestedAt DateTime64(9) DEFAULT now64(9) CODEC(Delta(8), ZSTD(1))
)
{{metric_engine}};

CREATE TABLE otel_metrics_histogram
(
{{metric_columns}}
    Count UInt64 CODEC(Delta(8), ZSTD(1)),
    Sum Float64 CODEC(ZSTD(1)),
    BucketCounts Array(UInt64) CODEC(ZSTD(1)),
    ExplicitBounds Array(Float64) CODEC(ZSTD(1)),
{{exemplar_columns}}
    Flags UInt32 CODEC(ZSTD(1)),
    Min Float64 CODEC(ZSTD(1)),
    Max Float64 CODEC(ZSTD(1)),
    AggregationTemporality Int32 CODEC(ZSTD(1)),
    IngestedAt DateTime64(9) DEFAULT now64(9) CODEC(Delta(8), ZSTD(1))
)
{{metric_engine}};

CREATE TABLE otel_metrics_exponential_histogram
(
{{metric_columns}}
    Count UInt64 CODEC(Delta(8), ZSTD(1)),
    Sum Float64 CODEC(ZSTD(1)),
    Scale Int32 CODEC(ZSTD(1)),
    ZeroCount UInt64 CODEC(ZSTD(1)),
    PositiveOffset Int32 CODEC(ZSTD(1)),
    PositiveBucketCounts Array(UInt64) CODEC(ZSTD(1)),
    NegativeOffset Int32 CODEC(ZSTD(1)),
    NegativeBucketCounts Array(UInt64) CODEC(ZSTD(1)),
{{exemplar_columns}}
    Flags UInt32 CODEC(ZSTD(1)),
    Min Float64 CODEC(ZSTD(1)),
    Max Float64 CODEC(ZSTD(1)),
    AggregationTemporality Int32 CODEC(ZSTD(1)),
    IngestedAt DateTime64(9) DEFAULT now64(9) CODEC(Delta(8), ZSTD(1))
)
{{metric_engine}};

CREATE TABLE otel_metrics_summary
(
{{metric_columns}}
    Count UInt64 CODEC(Delta(8), ZSTD(1)),
    Sum Float64 CODEC(ZSTD(1)),
    ValueAtQuantiles Nested
    (
        Quantile Float64,
        Value Float64
    ) CODEC(ZSTD(1)),
    Flags UInt32 CODEC(ZSTD(1)),
    IngestedAt DateTime64(9) DEFAULT now64(9) CODEC(Delta(8), ZSTD(1))
)
{{metric_engine}};

-- Where OTLP requests enter; a request may hold all kinds.
CREATE TABLE otlp_metrics
(
    resource_metrics Array(Tuple(
        resource Tuple(attributes {{attributes}}),
        schema_url String,
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
    ))
)
ENGINE = Null;

-- One row a point, of any kind, kept by nobody: a way station, so that attributes are decoded by one expression, not by five.
CREATE TABLE otlp_metric_points
(
    Kind Enum8('gauge' = 1, 'sum' = 2, 'histogram' = 3, 'exponential_histogram' = 4, 'summary' = 5),
{{metric_columns}}
    Flags UInt32,
{{exemplar_columns}}
    AggregationTemporality Int32,
    IsMonotonic Bool,
    Value Float64,
    Count UInt64,
    Sum Float64,
    Min Float64,
    Max Float64,
    BucketCounts Array(UInt64),
    ExplicitBounds Array(Float64),
    Scale Int32,
    ZeroCount UInt64,
    PositiveOffset Int32,
    PositiveBucketCounts Array(UInt64),
    NegativeOffset Int32,
    NegativeBucketCounts Array(UInt64),
    `ValueAtQuantiles.Quantile` Array(Float64),
    `ValueAtQuantiles.Value` Array(Float64)
)
ENGINE = Null;

-- A metric has points of one kind; so a field of its points is the concatenation of that field over the kinds that have it,
-- filled up with defaults where its kind does not.
CREATE MATERIALIZED VIEW otlp_metrics_mv TO otlp_metric_points AS
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
    quantiles.value AS `ValueAtQuantiles.Value`
FROM
(
    SELECT
        ResourceAttributes, ResourceSchemaUrl, ServiceName,
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
            to_map(r.resource.attributes) AS ResourceAttributes, r.schema_url AS ResourceSchemaUrl,
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

CREATE MATERIALIZED VIEW otlp_metrics_gauge_mv TO otel_metrics_gauge AS
SELECT
{{metric_select}},
    Value,
{{exemplar_select}}
FROM otlp_metric_points
WHERE Kind = 'gauge';

CREATE MATERIALIZED VIEW otlp_metrics_sum_mv TO otel_metrics_sum AS
SELECT
{{metric_select}},
    Value,
    AggregationTemporality,
    IsMonotonic,
{{exemplar_select}}
FROM otlp_metric_points
WHERE Kind = 'sum';

CREATE MATERIALIZED VIEW otlp_metrics_histogram_mv TO otel_metrics_histogram AS
SELECT
{{metric_select}},
    Count,
    Sum,
    Min,
    Max,
    BucketCounts,
    ExplicitBounds,
    AggregationTemporality,
{{exemplar_select}}
FROM otlp_metric_points
WHERE Kind = 'histogram';

CREATE MATERIALIZED VIEW otlp_metrics_exponential_histogram_mv TO otel_metrics_exponential_histogram AS
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
{{exemplar_select}}
FROM otlp_metric_points
WHERE Kind = 'exponential_histogram';

CREATE MATERIALIZED VIEW otlp_metrics_summary_mv TO otel_metrics_summary AS
SELECT
{{metric_select}},
    Count,
    Sum,
    `ValueAtQuantiles.Quantile`,
    `ValueAtQuantiles.Value`
FROM otlp_metric_points
WHERE Kind = 'summary';
