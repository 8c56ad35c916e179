"""The journal: durable before acknowledged, whole after a crash, bounded."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from promptpath.collector import segments
from promptpath.collector.errors import JournalFull, JournalUnavailable
from promptpath.collector.journal import Journal, JournalLimits
from promptpath.collector.otlp import Request, Signal
from promptpath.collector.repeats import FILE_NAME, KEPT_S
from promptpath.collector.segments import Segment
from promptpath.storage.ingest import ENVELOPE_BYTES

WAIT_S = 10.0
LAZY = JournalLimits(segment_age_s=3600)


def request(name: str, items: int = 1, signal: Signal = Signal.TRACES) -> Request:
    """A body that is valid protobuf: an unknown field holding a name."""
    text = name.encode()
    return Request(signal, b"\xfa\x3f" + bytes((len(text),)) + text, items)


def contents(segment: Segment) -> list[tuple[bytes, int]]:
    return list(segment.bodies())


def drain(journal: Journal) -> list[tuple[bytes, int]]:
    found = []
    while (segment := journal.take(flush=True)) is not None:
        found += contents(segment)
        journal.discard(segment)
    return found


def test_what_is_acknowledged_is_there_after_a_crash(tmp_path: Path) -> None:
    """Nothing is closed: the files are read as another process would find them."""
    journal = Journal(tmp_path, LAZY)
    for i in range(5):
        journal.append(request(f"r{i}", items=i + 1)).result(WAIT_S)
    scans = [segments.scan(path) for path in tmp_path.glob("*.otlp")]
    assert [contents(scan.segment) for scan in scans] == [[(request(f"r{i}").body, i + 1) for i in range(5)]]
    assert (scans[0].segment.items, scans[0].segment.requests, scans[0].torn) == (15, 5, b"")
    journal.close()


def test_a_segment_file_is_one_valid_export_request(tmp_path: Path) -> None:
    journal = Journal(tmp_path, LAZY)
    sent = Signal.TRACES.request()
    for i in range(3):
        part = Signal.TRACES.request()
        part.resource_spans.add().scope_spans.add().spans.add(name=f"span {i}")
        sent.MergeFrom(part)
        journal.append(Request(Signal.TRACES, part.SerializeToString(), 1)).result(WAIT_S)
    segment = journal.take(flush=True)
    assert segment is not None
    read = Signal.TRACES.request.FromString(segment.path.read_bytes())
    read.DiscardUnknownFields()
    assert read == sent
    journal.close()


def test_a_restart_gives_back_what_was_not_discarded_under_the_same_token(tmp_path: Path) -> None:
    journal = Journal(tmp_path, LAZY)
    journal.append(request("stored")).result(WAIT_S)
    first = journal.take(flush=True)
    journal.append(request("kept")).result(WAIT_S)
    second = journal.take(flush=True)
    assert first is not None
    assert second is not None
    journal.discard(first)
    journal.append(request("open")).result(WAIT_S)
    journal.close()

    again = Journal(tmp_path, LAZY)
    found = again.take()
    assert found is not None
    assert (found.token, contents(found)) == (second.token, [(request("kept").body, 1)])
    again.discard(found)
    assert drain(again) == [(request("open").body, 1)]
    assert again.is_empty()
    assert again.state().bytes == 0
    assert list(tmp_path.glob("*.otlp")) == []
    again.close()


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_a_torn_tail_is_cut_and_set_aside(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    directory = tmp_path_factory.mktemp("journal")
    journal = Journal(directory, LAZY)
    bodies = [request(f"r{i}" * data.draw(st.integers(1, 20))).body for i in range(3)]
    ends = []
    for body in bodies:
        journal.append(Request(Signal.TRACES, body, 1)).result(WAIT_S)
        ends.append((ends[-1] if ends else ENVELOPE_BYTES) + segments.FRAME_BYTES + len(body))
    journal.close()
    (path,) = directory.glob("*.otlp")
    assert path.stat().st_size == ends[-1]
    cut = data.draw(st.integers(0, ends[-1]))
    noise = data.draw(
        st.binary(max_size=30).filter(lambda tail: not path.read_bytes()[cut:].startswith(tail) or not tail)
    )
    path.write_bytes(path.read_bytes()[:cut] + noise)

    whole = [body for body, end in zip(bodies, ends, strict=True) if end <= cut]
    torn = cut + len(noise) - (ends[len(whole) - 1] if whole else 0)
    again = Journal(directory, LAZY)
    assert again.state().torn_bytes == torn
    set_aside = list((directory / "torn").glob("*.bin"))
    assert sum(file.stat().st_size for file in set_aside) == torn
    assert (path.stat().st_size if path.exists() else 0) == (ends[len(whole) - 1] if whole else 0)
    again.close()
    once_more = Journal(directory, LAZY)
    assert once_more.state().torn_bytes == 0
    assert drain(once_more) == [(body, 1) for body in whole]
    once_more.close()


def test_damage_in_the_middle_ends_the_segment_there(tmp_path: Path) -> None:
    journal = Journal(tmp_path, LAZY)
    for i in range(3):
        journal.append(request(f"r{i}")).result(WAIT_S)
    journal.close()
    (path,) = tmp_path.glob("*.otlp")
    data = bytearray(path.read_bytes())
    data[ENVELOPE_BYTES + segments.FRAME_BYTES * 2 + len(request("r0").body) + 3] ^= 1
    path.write_bytes(data)
    again = Journal(tmp_path, LAZY)
    assert drain(again) == [(request("r0").body, 1)]
    again.close()


def test_signals_do_not_share_a_segment(tmp_path: Path) -> None:
    journal = Journal(tmp_path, LAZY)
    for signal in Signal:
        journal.append(request(signal.value, signal=signal)).result(WAIT_S)
    taken = [journal.take(flush=True) for _ in Signal]
    assert {(segment.signal, contents(segment)[0][0]) for segment in taken if segment} == {
        (signal, request(signal.value).body) for signal in Signal
    }
    journal.close()


def test_a_segment_is_ready_when_it_is_full(tmp_path: Path) -> None:
    journal = Journal(tmp_path, JournalLimits(segment_items=10, segment_age_s=3600))
    journal.append(request("a", items=9)).result(WAIT_S)
    assert journal.take() is None
    journal.append(request("b", items=1)).result(WAIT_S)
    segment = journal.take()
    assert segment is not None
    assert segment.items == 10
    journal.close()


def test_a_segment_is_ready_when_it_is_old(tmp_path: Path) -> None:
    journal = Journal(tmp_path, JournalLimits(segment_age_s=0.05))
    started = time.monotonic()
    journal.append(request("a")).result(WAIT_S)
    segment = journal.take(timeout_s=WAIT_S)
    assert segment is not None
    assert 0.05 <= time.monotonic() - started < WAIT_S
    journal.close()


def test_small_segments_wait_where_inserts_take_long(tmp_path: Path) -> None:
    journal = Journal(tmp_path, JournalLimits(segment_items=2, segment_age_s=0.01, segment_rest_s=3600))
    journal.rest(Signal.TRACES, 1200.0)
    journal.append(request("a")).result(WAIT_S)
    assert journal.take(timeout_s=0.1) is None
    journal.append(request("b")).result(WAIT_S)
    segment = journal.take(timeout_s=WAIT_S)  # full
    assert segment is not None
    journal.discard(segment)
    journal.rest(Signal.TRACES, 0.001)
    journal.append(request("c")).result(WAIT_S)
    assert journal.take(timeout_s=WAIT_S) is not None
    journal.close()


def test_small_requests_share_a_segment(tmp_path: Path) -> None:
    """opentelemetry-collector-contrib#47843 and others: many tiny posts, few inserts."""
    journal = Journal(tmp_path, LAZY)
    for future in [journal.append(request(f"r{i}")) for i in range(100)]:
        future.result(WAIT_S)
    segment = journal.take(flush=True)
    assert segment is not None
    assert segment.requests == 100
    assert journal.is_empty() is False
    journal.discard(segment)
    assert journal.is_empty()
    journal.close()


