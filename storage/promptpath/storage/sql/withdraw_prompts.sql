INSERT INTO prompts_rows
SELECT * REPLACE (
    greatest(fromUnixTimestamp64Nano({as_of_ns:Int64}, 'UTC'), assembled_at + toIntervalNanosecond(1)) AS assembled_at,
    1 AS is_deleted)
FROM
(
    SELECT *
    FROM prompts_rows FINAL
    WHERE trace_id IN {traces:Array(String)} AND prompt_id IN {gone:Array(String)} AND token_tenant = {tenant:String}
        -- Whoever read the spans later knows more: an older reading withdraws nothing that a newer one has found.
        AND assembled_at <= fromUnixTimestamp64Nano({as_of_ns:Int64}, 'UTC')
)
