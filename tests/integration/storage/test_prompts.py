"""Prompts: replaced and never doubled, rolled up by minute, listed and found."""

from __future__ import annotations

import time
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from promptpath.storage import StorageError
from promptpath.storage.rows import PROMPTS_SCHEMA, insert_clock_offsets, insert_prompts

from .prompt_rows import MINUTE_NS, T0_NS, prompt, table

_FULL = prompt(
    7,
    tenant="acme",
    finish_reason="stop",
    input_tokens=10,
    cached_tokens=0,
    output_tokens=4_294_967_295,
    ttft_engine_ns=-5,
    tpot_ns=2**62,
    stalls=0,
    **{
        "segments.stage": ["transit", "prefill"],
        "segments.hop": ["app", "engine"],
        "segments.span_id": ["07", "08"],
        "segments.start_ns": [-3, 40],
        "segments.duration_ns": [43, 60],
        "segments.critical": [True, False],
    },
    gaps_us=[0, 4_294_967_295],
    gap_tokens=[1, 65_535],
    hops=["app", "engine"],
    hosts=["h1", "h2"],
    gpu_uuids=["GPU-1"],
    completeness=0.5,
    cost_usd=0.001,
)


def _exact(store: Any) -> list[dict[str, Any]]:
    columns = [
        f"toUnixTimestamp64Nano(p.{column.name}) AS {column.name}"
        if pa.types.is_timestamp(column.type)
        else f"p.`{column.name}` AS `{column.name}`"
        for column in PROMPTS_SCHEMA
    ]
    rows: list[dict[str, Any]] = store.dicts(f"SELECT {', '.join(columns)} FROM prompts AS p ORDER BY prompt_id")
    return rows


def _minutes(store: Any) -> dict[str, tuple[int, int]]:
    rows = store.dicts("SELECT model, sum(prompts) AS n, sum(good) AS good FROM prompt_minutes GROUP BY model")
    return {row["model"]: (row["n"], row["good"]) for row in rows}


# --- writing ----------------------------------------------------------------------------------------------------------


def test_rows_come_back_whole(store: Any) -> None:
    assert insert_prompts(store.client, table(prompt(1), _FULL)) == 2
    assert _exact(store) == [prompt(1), _FULL]


def test_columns_in_any_order_and_only_of_the_right_kind(store: Any) -> None:
    rows = table(prompt(1))
    insert_prompts(store.client, rows.select(rows.column_names[::-1]))
    assert _exact(store) == [prompt(1)]
    with pytest.raises(StorageError, match="lack the columns ttft_ns, hops"):
        insert_prompts(store.client, rows.drop(["ttft_ns", "hops"]))
    wrong = rows.set_column(rows.column_names.index("e2e_ns"), "e2e_ns", pa.array(["soon"]))
    with pytest.raises(StorageError, match="other types than PROMPTS_SCHEMA"):
        insert_prompts(store.client, wrong)


def test_a_newer_row_replaces_an_older_one_whenever_it_comes(store: Any) -> None:
    older = prompt(1, model="older", assembled_at=T0_NS)
    newer = prompt(1, model="newer", assembled_at=T0_NS + 1)
    insert_prompts(store.client, table(newer))
    insert_prompts(store.client, table(older))
    assert _exact(store) == [newer]
    assert _minutes(store) == {"newer": (1, 1)}


def test_a_prompt_that_was_none_is_withdrawn_and_no_other(store: Any) -> None:
    """The gateway's span came first and looked like a root; then the client's came."""
    early = prompt(2, trace_id="t", model="gateway")
    other = prompt(3, trace_id="u")
    insert_prompts(store.client, table(early, other))
    late = prompt(1, trace_id="t", model="client")
    insert_prompts(store.client, table(late))
    assert _exact(store) == [late, other]
    assert _minutes(store) == {"client": (1, 1), "m": (1, 1)}
    # And back again: what was withdrawn may return.
    again = {**early, "assembled_at": time.time_ns() + 10**9}
    insert_prompts(store.client, table(again))
    assert _exact(store) == [again, other]


def test_traces_without_prompts_lose_those_they_had(store: Any) -> None:
    insert_prompts(store.client, table(prompt(1, trace_id="t"), prompt(2, trace_id="u")))
    assert insert_prompts(store.client, table(), trace_ids=["t"]) == 0
    assert [row["trace_id"] for row in _exact(store)] == ["u"]
    insert_prompts(store.client, table(), trace_ids=["u"])
    assert store.count("prompts") == 0
    assert store.count("prompt_minutes") == 0


def test_prompts_of_more_days_and_months_than_an_insert_may_have_partitions(store: Any) -> None:
    """One such batch must not be refused for ever: the assembler would try again, and get no further."""
    month_ns = 31 * 24 * 3600 * 10**9
    rows = [prompt(number, start_time=T0_NS - number * month_ns, trace_id="t") for number in range(1, 121)]
    assert insert_prompts(store.client, table(*rows)) == 120
    assert (store.count("prompts"), store.count("prompt_minutes")) == (120, 120)
    assert insert_prompts(store.client, table(), trace_ids=["t"]) == 0
    assert (store.count("prompts"), store.count("prompt_minutes")) == (0, 0)


# --- the roll-up ------------------------------------------------------------------------------------------------------


