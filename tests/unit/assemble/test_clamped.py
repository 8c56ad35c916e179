"""Spans of which a time is not known: no E2E of decades, no negative part, and null what is not known."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from promptpath.collector.assemble import SPAN_SCHEMA, AssembleConfig, ClockPool, assemble

from .conftest import T0, run, span

_MS = 1_000_000
_PARTS = ("network", "gateway", "router", "tokenize", "queue", "prefill", "post", "stream", "unattributed")
#: Long after the prompt: when its batch was received.
_RECEIVED = 60_000 * _MS


def _client(**more: Any) -> dict[str, Any]:
    row = {"start": 0, "end": 100 * _MS, "gaps_us": [30_000, 10_000, 10_000], "counts": [1, 1, 1]} | more
    return span("a" * 16, stage="client", service="app", host="one", **row)


def _server(**more: Any) -> dict[str, Any]:
    return span(
        "b" * 16, "a" * 16, stage="server", service="engine", host="two", **{"start": 5 * _MS, "end": 95 * _MS} | more
    )


def _inner(letter: str, stage: str, **more: Any) -> dict[str, Any]:
    return span(letter * 16, "b" * 16, stage=stage, service="engine", host="two", **more)


def _parts(row: dict[str, Any]) -> list[int | None]:
    return [row[f"ttft_{part}_ns"] for part in _PARTS]


def test_a_root_without_an_end_has_a_ttft_and_no_e2e() -> None:
    (row,) = run(_client(end=0, clamped="end"), _server())
    assert (row["ttft_ns"], row["e2e_ns"], row["start_time"]) == (30 * _MS, None, T0)
    assert sum(_parts(row)) == 30 * _MS
    assert row["end_time"] >= T0 + 50 * _MS
    assert row["itl_p50_ns"] == 10 * _MS


def test_a_root_without_a_start_has_neither() -> None:
    (row,) = run(_client(start=100 * _MS, clamped="start"), _server())
    assert (row["ttft_ns"], row["ttft_source"], row["e2e_ns"], row["tpot_ns"]) == (None, "", None, None)
    assert _parts(row) == [None] * len(_PARTS)
    assert row["itl_p50_ns"] == 10 * _MS


def test_a_root_of_which_nothing_is_known_is_a_prompt_all_the_same() -> None:
    (row,) = run(
        _client(start=_RECEIVED, end=_RECEIVED, clamped="start,end", gaps_us=[], counts=[], model="m", output_tokens=7),
        _server(),
    )
    assert (row["ttft_ns"], row["e2e_ns"], row["model"], row["output_tokens"]) == (None, None, "m", 7)
    assert row["start_time"] == row["end_time"] == T0 + _RECEIVED


def test_a_server_without_times_holds_what_is_inside_it() -> None:
    inside = [
        _inner("c", "queue", start=10 * _MS, end=15 * _MS),
        _inner("d", "prefill", start=15 * _MS, end=29 * _MS),
    ]
    lost = {"start": _RECEIVED, "end": _RECEIVED, "clamped": "start,end"}
    (known,), (row,) = (
        run(_client(), _server(start=10 * _MS, end=29 * _MS), *inside),
        run(_client(), _server(**lost), *inside),
    )
    assert {name: row[name] for name in row if name.startswith(("ttft", "e2e"))} == {
        name: known[name] for name in known if name.startswith(("ttft", "e2e"))
    }


def test_a_prefill_without_an_end_says_nothing_of_the_first_token() -> None:
    lost = _inner("d", "prefill", start=15 * _MS, end=15 * _MS, clamped="end")
    (row,) = run(_client(gaps_us=[], counts=[]), _server(), lost)
    assert (row["ttft_ns"], row["e2e_ns"]) == (None, 100 * _MS)


def test_a_first_token_decades_after_the_span_is_none() -> None:
    (row,) = run(_client(gaps_us=[], counts=[], first_token_ns=80 * 365 * 86_400 * 10**9), _server())
    assert (row["ttft_ns"], row["e2e_ns"]) == (None, 100 * _MS)


_TIMES = st.sampled_from([0, 5 * _MS, 10 * _MS, 20 * _MS, 95 * _MS, _RECEIVED])


@given(data=st.data())
def test_whatever_is_lost_nothing_is_negative_or_made_up(data: st.DataObject) -> None:
    rows = [
        _client(),
        _server(),
        _inner("c", "queue", start=10 * _MS, end=15 * _MS),
        _inner("d", "prefill", start=15 * _MS, end=29 * _MS),
        _inner("e", "decode", start=29 * _MS, end=90 * _MS),
    ]
    for row in rows:
        clamped = data.draw(st.sampled_from(["", "", "start", "end", "start,end"]))
        if clamped:
            at = _RECEIVED if clamped == "start,end" else data.draw(_TIMES)
            row |= {"clamped": clamped, "start_ns": T0 + at, "duration_ns": 0}
    clocks = ClockPool()
    found = assemble(pa.Table.from_pylist(rows, schema=SPAN_SCHEMA), AssembleConfig(assembled_at_ns=T0), clocks)
    (row,) = found.drop_columns(
        ["start_time", "end_time", "assembled_at", "workflow_start", "workflow_end"]
    ).to_pylist()
    assert (row["e2e_ns"] is None) == (rows[0]["clamped"] != "")
    assert row["e2e_ns"] in (None, 100 * _MS)
    if "start" in rows[0]["clamped"]:
        assert row["ttft_ns"] is None
    if row["ttft_ns"] is None:
        assert _parts(row) == [None] * len(_PARTS)
    else:
        assert 0 <= row["ttft_ns"] <= 100 * _MS
        parts = [part for part in _parts(row) if part is not None]
        assert sum(parts) == row["ttft_ns"]
        assert min(parts) >= 0
    assert all(ns >= 0 for ns in row["segments.duration_ns"])
