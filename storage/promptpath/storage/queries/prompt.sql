SELECT
    * REPLACE (
        toDateTime64(start_time, 6, 'UTC') AS start_time,
        toDateTime64(end_time, 6, 'UTC') AS end_time,
        toDateTime64(assembled_at, 6, 'UTC') AS assembled_at),
    toUnixTimestamp64Nano(p.start_time) AS start_ns,
    toUnixTimestamp64Nano(p.end_time) AS end_ns,
    toUnixTimestamp64Nano(p.assembled_at) AS assembled_ns
FROM prompts AS p
WHERE prompt_id = {prompt_id:String}
ORDER BY p.assembled_at DESC
LIMIT 1
