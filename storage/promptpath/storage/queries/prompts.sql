SELECT
    prompt_id, trace_id,
    toDateTime64(start_time, 6, 'UTC') AS start_time,
    toUnixTimestamp64Nano(p.start_time) AS start_ns,
    tenant, service, model, request_model, operation, streaming, status, error_type, finish_reason,
    input_tokens, cached_tokens, output_tokens, reasoning_tokens,
    ttft_ns, ttft_source, ttft_engine_ns, e2e_ns, tpot_ns, itl_p50_ns, itl_p99_ns, itl_max_ns, stalls,
    ttft_network_ns, ttft_gateway_ns, ttft_router_ns, ttft_tokenize_ns, ttft_queue_ns,
    ttft_prefill_ns, ttft_post_ns, ttft_stream_ns, ttft_unattributed_ns,
    hops, hosts, attempts, retry_ns, workflow_id
FROM prompts AS p
WHERE (isNull({since_ns:Nullable(Int64)}) OR p.start_time >= fromUnixTimestamp64Nano(ifNull({since_ns:Nullable(Int64)}, 0), 'UTC'))
    AND (isNull({until_ns:Nullable(Int64)}) OR p.start_time < fromUnixTimestamp64Nano(ifNull({until_ns:Nullable(Int64)}, 0), 'UTC'))
    AND (isNull({model:Nullable(String)}) OR model = {model:Nullable(String)})
    AND (isNull({service:Nullable(String)}) OR service = {service:Nullable(String)})
    AND (isNull({tenant:Nullable(String)}) OR tenant = {tenant:Nullable(String)})
    AND (isNull({status:Nullable(String)}) OR status = {status:Nullable(String)})
    AND (isNull({min_ttft_ns:Nullable(Int64)}) OR ttft_ns >= {min_ttft_ns:Nullable(Int64)})
    AND (isNull({max_ttft_ns:Nullable(Int64)}) OR ttft_ns < {max_ttft_ns:Nullable(Int64)})
    AND (isNull({min_e2e_ns:Nullable(Int64)}) OR e2e_ns >= {min_e2e_ns:Nullable(Int64)})
    AND (isNull({workflow_id:Nullable(String)}) OR workflow_id = {workflow_id:Nullable(String)})
ORDER BY /*order*/
LIMIT {limit:UInt32} OFFSET {offset:UInt64}
