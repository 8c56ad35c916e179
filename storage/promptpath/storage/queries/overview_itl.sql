-- A gap of k tokens counts as k inter-token latencies of gap / k. The last row of the roll-up is the whole range.
SELECT
    if(grouping(slot) = 1, -1, slot) AS bucket,
    quantileExactWeighted(0.5)(intDiv(gap_us * 1000, weight), weight) AS itl_p50,
    quantileExactWeighted(0.95)(intDiv(gap_us * 1000, weight), weight) AS itl_p95,
    quantileExactWeighted(0.99)(intDiv(gap_us * 1000, weight), weight) AS itl_p99,
    sum(weight) AS tokens
FROM
(
    SELECT
        intDiv(toUnixTimestamp64Nano(start_time) - {since_ns:Int64}, {step_ns:Int64}) AS slot,
        toInt64(gap_us) AS gap_us,
        toUInt32(greatest(gap_token, 1)) AS weight
    FROM prompts
    ARRAY JOIN gaps_us AS gap_us, gap_tokens AS gap_token
    WHERE /*filters*/
        AND cityHash64(prompt_id) % {one_in:UInt32} = 0
)
GROUP BY ROLLUP(slot)
ORDER BY bucket
LIMIT 2001
