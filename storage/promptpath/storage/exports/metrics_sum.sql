WITH
{{common}},
    splitByChar('|', Types) AS kinds,
    -- Nothing said: a double. An integer in full where a Float64 does not hold it.
    ((value, kind) -> multiIf(
        kind = '', concat(',"asDouble":', double_of(value)),
        kind = 'i', concat(',"asInt":"', toString(toInt64(value)), '"'),
        startsWith(kind, 'i'), concat(',"asInt":"', substring(kind, 2), '"'),
        '')) AS number_of,
    ((letter, name, value) -> if(position(kinds[5], letter) > 0, '', concat(',"', name, '":', double_of(value)))) AS said_field
SELECT concat('{"resourceMetrics":[', arrayStringConcat(groupArray(resource), ','), ']}') AS line
FROM
(
    SELECT
        concat('{"resource":{"attributes":', resource_attributes, number_field('droppedAttributesCount', resource_dropped), '}',
            ',"scopeMetrics":[', arrayStringConcat(groupArray(scope), ','), ']', text_field('schemaUrl', ResourceSchemaUrl), '}') AS resource
    FROM
    (
        SELECT
            resource_attributes, resource_dropped, ResourceSchemaUrl,
            concat('{"scope":{"name":', toJSONString(ScopeName), text_field('version', ScopeVersion), ',"attributes":', scope_attributes,
                number_field('droppedAttributesCount', ScopeDroppedAttrCount), '},"metrics":[', arrayStringConcat(groupArray(metric), ','), ']',
                text_field('schemaUrl', ScopeSchemaUrl), '}') AS scope
        FROM
        (
            SELECT
                resource_attributes, resource_dropped, ResourceSchemaUrl, ScopeName, ScopeVersion, ScopeSchemaUrl, scope_attributes, ScopeDroppedAttrCount,
                concat('{"name":', toJSONString(MetricName), text_field('description', MetricDescription), text_field('unit', MetricUnit),
                    if(metadata = '[]', '', concat(',"metadata":', metadata)),
                    ',"sum":{',
                    '"aggregationTemporality":', toString(AggregationTemporality), ',"isMonotonic":', if(IsMonotonic, 'true', 'false'), ',',
                    '"dataPoints":[', arrayStringConcat(groupArray(point), ','), ']}}') AS metric
            FROM
            (
                SELECT
                    attributes_of(ResourceAttributes, kinds[2]) AS resource_attributes, toUInt32OrZero(kinds[8]) AS resource_dropped, ResourceSchemaUrl,
                    ScopeName, ScopeVersion, ScopeSchemaUrl, attributes_of(ScopeAttributes, kinds[3]) AS scope_attributes, ScopeDroppedAttrCount,
                    MetricName, MetricDescription, MetricUnit, attributes_of(MetricMetadata, kinds[4]) AS metadata, AggregationTemporality, IsMonotonic,
                    concat('{"attributes":', attributes_of(Attributes, kinds[1]), ',"startTimeUnixNano":"', time_of(StartTimeUnix),
                    '","timeUnixNano":"', sent_or(Clamped, SentTime, time_of(TimeUnix)), '"', number_field('flags', Flags),
                    number_of(Value, kinds[5]),
                    ',"exemplars":[', arrayStringConcat(arrayMap(
                        (time, value, attributes, trace, span, at) -> concat('{"timeUnixNano":"', time_of(time), '"', number_of(value, splitByChar(',', kinds[7])[at]),
                            ',"filteredAttributes":', attributes_of(attributes, splitByChar(',', kinds[6])[at]), text_field('traceId', trace), text_field('spanId', span), '}'),
                        `Exemplars.TimeUnix`, `Exemplars.Value`, `Exemplars.FilteredAttributes`, `Exemplars.TraceId`, `Exemplars.SpanId`,
                        arrayEnumerate(`Exemplars.SpanId`)), ','), ']',
                    '}') AS point
                FROM otel_metrics_sum
                WHERE {{where}}
                ORDER BY MetricName, TimeUnix
            )
            GROUP BY
                resource_attributes, resource_dropped, ResourceSchemaUrl, ScopeName, ScopeVersion, ScopeSchemaUrl, scope_attributes, ScopeDroppedAttrCount,
                MetricName, MetricDescription, MetricUnit, metadata, AggregationTemporality, IsMonotonic
        )
        GROUP BY resource_attributes, resource_dropped, ResourceSchemaUrl, ScopeName, ScopeVersion, ScopeSchemaUrl, scope_attributes, ScopeDroppedAttrCount
    )
    GROUP BY resource_attributes, resource_dropped, ResourceSchemaUrl
)
HAVING count() > 0
FORMAT TabSeparatedRaw
