SELECT
    count() AS prompts,
    toUnixTimestamp64Nano(max(start_time)) AS newest_ns
FROM prompts
