INSERT INTO prompts_rows
SELECT * REPLACE (
    greatest(fromUnixTimestamp64Nano({now_ns:Int64}, 'UTC'), assembled_at + toIntervalNanosecond(1)) AS assembled_at,
    1 AS is_deleted)
FROM prompts_rows FINAL
WHERE trace_id IN {traces:Array(String)} AND prompt_id IN {gone:Array(String)}
