"""The service against a real store: what is assembled when, and that nothing is lost or doubled."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from promptpath.collector import assembler, backfill
from promptpath.collector.assemble import assemble
from promptpath.collector.assemble.store import Shard, database_now_ns, read_position
from promptpath.collector.assembler import AssemblerService
from promptpath.collector.backfill import assemble_since
from promptpath.storage import StorageError

Row = dict[str, Any]
SERVER, CLIENT = 2, 3
MS = 1_000_000
T0 = 1_700_000_000_000_000_000
Stored = Callable[[], list[Row]]


def client(number: int = 1, **more: Any) -> tuple[str, int, int, int, Row, Row]:
    ids = {"id": f"{number:016x}", "trace": f"{number:032x}"}
    return ("chat m", CLIENT, number * MS, (100 + number) * MS, {"promptpath.stage": "client"}, ids | more)


def server(number: int = 1, **more: Any) -> tuple[str, int, int, int, Row, Row]:
    ids = {"id": f"{number + 10**6:016x}", "trace": f"{number:032x}", "parent": f"{number:016x}"}
    attributes = {"promptpath.stage": "server"}
    return ("POST", SERVER, (10 + number) * MS, (90 + number) * MS, attributes, ids | more)


@pytest.fixture
def service(factory: Any, store: Any) -> Iterator[Callable[..., AssemblerService]]:
    made: list[AssemblerService] = []

    def make(**options: Any) -> AssemblerService:
        made.append(AssemblerService(factory, **options))
        return made[-1]

    yield make
    for one in made:
        one.stop()
        one.close()


@pytest.fixture
def send(store: Any, put: Any, request_of: Any) -> Callable[..., None]:
    def insert(*spans: Any, **more: Any) -> None:
        put(store, request_of(*spans, **more))

    return insert


def arrived(store: Any, seconds_ago: int) -> None:
    """Make all arrivals so far older."""
    store.command(
        "INSERT INTO trace_arrivals (ArrivedAt, TraceId, FirstStart, LastEnd, Spans) SELECT "
        "now64(9) - toIntervalSecond({ago:UInt32}), TraceId, FirstStart, LastEnd, Spans FROM trace_arrivals",
        parameters={"ago": seconds_ago},
    )
    store.command(
        "ALTER TABLE trace_arrivals DELETE WHERE ArrivedAt > now64(9) - toIntervalSecond({ago:UInt32}) + 1",
        parameters={"ago": seconds_ago},
        settings={"mutations_sync": 2},
    )


def test_a_trace_waits_until_it_is_quiet(service: Any, send: Any, stored: Stored) -> None:
    send(client())
    patient = service(grace_s=600)
    assert patient.run_once() == 0
    assert patient.stats["pending_traces"] == 1
    assert service(grace_s=0).run_once() == 1
    assert [row["prompt_id"] for row in stored()] == [f"{1:016x}"]


def test_a_trace_without_its_root_waits_longer(service: Any, send: Any, stored: Stored) -> None:
    send(server())
    waiting = service(grace_s=0, orphan_s=600)
    assert waiting.run_once() == 0
    send(client())
    assert waiting.run_once() == 1
    (row,) = stored()
    assert (row["prompt_id"], row["completeness"]) == (f"{1:016x}", 1.0)
    send(server(2))
    assert waiting.run_once() == 0
    assert service(grace_s=0, orphan_s=0).run_once() >= 1


def test_a_trace_that_never_falls_quiet_is_assembled_in_time(service: Any, send: Any) -> None:
    send(client())
    assert service(grace_s=600, longest_s=0).run_once() == 0  # never less than the grace time
    assert service(grace_s=0, orphan_s=600, longest_s=0).run_once() == 1


def test_late_spans_replace_the_row(service: Any, send: Any, stored: Stored) -> None:
    send(client())
    one = service(grace_s=0)
    assert one.run_once() == 1
    (before,) = stored()
    assert one.run_once() == 0
    send(server())
    assert one.run_once() == 1
    (after,) = stored()
    assert (before["completeness"], after["completeness"]) == (0.0, 1.0)
    assert after["assembled_at"] > before["assembled_at"]


def test_a_root_that_comes_late_takes_its_callees_row_with_it(service: Any, send: Any, stored: Stored) -> None:
    one = service(grace_s=0, orphan_s=0)
    send(server())
    assert one.run_once() == 1
    assert [row["service"] for row in stored()] == ["svc"]
    send(client(), resource={"service.name": "app"})
    assert one.run_once() == 1
    assert [(row["prompt_id"], row["service"]) for row in stored()] == [(f"{1:016x}", "app")]


def test_traces_without_prompts_are_done_once(service: Any, send: Any, stored: Stored) -> None:
    send(("GET /health", SERVER, 0, 5, {"url.path": "/health"}, {"id": "00000000000000aa"}))
    one = service(grace_s=0)
    assert one.run_once() == 0
    assert (one.stats["traces"], one.stats["pending_traces"]) == (1, 0)
    assert stored() == []


def test_a_restart_goes_on_where_it_stood(service: Any, store: Any, send: Any, stored: Stored) -> None:
    send(*(client(number) for number in range(1, 4)))
    arrived(store, seconds_ago=3600)
    first = service(grace_s=0)
    assert first.run_once() == 3  # ingested long ago, assembled at the first start
    position = read_position(store, Shard())
    assert 0 < database_now_ns(store) - position < 60 * 10**9

    again = service(grace_s=0)
    assert again.run_once() == 0
    assert again.stats["traces"] == 0
    send(client(9))
    assert again.run_once() == 1
    assert len(stored()) == 4


def test_what_was_pending_at_a_stop_is_found_again(service: Any, store: Any, send: Any, stored: Stored) -> None:
    send(client(1))
    arrived(store, seconds_ago=300)
    send(client(2))
    first = service(grace_s=100)
    assert first.run_once() == 1
    assert service(grace_s=0).run_once() == 1  # only the one that was left
    assert len(stored()) == 2


def test_rows_are_not_doubled_by_doing_them_again(service: Any, send: Any, stored: Stored, store: Any) -> None:
    send(*(client(number) for number in range(1, 4)), *(server(number) for number in range(1, 4)))
    for _ in range(2):
        assert service(grace_s=0).run_once() == 3  # arrivals that have not settled are read again after a restart
    assert assemble_since(store, 0) == 3
    assert len(stored()) == 3
    assert store.query("SELECT count(), uniqExact(prompt_id) FROM prompts").result_rows == [(3, 3)]


def test_pages_smaller_than_what_arrived(
    service: Any, send: Any, stored: Stored, store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assembler, "_PAGE_ROWS", 2)
    monkeypatch.setattr(assembler, "BATCH_TRACES", 3)
    monkeypatch.setattr(backfill, "BATCH_TRACES", 3)
    for number in range(1, 6):
        send(client(number), client(number + 100))
    one = service(grace_s=0)
    assert one.run_once() == 10
    assert one.run_once() == 0
    for number in range(6, 9):
        send(client(number))
    assert one.run_once() == 3
    assert len(stored()) == 13


def test_one_bad_trace_does_not_hold_up_the_others(
    service: Any, send: Any, stored: Stored, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bad = f"{3:032x}"

    def failing(spans: pa.Table, *more: Any) -> pa.Table:
        if bad in spans["trace_id"].to_pylist():
            raise RuntimeError("a case nobody thought of")
        return assemble(spans, *more)

    monkeypatch.setattr(assembler, "assemble", failing)
    send(*(client(number) for number in range(1, 8)))
    one = service(grace_s=0)
    assert one.run_once() == 6
    assert (one.stats["failed_traces"], one.stats["pending_traces"]) == (1, 0)
    assert bad in caplog.text
    assert len(stored()) == 6


def test_storage_that_fails_is_an_error_and_nothing_is_lost(
    service: Any, send: Any, stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(client())
    one = service(grace_s=0)

    def full(*args: Any, **more: Any) -> int:
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(assembler, "insert_prompts", full)
        with pytest.raises(OSError, match="no space left"):
            one.run_once()
    assert one.run_once() == 1
    assert len(stored()) == 1


def _until(done: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, "not done in time"
        threading.Event().wait(0.02)


def test_the_thread_follows_and_outlives_a_store_that_is_away(
    factory: Any, store: Any, send: Any, stored: Stored
) -> None:
    away = threading.Event()
    away.set()

    def flaky() -> Any:
        if away.is_set():
            raise ConnectionError("nobody there")
        return factory()

    one = AssemblerService(flaky, grace_s=0, poll_s=0.02)
    one.start()
    one.start()
    try:
        _until(lambda: one.stats["errors"] >= 1)
        away.clear()
        send(client())
        _until(lambda: one.stats["prompts"] >= 1)
        send(server())
        _until(lambda: one.stats["prompts"] >= 2)
    finally:
        one.stop()
        one.stop()
    assert [row["completeness"] for row in stored()] == [1.0]


def test_shards_share_the_traces(service: Any, store: Any, send: Any, stored: Stored) -> None:
    send(*(client(number) for number in range(1, 31)))
    counts = [service(grace_s=0, shard=Shard(index, 3)).run_once() for index in range(3)]
    assert sum(counts) == 30
    assert min(counts) > 0
    assert len(stored()) == 30
    assert sum(assemble_since(store, 0, shard=Shard(index, 2)) for index in range(2)) == 30
    with pytest.raises(ValueError, match="index must be from 0 to 1"):
        Shard(2, 2)


def test_a_backfill_takes_a_stretch_of_time(store: Any, send: Any, stored: Stored) -> None:
    second = 1_000_000_000
    start = 1_700_000_000_000_000_000
    for number in range(3):
        at = number * 1000 * second
        ids = {"id": f"{number + 1:016x}", "trace": f"{number + 1:032x}"}
        send(("chat", CLIENT, at, at + second, {"promptpath.stage": "client"}, ids))
    seen: list[tuple[int, int]] = []
    written = assemble_since(
        store,
        start + 900 * second,
        until_ns=start + 1100 * second,
        progress=lambda done, of: seen.append((done, of)),
    )
    assert (written, seen) == (1, [(1, 1)])
    assert [row["prompt_id"] for row in stored()] == [f"{2:016x}"]
    assert assemble_since(store, start) == 3


def test_a_trace_that_storage_refuses_does_not_stop_the_others(
    service: Any, send: Any, stored: Stored, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Refused for good, it is set aside, counted and logged once, and tried again when more of it comes."""
    bad, insert = f"{3:016x}", assembler.insert_prompts

    def refusing(client: Any, table: pa.Table, **more: Any) -> int:
        if bad in table["prompt_id"].to_pylist():
            raise StorageError("cannot store prompts (Code: 53. DB::Exception: a row nobody can store)")
        return insert(client, table, **more)

    send(*(client(number) for number in range(1, 30)))
    one = service(grace_s=0)
    with monkeypatch.context() as patch:
        patch.setattr(assembler, "insert_prompts", refusing)
        assert one.run_once() == 28
        assert (one.stats["failed_traces"], one.stats["pending_traces"]) == (1, 0)
        assert caplog.text.count(f"{3:032x}") == 1
        send(client(31))
        assert one.run_once() == 1
        assert one.stats["failed_traces"] == 1
    assert len(stored()) == 29
    send(server(3))
    one.run_once()
    assert len(stored()) == 30


