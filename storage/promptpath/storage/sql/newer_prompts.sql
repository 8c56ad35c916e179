-- Rows from a later reading than this one, near these times: their prompts, and all traces that they are made of.
SELECT DISTINCT prompt_id, arrayPushBack(joined_traces, trace_id) AS traces
FROM prompts_rows
WHERE assembled_at > fromUnixTimestamp64Nano({as_of_ns:Int64}, 'UTC') AND is_deleted = 0 AND token_tenant = {tenant:String}
    AND start_time BETWEEN fromUnixTimestamp64Nano({from_ns:Int64}, 'UTC') AND fromUnixTimestamp64Nano({to_ns:Int64}, 'UTC')
    AND (trace_id IN {traces:Array(String)} OR hasAny(joined_traces, {traces:Array(String)}))
