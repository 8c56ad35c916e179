"""Prompts whose traces were cut in pieces come out as they were: the whole ones are the reference for the joined ones.

The rows of whole prompts are held against plain Python elsewhere; a cut takes a trace context away and leaves an id.
"""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from promptpath.cli.benches.spans import demo_batch
from promptpath.collector.assemble import SPAN_SCHEMA, AssembleConfig, Tally, assemble

Row = dict[str, Any]


def rows_of(spans: list[Row], tally: Tally | None = None) -> list[Row]:
    table = assemble(pa.Table.from_pylist(spans, schema=SPAN_SCHEMA), AssembleConfig(assembled_at_ns=1), tally=tally)
    rows: list[Row] = table.drop_columns(["start_time", "end_time", "assembled_at"]).to_pylist()
    return sorted(rows, key=lambda row: row["prompt_id"])


def below(spans: list[Row], root: Row) -> list[Row]:
    """A span and everything under it."""
    children: dict[str, list[Row]] = {}
    for one in spans:
        children.setdefault(one["parent_id"], []).append(one)
    found = [root]
    for one in found:
        found += children.get(one["span_id"], [])
    return found


def entries(spans: list[Row], service: str) -> list[Row]:
    return [one for one in spans if one["service"] == service and one["kind"] == "SERVER"]


def same(rows: list[Row], whole: list[Row], apart: set[str]) -> None:
    """Equal, but for columns in `apart`."""
    assert [row["prompt_id"] for row in rows] == [row["prompt_id"] for row in whole]
    for row, other in zip(rows, whole, strict=True):
        assert {name: row[name] for name in row if name not in apart} == {
            name: other[name] for name in other if name not in apart
        }


@pytest.mark.parametrize("service", ["gateway", "router", "engine"])
@pytest.mark.parametrize("seed", range(3))
def test_a_trace_context_that_got_lost(service: str, seed: int) -> None:
    """A hop begins a trace of its own; its span and the call that led to it say one id."""
    rng = random.Random(seed)
    spans = demo_batch(60, seed=seed).to_pylist()
    whole = rows_of(spans)
    by_id = {one["span_id"]: one for one in spans}
    for number, hop in enumerate(entries(spans, service)):
        call = by_id[hop["parent_id"]]
        cut = below(spans, hop)
        for one in cut:
            one["trace_id"] = f"{rng.getrandbits(128):032x}" if one is hop else hop["trace_id"]
        hop["parent_id"] = ""
        hop["correlation_id"] = call["correlation_id"] = f"request-{seed}-{number}"
    rng.shuffle(spans)
    rows = rows_of(spans)
    same(rows, whole, {"joined_by", "joined_traces"})
    assert {row["joined_by"] for row in rows} == {"request_id"}
    assert {len(row["joined_traces"]) for row in rows} == {1}


@pytest.mark.parametrize("service", ["gateway", "router", "engine"])
def test_a_parent_that_got_lost(service: str) -> None:
    """The call of a hop never came: its hop is of the only prompt of its trace, and nobody else's."""
    spans = demo_batch(60, seed=5).to_pylist()
    whole = {row["prompt_id"]: row for row in rows_of(spans)}
    lost = {hop["parent_id"] for hop in entries(spans, service)}
    inside = {"dns", "tcp", "tls"}
    left = [
        one for one in spans if one["span_id"] not in lost and not (one["parent_id"] in lost and one["stage"] in inside)
    ]
    tally = Tally()
    rows = rows_of(left, tally)
    assert tally.orphans == 0
    assert len(rows) == len(whole)
    for row in rows:
        true = whole[row["prompt_id"]]
        for name in ("ttft_ns", "e2e_ns", "status", "hops", "gaps_us", "itl_p99_ns", "ttft_engine_ns", "model"):
            assert row[name] == true[name], name
        assert row["joined_by"] == "time"


def test_orphans_of_several_prompts_in_one_trace() -> None:
    """Two prompts of one run; a gateway's span without its parent is of the only one that was long enough, or nobody's
    and counted."""
    spans = demo_batch(40, seed=9).to_pylist()
    whole = {row["prompt_id"]: row for row in rows_of(spans)}
    traces = sorted({one["trace_id"] for one in spans})
    pairs = {trace: traces[index // 2 * 2] for index, trace in enumerate(traces)}
    for one in spans:
        one["trace_id"] = pairs[one["trace_id"]]
    lost = {hop["parent_id"] for hop in entries(spans, "gateway")}
    gone = [one for one in spans if one["parent_id"] in lost and one["kind"] == "SERVER"]
    left = [one for one in spans if one["span_id"] not in lost and one["parent_id"] not in lost]
    tally = Tally()
    rows = rows_of([*left, *gone], tally)
    assert [row["prompt_id"] for row in rows] == sorted(whole)
    found = [row for row in rows if row["hops"] != ["demo-client"]]
    assert 0 < len(found) < len(rows)
    assert tally.orphans == len(rows) - len(found)
    for row in found:
        true = whole[row["prompt_id"]]
        assert (row["hops"], row["hosts"], row["joined_by"]) == (true["hops"], true["hosts"], "time")
