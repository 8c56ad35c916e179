-- One row a prompt. A newer row of the same prompt replaces the older; `is_deleted` withdraws one that was none after all.
CREATE TABLE prompts_rows
(
    prompt_id String CODEC(ZSTD(1)),
    trace_id String CODEC(ZSTD(1)),
    root_span_id String CODEC(ZSTD(1)),
    start_time DateTime64(9, 'UTC') CODEC(Delta(8), ZSTD(1)),
    end_time DateTime64(9, 'UTC') CODEC(Delta(8), ZSTD(1)),
    tenant LowCardinality(String),
    service LowCardinality(String),
    model LowCardinality(String),
    operation LowCardinality(String),
    streaming Nullable(Bool),
    status LowCardinality(String),
    error_type LowCardinality(String),
    finish_reason LowCardinality(String),
    input_tokens Nullable(UInt32) CODEC(ZSTD(1)),
    cached_tokens Nullable(UInt32) CODEC(ZSTD(1)),
    output_tokens Nullable(UInt32) CODEC(ZSTD(1)),
    reasoning_tokens Nullable(UInt32) CODEC(ZSTD(1)),
    ttft_ns Nullable(Int64) CODEC(ZSTD(1)),
    ttft_source LowCardinality(String),
    ttft_engine_ns Nullable(Int64) CODEC(ZSTD(1)),
    e2e_ns Int64 CODEC(ZSTD(1)),
    tpot_ns Nullable(Int64) CODEC(ZSTD(1)),
    itl_p50_ns Nullable(Int64) CODEC(ZSTD(1)),
    itl_p99_ns Nullable(Int64) CODEC(ZSTD(1)),
    itl_max_ns Nullable(Int64) CODEC(ZSTD(1)),
    stalls Nullable(UInt32),
    ttft_network_ns Nullable(Int64) CODEC(ZSTD(1)),
    ttft_gateway_ns Nullable(Int64) CODEC(ZSTD(1)),
    ttft_router_ns Nullable(Int64) CODEC(ZSTD(1)),
    ttft_tokenize_ns Nullable(Int64) CODEC(ZSTD(1)),
    ttft_queue_ns Nullable(Int64) CODEC(ZSTD(1)),
    ttft_prefill_ns Nullable(Int64) CODEC(ZSTD(1)),
    ttft_post_ns Nullable(Int64) CODEC(ZSTD(1)),
    ttft_stream_ns Nullable(Int64) CODEC(ZSTD(1)),
    ttft_unattributed_ns Nullable(Int64) CODEC(ZSTD(1)),
    segments Nested
    (
        stage LowCardinality(String),
        hop LowCardinality(String),
        span_id String,
        start_ns Int64,
        duration_ns Int64,
        critical Bool
    ) CODEC(ZSTD(1)),
    gaps_us Array(UInt32) CODEC(T64('bit'), ZSTD(1)),
    gap_tokens Array(UInt16) CODEC(T64('bit'), ZSTD(1)),
    first_tokens Nullable(UInt32),
    first_byte_ns Nullable(Int64) CODEC(ZSTD(1)),
    retry_ns Int64 CODEC(ZSTD(1)),
    gaps_source LowCardinality(String),
    request_model LowCardinality(String),
    hops Array(LowCardinality(String)),
    hosts Array(LowCardinality(String)),
    gpu_uuids Array(String) CODEC(ZSTD(1)),
    attempts UInt16,
    preemptions Nullable(UInt32),
    tcp_rtt_us Nullable(UInt32) CODEC(ZSTD(1)),
    tcp_retransmits Nullable(UInt32),
    clock_offset_ns Nullable(Int64) CODEC(ZSTD(1)),
    clock_error_ns Nullable(Int64) CODEC(ZSTD(1)),
    joined_by LowCardinality(String),
    completeness Nullable(Float32) CODEC(ZSTD(1)),
    workflow_id String CODEC(ZSTD(1)),
    conversation_id String CODEC(ZSTD(1)),
    agent_name LowCardinality(String),
    cost_usd Nullable(Float64) CODEC(ZSTD(1)),
    energy_j Nullable(Float64) CODEC(ZSTD(1)),
    assembled_at DateTime64(9, 'UTC') CODEC(Delta(8), ZSTD(1)),
    is_deleted UInt8 DEFAULT 0,
    INDEX idx_prompt_id prompt_id TYPE bloom_filter(0.001) GRANULARITY 1,
    INDEX idx_trace_id trace_id TYPE bloom_filter(0.001) GRANULARITY 1,
    INDEX idx_workflow_id workflow_id TYPE bloom_filter(0.01) GRANULARITY 1
)
ENGINE = ReplacingMergeTree(assembled_at, is_deleted)
PARTITION BY toDate(start_time, 'UTC')
-- The start of a prompt is its root span's, which never changes: the same prompt always has the same key and partition.
ORDER BY (start_time, prompt_id)
SETTINGS ttl_only_drop_parts = 1, {{mergetree}};

