"""A disk without room: an answer that says when to come back, one line in the log, and back by itself."""

from __future__ import annotations

import contextlib
import logging
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.rpc import status_pb2

from promptpath.collector import segments
from promptpath.collector.otlp import Signal

from .running import RunningCollector, make_spans, wait_for

DISK_BYTES = 1 << 20


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    path = tmp_path / "disk"
    path.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(path)], capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip("only root can mount a file system")
    yield path
    subprocess.run(["umount", str(path)], check=True)


def fill(path: Path) -> None:
    """Takes all the room that is left."""
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))


def test_a_full_disk_is_an_answer(small_disk: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with RunningCollector(tmp_path / "store", journal=small_disk / "journal") as collector:
        filler = small_disk / "filler"
        assert collector.post(make_spans(1).SerializeToString()).status == 200
        collector.wait_stored(1)
        fill(filler)
        with caplog.at_level(logging.WARNING, "promptpath.collector.journal"):
            for first in range(2, 7):
                answer = collector.post(make_spans(10, first=first * 100, padding=500).SerializeToString())
                assert (answer.status, answer.headers["retry-after"]) == (503, "1")
                assert "No space left on device" in status_pb2.Status.FromString(answer.body).message
            ready = collector.get("/readyz")
            assert (ready.status, ready.body) == (503, b"the journal cannot be written: No space left on device\n")
            assert collector.get("/healthz").status == 200
            assert collector.metric("journal_up") == 0
            assert collector.metric("journal_failures_total") >= 5
            filler.unlink()
            wait_for(lambda: collector.get("/readyz").status == 200, "back by itself, although nobody sends")
        assert collector.metric("journal_up") == 1
        assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"], caplog.text
        assert collector.post(make_spans(2, first=2).SerializeToString()).status == 200
        collector.wait_stored(3)
        assert collector.sql("SELECT groupArray(SpanId) FROM (SELECT SpanId FROM otel_traces ORDER BY SpanId)") == [
            [["0000000000000001", "0000000000000002", "0000000000000003"]]
        ]
    assert list((small_disk / "journal").glob("*.otlp")) == []


def test_a_start_on_a_full_disk_stores_what_is_there(small_disk: Path, tmp_path: Path) -> None:
    """Also with a torn tail, for which there is no room anywhere."""
    journal = small_disk / "journal"
    journal.mkdir()
    opened = segments.OpenSegment.create(journal, Signal.TRACES)
    opened.append([segments.Request(Signal.TRACES, make_spans(3).SerializeToString(), 3)])
    opened.close()
    with opened.path.open("ab") as file:
        file.write(b"torn" * 20_000)
    fill(small_disk / "filler")
    with RunningCollector(tmp_path / "store", journal=journal) as collector:
        wait_for(lambda: collector.metric("journal_segments") == 0, "stored")
        assert collector.sql("SELECT count() FROM otel_traces") == [[3]]
