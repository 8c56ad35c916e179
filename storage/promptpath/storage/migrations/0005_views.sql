-- Counters and gauges on one axis. `rate` is per second: of cumulative monotonic sums the difference to the point before, of
-- delta sums the value over its own interval, null for everything else. It is never negative: where a counter went back
-- (a wrap, a reset) or says itself that it started anew, there is no rate, and the next point has one again.
CREATE VIEW counters AS
SELECT host, device, metric, unit, time, value, CAST(NULL, 'Nullable(Float64)') AS rate, attributes, service, host_name
FROM (SELECT {{counter_points}} FROM otel_metrics_gauge)
UNION ALL
SELECT
    host, device, metric, unit, time, value,
    multiIf(
        NOT monotonic OR isNull(value), NULL,
        temporality = 1, if(time > start, value / ((toUnixTimestamp64Nano(time) - toUnixTimestamp64Nano(start)) / 1e9), NULL),
        isNull(earlier_value) OR earlier_time >= time OR value < earlier_value OR start > earlier_time, NULL,
        (value - earlier_value) / ((toUnixTimestamp64Nano(time) - toUnixTimestamp64Nano(earlier_time)) / 1e9)) AS rate,
    attributes, service, host_name
FROM
(
    SELECT
        *,
        lagInFrame(value) OVER series AS earlier_value,
        lagInFrame(time) OVER series AS earlier_time
    FROM
    (
        SELECT
            {{counter_points}},
            StartTimeUnix AS start, AggregationTemporality AS temporality, IsMonotonic AS monotonic,
            cityHash64(ResourceAttributes, ScopeName) AS source
        FROM otel_metrics_sum
    )
    WINDOW series AS (
        PARTITION BY host, device, metric, attributes, service, source
        ORDER BY time
        ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)
);

-- One row an agent run, over its prompts. `network_ns` and `inference_ns` are unions on the run's axis (parallel calls count
-- once), `*_sum_ns` are sums over the calls. Network: stages of the request's network and its transit; inference: what
-- an inference server did (CPU, GPU, fabric), gateways and routers are neither. Null where no prompt has segments of either.
CREATE VIEW workflows AS
SELECT
    workflow_id,
    any(trace_id) AS trace_id,
    anyIf(agent_name, agent_name != '') AS agent_name,
    anyIf(conversation_id, conversation_id != '') AS conversation_id,
    min(start_time) AS start_time,
    max(end_time) AS end_time,
    toUnixTimestamp64Nano(end_time) - toUnixTimestamp64Nano(start_time) AS total_ns,
    count() AS calls,
    countIf(status != 'ok') AS failed_calls,
    sum(ifNull(input_tokens, 0)) AS input_tokens,
    sum(ifNull(output_tokens, 0)) AS output_tokens,
    toInt64(intervalLengthSumArrayIf(network_starts, network_ends, notEmpty(network_starts))) AS network_ns,
    toInt64(intervalLengthSumArrayIf(inference_starts, inference_ends, notEmpty(inference_starts))) AS inference_ns,
    sum(arraySum(arrayMap((s, e) -> e - s, network_starts, network_ends))) AS network_sum_ns,
    sum(arraySum(arrayMap((s, e) -> e - s, inference_starts, inference_ends))) AS inference_sum_ns,
    if(network_ns + inference_ns = 0, NULL, network_ns / (network_ns + inference_ns)) AS share,
    sum(cost_usd) AS cost_usd
FROM
(
    SELECT
        *,
        arrayMap(x -> toUnixTimestamp64Nano(start_time) + x, segments.start_ns) AS starts,
        arrayMap((x, d) -> x + d, starts, segments.duration_ns) AS ends,
        arrayMap((s, c) -> c AND s IN ('client', 'dns', 'tcp', 'tls', 'call', 'transit', 'ingress', 'hop', 'stream'), segments.stage, segments.critical) AS on_network,
        arrayMap((s, c) -> c AND s IN ('parse', 'tokenize', 'queue', 'transfer', 'prefill', 'kv_transfer', 'decode', 'detokenize', 'safety', 'structure'), segments.stage, segments.critical) AS on_inference,
        arrayFilter((x, on) -> on, starts, on_network) AS network_starts,
        arrayFilter((x, on) -> on, ends, on_network) AS network_ends,
        arrayFilter((x, on) -> on, starts, on_inference) AS inference_starts,
        arrayFilter((x, on) -> on, ends, on_inference) AS inference_ends
    FROM prompts
    WHERE workflow_id != ''
)
GROUP BY workflow_id;
