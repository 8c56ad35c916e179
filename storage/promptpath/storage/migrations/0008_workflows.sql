-- An agent run lasts as long as its root span, not only from its first prompt to its last.
ALTER TABLE prompts_rows ADD COLUMN IF NOT EXISTS workflow_start Nullable(DateTime64(9, 'UTC')) CODEC(ZSTD(1)) AFTER `stall_causes.detail`;

ALTER TABLE prompts_rows ADD COLUMN IF NOT EXISTS workflow_end Nullable(DateTime64(9, 'UTC')) CODEC(ZSTD(1)) AFTER workflow_start;

CREATE OR REPLACE VIEW prompts AS SELECT * EXCEPT (is_deleted) FROM prompts_rows FINAL WHERE is_deleted = 0;

-- One row an agent run, over its prompts. `network_ns`, `inference_ns` and `calls_ns` are unions on the run's axis (parallel
-- calls count once), `*_sum_ns` are sums over the calls; `gaps_ns` is what of the run was in no call. Network: stages of the
-- request's network and its transit; inference: what an inference server did (CPU, GPU, fabric), gateways and routers are
-- neither. Shares are of both together, null where no prompt has segments of either.
CREATE OR REPLACE VIEW workflows AS
SELECT
    workflow_id,
    any(trace_id) AS trace_id,
    anyIf(agent_name, agent_name != '') AS agent_name,
    anyIf(conversation_id, conversation_id != '') AS conversation_id,
    least(min(call_start), ifNull(min(workflow_start), min(call_start))) AS start_time,
    greatest(max(call_end), ifNull(max(workflow_end), max(call_end))) AS end_time,
    toUnixTimestamp64Nano(end_time) - toUnixTimestamp64Nano(start_time) AS total_ns,
    count() AS calls,
    countIf(status != 'ok') AS failed_calls,
    sum(ifNull(input_tokens, 0)) AS input_tokens,
    sum(ifNull(output_tokens, 0)) AS output_tokens,
    toInt64(intervalLengthSumArrayIf(network_starts, network_ends, notEmpty(network_starts))) AS network_ns,
    toInt64(intervalLengthSumArrayIf(inference_starts, inference_ends, notEmpty(inference_starts))) AS inference_ns,
    toInt64(intervalLengthSum(toUnixTimestamp64Nano(call_start), toUnixTimestamp64Nano(call_end))) AS calls_ns,
    total_ns - calls_ns AS gaps_ns,
    sum(arraySum(arrayMap((s, e) -> e - s, network_starts, network_ends))) AS network_sum_ns,
    sum(arraySum(arrayMap((s, e) -> e - s, inference_starts, inference_ends))) AS inference_sum_ns,
    if(network_ns + inference_ns = 0, NULL, network_ns / (network_ns + inference_ns)) AS share,
    if(network_ns + inference_ns = 0, NULL, inference_ns / (network_ns + inference_ns)) AS inference_share,
    sum(cost_usd) AS cost_usd
FROM
(
    SELECT
        *,
        start_time AS call_start,
        end_time AS call_end,
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
