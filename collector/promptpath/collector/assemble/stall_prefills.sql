-- Of some stalls those that another prompt's prefill on the same engine covers enough of, and the prompt of the longest one.
-- Times of a stall are its engine's; a prompt's are its root's, and `clock_offset_ns` leads from there to its engine's
-- where it is known better than it is small: the same by which the prompt was drawn.
SELECT stall, argMax(prompt_id, (overlap, prompt_id)) AS other
FROM
(
    SELECT
        stalls.stall AS stall,
        prefills.prompt_id AS prompt_id,
        least(stalls.end_ns, prefills.end_ns) - greatest(stalls.start_ns, prefills.start_ns) AS overlap
    FROM
    (
        SELECT
            prompt_id,
            `segments.hop` AS service,
            arrayZip(hops, hosts) AS engines,
            arrayStringConcat(arraySort(gpu_uuids), ',') AS gpus,
            toUnixTimestamp64Nano(start_time)
                + if(abs(ifNull(clock_offset_ns, 0)) > ifNull(clock_error_ns, 0), ifNull(clock_offset_ns, 0), 0)
                + `segments.start_ns` AS start_ns,
            start_ns + `segments.duration_ns` AS end_ns
        FROM prompts
        ARRAY JOIN segments
        -- A prefill of up to a minute, of a prompt up to 15 seconds old or whose root's clock is so much off.
        WHERE start_time BETWEEN fromUnixTimestamp64Nano({from_ns:Int64} - 75000000000, 'UTC')
                AND fromUnixTimestamp64Nano({to_ns:Int64} + 15000000000, 'UTC')
            AND token_tenant = {tenant:String}
            AND `segments.stage` = 'prefill'
            AND `segments.hop` IN {services:Array(String)}
    ) AS prefills
    INNER JOIN
    (
        SELECT one.1 AS prompt_id, one.2 AS service, one.3 AS host, one.4 AS gpus, one.5 AS start_ns, one.6 AS end_ns, number AS stall
        FROM
        (
            SELECT
                arrayJoin(arrayZip(
                    {prompt_ids:Array(String)}, {services:Array(String)}, {hosts:Array(String)}, {gpus:Array(String)},
                    {starts:Array(Int64)}, {ends:Array(Int64)}, range(length({starts:Array(Int64)})))) AS one,
                one.7 AS number
        )
    ) AS stalls ON prefills.service = stalls.service
    WHERE prefills.prompt_id != stalls.prompt_id
        AND has(prefills.engines, (stalls.service, stalls.host))
        AND (stalls.gpus = '' OR prefills.gpus = '' OR stalls.gpus = prefills.gpus)
        AND prefills.start_ns < stalls.end_ns AND prefills.end_ns > stalls.start_ns
        AND {share:Int64} * overlap >= stalls.end_ns - stalls.start_ns
)
GROUP BY stall