def test_a_minute_counts_what_it_should(store: Any) -> None:
    insert_prompts(
        store.client,
        table(
            prompt(1, ttft_ns=100, tpot_ns=5, input_tokens=10, output_tokens=3, ttft_queue_ns=60, retry_ns=4),
            prompt(2, ttft_ns=300, tpot_ns=999, input_tokens=1, ttft_queue_ns=100),
            prompt(3, ttft_ns=None, streaming=False),
            prompt(4, ttft_ns=5_000, status="ok"),
            prompt(5, status="client_abort", ttft_ns=None),
            prompt(6, status="rate_limited", ttft_ns=None),
            prompt(7, start_time=T0_NS + MINUTE_NS),
        ),
        slo_ttft_ns=1_000,
        slo_tpot_ns=10,
    )
    rows = store.dicts(
        "SELECT toUnixTimestamp(minute) AS at, prompts, streamed, ok, client_aborts, errors, rate_limited, good, "
        "slo_ttft_ns, slo_tpot_ns, input_tokens, output_tokens, retry_ns, ttft_sum_ns, ttft_queue_sum_ns "
        "FROM prompt_minutes ORDER BY minute"
    )
    minute = T0_NS // MINUTE_NS * 60
    assert rows[0] == {
        "at": minute,
        "prompts": 6,
        "streamed": 3,
        "ok": 4,
        "client_aborts": 1,
        "errors": 1,
        "rate_limited": 1,
        "good": 2,
        "slo_ttft_ns": 1_000,
        "slo_tpot_ns": 10,
        "input_tokens": 11,
        "output_tokens": 3,
        "retry_ns": 4,
        "ttft_sum_ns": 5_400,
        "ttft_queue_sum_ns": 160,
    }
    assert [row["at"] for row in rows] == [minute, minute + 60]


def test_quantiles_leave_prompts_without_a_value_out(store: Any) -> None:
    """A prompt that did not stream has no TTFT; counting it as 0 would poison every quantile."""
    rows = [prompt(n, ttft_ns=1_000_000 * (n + 1) if n % 2 else None) for n in range(1000)]
    rows += [prompt(n, ttft_ns=1_000_000 * (n + 1), start_time=T0_NS + MINUTE_NS + n) for n in range(1001, 2000, 2)]
    insert_prompts(store.client, table(*rows))
    (row,) = store.dicts(
        "SELECT quantilesDDMerge(0.01, 0.5, 0.9, 0.95, 0.99)(ttft_q) AS q, sum(streamed) AS n FROM prompt_minutes"
    )
    assert row["n"] == 1000
    expected = [1_000_000_000, 1_800_000_000, 1_900_000_000, 1_980_000_000]
    assert row["q"] == pytest.approx(expected, rel=0.012)


class TestRollUp:
    """Whatever is written, replaced and withdrawn, `prompt_minutes` counts what `prompts` holds."""

    @settings(
        max_examples=15,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )
    @given(
        rounds=st.lists(
            st.lists(
                st.tuples(st.integers(0, 5), st.integers(0, 2), st.sampled_from(["a", "b"])),
                max_size=4,
                unique_by=lambda item: (item[0], item[1]),
            ),
            min_size=1,
            max_size=4,
        )
    )
    def test_agrees_with_prompts(self, store: Any, rounds: list[list[tuple[int, int, str]]]) -> None:
        for name in ("prompts_rows", "prompt_minutes_rows"):
            store.client.command(f"TRUNCATE TABLE {name}")
        last: dict[str, dict[str, Any]] = {}
        for number, chosen in enumerate(rounds):
            rows = [
                prompt(
                    trace * 10 + root,
                    trace_id=str(trace),
                    model=model,
                    start_time=T0_NS + trace * 20_000_000_000 + root,
                    assembled_at=time.time_ns() + number,
                )
                for trace, root, model in chosen
            ]
            insert_prompts(store.client, table(*rows))
            traces = {row["trace_id"] for row in rows}
            last = {key: row for key, row in last.items() if row["trace_id"] not in traces}
            last |= {row["prompt_id"]: row for row in rows}
        assert sorted(row["prompt_id"] for row in _exact(store)) == sorted(last)
        query = (
            "SELECT toStartOfMinute(start_time) AS minute, model, toUInt64(count()) AS n FROM prompts "
            "GROUP BY ALL ORDER BY ALL"
        )
        rolled = "SELECT minute, model, prompts AS n FROM prompt_minutes ORDER BY ALL"
        assert store.dicts(rolled) == store.dicts(query)


# --- clocks ----------------------------------------------------------------------------------------------------------


def test_clock_offsets(store: Any) -> None:
    row = {"host_a": "a", "host_b": "b", "at": T0_NS, "offset_ns": -3, "error_ns": 2, "pairs": 9}
    types = [pa.string(), pa.string(), pa.timestamp("ns", "UTC"), pa.int64(), pa.int64(), pa.uint32()]
    offsets = pa.table({key: pa.array([row[key]], kind) for key, kind in zip(row, types, strict=True)})
    assert insert_clock_offsets(store.client, offsets) == 1
    assert store.dicts("SELECT * REPLACE (toUnixTimestamp64Nano(at) AS at) FROM clock_offsets") == [
        row | {"Tenant": ""}
    ]
