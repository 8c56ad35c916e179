SELECT
    intDiv(toUnixTimestamp64Nano(start_time) - {since_ns:Int64}, {step_ns:Int64}) AS bucket,
    toString(prompts.status) AS status,
    count() AS prompts
FROM prompts
WHERE /*filters*/
GROUP BY bucket, status
ORDER BY bucket, status
LIMIT 2000
