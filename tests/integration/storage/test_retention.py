"""Rows that are too old go, those that are not stay, and a change of mind holds for what is stored already."""

from __future__ import annotations

import time
from typing import Any

import pytest

from promptpath.storage import StorageError, ingest
from promptpath.storage.retention import DEFAULTS_S, RETAINED, apply_retention, parse_retention
from promptpath.storage.rows import insert_prompts

from .otlp_rows import CAPTURES, requests
from .prompt_rows import prompt, table


def _ttls(store: Any) -> dict[str, str]:
    rows = store.dicts("SELECT table, ttl FROM storage_tables WHERE database = currentDatabase()")
    return {row["table"]: row["ttl"] for row in rows}


def _until(store: Any, table: str, rows: int) -> None:
    """Waits for the engine to drop what has expired; it looks in the background."""
    deadline = time.monotonic() + 60
    while store.count(table) != rows and time.monotonic() < deadline:
        time.sleep(0.2)
    assert store.count(table) == rows


def test_everything_that_holds_rows_is_named_or_small(store: Any) -> None:
    governed = {table for tables in RETAINED.values() for table in tables}
    assert set(_ttls(store)) - governed == {"schema_migrations", "assembler_state_rows"}
    changed = apply_retention(store.client)
    assert set(changed) == {name for name, ttl in _ttls(store).items() if ttl}
    assert apply_retention(store.client) == []
    ttls = _ttls(store)
    assert ttls["otel_traces"] == f"toDateTime(IngestedAt) + toIntervalSecond({DEFAULTS_S['otel_traces']})"
    assert ttls["trace_arrivals"] == f"toDateTime(ArrivedAt) + toIntervalSecond({DEFAULTS_S['otel_traces']})"
    assert ttls["prompts_rows"] == f"toDateTime(assembled_at) + toIntervalSecond({DEFAULTS_S['prompts']})"
    assert ttls["prompt_minutes_rows"] == ttls["incidents_rows"] == ""

    wanted = parse_retention("otel_traces=0, otel_metrics=1d,otel_metrics_sum=2h prompts=none")
    changed = apply_retention(store.client, wanted)
    assert sorted(changed) == sorted(
        ["otel_traces", "otel_traces_trace_id_ts", "trace_arrivals", "trace_join_keys", "prompts_rows"]
        + [f"otel_metrics_{kind}" for kind in ("gauge", "sum", "histogram", "exponential_histogram", "summary")]
    )
    ttls = _ttls(store)
    assert ttls["otel_traces"] == ttls["trace_arrivals"] == ttls["prompts_rows"] == ""
    assert ttls["otel_metrics_gauge"] == "toDateTime(IngestedAt) + toIntervalSecond(86400)"
    assert ttls["otel_metrics_sum"] == "toDateTime(IngestedAt) + toIntervalSecond(7200)"


def test_spans_go_when_their_time_is_up_and_not_before(store: Any) -> None:
    """What a capture sent some time ago is old by its own clock; it counts from when it came here."""
    body = b"".join(requests(CAPTURES / "vllm-detailed" / "traces.pb"))
    ingest.insert(store.client, "traces", body, "a")
    spans = store.count("otel_traces")
    apply_retention(store.client, {"otel_traces": 86_400})
    store.client.command("OPTIMIZE TABLE otel_traces FINAL")
    assert store.count("otel_traces") == spans
    # Some that came two days ago, on another day by their own clocks: a part of their own.
    store.client.command(
        "INSERT INTO otel_traces (Timestamp, TraceId, IngestedAt)"
        " SELECT toDateTime64('2024-05-01 00:00:00', 9), 'old', now64(9) - INTERVAL 2 DAY FROM numbers(100)"
    )
    _until(store, "otel_traces", spans)
    # A shorter time reaches what is stored.
    time.sleep(1.1)
    apply_retention(store.client, {"otel_traces": 1})
    _until(store, "otel_traces", 0)
    _until(store, "trace_arrivals", 0)


def test_prompts_and_their_replacements(store: Any) -> None:
    apply_retention(store.client, {"prompts": 86_400})
    old, new = time.time_ns() - 2 * 86_400 * 10**9, time.time_ns()
    insert_prompts(store.client, table(prompt(1, assembled_at=old)))
    _until(store, "prompts_rows", 0)
    insert_prompts(store.client, table(prompt(1, assembled_at=old), prompt(2, assembled_at=new)))
    insert_prompts(store.client, table(prompt(1, assembled_at=new)))
    _until(store, "prompts", 2)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("", {}),
        ("otel_traces=7d", {"otel_traces": 604_800}),
        ("otel_logs=90m,alerts=2w, prompts=0", {"otel_logs": 5400, "alerts": 1_209_600, "prompts": 0}),
        ("incidents=none", {"incidents": 0}),
    ],
)
def test_retention_is_read(text: str, seconds: dict[str, int]) -> None:
    assert parse_retention(text) == seconds


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("spans=7d", "no table 'spans' has a retention of its own: use one of otel_traces, "),
        ("otel_traces", "otel_traces= is no retention: use otel_traces=30d"),
        ("otel_traces=7", "otel_traces=7 is no retention"),
        ("otel_traces=-1d", "otel_traces=-1d is no retention"),
        ("otel_traces=99999999d", "otel_traces=99999999d is no retention"),
    ],
)
def test_what_is_no_retention(text: str, said: str) -> None:
    with pytest.raises(StorageError) as caught:
        parse_retention(text)
    assert said in str(caught.value)
