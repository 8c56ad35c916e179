-- Of some stalls, each with a GPU of its engine, those during which the GPU's clock was far below what it was before, and
-- the GPU whose clock fell furthest. Points are of the GPU's host, as the stall's times are.
SELECT
    stall,
    argMin(gpu, during / before) AS fallen_gpu,
    argMin(before, during / before) AS fallen_from,
    min(during / before) * fallen_from AS fallen_to,
    any(unit)
FROM
(
    SELECT
        stalls.stall AS stall,
        stalls.gpu AS gpu,
        any(points.unit) AS unit,
        quantileExactIf(points.value, points.at_ns < stalls.start_ns) AS before,
        minIf(points.value, points.at_ns >= stalls.start_ns) AS during,
        countIf(points.at_ns < stalls.start_ns) AS points_before,
        countIf(points.at_ns >= stalls.start_ns) AS points_during
    FROM
    (
        SELECT
            multiIf(Attributes['hw.id'] != '', Attributes['hw.id'], Attributes['gpu.uuid'] != '', Attributes['gpu.uuid'], Attributes['UUID']) AS gpu,
            toUnixTimestamp64Nano(TimeUnix) AS at_ns,
            Value AS value,
            MetricUnit AS unit
        FROM otel_metrics_gauge
        WHERE MetricName IN {names:Array(String)}
            AND Tenant = {tenant:String}
            AND TimeUnix BETWEEN fromUnixTimestamp64Nano({from_ns:Int64}) AND fromUnixTimestamp64Nano({to_ns:Int64})
            AND toStartOfMinute(TimeUnix) >= toStartOfMinute(fromUnixTimestamp64Nano({from_ns:Int64}))
            AND toStartOfMinute(TimeUnix) <= toStartOfMinute(fromUnixTimestamp64Nano({to_ns:Int64}))
            -- Of several clocks of one GPU that of its processors.
            AND Attributes['hw.gpu.clock.domain'] IN ('', 'sm', 'graphics')
            AND gpu IN {gpus:Array(String)}
    ) AS points
    INNER JOIN
    (
        SELECT one.1 AS stall, one.2 AS gpu, one.3 AS start_ns, one.4 AS end_ns
        FROM (SELECT arrayJoin(arrayZip(
            {stalls:Array(Int64)}, {gpus:Array(String)}, {starts:Array(Int64)}, {ends:Array(Int64)})) AS one)
    ) AS stalls ON points.gpu = stalls.gpu
    WHERE points.at_ns BETWEEN stalls.start_ns - {before_ns:Int64} AND stalls.end_ns
    GROUP BY stall, gpu
)
WHERE points_before >= {points:UInt64} AND points_during > 0 AND during <= {fallen:Float64} * before AND before > 0
GROUP BY stall