def test_what_is_refused_alone_waits_until_others_show_that_storage_works(
    service: Any, send: Any, stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    insert = assembler.insert_prompts

    def refusing(client: Any, table: pa.Table, **more: Any) -> int:
        if f"{3:016x}" in table["prompt_id"].to_pylist():
            raise StorageError("refused")
        return insert(client, table, **more)

    monkeypatch.setattr(assembler, "insert_prompts", refusing)
    send(client(3))
    one = service(grace_s=0)
    for _ in range(2):
        with pytest.raises(StorageError, match="refused"):
            one.run_once()
    send(client(4))
    assert one.run_once() == 1
    assert one.stats["failed_traces"] == 1
    assert [row["prompt_id"] for row in stored()] == [f"{4:016x}"]


def test_storage_that_refuses_everything_for_a_while_loses_nothing(
    service: Any, send: Any, stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = 0

    def broken(*args: Any, **more: Any) -> int:
        nonlocal calls
        calls += 1
        raise StorageError("Code: 36. DB::Exception: nothing goes")

    send(*(client(number) for number in range(1, 200)))
    one = service(grace_s=0)
    with monkeypatch.context() as patch:
        patch.setattr(assembler, "insert_prompts", broken)
        with pytest.raises(StorageError, match="nothing goes"):
            one.run_once()
    assert calls < 60
    assert one.run_once() == 199
    assert one.stats["failed_traces"] == 0
    assert len(stored()) == 199


@pytest.mark.parametrize("start", [-(2**62), 2**32 * 10**9 + 7, 2**62 + 2**61], ids=["1823", "2106", "2189"])
def test_prompts_of_impossible_times_are_stored(
    service: Any, store: Any, send: Any, stored: Stored, start: int
) -> None:
    """A clock gone wild: the row says so, what the roll-up cannot hold is left out of it, nobody else is held up."""
    wild = ("chat m", CLIENT, (start - T0) % 2**64, (start - T0) % 2**64 + 5, {"promptpath.stage": "client"})
    send((*wild, {"id": "a" * 16, "trace": "b" * 32}), client(1))
    one = service(grace_s=0)
    assert one.run_once() >= 1
    assert one.run_once() == 0
    assert f"{1:016x}" in [row["prompt_id"] for row in stored()]
    assert one.stats["failed_traces"] == 0


def test_orphans_and_unknown_stages_are_counted(service: Any, send: Any, stored: Stored) -> None:
    """Two prompts in a trace, and a gateway's span without its parent that may be either's; a stage that is none."""
    trace = {"trace": "7" * 32}
    lost = ("POST", SERVER, 5 * MS, 6 * MS, {"promptpath.stage": "gateway"}, {"id": "d" * 16, "parent": "e" * 16})
    odd = ("chat m", CLIENT, 0, 9 * MS, {"promptpath.stage": "warp", "gen_ai.operation.name": "chat"}, {"id": "f" * 16})
    send(client(1, **trace), client(2, **trace), (*lost[:5], lost[5] | trace), (*odd[:5], odd[5] | {"trace": "8" * 32}))
    one = service(grace_s=0)
    assert one.run_once() == 3
    assert (one.stats["orphan_spans"], one.stats["unknown_stages"]) == (1, 1)
    assert "f" * 16 in [row["prompt_id"] for row in stored()]


def test_of_two_assemblers_at_one_group_the_one_that_read_last_wins(
    service: Any, send: Any, stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slower one read first, and writes last what it saw: an engine's span that was a prompt of its own."""
    read = assembler.read_whole
    send(server(1))

    def overtaken(*args: Any) -> Any:
        found = read(*args)
        monkeypatch.setattr(assembler, "read_whole", read)
        send(client(1))
        assert service(grace_s=0).flush() == 1
        return found

    monkeypatch.setattr(assembler, "read_whole", overtaken)
    assert service(grace_s=0).flush() == 1
    assert [(row["prompt_id"], row["completeness"]) for row in stored()] == [(f"{1:016x}", 1.0)]


def test_a_long_run_says_how_far_behind_it_is(
    service: Any, send: Any, store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under overload one run may last for minutes."""
    monkeypatch.setattr(backfill, "BATCH_TRACES", 1)
    for number in range(1, 4):
        send(client(number))
    arrived(store, 60)
    one = service(grace_s=0)
    insert, told = assembler.insert_prompts, []

    def telling(*arguments: Any, **more: Any) -> int:
        told.append((one.stats["pending_traces"], one.stats["behind_s"] >= 60))
        return insert(*arguments, **more)

    monkeypatch.setattr(assembler, "insert_prompts", telling)
    assert one.run_once() == 3
    assert told == [(3, True), (2, True), (1, True)]
    assert one.stats["pending_traces"] == 0