CREATE VIEW prompts AS SELECT * EXCEPT (is_deleted) FROM prompts_rows FINAL WHERE is_deleted = 0;

-- The roll-up. A minute is computed anew from `prompts` whenever one of its prompts is written, all its groups at once and
-- with one `computed_at`; the newest computation of a minute counts, whole. So a row that is replaced is never counted
-- twice, and a group that a minute no longer has disappears. An emptied minute leaves one row with `prompts` = 0.
CREATE TABLE prompt_minutes_rows
(
    minute DateTime('UTC') CODEC(Delta(4), ZSTD(1)),
    model LowCardinality(String),
    service LowCardinality(String),
    tenant LowCardinality(String),
    prompts UInt64,
    -- Prompts with a TTFT.
    streamed UInt64,
    ok UInt64,
    client_aborts UInt64,
    -- Neither ok nor ended by the client.
    errors UInt64,
    rate_limited UInt64,
    -- ok, with TTFT and TPOT (where they exist) within the two objectives beside it.
    good UInt64,
    slo_ttft_ns Int64,
    slo_tpot_ns Int64,
    input_tokens UInt64,
    cached_tokens UInt64,
    output_tokens UInt64,
    stalls UInt64,
    retry_ns Int64,
    -- Sums over prompts with a TTFT: divide by `streamed` for means that add up.
    ttft_sum_ns Int64,
    ttft_network_sum_ns Int64,
    ttft_gateway_sum_ns Int64,
    ttft_router_sum_ns Int64,
    ttft_tokenize_sum_ns Int64,
    ttft_queue_sum_ns Int64,
    ttft_prefill_sum_ns Int64,
    ttft_post_sum_ns Int64,
    ttft_stream_sum_ns Int64,
    ttft_unattributed_sum_ns Int64,
    -- DDSketch states (relative error 1 %), read with quantilesDDMerge(0.01, 0.5, 0.9, 0.95, 0.99).
    ttft_q {{quantiles}},
    ttft_engine_q {{quantiles}},
    e2e_q {{quantiles}},
    tpot_q {{quantiles}},
    itl_p99_q {{quantiles}},
    ttft_network_q {{quantiles}},
    ttft_gateway_q {{quantiles}},
    ttft_router_q {{quantiles}},
    ttft_tokenize_q {{quantiles}},
    ttft_queue_q {{quantiles}},
    ttft_prefill_q {{quantiles}},
    ttft_post_q {{quantiles}},
    ttft_stream_q {{quantiles}},
    ttft_unattributed_q {{quantiles}},
    computed_at DateTime64(9, 'UTC') CODEC(Delta(8), ZSTD(1))
)
ENGINE = ReplacingMergeTree(computed_at)
PARTITION BY toYYYYMM(minute, 'UTC')
ORDER BY (minute, model, service, tenant)
SETTINGS {{mergetree}};

CREATE VIEW prompt_minutes AS
SELECT *
FROM prompt_minutes_rows FINAL
WHERE prompts > 0 AND (minute, computed_at) IN (SELECT minute, max(computed_at) FROM prompt_minutes_rows GROUP BY minute);
