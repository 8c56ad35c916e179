-- All groups of some minutes, computed anew from the prompts as they now are.
INSERT INTO prompt_minutes_rows
WITH {slo_ttft_ns:Int64} AS slo_ttft, {slo_tpot_ns:Int64} AS slo_tpot
SELECT
    toStartOfMinute(p.start_time) AS minute,
    model,
    service,
    tenant,
    token_tenant,
    count() AS prompts,
    countIf(isNotNull(ttft_ns)) AS streamed,
    countIf(status = 'ok') AS ok,
    countIf(status = 'client_abort') AS client_aborts,
    countIf(status NOT IN ('ok', 'client_abort')) AS errors,
    countIf(status = 'rate_limited') AS rate_limited,
    countIf(status = 'ok' AND ifNull(ttft_ns <= slo_ttft, 1) AND ifNull(tpot_ns <= slo_tpot, 1)) AS good,
    slo_ttft AS slo_ttft_ns,
    slo_tpot AS slo_tpot_ns,
    sum(ifNull(input_tokens, 0)) AS input_tokens,
    sum(ifNull(cached_tokens, 0)) AS cached_tokens,
    sum(ifNull(output_tokens, 0)) AS output_tokens,
    sum(ifNull(stalls, 0)) AS stalls,
    sum(retry_ns) AS retry_ns,
    sum(ifNull(ttft_ns, 0)) AS ttft_sum_ns,
    sum(ifNull(ttft_network_ns, 0)) AS ttft_network_sum_ns,
    sum(ifNull(ttft_gateway_ns, 0)) AS ttft_gateway_sum_ns,
    sum(ifNull(ttft_router_ns, 0)) AS ttft_router_sum_ns,
    sum(ifNull(ttft_tokenize_ns, 0)) AS ttft_tokenize_sum_ns,
    sum(ifNull(ttft_queue_ns, 0)) AS ttft_queue_sum_ns,
    sum(ifNull(ttft_prefill_ns, 0)) AS ttft_prefill_sum_ns,
    sum(ifNull(ttft_post_ns, 0)) AS ttft_post_sum_ns,
    sum(ifNull(ttft_stream_ns, 0)) AS ttft_stream_sum_ns,
    sum(ifNull(ttft_unattributed_ns, 0)) AS ttft_unattributed_sum_ns,
    quantilesDDStateIf(0.01, 0.5, 0.9, 0.95, 0.99)(assumeNotNull(p.ttft_ns), isNotNull(p.ttft_ns)) AS ttft_q,
    quantilesDDStateIf(0.01, 0.5, 0.9, 0.95, 0.99)(assumeNotNull(p.ttft_engine_ns), isNotNull(p.ttft_engine_ns)) AS ttft_engine_q,
    quantilesDDStateIf(0.01, 0.5, 0.9, 0.95, 0.99)(assumeNotNull(p.e2e_ns), isNotNull(p.e2e_ns)) AS e2e_q,
    quantilesDDStateIf(0.01, 0.5, 0.9, 0.95, 0.99)(assumeNotNull(p.tpot_ns), isNotNull(p.tpot_ns)) AS tpot_q,
    quantilesDDStateIf(0.01, 0.5, 0.9, 0.95, 0.99)(assumeNotNull(p.itl_p99_ns), isNotNull(p.itl_p99_ns)) AS itl_p99_q,
    quantilesDDStateIf(0.01, 0.5, 0.9, 0.95, 0.99)(assumeNotNull(p.ttft_network_ns), isNotNull(p.ttft_network_ns)) AS ttft_network_q,
    quantilesDDStateIf(0.01, 0.5, 0.9, 0.95, 0.99)(assumeNotNull(p.ttft_gateway_ns), isNotNull(p.ttft_gateway_ns)) AS ttft_gateway_q,
    quantilesDDStateIf(0.01, 0.5, 0.9, 0.95, 0.99)(assumeNotNull(p.ttft_router_ns), isNotNull(p.ttft_router_ns)) AS ttft_router_q,
    quantilesDDStateIf(0.01, 0.5, 0.9, 0.95, 0.99)(assumeNotNull(p.ttft_tokenize_ns), isNotNull(p.ttft_tokenize_ns)) AS ttft_tokenize_q,
    quantilesDDStateIf(0.01, 0.5, 0.9, 0.95, 0.99)(assumeNotNull(p.ttft_queue_ns), isNotNull(p.ttft_queue_ns)) AS ttft_queue_q,
    quantilesDDStateIf(0.01, 0.5, 0.9, 0.95, 0.99)(assumeNotNull(p.ttft_prefill_ns), isNotNull(p.ttft_prefill_ns)) AS ttft_prefill_q,
    quantilesDDStateIf(0.01, 0.5, 0.9, 0.95, 0.99)(assumeNotNull(p.ttft_post_ns), isNotNull(p.ttft_post_ns)) AS ttft_post_q,
    quantilesDDStateIf(0.01, 0.5, 0.9, 0.95, 0.99)(assumeNotNull(p.ttft_stream_ns), isNotNull(p.ttft_stream_ns)) AS ttft_stream_q,
    quantilesDDStateIf(0.01, 0.5, 0.9, 0.95, 0.99)(assumeNotNull(p.ttft_unattributed_ns), isNotNull(p.ttft_unattributed_ns)) AS ttft_unattributed_q,
    now64(9) AS computed_at
FROM prompts AS p
WHERE toStartOfMinute(p.start_time) IN (SELECT toDateTime(arrayJoin({minutes:Array(UInt32)}), 'UTC'))
    -- The range lets the sort key of prompts prune; the set above then decides.
    AND p.start_time >= toDateTime64(arrayMin({minutes:Array(UInt32)}), 9, 'UTC')
    AND p.start_time < toDateTime64(arrayMax({minutes:Array(UInt32)}) + 60, 9, 'UTC')
GROUP BY minute, model, service, tenant, token_tenant
