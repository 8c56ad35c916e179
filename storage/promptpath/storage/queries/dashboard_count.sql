SELECT count() AS prompts
FROM prompts
WHERE /*filters*/
