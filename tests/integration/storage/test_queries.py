"""Named queries, on a read-only client."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest

from promptpath.storage import ingest
from promptpath.storage.queries import prompts
from promptpath.storage.rows import PROMPTS_SCHEMA, insert_prompts

from .otlp_rows import CAPTURES, requests, span_rows
from .prompt_rows import T0_NS, prompt, table


@pytest.fixture(scope="module")
def reader(shared_store: Any) -> Any:
    insert_prompts(
        shared_store.client,
        table(
            prompt(1, ttft_ns=300, e2e_ns=10, model="a", tenant="x", stalls=2),
            prompt(2, ttft_ns=None, e2e_ns=99, model="b", service="s", workflow_id="w"),
            prompt(3, ttft_ns=900, e2e_ns=20, model="a", status="error"),
            prompt(0xABC, ttft_ns=500, e2e_ns=30, start_time=T0_NS + 10**9),
        ),
    )
    return shared_store.open(readonly=True)


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({}, [0xABC, 3, 2, 1]),
        ({"order": "oldest"}, [1, 2, 3, 0xABC]),
        ({"order": "slowest"}, [3, 0xABC, 1, 2]),
        ({"order": "fastest"}, [1, 0xABC, 3, 2]),
        ({"order": "longest"}, [2, 0xABC, 3, 1]),
        ({"order": "stalls", "limit": 1}, [1]),
        ({"limit": 2, "offset": 1}, [3, 2]),
        ({"model": "a"}, [3, 1]),
        ({"service": "s"}, [2]),
        ({"tenant": "x"}, [1]),
        ({"status": "error"}, [3]),
        ({"workflow_id": "w"}, [2]),
        ({"min_ttft_ns": 500}, [0xABC, 3]),
        ({"max_ttft_ns": 500}, [1]),
        ({"min_e2e_ns": 30}, [0xABC, 2]),
        ({"since": T0_NS + 3}, [0xABC, 3]),
        ({"until": T0_NS + 3}, [2, 1]),
        ({"since": dt.datetime.fromtimestamp(T0_NS // 10**9 + 1, dt.UTC)}, [0xABC]),
        ({"model": "'; DROP TABLE prompts_rows"}, []),
    ],
)
def test_list(reader: Any, choice: dict[str, Any], expected: list[int]) -> None:
    found = prompts.list_prompts(reader, **choice)
    assert found.column("prompt_id").to_pylist() == [f"{number:016x}" for number in expected]
    assert found.column("start_ns").type == pa.int64()


def test_list_refuses_what_it_does_not_know(reader: Any) -> None:
    with pytest.raises(ValueError, match="none of newest"):
        prompts.list_prompts(reader, order="start_time; DROP TABLE prompts")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="not negative"):
        prompts.list_prompts(reader, limit=-1)


def test_slowest(reader: Any) -> None:
    assert prompts.slowest(reader, limit=1).column("ttft_ns").to_pylist() == [900]


def test_get_prompt_is_exact(reader: Any) -> None:
    (row,) = prompts.get_prompt(reader, f"{0xABC:016X}").to_pylist()
    assert (row["start_ns"], row["end_ns"]) == (T0_NS + 10**9, T0_NS + 0xABC + 2_000_000_000)
    assert row["start_time"] == dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(
        microseconds=(T0_NS + 10**9) // 1000
    )
    assert set(PROMPTS_SCHEMA.names) <= set(row)
    assert prompts.get_prompt(reader, "f" * 16).num_rows == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{1:016x}", [1]),
        (f" {0xABC:016X} ", [0xABC]),
        (f"{3:032x}", [3]),
        ("0000000000000a", [0xABC]),
        ("0", [1, 2, 3, 0xABC]),
        ("f", []),
        ("no hex", []),
        ("", []),
        ("%", []),
    ],
)
def test_find(reader: Any, text: str, expected: list[int]) -> None:
    found = prompts.find(reader, text).column("prompt_id").to_pylist()
    assert found == [f"{number:016x}" for number in expected]


def test_spans_of_a_trace(shared_store: Any) -> None:
    bodies = requests(CAPTURES / "litellm" / "traces.pb")
    ingest.insert(shared_store.client, "traces", b"".join(bodies), "t")
    rows = list(span_rows(bodies))
    reader = shared_store.open(readonly=True)
    for trace in {row["TraceId"] for row in rows}:
        found = prompts.spans_of_trace(reader, trace.upper())
        mine = [row for row in rows if row["TraceId"] == trace]
        assert sorted(found.column("SpanId").to_pylist()) == sorted(row["SpanId"] for row in mine)
        starts = found.column("StartNs").to_pylist()
        assert starts == sorted(row["Timestamp"] for row in mine)
        ends = {row["SpanId"]: row["Timestamp"] + row["Duration"] for row in mine}
        assert dict(zip(found.column("SpanId").to_pylist(), found.column("EndNs").to_pylist(), strict=True)) == ends
    assert prompts.spans_of_trace(reader, trace, limit=1).num_rows == 1
    assert prompts.spans_of_trace(reader, "none").num_rows == 0


def test_spans_of_joined_traces(shared_store: Any) -> None:
    bodies = requests(CAPTURES / "litellm" / "traces.pb")
    ingest.insert(shared_store.client, "traces", b"".join(bodies), "t")
    rows = list(span_rows(bodies))
    one, other, *_ = sorted({row["TraceId"] for row in rows})
    found = prompts.spans_of_trace(shared_store.open(readonly=True), one, joined=[other])
    assert sorted(found.column("SpanId").to_pylist()) == sorted(
        row["SpanId"] for row in rows if row["TraceId"] in (one, other)
    )
    assert set(found.column("TraceId").to_pylist()) == {one, other}
    assert found.column("StartNs").to_pylist() == sorted(found.column("StartNs").to_pylist())


def test_a_trace_with_a_wild_clock_is_still_found(shared_store: Any) -> None:
    shared_store.client.command(
        "INSERT INTO otel_traces (Timestamp, TraceId) SELECT toDateTime64('2200-01-01 00:00:00', 9), 'aa'"
    )
    assert prompts.spans_of_trace(shared_store.client, "aa").num_rows == 1


def test_a_range_of_prompts_is_read_through_its_key(shared_store: Any) -> None:
    plan = shared_store.client.command(
        "EXPLAIN indexes = 1 SELECT * FROM prompts WHERE start_time > toDateTime64('2026-01-01', 9, 'UTC')"
    )
    assert "start_time" in str(plan)
    for query in ("prompts", "prompt_minutes", "counters", "workflows", "incidents", "assembler_state"):
        assert "Read" in str(shared_store.client.command(f"EXPLAIN SELECT * FROM {query}"))
