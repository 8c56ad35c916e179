"""What a prompt says of its hosts' clocks, and where its spans are drawn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from promptpath.collector.assemble import SPAN_SCHEMA, AssembleConfig, ClockPool, assemble

Row = dict[str, Any]
Make = Callable[..., Row]
MS = 1_000_000
PARTS = ("network", "gateway", "router", "tokenize", "queue", "prefill", "post", "stream", "unattributed")


def run(*spans: Row, clocks: ClockPool | None = None) -> list[Row]:
    table = assemble(pa.Table.from_pylist(list(spans), schema=SPAN_SCHEMA), AssembleConfig(assembled_at_ns=1), clocks)
    rows: list[Row] = table.drop_columns(["start_time", "end_time", "assembled_at"]).to_pylist()
    return rows


def exchange(make: Make, number: int, there: int, back: int, ahead: int, **more: Any) -> list[Row]:
    """A request of 100 ms to a server on another host whose clock is `ahead`; its way there and back, in ns."""
    ids = {"trace_id": f"{number:032x}"}
    at = number * 10 * MS
    return [
        make(f"c{number}", "", at, at + 100 * MS, "client", service="app", host="h1", **ids),
        make(f"s{number}", f"c{number}", at + there + ahead, at + 100 * MS - back + ahead, "server", service="engine",
             host="h2", **ids, **more),
    ]  # fmt: skip


def server_start(row: Row) -> int:
    starts = zip(row["segments.start_ns"], row["segments.span_id"], strict=True)
    return min(int(start) for start, span in starts if span[0] == "s")


def test_alone_the_midpoint(make: Make) -> None:
    (row,) = run(*exchange(make, 1, 30 * MS, 10 * MS, 5000 * MS))
    assert (row["clock_offset_ns"], row["clock_error_ns"]) == (5010 * MS, 20 * MS)
    assert server_start(row) == 20 * MS  # drawn in the middle


def test_pooled_with_others_what_was_measured_best(make: Make) -> None:
    """The wide exchange gets the tight one's bound and is drawn by it; nobody's time changes."""
    spans = [*exchange(make, 1, 30 * MS, 10 * MS, 5000 * MS), *exchange(make, 2, 2 * MS, 2 * MS, 5000 * MS)]
    alone, pooled = run(*spans), run(*spans, clocks=ClockPool())
    wide, tight = pooled
    assert abs(wide["clock_offset_ns"] - 5000 * MS) <= wide["clock_error_ns"] < 3 * MS
    assert abs(tight["clock_offset_ns"] - 5000 * MS) <= tight["clock_error_ns"] < 3 * MS
    assert abs(server_start(wide) - 30 * MS) <= wide["clock_error_ns"]
    for one, other in zip(alone, pooled, strict=True):
        assert {name: one[name] for name in one if name[:5] not in ("clock", "segme")} == {
            name: other[name] for name in other if name[:5] not in ("clock", "segme")
        }


def test_clocks_that_agree_are_not_corrected(make: Make) -> None:
    """The offset of 10 ms that the midpoint suggests is less than its own error of 20 ms: drawn as the clocks say."""
    (row,) = run(*exchange(make, 1, 30 * MS, 10 * MS, 0))
    assert (row["clock_offset_ns"], row["clock_error_ns"]) == (10 * MS, 20 * MS)
    assert server_start(row) == 30 * MS


def test_a_child_200_ms_early_is_inside_its_call(make: Make) -> None:
    """jaeger#961, #1459: corrected, with the offset told; a child is never drawn outside of its call."""
    (row,) = run(*exchange(make, 1, 5 * MS, 5 * MS, -200 * MS))
    assert (row["clock_offset_ns"], row["clock_error_ns"]) == (-200 * MS, 5 * MS)
    assert server_start(row) == 5 * MS


def test_never_inside_one_host_nor_to_a_loopback_peer(make: Make) -> None:
    pool = ClockPool()
    rows = run(
        make("a", "", 0, 100, "client", service="app", host="h1"),
        make("b", "a", 200, 250, "server", service="engine", host="h1"),
        make("c", "", 0, 100, "client", service="app", host="p1", loopback=True, trace_id="2" * 32),
        make("d", "c", 20, 90, "server", service="engine", host="p2", trace_id="2" * 32),
        clocks=pool,
    )
    assert [(row["clock_offset_ns"], row["clock_error_ns"]) for row in rows] == [(None, None)] * 2
    assert pool.new().num_rows == 0


def test_a_chain_of_hosts_adds_up(make: Make) -> None:
    """A-B-C: what the engine's clock is ahead of the client's, and the errors of both steps."""
    (row,) = run(
        make("a", "", 0, 100 * MS, "client", service="app", host="A"),
        make("b", "a", 3005 * MS, 3095 * MS, "gateway", service="gw", host="B"),
        make("c", "b", 3010 * MS, 3090 * MS, "call", service="gw", host="B"),
        make("d", "c", 1012 * MS, 1088 * MS, "server", service="engine", host="C"),
    )
    assert (row["clock_offset_ns"], row["clock_error_ns"]) == (1000 * MS, 7 * MS)


def test_an_answer_cut_short_does_not_bound_the_offset(make: Make) -> None:
    """The client hung up, the server went on: their ends are different events."""
    pool = ClockPool()
    spans = exchange(make, 1, 10 * MS, -60 * MS, 0)
    spans[0]["abort"] = "client"
    good = [one for number in range(2, 30) for one in exchange(make, number, 8 * MS, 8 * MS, 0)]
    rows = run(*spans, *good, clocks=pool)
    assert abs(rows[0]["clock_offset_ns"]) <= rows[0]["clock_error_ns"] <= 9 * MS


def test_parts_do_not_depend_on_what_is_pooled(make: Make) -> None:
    spans = exchange(make, 1, 30 * MS, 10 * MS, 70 * MS, first_token_ns=20 * MS)
    spans[0]["first_token_ns"] = 60 * MS
    (alone,) = run(*spans)
    pool = ClockPool()
    run(*exchange(make, 2, MS, MS, 70 * MS), clocks=pool)
    (pooled,) = run(*spans, clocks=pool)
    for name in ("ttft_ns", *(f"ttft_{part}_ns" for part in PARTS)):
        assert alone[name] == pooled[name]
    assert server_start(pooled) != server_start(alone)
    on = [
        (start, duration)
        for start, duration, critical in zip(
            pooled["segments.start_ns"], pooled["segments.duration_ns"], pooled["segments.critical"], strict=True
        )
        if critical
    ]
    assert sum(duration for _, duration in on) == pooled["e2e_ns"]


def test_a_call_given_up_is_placed_by_what_others_say_of_the_clocks(make: Make) -> None:
    """Its own times say nothing of the way: the server, gone after as long as its client, began a transit later."""
    pool = ClockPool()
    run(*exchange(make, 1, 30 * MS, 30 * MS, 5000 * MS), clocks=pool)
    given_up = exchange(make, 2, 30 * MS, -30 * MS, 5000 * MS, abort="client", first_token_ns=60 * MS)
    given_up[0] |= {"abort": "client"}
    (row,) = run(*given_up, clocks=pool)
    assert abs(row["clock_offset_ns"] - 5000 * MS) < MS
    assert abs(row["ttft_ns"] - 90 * MS) < MS
    assert row["ttft_network_ns"] == row["ttft_ns"] - 60 * MS
    assert abs(server_start(row) - 30 * MS) < MS
