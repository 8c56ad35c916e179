-- An exact prompt id first, then a trace's prompts from the outermost on, then those whose id only begins so.
SELECT prompt_id, trace_id, toDateTime64(p.start_time, 6, 'UTC') AS start_time, toUnixTimestamp64Nano(p.start_time) AS start_ns,
    model, service, status, ttft_ns, e2e_ns
FROM prompts AS p
WHERE /*match*/
ORDER BY prompt_id = {id:String} DESC, trace_id = {id:String} DESC, p.start_time, prompt_id
LIMIT {limit:UInt32}
