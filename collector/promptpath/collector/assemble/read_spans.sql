-- The spans of some traces as the assembler reads them. {{name}}: expressions compiled from the rules.
-- Each subquery holds what the next one uses more than once, for an alias is analysed again wherever it stands, and names
-- the columns it passes on, for each costs time in each of them. Texts of which there are few are dictionaries: the
-- assembler works on their codes.
WITH
    toLowCardinality(multiIf(
        ResourceAttributes['service.instance.id'] != '', ResourceAttributes['service.instance.id'],
        ResourceAttributes['process.pid'] != '', concat(ServiceName, ' ', ResourceAttributes['process.pid']),
        ServiceName)) AS process,
    -- A list that an exporter made a text of: numbers and commas and nothing else, in brackets or not.
    (text -> match(text, '^\\s*(\\[\\s*\\d+(\\s*,\\s*\\d+)*\\s*\\]|\\d+(\\s*,\\s*\\d+)*)\\s*$')) AS lists_numbers,
    ((text, most) -> arrayMap(number -> least(toFloat64(number), most), extractAll(text, '\\d+'))) AS listed
SELECT
    TraceId AS trace_id,
    SpanId AS span_id,
    ParentSpanId AS parent_id,
    start_ns,
    toInt64(least(Duration, 9223372036854775807)) AS duration_ns,
    toLowCardinality(clamped) AS clamped,
    kind,
    toLowCardinality(ScopeName) AS scope,
    ServiceName AS service,
    process,
    toLowCardinality(multiIf(
        ResourceAttributes['host.id'] != '', ResourceAttributes['host.id'],
        ResourceAttributes['host.name'] != '', ResourceAttributes['host.name'],
        ResourceAttributes['k8s.node.name'] != '', ResourceAttributes['k8s.node.name'],
        ResourceAttributes['k8s.pod.name'] != '', ResourceAttributes['k8s.pod.name'],
        process)) AS host,
    toBool(kind = 'CLIENT' AND match(
        multiIf(
            SpanAttributes['server.address'] != '', SpanAttributes['server.address'],
            SpanAttributes['network.peer.address'] != '', SpanAttributes['network.peer.address'],
            SpanAttributes['peer.address'] != '', SpanAttributes['peer.address'],
            SpanAttributes['net.peer.ip'] != '', SpanAttributes['net.peer.ip'],
            SpanAttributes['net.peer.name']),
        '^(localhost|127\\.|::1|\\[::1\\])')) AS loopback,
    {{stage}} AS stage,
    {{role}} AS role,
    toBool({{inference}}) AS inference,
    toBool({{agent}}) AS agent,
    toBool(StatusCode IN ('Error', 'STATUS_CODE_ERROR') OR ifNull(http_status >= 400, false) OR error_type != '') AS failed,
    if(empty(TokenGapsUs) AND lists_numbers(SpanAttributes['promptpath.token.gaps_us']),
        listed(SpanAttributes['promptpath.token.gaps_us'], 4294967295)::Array(UInt32), TokenGapsUs) AS gaps_us,
    if(empty(TokenCounts) AND lists_numbers(SpanAttributes['promptpath.token.counts']),
        listed(SpanAttributes['promptpath.token.counts'], 65535)::Array(UInt16), TokenCounts) AS counts,
    first_token_ns,
    {{first_byte_ns}} AS first_byte_ns,
    parts.1 AS part_stages,
    parts.2 AS part_starts_ns,
    parts.3 AS part_durations_ns,
    {{streaming}} AS streaming,
    {{choices}} AS choices,
    toLowCardinality(multiIf(
        operation_name != '' OR NOT on_inference_path, operation_name,
        match(request_path, '/embeddings/?$'), 'embeddings',
        match(request_path, '/(v1/completions|generate|generate_stream)/?$'), 'text_completion',
        match(request_path, '/infer/?$'), '',
        'chat')) AS operation,
    toLowCardinality({{model}}) AS model,
    toLowCardinality({{request_model}}) AS request_model,
    toLowCardinality({{finish_reason}}) AS finish_reason,
    http_status,
    toLowCardinality(error_type) AS error_type,
    toLowCardinality({{abort}}) AS abort,
    toLowCardinality({{tenant}}) AS tenant,
    {{request_id}} AS request_id,
    {{response_id}} AS response_id,
    {{correlation_id}} AS correlation_id,
    {{bootstrap_id}} AS bootstrap_id,
    {{input_tokens}} AS input_tokens,
    {{cached_tokens}} AS cached_tokens,
    {{output_tokens}} AS output_tokens,
    {{reasoning_tokens}} AS reasoning_tokens,
    {{preemptions}} AS preemptions,
    {{tcp_rtt_us}} AS tcp_rtt_us,
    {{tcp_retransmits}} AS tcp_retransmits,
    {{cost_usd}} AS cost_usd,
    {{conversation_id}} AS conversation_id,
    {{agent_name}} AS agent_name,
    {{gpu_uuids}} AS gpu_uuids,
    `Links.TraceId` AS link_traces,
    `Links.SpanId` AS link_spans,
    JSONExtract(SpanAttributes['promptpath.preempted_us'], 'Array(Int64)') AS preempted_us{{explain}}
