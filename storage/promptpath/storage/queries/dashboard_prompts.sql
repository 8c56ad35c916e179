SELECT
    /*columns*/
FROM prompts
WHERE /*filters*/
ORDER BY /*order*/, start_time DESC, prompt_id
LIMIT {limit:UInt32} OFFSET {offset:UInt64}
