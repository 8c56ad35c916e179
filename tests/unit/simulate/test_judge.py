"""The judge sees what is wrong, and only that."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from promptpath.collector.assemble import PROMPT_SCHEMA
from promptpath.collector.simulate.judge import judge
from promptpath.collector.simulate.truth import TRUTH_SCHEMA
from promptpath.semconv import Part

Row = dict[str, Any]
MS = 1_000_000


def truth(number: int = 1, **more: Any) -> Row:
    row: Row = {field.name: None for field in TRUTH_SCHEMA}
    row |= {f"ttft_{part}_ns": 0 for part in Part}
    row |= {"prompt_id": f"{number:x}", "ids": [f"{number:x}", f"{number:x}0"], "whole": True, "ttft_ns": 100 * MS}
    row |= {
        "ttft_prefill_ns": 100 * MS,
        "gaps_ns": [10 * MS, 2 * MS],
        "gap_tokens": [1, 2],
        "hops": ["a"],
        "hosts": ["b"],
    }
    row |= {"status": "ok", "attempts": 1, "e2e_ns": 200 * MS, "clock_offset_ns": 500}
    return row | more


def told(number: int = 1, **more: Any) -> Row:
    same = truth(number)
    row: Row = {field.name: same.get(field.name) for field in PROMPT_SCHEMA}
    row |= {"gaps_us": [10_000, 2000], "clock_offset_ns": 500, "clock_error_ns": 10}
    return row | more


def test_durations_between_tokens_and_in_the_engine() -> None:
    names = ("itl_p50_ns", "itl_p99_ns", "itl_max_ns", "ttft_engine_ns")
    for name in names:
        right = dict.fromkeys(names, 30 * MS)
        assert of([truth(1, **right)], [told(1, **right)])["wrong"] == {}
        assert of([truth(1, **right)], [told(1, **(right | {name: 31 * MS}))])["wrong"] == {name: 1}
        assert of([truth(1, **right)], [told(1, **(right | {name: None}))])["wrong"] == {name: 1}


def of(true: list[Row], rows: list[Row]) -> dict[str, Any]:
    verdict = judge(pa.Table.from_pylist(true, TRUTH_SCHEMA), pa.Table.from_pylist(rows, PROMPT_SCHEMA))
    return verdict.figures()


def test_nothing_wrong() -> None:
    figures = of([truth(1), truth(2)], [told(2), told(1)])
    assert figures["wrong"] == {}
    assert (figures["parts_right"], figures["offsets_right"], figures["offsets"]) == (1.0, 1.0, 2)
    assert {figures[name] for name in ("missing", "doubled", "strange", "not_summing")} == {0}


def test_missing_doubled_strange() -> None:
    row = told(1) | {"prompt_id": "10"}
    figures = of([truth(1), truth(2)], [told(1), row, told(3)])
    assert (figures["missing"], figures["doubled"], figures["strange"]) == (1, 1, 1)


def test_a_row_under_another_span_stands_for_a_prompt_whose_root_was_lost() -> None:
    figures = of([truth(1)], [told(1) | {"prompt_id": "10"}])
    assert (figures["missing"], figures["doubled"]) == (0, 0)


def test_parts_within_the_tolerance() -> None:
    def off(by: int) -> dict[str, Any]:
        return of([truth()], [told(ttft_prefill_ns=100 * MS - by, ttft_queue_ns=by)])

    assert off(MS // 2)["wrong"] == {}
    assert set(off(MS // 2 + 1)["wrong"]) == {"ttft_prefill_ns", "ttft_queue_ns"}
    assert off(MS)["parts_right"] == 0.0
    assert off(MS)["worst_ms"]["ttft_queue_ns"] == 1.0


def test_parts_that_do_not_add_up() -> None:
    assert of([truth()], [told(ttft_queue_ns=1)])["not_summing"] == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"status": "error"},
        {"attempts": 2},
        {"output_tokens": 3},
        {"hops": ["b"]},
        {"tpot_ns": 1},
        {"retry_ns": 2 * MS},
        {"stalls": 1},
        {"streaming": True},
        {"e2e_ns": 203 * MS},
    ],
)
def test_each_column(wrong: Row) -> None:
    (name,) = wrong
    assert of([truth()], [told(**wrong)])["wrong"] == {name: 1}
    assert of([truth(whole=False)], [told(**wrong)])["wrong"] == {}


@pytest.mark.parametrize("gaps", [[10_000], [10_000, 2010], []])
def test_gaps(gaps: list[int]) -> None:
    assert "gaps" in of([truth()], [told(gaps_us=gaps)])["wrong"]


def test_an_offset_beyond_its_own_bound() -> None:
    assert of([truth()], [told(clock_offset_ns=511)])["offsets_right"] == 0.0
