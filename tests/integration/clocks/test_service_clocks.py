"""Offsets between hosts as the service stores them, and the raw spans beside the corrected view."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from promptpath.collector.assemble.store import read_clocks
from promptpath.collector.assembler import AssemblerService
from promptpath.collector.backfill import assemble_since

Row = dict[str, Any]
SERVER, CLIENT = 2, 3
MS = 1_000_000
T0 = 1_700_000_000_000_000_000


def exchange(request_of: Any, number: int, there: int, back: int, ahead: int) -> bytes:
    """A request of 100 ms to a server whose clock is `ahead`, one every 100 ms."""
    at = number * 100 * MS
    trace = f"{number:032x}"
    client = request_of(
        (
            "chat",
            CLIENT,
            at,
            at + 100 * MS,
            {"promptpath.stage": "client"},
            {"id": f"{2 * number:016x}", "trace": trace},
        ),
        resource={"service.name": "app", "host.id": "h1"},
    )
    server = request_of(
        ("POST", SERVER, at + there + ahead, at + 100 * MS - back + ahead, {"promptpath.stage": "server"},
         {"id": f"{2 * number + 1:016x}", "trace": trace, "parent": f"{2 * number:016x}"}),
        resource={"service.name": "engine", "host.id": "h2"},
    )  # fmt: skip
    return bytes(client + server)


def offsets(store: Any) -> list[tuple[Any, ...]]:
    rows = store.query(
        "SELECT host_a, host_b, toUnixTimestamp64Nano(at) AS at, offset_ns, error_ns, pairs "
        "FROM clock_offsets ORDER BY at"
    ).result_rows
    return [tuple(row) for row in rows]


def test_offsets_are_stored_and_told(
    factory: Any, store: Any, put: Any, request_of: Any, stored: Callable[[], list[Row]]
) -> None:
    ahead = 5_000 * MS
    ways = [(30, 10), (10, 30), (3, 3), (25, 20)]
    put(store, b"".join(exchange(request_of, n + 1, a * MS, b * MS, ahead) for n, (a, b) in enumerate(ways)))
    service = AssemblerService(factory, grace_s=0)
    assert service.run_once() == 4
    (row,) = offsets(store)
    assert row[:2] + row[5:] == ("h1", "h2", 4)
    assert abs(row[3] - ahead) <= row[4] < 4 * MS
    for prompt in stored():
        assert abs(prompt["clock_offset_ns"] - ahead) <= prompt["clock_error_ns"] < 4 * MS
        assert prompt["hosts"] == ["h1", "h2"]
    # The raw view is untouched.
    raw = store.query("SELECT toUnixTimestamp64Nano(Timestamp) FROM otel_traces ORDER BY SpanId").result_rows
    at = [T0 + (n + 1) * 100 * MS for n in range(4)]
    assert [value for (value,) in raw] == [
        value for start, (there, _) in zip(at, ways, strict=True) for value in (start, start + there * MS + ahead)
    ]
    service.close()


def test_a_restart_goes_on_with_what_is_stored(
    factory: Any, store: Any, put: Any, request_of: Any, stored: Callable[[], list[Row]]
) -> None:
    ahead = -700 * MS
    put(store, exchange(request_of, 1, 2 * MS, 2 * MS, ahead))
    first = AssemblerService(factory, grace_s=0)
    first.run_once()
    before = offsets(store)
    put(store, exchange(request_of, 2, 40 * MS, 5 * MS, ahead))
    again = AssemblerService(factory, grace_s=0)
    again.run_once()
    wide = stored()[1]
    assert abs(wide["clock_offset_ns"] - ahead) <= wide["clock_error_ns"] < 3 * MS
    assert offsets(store) == before  # nothing better is known
    assert read_clocks(store).new().num_rows == 0
    for one in (first, again):
        one.close()


def test_doing_it_again_gives_the_same_rows(
    factory: Any, store: Any, put: Any, request_of: Any, stored: Callable[[], list[Row]]
) -> None:
    put(store, b"".join(exchange(request_of, n, (5 + n) * MS, 9 * MS, 90 * MS) for n in range(1, 20)))
    service = AssemblerService(factory, grace_s=0)
    service.run_once()
    before = [row | {"assembled_at": 0} for row in stored()]
    told = offsets(store)
    assert assemble_since(store, 0) == 19
    assert [row | {"assembled_at": 0} for row in stored()] == before
    assert offsets(store) == told
    service.close()
