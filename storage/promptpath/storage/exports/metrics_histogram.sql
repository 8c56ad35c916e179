WITH
{{common}}
SELECT concat('{"resourceMetrics":[', arrayStringConcat(groupArray(resource), ','), ']}') AS line
FROM
(
    SELECT
        concat('{"resource":{"attributes":', resource_attributes, '}',
            ',"scopeMetrics":[', arrayStringConcat(groupArray(scope), ','), ']', text_field('schemaUrl', ResourceSchemaUrl), '}') AS resource
    FROM
    (
        SELECT
            resource_attributes, ResourceSchemaUrl,
            concat('{"scope":{"name":', toJSONString(ScopeName), text_field('version', ScopeVersion), ',"attributes":', scope_attributes,
                number_field('droppedAttributesCount', ScopeDroppedAttrCount), '},"metrics":[', arrayStringConcat(groupArray(metric), ','), ']',
                text_field('schemaUrl', ScopeSchemaUrl), '}') AS scope
        FROM
        (
            SELECT
                resource_attributes, ResourceSchemaUrl, ScopeName, ScopeVersion, ScopeSchemaUrl, scope_attributes, ScopeDroppedAttrCount,
                concat('{"name":', toJSONString(MetricName), text_field('description', MetricDescription), text_field('unit', MetricUnit),
                    ',"histogram":{',
                    '"aggregationTemporality":', toString(AggregationTemporality), ',',
                    '"dataPoints":[', arrayStringConcat(groupArray(point), ','), ']}}') AS metric
            FROM
            (
                SELECT
                    attributes_of(ResourceAttributes, '') AS resource_attributes, ResourceSchemaUrl,
                    ScopeName, ScopeVersion, ScopeSchemaUrl, attributes_of(ScopeAttributes, '') AS scope_attributes, ScopeDroppedAttrCount,
                    MetricName, MetricDescription, MetricUnit, AggregationTemporality,
                    concat('{"attributes":', attributes_of(Attributes, ''), ',"startTimeUnixNano":"', time_of(StartTimeUnix),
                    '","timeUnixNano":"', sent_or(Clamped, SentTime, time_of(TimeUnix)), '"', number_field('flags', Flags),
                    ',"count":"', toString(Count), '","sum":', double_of(Sum), ',"min":', double_of(Min), ',"max":', double_of(Max),
                    ',"bucketCounts":[', arrayStringConcat(arrayMap(n -> concat('"', toString(n), '"'), BucketCounts), ','),
                    '],"explicitBounds":[', arrayStringConcat(arrayMap(n -> double_of(n), ExplicitBounds), ','), ']',
                    ',"exemplars":[', arrayStringConcat(arrayMap(
                        (time, value, attributes, trace, span) -> concat('{"timeUnixNano":"', time_of(time), '","asDouble":', double_of(value),
                            ',"filteredAttributes":', attributes_of(attributes, ''), text_field('traceId', trace), text_field('spanId', span), '}'),
                        `Exemplars.TimeUnix`, `Exemplars.Value`, `Exemplars.FilteredAttributes`, `Exemplars.TraceId`, `Exemplars.SpanId`), ','), ']',
                    '}') AS point
                FROM otel_metrics_histogram
                WHERE {{where}}
                ORDER BY MetricName, TimeUnix
            )
            GROUP BY
                resource_attributes, ResourceSchemaUrl, ScopeName, ScopeVersion, ScopeSchemaUrl, scope_attributes, ScopeDroppedAttrCount,
                MetricName, MetricDescription, MetricUnit, AggregationTemporality
        )
        GROUP BY resource_attributes, ResourceSchemaUrl, ScopeName, ScopeVersion, ScopeSchemaUrl, scope_attributes, ScopeDroppedAttrCount
    )
    GROUP BY resource_attributes, ResourceSchemaUrl
)
HAVING count() > 0
FORMAT TabSeparatedRaw
