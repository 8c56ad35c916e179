SELECT
    * REPLACE (
        toDateTime64(Timestamp, 6, 'UTC') AS Timestamp,
        arrayMap(t -> toDateTime64(t, 6, 'UTC'), `Events.Timestamp`) AS `Events.Timestamp`,
        toDateTime64(IngestedAt, 6, 'UTC') AS IngestedAt),
    toUnixTimestamp64Nano(s.Timestamp) AS StartNs,
    StartNs + toInt64(Duration) AS EndNs,
    arrayMap(t -> toUnixTimestamp64Nano(t), s.`Events.Timestamp`) AS EventsNs
FROM otel_traces AS s
WHERE TraceId IN {trace_ids:Array(String)} AND (isNull({tenant:Nullable(String)}) OR Tenant = {tenant:Nullable(String)}) /*bounds*/
ORDER BY s.Timestamp, EndNs DESC, SpanId
LIMIT {limit:UInt32}
