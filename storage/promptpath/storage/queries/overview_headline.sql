SELECT
    count() AS prompts,
    countIf(status = 'ok') AS ok,
    countIf(ttft_ns IS NOT NULL) AS streamed,
    toUnixTimestamp64Nano(min(start_time)) AS first_ns,
    toUnixTimestamp64Nano(max(start_time)) AS last_ns,
    quantiles(0.5, 0.95, 0.99)(ttft_ns) AS ttft,
    quantiles(0.5, 0.95, 0.99)(e2e_ns) AS e2e,
    quantiles(0.5, 0.95, 0.99)(tpot_ns) AS tpot,
    ifNull(sum(input_tokens), 0) AS input_tokens,
    ifNull(sum(output_tokens), 0) AS output_tokens
FROM prompts
WHERE /*filters*/