def test_a_segment_does_not_grow_for_ever_while_nobody_takes_it(tmp_path: Path) -> None:
    journal = Journal(tmp_path, JournalLimits(segment_items=1, segment_max_items=3, segment_age_s=3600))
    for i in range(7):
        journal.append(request(f"r{i}")).result(WAIT_S)
    sizes = []
    while (segment := journal.take(flush=True)) is not None:
        sizes.append(segment.requests)
        journal.discard(segment)
    assert sizes == [3, 3, 1]
    journal.close()


def test_many_threads_lose_and_double_nothing(tmp_path: Path) -> None:
    journal = Journal(tmp_path, JournalLimits(segment_items=50, segment_age_s=0.01))
    taken: list[tuple[bytes, int]] = []
    failed: set[str] = set()
    done = threading.Event()

    def reader() -> None:
        while not (done.is_set() and journal.is_empty()):
            segment = journal.take(flush=done.is_set(), timeout_s=0.01)
            if segment is not None:
                if segment.items % 3 == 0 and segment.token not in failed:
                    failed.add(segment.token)
                    journal.put_back(segment)
                    continue
                taken.extend(contents(segment))
                journal.discard(segment)

    def sender(n: int) -> None:
        for i in range(50):
            journal.append(request(f"{n}-{i}")).result(WAIT_S)

    threads = [threading.Thread(target=sender, args=(n,)) for n in range(8)]
    consumer = threading.Thread(target=reader)
    consumer.start()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    done.set()
    consumer.join()
    assert sorted(taken) == sorted((request(f"{n}-{i}").body, 1) for n in range(8) for i in range(50))
    assert journal.state().syncs < 400, "commits are grouped"
    journal.close()


