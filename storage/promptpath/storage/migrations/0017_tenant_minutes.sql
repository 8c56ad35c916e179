-- Minutes say whose they are, as prompts do, so that a caller who is bound to a tenant may read its own. Those from before say
-- nobody's until one of their prompts is written again.
ALTER TABLE prompt_minutes_rows ADD COLUMN IF NOT EXISTS token_tenant LowCardinality(String) AFTER tenant, MODIFY ORDER BY (minute, model, service, tenant, token_tenant);

CREATE OR REPLACE VIEW prompt_minutes AS
SELECT *
FROM prompt_minutes_rows FINAL
WHERE prompts > 0 AND (minute, computed_at) IN (SELECT minute, max(computed_at) FROM prompt_minutes_rows GROUP BY minute);
