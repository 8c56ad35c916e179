"""The pages' queries on a real store, against the same figures reckoned in Python."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from promptpath.storage.queries import dashboard, overview
from promptpath.storage.queries.dashboard import Filters

from .conftest import COUNT, SINCE_NS, UNTIL_NS, S

Rows = list[dict[str, Any]]
ALL = Filters(SINCE_NS, UNTIL_NS)
STEP_NS = 60 * S


def quantile(values: list[int], q: float) -> float:
    return float(np.quantile(np.array(values, dtype=np.float64), q))


def test_the_headline_is_what_the_rows_say(reader: Any, rows: Rows) -> None:
    head = overview.headline(reader, ALL)
    ttfts = [row["ttft_ns"] for row in rows if row["ttft_ns"] is not None]
    tpots = [row["tpot_ns"] for row in rows if row["tpot_ns"] is not None]
    assert head["prompts"] == COUNT
    assert head["ok"] == sum(row["status"] == "ok" for row in rows)
    assert head["streamed"] == len(ttfts)
    assert head["ttft"] == pytest.approx([quantile(ttfts, q) for q in (0.5, 0.95, 0.99)])
    assert head["tpot"] == pytest.approx([quantile(tpots, q) for q in (0.5, 0.95, 0.99)])
    assert head["input_tokens"] == sum(row["input_tokens"] for row in rows)
    assert head["output_tokens"] == sum(row["output_tokens"] for row in rows)
    assert (head["first_ns"], head["last_ns"]) == (rows[0]["start_ns"], rows[-1]["start_ns"])


def test_prompts_that_did_not_stream_are_in_no_quantile(reader: Any) -> None:
    # Their TTFT is null: were it 0 or the whole duration, it would move the percentiles.
    head = overview.headline(reader, replace(ALL, statuses=("rate_limited",)))
    assert head["prompts"] > 0
    assert head["streamed"] == 0
    assert head["ttft"] == [None, None, None]


def test_a_range_without_prompts_has_figures_of_nothing(reader: Any) -> None:
    head = overview.headline(reader, Filters(0, S))
    assert (head["prompts"], head["first_ns"], head["ttft"], head["output_tokens"]) == (0, None, [None] * 3, 0)
    assert overview.series(reader, Filters(0, S), STEP_NS).num_rows == 0


def test_the_series_has_a_row_a_minute(reader: Any, rows: Rows) -> None:
    series = overview.series(reader, ALL, STEP_NS).to_pylist()
    assert [row["bucket"] for row in series] == list(range(10))
    inside = [row for row in rows if (row["start_ns"] - SINCE_NS) // STEP_NS == 4]
    streamed = [row for row in inside if row["ttft_ns"] is not None]
    got = series[4]
    assert (got["prompts"], got["streamed"]) == (len(inside), len(streamed))
    assert got["ttft_p95"] == pytest.approx(quantile([row["ttft_ns"] for row in streamed], 0.95))
    assert got["prefill"] == pytest.approx(quantile([row["ttft_prefill_ns"] for row in streamed], 0.5))
    assert got["unattributed"] == pytest.approx(quantile([row["ttft_unattributed_ns"] for row in streamed], 0.5))
    assert got["output_tokens"] == sum(row["output_tokens"] for row in inside)


def test_statuses_and_heat_map_count_every_prompt_once(reader: Any, rows: Rows) -> None:
    counted: Counter[str] = Counter()
    for row in overview.statuses(reader, ALL, STEP_NS).to_pylist():
        counted[row["status"]] += row["prompts"]
    assert counted == Counter(row["status"] for row in rows)

    cells = {(c["bucket"], c["bin"]): c["prompts"] for c in overview.heat(reader, ALL, STEP_NS).to_pylist()}
    expected: Counter[tuple[int, int]] = Counter()
    for row in rows:
        if row["ttft_ns"] is not None:
            ttft_bin = int(np.floor(np.log10(row["ttft_ns"]) * overview.HEAT_BINS_PER_DECADE))
            expected[(row["start_ns"] - SINCE_NS) // STEP_NS, ttft_bin] += 1
    assert cells == expected


def test_inter_token_latency_is_over_tokens_not_over_prompts(reader: Any, rows: Rows) -> None:
    found = {row["bucket"]: row for row in overview.itl(reader, ALL, STEP_NS, COUNT).to_pylist()}
    gaps = np.array([gap * 1000 for row in rows for gap in row["gaps_us"]])
    whole = found[-1]
    assert whole["tokens"] == len(gaps)
    for name, q in (("itl_p50", 0.5), ("itl_p95", 0.95), ("itl_p99", 0.99)):
        assert whole[name] == pytest.approx(np.quantile(gaps, q, method="inverted_cdf"), abs=1000)
    assert sum(row["tokens"] for bucket, row in found.items() if bucket >= 0) == len(gaps)


def test_of_very_many_prompts_a_sample_is_read() -> None:
    assert overview.itl_sample(0) == overview.itl_sample(20_000) == 1
    assert overview.itl_sample(20_001) == 2
    assert overview.itl_sample(10_000_000) == 500


@pytest.mark.parametrize(
    ("filters", "takes"),
    [
        (replace(ALL, models=("qwen3-8b",)), lambda row: row["model"] == "qwen3-8b"),
        (replace(ALL, models=("qwen3-8b", "smollm2-135m")), lambda row: row["model"] != "llama-3.3-70b"),
        (replace(ALL, tenants=("red",), statuses=("ok",)), lambda row: (row["tenant"], row["status"]) == ("red", "ok")),
        (replace(ALL, services=("no-such",)), lambda row: False),
        (replace(ALL, min_ttft_ns=100_000_000), lambda row: (row["ttft_ns"] or 0) >= 100_000_000),
        (
            replace(ALL, min_ttft_ns=50_000_000, max_ttft_ns=100_000_000),
            lambda row: 50_000_000 <= (row["ttft_ns"] or 0) < 100_000_000,
        ),
        (replace(ALL, since_ns=SINCE_NS + 300 * S), lambda row: row["start_ns"] >= SINCE_NS + 300 * S),
        # Quotes are text, not SQL.
        (replace(ALL, models=("' OR 1=1 --", "a\\'b", "{x:String}")), lambda row: False),
    ],
)
def test_filters(reader: Any, rows: Rows, filters: Filters, takes: Any) -> None:
    expected = [row["prompt_id"] for row in rows if takes(row)]
    assert dashboard.count_prompts(reader, filters) == len(expected)
    listed = dashboard.list_prompts(reader, filters, descending=False, limit=200)
    assert listed.column("prompt_id").to_pylist() == expected[:200]


@pytest.mark.parametrize("descending", [True, False])
@pytest.mark.parametrize("order", dashboard.ORDERS)
def test_pages_hold_every_prompt_once_in_order_nulls_last(reader: Any, order: Any, descending: bool) -> None:
    pages = [
        dashboard.list_prompts(reader, ALL, order=order, descending=descending, limit=200, offset=offset).to_pylist()
        for offset in range(0, COUNT, 200)
    ]
    rows = [row for page in pages for row in page]
    assert len({row["prompt_id"] for row in rows}) == COUNT
    values = [row["start_ns" if order == "start_time" else order] for row in rows]
    known = [value for value in values if value is not None]
    assert values == known + [None] * (len(values) - len(known))
    assert known == sorted(known, reverse=descending)


@pytest.mark.parametrize(("limit", "offset"), [(0, 0), (201, 0), (10, -1)])
def test_a_page_is_bounded(reader: Any, limit: int, offset: int) -> None:
    with pytest.raises(ValueError, match="a page holds 1 to 200 rows"):
        dashboard.list_prompts(reader, ALL, limit=limit, offset=offset)


def test_an_order_that_is_none_is_refused_not_run(reader: Any) -> None:
    with pytest.raises(ValueError, match="cannot order prompts by"):
        dashboard.list_prompts(reader, ALL, order="1; DROP TABLE prompts", limit=1)  # type: ignore[arg-type]


def test_prompts_by_id_come_with_the_columns_of_the_list(reader: Any, rows: Rows) -> None:
    ids = [rows[7]["prompt_id"], rows[3]["prompt_id"], "absent"]
    found = dashboard.prompts_by_id(reader, ids)
    assert found.column("prompt_id").to_pylist() == [rows[3]["prompt_id"], rows[7]["prompt_id"]]
    assert found.schema.names == dashboard.list_prompts(reader, ALL, limit=1).schema.names


def test_what_may_be_filtered_by(reader: Any) -> None:
    values = dashboard.filter_values(reader, SINCE_NS, UNTIL_NS)
    assert values["models"] == ["llama-3.3-70b", "qwen3-8b", "smollm2-135m"]
    assert values["tenants"] == ["blue", "red"]
    assert values["statuses"] == ["client_abort", "error", "ok", "rate_limited"]
    assert dashboard.filter_values(reader, 0, S) == {"models": [], "services": [], "tenants": [], "statuses": []}


def test_the_newest_prompt(reader: Any, rows: Rows) -> None:
    assert dashboard.newest_prompt(reader) == (COUNT, rows[-1]["start_ns"])


def test_readers_cannot_write(reader: Any) -> None:
    with pytest.raises(Exception, match=r"(?i)readonly|read-only"):
        reader.command("INSERT INTO prompts_rows (prompt_id) VALUES ('x')")