def test_a_segment_that_failed_takes_turns_with_new_ones(tmp_path: Path) -> None:
    journal = Journal(tmp_path, JournalLimits(segment_items=1, segment_age_s=3600))
    journal.append(request("bad")).result(WAIT_S)
    seen = []
    for i in range(3):
        bad = journal.take()
        assert bad is not None
        seen.append(contents(bad)[0][0])
        journal.put_back(bad)
        journal.append(request(f"new {i}")).result(WAIT_S)
        again = journal.take()
        assert again is not None
        seen.append(contents(again)[0][0])
        journal.discard(again)
    assert seen == [body for i in range(3) for body in (request("bad").body, request(f"new {i}").body)]
    journal.close()


def test_a_ready_segment_grows_on_while_one_of_its_signal_waits(tmp_path: Path) -> None:
    journal = Journal(tmp_path, JournalLimits(segment_items=1, segment_max_items=2, segment_age_s=3600))
    for i in range(3):
        journal.append(request(f"r{i}")).result(WAIT_S)
    journal.append(request("log", signal=Signal.LOGS)).result(WAIT_S)
    taken = [journal.take() for _ in range(4)]
    assert [[body for body, _ in contents(segment)] if segment else None for segment in taken] == [
        [request("r0").body, request("r1").body],
        [request("log").body],
        [request("r2").body],
        None,
    ]
    journal.close()


def test_over_the_limit_is_refused_until_there_is_room(tmp_path: Path) -> None:
    limit = 3 * (len(request("x").body) + segments.FRAME_BYTES) + ENVELOPE_BYTES
    journal = Journal(tmp_path, JournalLimits(max_bytes=limit, segment_age_s=3600))
    for _ in range(3):
        journal.append(request("x")).result(WAIT_S)
    with pytest.raises(JournalFull, match=str(limit)):
        journal.append(request("x"))
    assert journal.state().bytes == limit
    segment = journal.take(flush=True)
    assert segment is not None
    with pytest.raises(JournalFull):
        journal.append(request("x"))
    journal.discard(segment)
    journal.append(request("x")).result(WAIT_S)
    journal.close()


def test_the_limit_counts_what_an_earlier_run_left(tmp_path: Path) -> None:
    first = Journal(tmp_path, LAZY)
    first.append(request("x")).result(WAIT_S)
    first.close()
    again = Journal(tmp_path, JournalLimits(max_bytes=segments.FRAME_BYTES + len(request("x").body) + 5))
    with pytest.raises(JournalFull):
        again.append(request("y"))
    again.close()


DISK_FULL = """
import resource, sys
from pathlib import Path
from promptpath.collector.errors import JournalUnavailable
from promptpath.collector.journal import Journal, JournalLimits
from promptpath.collector.otlp import Request, Signal
from promptpath.collector.repeats import FILE_NAME, KEPT_S

directory = Path(sys.argv[1])
journal = Journal(directory, JournalLimits(segment_age_s=3600))
def append(size):
    try:
        journal.append(Request(Signal.TRACES, b"\\xfa\\x3f\\x00" * size, 1)).result(10)
    except JournalUnavailable as error:
        return str(error)
    return "ok"
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
print(append(100))
print(append(1000))
print(append(100))
journal.close()
"""


