SELECT
    intDiv(toUnixTimestamp64Nano(start_time) - {since_ns:Int64}, {step_ns:Int64}) AS bucket,
    toInt32(floor(log10(assumeNotNull(ttft_ns)) * {bins_per_decade:UInt8})) AS bin,
    count() AS prompts
FROM prompts
WHERE /*filters*/
    AND ttft_ns > 0
GROUP BY bucket, bin
ORDER BY prompts DESC, bucket, bin
LIMIT {cells:UInt32}
