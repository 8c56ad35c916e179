-- What the columns of the exporter do not say, so that what was received can be given back as it came (promptpath export):
-- kinds of attributes, for a Map(String, String) has only text; counts of what was dropped; times that a record has beside its
-- own. As one text of few letters a row, of which there are few: next to nothing on disk. See docs/data-model.md.
ALTER TABLE otel_traces ADD COLUMN IF NOT EXISTS Types LowCardinality(String) CODEC(ZSTD(1));

ALTER TABLE otel_logs ADD COLUMN IF NOT EXISTS Types LowCardinality(String) CODEC(ZSTD(1)), ADD COLUMN IF NOT EXISTS ObservedTimestamp DateTime64(9) CODEC(Delta(8), ZSTD(1)), ADD COLUMN IF NOT EXISTS DroppedAttributesCount UInt32 CODEC(ZSTD(1)), ADD COLUMN IF NOT EXISTS Flags UInt32 CODEC(ZSTD(1));

ALTER TABLE otlp_traces MODIFY COLUMN resource_spans Array(Tuple(
    resource Tuple(attributes {{attributes}}, dropped_attributes_count UInt32),
    schema_url String,
    tenant String,
    scope_spans Array(Tuple(
        scope Tuple(name String, version String, attributes {{attributes}}, dropped_attributes_count UInt32),
        schema_url String,
        spans Array(Tuple(
            trace_id String, span_id String, trace_state String, parent_span_id String, flags UInt32,
            name String, kind Int32, start_time_unix_nano UInt64, end_time_unix_nano UInt64,
            attributes {{attributes}}, dropped_attributes_count UInt32,
            events Array(Tuple(time_unix_nano UInt64, name String, attributes {{attributes}}, dropped_attributes_count UInt32)),
            dropped_events_count UInt32,
            links Array(Tuple(
                trace_id String, span_id String, trace_state String, attributes {{attributes}},
                dropped_attributes_count UInt32, flags UInt32
            )),
            dropped_links_count UInt32,
            status Tuple(message String, code Int32)
        ))
    ))
));

ALTER TABLE otlp_logs MODIFY COLUMN resource_logs Array(Tuple(
    resource Tuple(attributes {{attributes}}, dropped_attributes_count UInt32),
    schema_url String,
    tenant String,
    scope_logs Array(Tuple(
        scope Tuple(name String, version String, attributes {{attributes}}, dropped_attributes_count UInt32),
        schema_url String,
        log_records Array(Tuple(
            time_unix_nano UInt64, observed_time_unix_nano UInt64, severity_number Int32, severity_text String,
            body Tuple({{value}}), attributes {{attributes}}, dropped_attributes_count UInt32, flags UInt32,
            trace_id String, span_id String, event_name String
        ))
    ))
));

ALTER TABLE otlp_traces_mv MODIFY QUERY
WITH
{{functions}},
{{types}},
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
        if(arraySum(span.links.flags) = 0, '', arrayStringConcat(span.links.flags, ','))), '|,') AS Types
FROM
(
    SELECT
        ResourceAttributes, ResourceSchemaUrl, ServiceName, Tenant, ResourceTypes, ResourceDropped,
        types_of(scope.scope.attributes) AS ScopeTypes, scope.scope.dropped_attributes_count AS ScopeDropped,
        scope.scope.name AS ScopeName, scope.scope.version AS ScopeVersion,
        to_map(scope.scope.attributes) AS ScopeAttributes, scope.schema_url AS ScopeSchemaUrl,
        arrayJoin(scope.spans) AS span
    FROM
    (
        SELECT
            to_map(r.resource.attributes) AS ResourceAttributes, r.schema_url AS ResourceSchemaUrl, r.tenant AS Tenant,
            types_of(r.resource.attributes) AS ResourceTypes, r.resource.dropped_attributes_count AS ResourceDropped,
            ResourceAttributes['service.name'] AS ServiceName, arrayJoin(r.scope_spans) AS scope
        FROM (SELECT arrayJoin(resource_spans) AS r FROM otlp_traces)
    )
);

ALTER TABLE otlp_logs_mv MODIFY QUERY
WITH
{{functions}},
{{types}}
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
    Tenant,
    -- Attributes of the record, resource, scope; the body; t where it had no time of its own; counts of the dropped.
    trimRight(concat(
        types_of(record.attributes), '|', ResourceTypes, '|', ScopeTypes, '|', value_type(record.body), '|',
        if(record.time_unix_nano = 0, 't', ''), '|',
        if(ResourceDropped + ScopeDropped = 0, '', concat(toString(ResourceDropped), ',', toString(ScopeDropped)))), '|') AS Types,
    to_time(record.observed_time_unix_nano) AS ObservedTimestamp,
    record.dropped_attributes_count AS DroppedAttributesCount,
    record.flags AS Flags
FROM
(
    SELECT
        ResourceAttributes, ResourceSchemaUrl, ServiceName, Tenant, ResourceTypes, ResourceDropped,
        types_of(scope.scope.attributes) AS ScopeTypes, scope.scope.dropped_attributes_count AS ScopeDropped,
        scope.scope.name AS ScopeName, scope.scope.version AS ScopeVersion,
        to_map(scope.scope.attributes) AS ScopeAttributes, scope.schema_url AS ScopeSchemaUrl,
        arrayJoin(scope.log_records) AS record
    FROM
    (
        SELECT
            to_map(r.resource.attributes) AS ResourceAttributes, r.schema_url AS ResourceSchemaUrl, r.tenant AS Tenant,
            types_of(r.resource.attributes) AS ResourceTypes, r.resource.dropped_attributes_count AS ResourceDropped,
            ResourceAttributes['service.name'] AS ServiceName, arrayJoin(r.scope_logs) AS scope
        FROM (SELECT arrayJoin(resource_logs) AS r FROM otlp_logs)
    )
);
