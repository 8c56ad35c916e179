"""Cells of the table of prompts."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from promptpath.dashboard.components import prompt_table
from promptpath.dashboard.theme import PART_COLOR, STATUS_COLOR
from promptpath.semconv import Part, Status

from .examples import MS, prompt

NOW = datetime(2023, 11, 15, 1, 0, tzinfo=UTC)


def row(**changes: Any) -> dict[str, Any]:
    listed = prompt(itl_max_ns=12 * MS, input_tokens=7, output_tokens=10, **changes)
    (out,) = prompt_table.rows_for([listed], ZoneInfo("Europe/Berlin"), NOW)
    return out


def test_a_row_links_to_its_prompt() -> None:
    out = row(prompt_id="0123456789abcdef")
    assert out["href"] == "prompt?id=0123456789abcdef"
    assert out["cells"]["prompt"] == "01234567"
    assert row(prompt_id="a b&c")["href"] == "prompt?id=a%20b%26c"


def test_figures_are_those_of_the_prompt() -> None:
    cells = row()["cells"]
    assert cells["start"] == "2023-11-14 23:13:20.123"
    assert (cells["ttft"], cells["e2e"], cells["tokens"]) == ("100 ms", "200 ms", "7 → 10")
    assert cells["status"] == {"text": "ok", "color": STATUS_COLOR[Status.OK], "title": ""}


def test_the_small_bar_holds_the_parts_that_are_there() -> None:
    parts = row()["cells"]["parts"]
    assert [part["percent"] for part in parts] == [20.0, 10.0, 25.0, 40.0, 5.0]
    assert parts[0] == {"percent": 20.0, "color": PART_COLOR[Part.NETWORK], "text": "network 20.0 ms (20.0 %)"}


@pytest.mark.parametrize("changes", [{"ttft_ns": None}, {"ttft_ns": 0}])
def test_without_a_ttft_there_is_no_bar(changes: dict[str, Any]) -> None:
    assert row(**changes)["cells"]["parts"] is None


def test_what_is_not_known_is_a_dash_not_a_zero() -> None:
    (out,) = prompt_table.rows_for(
        [prompt(ttft_ns=None, tpot_ns=None, itl_max_ns=None, input_tokens=None, output_tokens=None, model="")],
        ZoneInfo("UTC"),
        NOW,
    )
    assert [out["cells"][name] for name in ("ttft", "tpot", "itl_max", "tokens", "model")] == ["—"] * 5
