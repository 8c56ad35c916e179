-- What the assembler joins traces by: ids that spans of one prompt share although no trace context led from one to the
-- other. Written by the assembler, which knows each system's spelling; a row an id and trace.
CREATE TABLE trace_join_keys
(
    key String EPHEMERAL,
    KeyHash UInt64 DEFAULT sipHash64(key) CODEC(ZSTD(1)),
    TraceId String CODEC(ZSTD(1)),
    FirstStart DateTime64(9, 'UTC') CODEC(Delta(8), ZSTD(1)),
    LastEnd DateTime64(9, 'UTC') CODEC(Delta(8), ZSTD(1)),
    WrittenAt DateTime DEFAULT now() CODEC(Delta(4), ZSTD(1))
)
ENGINE = ReplacingMergeTree(WrittenAt)
PARTITION BY toDate(FirstStart, 'UTC')
ORDER BY (KeyHash, TraceId)
TTL toDateTime(WrittenAt, 'UTC') + INTERVAL 30 DAY
SETTINGS ttl_only_drop_parts = 1, {{mergetree}};

ALTER TABLE prompts_rows ADD COLUMN IF NOT EXISTS joined_traces Array(String) CODEC(ZSTD(1)) AFTER assembled_at;

ALTER TABLE prompts_rows ADD COLUMN IF NOT EXISTS `stall_causes.at_us` Array(UInt64) CODEC(ZSTD(1)) AFTER joined_traces;

ALTER TABLE prompts_rows ADD COLUMN IF NOT EXISTS `stall_causes.gap_us` Array(UInt32) CODEC(ZSTD(1)) AFTER `stall_causes.at_us`;

ALTER TABLE prompts_rows ADD COLUMN IF NOT EXISTS `stall_causes.cause` Array(LowCardinality(String)) CODEC(ZSTD(1)) AFTER `stall_causes.gap_us`;

ALTER TABLE prompts_rows ADD COLUMN IF NOT EXISTS `stall_causes.detail` Array(String) CODEC(ZSTD(1)) AFTER `stall_causes.cause`;

CREATE OR REPLACE VIEW prompts AS SELECT * EXCEPT (is_deleted) FROM prompts_rows FINAL WHERE is_deleted = 0;
