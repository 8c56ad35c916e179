-- Offsets between the clocks of two hosts, b minus a, as the assembler found them. Stored spans are never changed.
CREATE TABLE clock_offsets
(
    host_a LowCardinality(String),
    host_b LowCardinality(String),
    at DateTime64(9, 'UTC') CODEC(Delta(8), ZSTD(1)),
    offset_ns Int64 CODEC(ZSTD(1)),
    error_ns Int64 CODEC(ZSTD(1)),
    pairs UInt32 CODEC(ZSTD(1))
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(at, 'UTC')
ORDER BY (host_a, host_b, at)
SETTINGS {{mergetree}};

-- What a rule found in one window: the observed value beside its baseline, how sure the test is, which part explains it.
CREATE TABLE alerts
(
    alert_id String,
    incident_id String,
    rule LowCardinality(String),
    metric LowCardinality(String),
    groups Map(LowCardinality(String), String),
    at DateTime64(9, 'UTC') CODEC(Delta(8), ZSTD(1)),
    window_start DateTime64(9, 'UTC') CODEC(Delta(8), ZSTD(1)),
    window_end DateTime64(9, 'UTC') CODEC(Delta(8), ZSTD(1)),
    baseline_start DateTime64(9, 'UTC') CODEC(Delta(8), ZSTD(1)),
    baseline_end DateTime64(9, 'UTC') CODEC(Delta(8), ZSTD(1)),
    observed Float64,
    baseline Float64,
    samples UInt64,
    baseline_samples UInt64,
    p_value Nullable(Float64),
    blamed LowCardinality(String),
    blamed_share Nullable(Float64),
    message String
)
ENGINE = ReplacingMergeTree
PARTITION BY toYYYYMM(at, 'UTC')
ORDER BY (at, alert_id)
SETTINGS {{mergetree}};

-- Alerts of one cause, from the first to the last; the newest row of an incident counts.
CREATE TABLE incidents_rows
(
    incident_id String,
    rule LowCardinality(String),
    metric LowCardinality(String),
    groups Map(LowCardinality(String), String),
    opened_at DateTime64(9, 'UTC'),
    closed_at Nullable(DateTime64(9, 'UTC')),
    alerts UInt32,
    blamed LowCardinality(String),
    message String,
    updated_at DateTime64(9, 'UTC')
)
ENGINE = ReplacingMergeTree(updated_at)
ORDER BY incident_id
SETTINGS {{mergetree}};

CREATE VIEW incidents AS SELECT * FROM incidents_rows FINAL;

-- Where each assembler stood: it has read `trace_arrivals` up to `position`.
CREATE TABLE assembler_state_rows
(
    name String,
    position DateTime64(9, 'UTC'),
    updated_at DateTime64(9, 'UTC') DEFAULT now64(9)
)
ENGINE = ReplacingMergeTree(updated_at)
ORDER BY name
SETTINGS {{mergetree}};

CREATE VIEW assembler_state AS SELECT * FROM assembler_state_rows FINAL;
