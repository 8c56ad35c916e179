SELECT prompt_id, toUnixTimestamp(toStartOfMinute(start_time)) AS minute
FROM prompts
WHERE trace_id IN {traces:Array(String)} AND token_tenant = {tenant:String}