def test_a_disk_that_refuses_is_unavailable_and_loses_nothing_else(tmp_path: Path) -> None:
    """A real failing write: the process may not write files over 1,000 bytes."""
    done = subprocess.run(
        [sys.executable, "-c", DISK_FULL, str(tmp_path)], capture_output=True, text=True, timeout=60, check=True
    )
    first, second, third = done.stdout.splitlines()
    assert (first, third) == ("ok", "ok")
    assert second == "the journal cannot be written: File too large"
    journal = Journal(tmp_path, LAZY)
    assert journal.state().torn_bytes == 0
    assert drain(journal) == [(b"\xfa\x3f\x00" * 100, 1)] * 2
    journal.close()


def test_closed_is_unavailable(tmp_path: Path) -> None:
    journal = Journal(tmp_path, LAZY)
    journal.close()
    with pytest.raises(JournalUnavailable, match="stopping"):
        journal.append(request("x"))


def test_one_process_at_a_time(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    with pytest.raises(JournalUnavailable, match="another process has the journal"):
        Journal(tmp_path)
    journal.close()
    Journal(tmp_path).close()


def test_a_directory_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(JournalUnavailable) as caught:
        Journal(tmp_path / "file" / "journal")
    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_tokens_never_repeat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token that came again within the database's memory would make it drop a batch."""
    monkeypatch.setattr(segments.time, "time_ns", lambda: 1)
    opened = [segments.OpenSegment.create(tmp_path, Signal.TRACES) for _ in range(100)]
    assert len({segment.path.stem for segment in opened}) == 100
    for segment in opened:
        segment.close()


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    journal = Journal(tmp_path, LAZY)
    journal.append(request("x")).result(WAIT_S)
    journal.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_signal_that_is_held_back_does_not_hold_up_the_others(tmp_path: Path) -> None:
    journal = Journal(tmp_path, JournalLimits(segment_items=1, segment_age_s=3600))
    journal.append(request("span")).result(WAIT_S)
    bad = journal.take()
    assert bad is not None
    journal.put_back(bad, hold_s=3600)
    journal.append(request("next span")).result(WAIT_S)
    journal.append(request("log", signal=Signal.LOGS)).result(WAIT_S)
    log = journal.take()
    assert log is not None
    assert contents(log) == [(request("log", signal=Signal.LOGS).body, 1)]
    assert journal.take() is None
    assert journal.state().segments == 3
    journal.close()


def test_the_torn_folder_is_private_and_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("promptpath.collector.recovery._TORN_BYTES", 10)
    for tail in (b"12345678", b"abc"):
        journal = Journal(tmp_path, LAZY)
        whole = request(f"before {tail.decode()}")
        journal.append(whole).result(WAIT_S)
        journal.close()
        (path,) = tmp_path.glob("*.otlp")
        with path.open("ab") as file:
            file.write(tail)
        again = Journal(tmp_path, LAZY)
        assert again.state().torn_bytes == len(tail)
        assert drain(again) == [(whole.body, 1)]
        again.close()
    assert [file.read_bytes() for file in (tmp_path / "torn").iterdir()] == [b"12345678"]
    assert (tmp_path / "torn").stat().st_mode & 0o777 == 0o700


def test_what_a_failed_write_left_behind_the_end_is_not_stored(tmp_path: Path) -> None:
    journal = Journal(tmp_path, LAZY)
    journal.append(request("whole")).result(WAIT_S)
    segment = journal.take(flush=True)
    assert segment is not None
    assert segment.content() == segment.path
    whole = segment.path.read_bytes()
    with segment.path.open("ab") as file:
        file.write(segments._frame(request("refused").body, 1) + request("refused").body)
    assert segment.content() == whole
    assert contents(segment) == [(request("whole").body, 1)]
    journal.close()


def test_what_is_sent_again_after_a_kill_is_kept_once(tmp_path: Path) -> None:
    """It was journalled, its sender was not told so, and storage may even have it when it comes again."""
    journal = Journal(tmp_path, LAZY)
    for name in ("one", "two"):
        journal.append(request(name)).result(WAIT_S)
    journal.close()  # as after a kill: nothing was stored
    journal = Journal(tmp_path, LAZY)
    assert drain(journal) == [(request("one").body, 1), (request("two").body, 1)]
    journal.append(request("two")).result(WAIT_S)
    assert (journal.state().repeats, journal.is_empty()) == (1, True)
    journal.close()
    journal = Journal(tmp_path, LAZY)  # killed once more before the other one comes
    for one in (request("one"), request("three"), request("two", signal=Signal.LOGS)):
        journal.append(one).result(WAIT_S)
    assert journal.state().repeats == 1
    assert drain(journal) == [(request("three").body, 1), (request("two").body, 1)]
    journal.close()


def test_what_is_sent_twice_to_a_running_collector_is_kept_twice(tmp_path: Path) -> None:
    journal = Journal(tmp_path, LAZY)
    for _ in range(2):
        journal.append(request("one")).result(WAIT_S)
    assert drain(journal) == [(request("one").body, 1)] * 2
    journal.close()


def test_only_what_may_not_have_been_answered_is_told_apart(tmp_path: Path) -> None:
    """An answer takes less than 5 s: what was journalled longer before the end was acknowledged."""
    journal = Journal(tmp_path, JournalLimits(segment_age_s=3600, segment_max_items=1))
    for name in ("old", "new"):
        journal.append(request(name)).result(WAIT_S)
    journal.close()
    old = min(tmp_path.glob("*.otlp"))
    os.utime(old, ns=(old.stat().st_atime_ns, old.stat().st_mtime_ns - 6 * 10**9))
    journal = Journal(tmp_path, LAZY)
    assert drain(journal) == [(request("old").body, 1), (request("new").body, 1)]
    for name in ("old", "new"):
        journal.append(request(name)).result(WAIT_S)
    assert drain(journal) == [(request("old").body, 1)]
    journal.close()


def test_after_ten_minutes_nothing_is_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(tmp_path, LAZY)
    journal.append(request("one")).result(WAIT_S)
    journal.close()
    clock, wall = time.monotonic, time.time_ns
    journal = Journal(tmp_path, LAZY)
    drain(journal)
    monkeypatch.setattr(time, "monotonic", lambda: clock() + KEPT_S + 1)
    journal.append(request("one")).result(WAIT_S)
    assert (journal.state().repeats, drain(journal)) == (0, [(request("one").body, 1)])
    journal.close()
    monkeypatch.setattr(time, "time_ns", lambda: wall() + (KEPT_S + 1) * 10**9)
    journal = Journal(tmp_path, LAZY)
    journal.append(request("one")).result(WAIT_S)
    assert journal.state().repeats == 0
    assert not (tmp_path / FILE_NAME).exists()
    journal.close()


@pytest.mark.parametrize("damage", [b"", b"\x00" * 13, b"\xff" * 28])
def test_a_damaged_memory_of_what_was_sent_is_no_reason_not_to_start(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / FILE_NAME).write_bytes(damage)
    journal = Journal(tmp_path, LAZY)
    journal.append(request("one")).result(WAIT_S)
    assert drain(journal) == [(request("one").body, 1)]
    journal.close()


def test_many_requests_at_once_do_not_make_a_segment_larger_than_it_may_be(tmp_path: Path) -> None:
    """The database's memory for an insert is several times the segment."""
    journal = Journal(tmp_path, JournalLimits(segment_age_s=3600, segment_items=100, segment_max_items=100))
    slow = threading.Event()
    fdatasync = os.fdatasync
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fdatasync", lambda fd: (slow.wait(WAIT_S), fdatasync(fd)))
        waiting = [journal.append(request(f"r{i}", items=20)) for i in range(50)]
        slow.set()
        for one in waiting:
            one.result(WAIT_S)
    sizes = []
    while (segment := journal.take(flush=True)) is not None:
        sizes.append(segment.items)
        journal.discard(segment)
    assert sum(sizes) == 1000
    assert max(sizes) <= 150
    large = request("large", items=1000)
    journal.append(large).result(WAIT_S)
    assert drain(journal) == [(large.body, 1000)]
    journal.close()
