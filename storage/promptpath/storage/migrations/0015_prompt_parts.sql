-- Prompts in parts of one file, as 0013 has it for what they are made of: an insert of some thousand takes a tenth of the
-- memory that one file a column does (44 MiB for 346). Larger parts are merged column by column, whatever their rows (49 MiB
-- for 440).
ALTER TABLE prompts_rows MODIFY SETTING min_bytes_for_wide_part = 134217728, vertical_merge_algorithm_min_rows_to_activate = 1;

ALTER TABLE prompt_minutes_rows MODIFY SETTING min_bytes_for_wide_part = 134217728, vertical_merge_algorithm_min_rows_to_activate = 1;
