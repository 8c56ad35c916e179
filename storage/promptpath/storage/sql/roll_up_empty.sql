-- A minute whose last prompt was withdrawn: one row with no prompts, newer than what it replaces.
INSERT INTO prompt_minutes_rows (minute, prompts, computed_at)
SELECT toDateTime(arrayJoin({minutes:Array(UInt32)}), 'UTC') AS minute, 0, now64(9)
WHERE minute NOT IN (
    SELECT toStartOfMinute(start_time)
    FROM prompts
    WHERE start_time >= toDateTime64(arrayMin({minutes:Array(UInt32)}), 9, 'UTC')
        AND start_time < toDateTime64(arrayMax({minutes:Array(UInt32)}) + 60, 9, 'UTC'))
