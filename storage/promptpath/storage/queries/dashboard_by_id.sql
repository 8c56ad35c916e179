SELECT
    /*columns*/
FROM prompts
WHERE prompt_id IN {ids:Array(String)}
ORDER BY start_time, prompt_id
LIMIT {limit:UInt32}
