-- How long a prompt took is not known where a time of its root could not be (see 0014): null, as all that is not known.
ALTER TABLE prompts_rows MODIFY COLUMN e2e_ns Nullable(Int64) CODEC(ZSTD(1));

CREATE OR REPLACE VIEW prompts AS SELECT * EXCEPT (is_deleted) FROM prompts_rows FINAL WHERE is_deleted = 0;
