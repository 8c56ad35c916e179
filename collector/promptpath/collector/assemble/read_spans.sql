-- The spans of some traces as the assembler reads them. {{name}}: expressions compiled from the rules.
-- Each subquery holds what the next one uses more than once: an alias is analysed again wherever it stands.
WITH
    multiIf(
        ResourceAttributes['service.instance.id'] != '', ResourceAttributes['service.instance.id'],
        ResourceAttributes['process.pid'] != '', concat(ServiceName, ' ', ResourceAttributes['process.pid']),
        ServiceName) AS process
SELECT
    TraceId AS trace_id,
    SpanId AS span_id,
    ParentSpanId AS parent_id,
    start_ns,
    toInt64(least(Duration, 9223372036854775807)) AS duration_ns,
    kind,
    ScopeName AS scope,
    ServiceName AS service,
    process,
    multiIf(
        ResourceAttributes['host.id'] != '', ResourceAttributes['host.id'],
        ResourceAttributes['host.name'] != '', ResourceAttributes['host.name'],
        ResourceAttributes['k8s.node.name'] != '', ResourceAttributes['k8s.node.name'],
        ResourceAttributes['k8s.pod.name'] != '', ResourceAttributes['k8s.pod.name'],
        process) AS host,
    kind = 'CLIENT' AND match(
        multiIf(
            SpanAttributes['server.address'] != '', SpanAttributes['server.address'],
            SpanAttributes['network.peer.address'] != '', SpanAttributes['network.peer.address'],
            SpanAttributes['peer.address'] != '', SpanAttributes['peer.address'],
            SpanAttributes['net.peer.ip'] != '', SpanAttributes['net.peer.ip'],
            SpanAttributes['net.peer.name']),
        '^(localhost|127\\.|::1|\\[::1\\])') AS loopback,
    {{stage}} AS stage,
    {{inference}} AS inference,
    {{agent}} AS agent,
    (StatusCode IN ('Error', 'STATUS_CODE_ERROR') OR ifNull(http_status >= 400, false) OR error_type != '') AS failed,
    TokenGapsUs AS gaps_us,
    TokenCounts AS counts,
    first_token_ns,
    {{first_byte_ns}} AS first_byte_ns,
    arrayMap(i -> part_words[i][1], part_kept) AS part_stages,
    arrayMap(i -> part_starts[i], part_kept) AS part_starts_ns,
    arrayMap(i -> part_lengths[i], part_kept) AS part_durations_ns,
    {{streaming}} AS streaming,
    multiIf(
        operation_name != '' OR NOT on_inference_path, operation_name,
        match(request_path, '/embeddings/?$'), 'embeddings',
        match(request_path, '/(v1/completions|generate|generate_stream)/?$'), 'text_completion',
        match(request_path, '/infer/?$'), '',
        'chat') AS operation,
    {{model}} AS model,
    {{request_model}} AS request_model,
    {{finish_reason}} AS finish_reason,
    http_status,
    error_type,
    {{abort}} AS abort,
    {{tenant}} AS tenant,
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
        *,
        -- Parts lie end to end: up to the first token, from it on, or from the span's start on.
        arrayMap(
            (word, length, before, after, start) -> toInt64(multiIf(
                word[2] = 'before_first_token', ifNull(first_token_ns, 0) - before,
                word[2] = 'after_first_token', ifNull(first_token_ns, 0) + after - length,
                start - length)),
            part_words,
            part_lengths,
            arrayReverse(arrayCumSum(arrayReverse(arrayMap((word, length) -> if(word[2] = 'before_first_token', length, 0), part_words, part_lengths)))),
            arrayCumSum(arrayMap((word, length) -> if(word[2] = 'after_first_token', length, 0), part_words, part_lengths)),
            arrayCumSum(arrayMap((word, length) -> if(word[2] = 'from_start', length, 0), part_words, part_lengths))
        ) AS part_starts,
        arrayFilter(
            i -> part_lengths[i] > 0 AND (part_words[i][2] = 'from_start' OR first_token_ns IS NOT NULL),
            arrayEnumerate(part_lengths)) AS part_kept
    FROM
    (
        SELECT
            *,
            arrayMap(
                (word, length) -> if(length = -1, greatest(ifNull(first_token_ns, 0) - part_known, 0), length),
                part_words, part_said) AS part_lengths
        FROM
        (
            SELECT
                *,
                {{http_status}} AS http_status,
                {{error_type}} AS error_type,
                {{first_token_ns}} AS first_token_ns,
                {{operation}} AS operation_name,
                if(part_text = '', CAST([], 'Array(Array(String))'), arrayMap(word -> splitByChar(' ', word), splitByChar(',', part_text))) AS part_words,
                arraySum(arrayMap((word, length) -> if(word[2] = 'from_start', greatest(length, 0), 0), part_words, part_said)) AS part_known
            FROM
            (
                SELECT
                    *,
                    {{part_stages}} AS part_text,
                    {{part_lengths}} AS part_said
                FROM
                (
                    SELECT *, {{rule}} AS rule
                    FROM
                    (
                        SELECT
                            *,
                            request_path != '' AND request_method IN ('', 'POST') AND match(request_path, {{inference_paths}}) AS on_inference_path,
                            SpanAttributes['gen_ai.operation.name'] IN {{inference_operations}} AS is_inference_operation
                        FROM
                        (
                            SELECT
                                *,
                                cutQueryStringAndFragment(if(position(request_target, '://') > 0, path(request_target), request_target)) AS request_path
                            FROM
                            (
                                SELECT
                                    *,
                                    toUnixTimestamp64Nano(Timestamp) AS start_ns,
                                    upper(replaceOne(SpanKind, 'SPAN_KIND_', '')) AS kind,
                                    {{path}} AS request_target,
                                    upper({{http_method}}) AS request_method
                                FROM otel_traces
                                WHERE TraceId IN {trace_ids:Array(String)}
                                    AND toStartOfMinute(Timestamp) BETWEEN toStartOfMinute(fromUnixTimestamp64Nano({from_ns:Int64}))
                                        AND toStartOfMinute(fromUnixTimestamp64Nano({to_ns:Int64}))
                            )
                        )
                    )
                )
            )
        )
    )
)
-- Reading a map key by key as subcolumns costs twice as much as reading it whole when so many keys are asked for.
SETTINGS optimize_functions_to_subcolumns = 0
