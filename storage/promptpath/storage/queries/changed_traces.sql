SELECT
    TraceId AS trace_id,
    toUnixTimestamp64Nano(max(ArrivedAt)) AS arrived_ns,
    toUnixTimestamp64Nano(min(FirstStart)) AS first_start_ns,
    toUnixTimestamp64Nano(max(LastEnd)) AS last_end_ns,
    sum(Spans) AS spans
FROM trace_arrivals
WHERE ArrivedAt > fromUnixTimestamp64Nano({since_ns:Int64}, 'UTC')
GROUP BY TraceId
HAVING arrived_ns <= {quiet_ns:Int64}
ORDER BY arrived_ns, trace_id
LIMIT {limit:UInt32}
