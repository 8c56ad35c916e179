"""A database that is gone for a while: acknowledged while there is room, then "come back later", all of it once."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from promptpath.collector.journal import JournalLimits
from promptpath.storage import connect, migrate

from .running import RunningCollector, make_spans, wait_for

ENGINE = Path(__file__).parents[2] / "engine_server.py"
SENDERS, REQUESTS, SPANS = 4, 30, 5
SEND_S = 60.0


@contextmanager
def engine(directory: Path, port: int = 0) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """A database behind HTTP in a process of its own, and its port."""
    argv = [sys.executable, str(ENGINE), str(directory), str(port)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline()), process
        finally:
            process.kill()


def test_a_database_that_is_gone_for_long_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """Killed under load; the journal fills up; senders keep to Retry-After; then it is started again."""
    size = len(make_spans(SPANS, first=10_000, padding=500).SerializeToString())
    limits = JournalLimits(max_bytes=SENDERS * REQUESTS * size // 3)
    answers: list[tuple[int, str | None]] = []
    went_on = threading.Event()
    with engine(tmp_path / "database") as (port, process):
        url = f"clickhouse://127.0.0.1:{port}/default"
        client = connect(url)
        migrate(client)
        client.close()
        with RunningCollector(
            tmp_path, storage=url, journal=tmp_path / "journal", journal_limits=limits, drain_s=0.1
        ) as collector:

            def send(sender: int) -> None:
                deadline = time.monotonic() + SEND_S
                for number in range(REQUESTS):
                    first = 10_000 + (sender * REQUESTS + number) * SPANS
                    body = make_spans(SPANS, first=first, padding=500).SerializeToString()
                    while (answer := collector.post(body)).status != 200:
                        assert time.monotonic() < deadline, answer
                        answers.append((answer.status, answer.headers.get("retry-after")))
                        time.sleep(float(answer.headers["retry-after"]))
                    went_on.set()

            with ThreadPoolExecutor(SENDERS) as pool:
                sent = [pool.submit(send, sender) for sender in range(SENDERS)]
                assert went_on.wait(30)
                process.kill()
                process.wait()
                wait_for(lambda: len(answers) >= SENDERS, "a full journal")
                wait_for(lambda: collector.metric("storage_up") == 0, "the failure noticed")
                assert not all(one.done() for one in sent)
                with engine(tmp_path / "database", port):
                    for one in sent:
                        one.result(SEND_S)
                    wait_for(lambda: collector.metric("journal_segments") == 0, "everything stored", 60)
                    client = connect(url)
                    found = client.query("SELECT count(), uniqExact(SpanId) FROM otel_traces").result_rows
                    client.close()
    assert set(answers) == {(429, "1")}
    assert found == [(SENDERS * REQUESTS * SPANS, SENDERS * REQUESTS * SPANS)]
