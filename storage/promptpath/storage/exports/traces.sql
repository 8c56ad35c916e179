WITH
{{common}},
    splitByChar('|', Types) AS kinds,
    transform(SpanKind, ['Internal', 'Server', 'Client', 'Producer', 'Consumer'], [1, 2, 3, 4, 5], 0) AS kind,
    transform(StatusCode, ['Ok', 'Error'], [1, 2], 0) AS status,
    splitByChar(';', kinds[6]) AS dropped,
    -- Lists of numbers that have columns of their own go back among the attributes.
    ((name, numbers) -> if(empty(numbers), [], [concat('{"key":"', name, '","value":{"arrayValue":{"values":[',
        arrayStringConcat(arrayMap(n -> concat('{"intValue":"', toString(n), '"}'), numbers), ','), ']}}}')])) AS list_attribute
SELECT concat('{"resourceSpans":[', arrayStringConcat(groupArray(resource), ','), ']}') AS line
FROM
(
    SELECT
        concat('{"resource":{"attributes":', resource_attributes, number_field('droppedAttributesCount', resource_dropped), '}',
            ',"scopeSpans":[', arrayStringConcat(groupArray(scope), ','), ']', text_field('schemaUrl', ResourceSchemaUrl), '}') AS resource
    FROM
    (
        SELECT
            resource_attributes, resource_dropped, ResourceSchemaUrl,
            concat('{"scope":{"name":', toJSONString(ScopeName), text_field('version', ScopeVersion), ',"attributes":', scope_attributes,
                number_field('droppedAttributesCount', scope_dropped), '},"spans":[', arrayStringConcat(groupArray(span), ','), ']',
                text_field('schemaUrl', ScopeSchemaUrl), '}') AS scope
        FROM
        (
            SELECT
                attributes_of(ResourceAttributes, kinds[2]) AS resource_attributes, count_of(dropped, 1, 1) AS resource_dropped,
                ResourceSchemaUrl, ScopeName, ScopeVersion, ScopeSchemaUrl,
                attributes_of(ScopeAttributes, kinds[3]) AS scope_attributes, count_of(dropped, 1, 2) AS scope_dropped,
                concat('{"traceId":"', TraceId, '","spanId":"', SpanId, '"', text_field('parentSpanId', ParentSpanId),
                    text_field('traceState', TraceState), number_field('flags', Flags), ',"name":', toJSONString(SpanName),
                    ',"kind":', toString(kind),
                    ',"startTimeUnixNano":"', sent_or(Clamped, SentStart, time_of(Timestamp)), '","endTimeUnixNano":"',
                    sent_or(Clamped, SentEnd, toString(reinterpretAsUInt64(toUnixTimestamp64Nano(Timestamp)) + Duration)), '"',
                    ',"attributes":[', arrayStringConcat(arrayFilter(x -> x != '', arrayConcat(
                        [substring(attributes_of(SpanAttributes, kinds[1]), 2, length(attributes_of(SpanAttributes, kinds[1])) - 2)],
                        list_attribute('promptpath.token.gaps_us', TokenGapsUs),
                        list_attribute('promptpath.token.counts', TokenCounts))), ','), ']',
                    number_field('droppedAttributesCount', DroppedAttributesCount),
                    ',"events":[', arrayStringConcat(arrayMap(
                        (time, name, attributes, at) -> concat('{"timeUnixNano":"', time_of(time), '","name":', toJSONString(name),
                            ',"attributes":', attributes_of(attributes, splitByChar(',', kinds[4])[at]),
                            number_field('droppedAttributesCount', count_of(dropped, 2, at)), '}'),
                        `Events.Timestamp`, `Events.Name`, `Events.Attributes`, arrayEnumerate(`Events.Name`)), ','), ']',
                    number_field('droppedEventsCount', DroppedEventsCount),
                    ',"links":[', arrayStringConcat(arrayMap(
                        (trace, span, state, attributes, at) -> concat('{"traceId":"', trace, '","spanId":"', span, '"', text_field('traceState', state),
                            ',"attributes":', attributes_of(attributes, splitByChar(',', kinds[5])[at]),
                            number_field('droppedAttributesCount', count_of(dropped, 3, at)),
                            number_field('flags', count_of(kinds, 7, at)), '}'),
                        `Links.TraceId`, `Links.SpanId`, `Links.TraceState`, `Links.Attributes`, arrayEnumerate(`Links.SpanId`)), ','), ']',
                    number_field('droppedLinksCount', DroppedLinksCount),
                    ',"status":{', substring(concat(text_field('message', StatusMessage), number_field('code', status)), 2), '}}') AS span
            FROM otel_traces
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
