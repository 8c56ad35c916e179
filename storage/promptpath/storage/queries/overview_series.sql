SELECT
    intDiv(toUnixTimestamp64Nano(start_time) - {since_ns:Int64}, {step_ns:Int64}) AS bucket,
    count() AS prompts,
    countIf(ttft_ns IS NOT NULL) AS streamed,
    quantile(0.5)(ttft_ns) AS ttft_p50,
    quantile(0.95)(ttft_ns) AS ttft_p95,
    quantile(0.99)(ttft_ns) AS ttft_p99,
    quantile(0.5)(tpot_ns) AS tpot_p50,
    quantile(0.95)(tpot_ns) AS tpot_p95,
    quantile(0.5)(ttft_network_ns) AS network,
    quantile(0.5)(ttft_gateway_ns) AS gateway,
    quantile(0.5)(ttft_router_ns) AS router,
    quantile(0.5)(ttft_tokenize_ns) AS tokenize,
    quantile(0.5)(ttft_queue_ns) AS queue,
    quantile(0.5)(ttft_prefill_ns) AS prefill,
    quantile(0.5)(ttft_post_ns) AS post,
    quantile(0.5)(ttft_stream_ns) AS stream,
    quantile(0.5)(ttft_unattributed_ns) AS unattributed,
    ifNull(sum(prompts.input_tokens), 0) AS input_tokens,
    ifNull(sum(prompts.output_tokens), 0) AS output_tokens
FROM prompts
WHERE /*filters*/
GROUP BY bucket
ORDER BY bucket
LIMIT 2000
