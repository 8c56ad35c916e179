-- Smaller by measurement (docs/decisions/0008): what is stored is written so at its next merge.
ALTER TABLE otel_traces MODIFY COLUMN TokenGapsUs CODEC(T64, ZSTD(1));

ALTER TABLE otel_traces MODIFY COLUMN TokenCounts CODEC(T64, ZSTD(1));

ALTER TABLE otel_traces MODIFY COLUMN Duration CODEC(T64, ZSTD(1));

ALTER TABLE prompts_rows MODIFY COLUMN gaps_us CODEC(T64, ZSTD(1));

ALTER TABLE prompts_rows MODIFY COLUMN gap_tokens CODEC(T64, ZSTD(1));