FROM
(
    SELECT
        TraceId, SpanId, ParentSpanId, SpanName, ServiceName, ScopeName, ResourceAttributes, SpanAttributes, Duration, StatusCode,
        `Events.Timestamp`, `Events.Name`, `Events.Attributes`, `Links.TraceId`, `Links.SpanId`, TokenGapsUs, TokenCounts, start_ns, clock_ns, clamped, kind,
        request_path, on_inference_path, rule, http_status, error_type, first_token_ns, operation_name,
        -- Parts lie end to end: up to the first token, from it on, or from the span's start on; -1 is the rest until then.
        arrayFilter(
            part -> part.3 > 0,
            arrayMap(
                (place, stage, said, before, after, begun) -> multiIf(
                    place != 'from_start' AND first_token_ns IS NULL, ('', 0, 0),
                    place = 'before_first_token', (stage, assumeNotNull(first_token_ns) - before, said),
                    place = 'after_first_token', (stage, assumeNotNull(first_token_ns) + after - said, said),
                    (stage, begun - greatest(said, 0), if(said = -1, ifNull(first_token_ns, 0) - begun, said))),
                part_places,
                part_stages,
                part_said,
                arrayReverse(arrayCumSum(arrayReverse(arrayMap((place, said) -> if(place = 'before_first_token', said, 0), part_places, part_said)))),
                arrayCumSum(arrayMap((place, said) -> if(place = 'after_first_token', said, 0), part_places, part_said)),
                arrayCumSum(arrayMap((place, said) -> if(place = 'from_start', greatest(said, 0), 0), part_places, part_said)))
        )::Array(Tuple(String, Int64, Int64)) AS parts
    FROM
    (
        SELECT
            TraceId, SpanId, ParentSpanId, SpanName, ServiceName, ScopeName, ResourceAttributes, SpanAttributes, Duration, StatusCode,
            `Events.Timestamp`, `Events.Name`, `Events.Attributes`, `Links.TraceId`, `Links.SpanId`, TokenGapsUs, TokenCounts, start_ns, clock_ns, clamped, kind,
            request_path, on_inference_path, rule,
            {{http_status}} AS http_status,
            {{error_type}} AS error_type,
            {{first_token_ns}} AS first_token_ns,
            {{operation}} AS operation_name,
            {{part_places}} AS part_places,
            {{part_stages}} AS part_stages,
            {{part_lengths}} AS part_said
        FROM
        (
            SELECT
                TraceId, SpanId, ParentSpanId, SpanName, ServiceName, ScopeName, ResourceAttributes, SpanAttributes, Duration, StatusCode,
                `Events.Timestamp`, `Events.Name`, `Events.Attributes`, `Links.TraceId`, `Links.SpanId`, TokenGapsUs, TokenCounts, start_ns, clock_ns, clamped, kind,
                request_path, on_inference_path,
                {{rule}} AS rule
            FROM
            (
                SELECT
                    TraceId, SpanId, ParentSpanId, SpanName, ServiceName, ScopeName, ResourceAttributes, SpanAttributes, Duration, StatusCode,
                    `Events.Timestamp`, `Events.Name`, `Events.Attributes`, `Links.TraceId`, `Links.SpanId`, TokenGapsUs, TokenCounts,
                    toUnixTimestamp64Nano(Timestamp) AS start_ns,
                    -- What the span's own clock said, which the times in it are of.
                    if(Clamped = 'moved', toInt64(SentStart), start_ns) AS clock_ns,
                    if(Clamped = 'moved', '', Clamped) AS clamped,
                    upper(replaceOne(SpanKind, 'SPAN_KIND_', '')) AS kind,
                    cutQueryStringAndFragment(replaceRegexpOne({{path}}, '^[A-Za-z][A-Za-z0-9+.-]*://[^/]*', '')) AS request_path,
                    (match(request_path, {{inference_paths}}) AND upper({{http_method}}) IN ('', 'POST')) AS on_inference_path,
                    SpanAttributes['gen_ai.operation.name'] IN {{inference_operations}} AS is_inference_operation
                FROM otel_traces
                WHERE TraceId IN {trace_ids:Array(String)} AND Tenant = {tenant:String}
                    AND toStartOfMinute(Timestamp) BETWEEN toStartOfMinute(fromUnixTimestamp64Nano({from_ns:Int64}))
                        AND toStartOfMinute(fromUnixTimestamp64Nano({to_ns:Int64}))
            )
        )
    )
)
-- Reading a map key by key as subcolumns costs twice as much as reading it whole when so many keys are asked for.
SETTINGS optimize_functions_to_subcolumns = 0
