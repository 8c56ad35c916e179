WITH
{{common}},
    splitByChar('|', Types) AS kinds
SELECT concat('{"resourceLogs":[', arrayStringConcat(groupArray(resource), ','), ']}') AS line
FROM
(
    SELECT
        concat('{"resource":{"attributes":', resource_attributes, number_field('droppedAttributesCount', resource_dropped), '}',
            ',"scopeLogs":[', arrayStringConcat(groupArray(scope), ','), ']', text_field('schemaUrl', ResourceSchemaUrl), '}') AS resource
    FROM
    (
        SELECT
            resource_attributes, resource_dropped, ResourceSchemaUrl,
            concat('{"scope":{"name":', toJSONString(ScopeName), text_field('version', ScopeVersion), ',"attributes":', scope_attributes,
                number_field('droppedAttributesCount', scope_dropped), '},"logRecords":[', arrayStringConcat(groupArray(record), ','), ']',
                text_field('schemaUrl', ScopeSchemaUrl), '}') AS scope
        FROM
        (
            SELECT
                attributes_of(ResourceAttributes, kinds[2]) AS resource_attributes, count_of(kinds, 6, 1) AS resource_dropped,
                ResourceSchemaUrl, ScopeName, ScopeVersion, ScopeSchemaUrl,
                attributes_of(ScopeAttributes, kinds[3]) AS scope_attributes, count_of(kinds, 6, 2) AS scope_dropped,
                concat('{"timeUnixNano":"', sent_or(Clamped, SentTime, if(kinds[5] = 't', '0', time_of(Timestamp))), '"',
                    ',"observedTimeUnixNano":"', time_of(ObservedTimestamp), '"',
                    number_field('severityNumber', SeverityNumber), text_field('severityText', SeverityText),
                    if(kinds[4] = 'n', '', concat(',"body":', value_of(Body, if(empty(kinds[4]), 's', kinds[4])))),
                    ',"attributes":', attributes_of(LogAttributes, kinds[1]),
                    number_field('droppedAttributesCount', DroppedAttributesCount),
                    number_field('flags', if(Flags = 0, toUInt32(TraceFlags), Flags)),
                    text_field('traceId', TraceId), text_field('spanId', SpanId), text_field('eventName', EventName), '}') AS record
            FROM otel_logs
            WHERE {{where}}
            ORDER BY Timestamp, TraceId, SpanId
        )
        GROUP BY
            resource_attributes, resource_dropped, ResourceSchemaUrl, ScopeName, ScopeVersion, ScopeSchemaUrl, scope_attributes, scope_dropped
    )
    GROUP BY resource_attributes, resource_dropped, ResourceSchemaUrl
)
HAVING count() > 0
FORMAT TabSeparatedRaw
