"""Storage fails, the journal fills, requests are poisoned: nothing acknowledged is lost, nothing is doubled."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2

from promptpath import storage
from promptpath.collector import segments
from promptpath.collector.importing import import_files
from promptpath.collector.journal import JournalLimits
from promptpath.collector.otlp import Signal
from promptpath.storage.ingest import ENVELOPE_BYTES

from .running import RunningCollector, make_spans, wait_for

TABLE = "otlp_traces"


@pytest.fixture
def broken_store(tmp_path: Path) -> Path:
    """A store whose table for spans is not there under its name: inserts fail, as on a database in trouble."""
    client = storage.connect(f"chdb://{tmp_path}")
    storage.migrate(client)
    client.command(f"DETACH TABLE {TABLE} PERMANENTLY")
    client.close()
    return tmp_path


def repair(collector: RunningCollector) -> None:
    client = storage.connect(collector.config.storage)
    client.command(f"ATTACH TABLE {TABLE}")
    client.close()


def test_spans_wait_while_the_database_fails_and_are_stored_once_after(broken_store: Path) -> None:
    """langfuse#6380."""
    with RunningCollector(broken_store) as collector:
        for first in range(1, 101, 10):
            assert collector.post(make_spans(10, first=first).SerializeToString()).status == 200
        wait_for(lambda: collector.metric('store_failures_total{signal="traces",kind="refused"}') >= 2, "two failures")
        assert collector.metric("storage_up") == 0
        assert collector.metric("journal_items") == 100
        assert collector.metric("journal_oldest_age_seconds") > 0
        repair(collector)
        collector.wait_stored(100)
        assert collector.sql("SELECT count(), uniqExact(SpanId) FROM otel_traces") == [[100, 100]]
        wait_for(lambda: collector.metric("storage_up") == 1, "up again")
        assert collector.metric("journal_bytes") == 0


def test_spans_survive_a_restart_while_the_database_fails(broken_store: Path) -> None:
    with RunningCollector(broken_store, drain_s=0.1) as collector:
        assert collector.post(make_spans(10).SerializeToString()).status == 200
        wait_for(lambda: collector.metric('store_failures_total{signal="traces",kind="refused"}') >= 1, "a failure")
    with RunningCollector(broken_store) as collector:
        wait_for(lambda: collector.metric('store_failures_total{signal="traces",kind="refused"}') >= 1, "a failure")
        assert collector.metric("journal_items") == 10
        repair(collector)
        collector.wait_stored(10)
        assert collector.sql("SELECT count() FROM otel_traces") == [[10]]


def test_one_signal_in_trouble_does_not_hold_up_the_others(broken_store: Path) -> None:
    logs = Signal.LOGS.request()
    logs.resource_logs.add().scope_logs.add().log_records.add(time_unix_nano=1).body.string_value = "hello"
    with RunningCollector(broken_store, drain_s=0.1) as collector:
        assert collector.post(make_spans(1).SerializeToString()).status == 200
        wait_for(lambda: collector.metric('store_failures_total{signal="traces",kind="refused"}') >= 1, "a failure")
        assert collector.post(logs.SerializeToString(), signal=Signal.LOGS).status == 200
        collector.wait_stored(1, "logs")
        assert collector.sql("SELECT Body FROM otel_logs") == [["hello"]]


def test_a_stopping_collector_asks_senders_to_come_back(tmp_path: Path) -> None:
    with RunningCollector(tmp_path) as collector:
        assert collector.collector._journal is not None
        collector.collector._journal.stop_accepting()
        answer = collector.post(make_spans(1).SerializeToString())
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
        check_retryable(status_pb2.Status.FromString(answer.body), grpc.StatusCode.UNAVAILABLE)
        call = grpc.insecure_channel(f"127.0.0.1:{collector.ports.grpc}").unary_unary(Signal.TRACES.rpc_method)
        with pytest.raises(grpc.RpcError) as caught:
            call(make_spans(1).SerializeToString())
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


def test_a_full_journal_asks_senders_to_come_back(broken_store: Path) -> None:
    """opentelemetry-collector#9636, #9892: 429 with Retry-After, not 500."""
    body = make_spans(20).SerializeToString()
    limits = JournalLimits(max_bytes=3 * (len(body) + segments.FRAME_BYTES + ENVELOPE_BYTES))
    with RunningCollector(broken_store, journal_limits=limits, drain_s=0.1) as collector:
        for _ in range(3):
            assert collector.post(body).status == 200
        answer = collector.post(body)
        assert (answer.status, answer.headers["retry-after"]) == (429, "1")
        check_retryable(status_pb2.Status.FromString(answer.body), grpc.StatusCode.RESOURCE_EXHAUSTED)

        in_json = collector.post(
            b'{"resourceSpans": [{"scopeSpans": [{"spans": [%s]}]}]}' % span_json(), content_type="application/json"
        )
        assert (in_json.status, in_json.headers["retry-after"]) == (429, "1")
        assert json.loads(in_json.body)["details"][0]["retryDelay"] == "1s"

        call = grpc.insecure_channel(f"127.0.0.1:{collector.ports.grpc}").unary_unary(Signal.TRACES.rpc_method)
        with pytest.raises(grpc.RpcError) as caught:
            call(body)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        details = dict(caught.value.trailing_metadata())["grpc-status-details-bin"]
        check_retryable(status_pb2.Status.FromString(details), grpc.StatusCode.RESOURCE_EXHAUSTED)

        assert collector.metric('refused_requests_total{signal="traces",protocol="http",reason="full"}') == 2
        assert collector.metric('refused_requests_total{signal="traces",protocol="grpc",reason="full"}') == 1
        repair(collector)
        collector.wait_stored(60)
        assert collector.post(body).status == 200


def span_json() -> bytes:
    return json.dumps({"traceId": "1" * 32, "spanId": "1" * 16, "name": "x" * 4000}).encode()


def check_retryable(status: Any, code: grpc.StatusCode) -> None:
    info = error_details_pb2.RetryInfo()
    assert status.code == code.value[0]
    assert status.details[0].Unpack(info)
    assert info.retry_delay.seconds == 1


def test_many_small_posts_make_few_parts(tmp_path: Path) -> None:
    """opentelemetry-collector-contrib#47843, hyperdx#2151, signoz#7983."""
    with RunningCollector(tmp_path, journal_limits=JournalLimits(segment_age_s=0.5)) as collector:
        for first in range(1, 101):
            assert collector.post(make_spans(1, first=first).SerializeToString()).status == 200
        collector.wait_stored(100)
        assert collector.sql("SELECT count() FROM otel_traces") == [[100]]
        inserts = collector.metric('stored_segments_total{signal="traces"}')
        assert inserts <= 10
        (parts,) = collector.sql(
            "SELECT uniqExact(name) FROM system.parts WHERE database = currentDatabase() AND table = 'otel_traces'"
        )
        assert parts[0] <= inserts


def test_a_poisoned_request_is_set_aside_and_the_others_are_stored(tmp_path: Path) -> None:
    """Such a request cannot come in by a receiver: it is put into a segment as an older version might have left it."""
    journal = tmp_path / "journal"
    journal.mkdir()
    opened = segments.OpenSegment.create(journal, Signal.TRACES)
    poison = b"\x0a\x05\x12"
    bodies = [make_spans(2, first=1 + 2 * i).SerializeToString() for i in range(7)]
    bodies[4] = poison
    opened.append([segments.Request(Signal.TRACES, body, 2) for body in bodies])
    opened.close()
    with RunningCollector(tmp_path) as collector:
        wait_for(
            lambda: collector.metric('quarantined_requests_total{signal="traces",reason="unreadable"}') == 1,
            "quarantine",
        )
        collector.wait_stored(12)
        wait_for(lambda: collector.metric("journal_segments") == 0, "segment done")
        assert collector.sql("SELECT count(), uniqExact(SpanId) FROM otel_traces") == [[12, 12]]
        assert collector.metric('quarantined_items_total{signal="traces",reason="unreadable"}') == 2
        assert collector.metric("quarantine_bytes") > 0
    (file,) = (journal / "quarantine").glob("*.pb")
    assert file.read_bytes() == len(poison).to_bytes(4, "big") + poison
    assert (journal / "quarantine").stat().st_mode & 0o777 == 0o700
    assert file.name == f"{opened.path.stem}.4.pb"
    assert "OTLP traces request" in file.with_suffix(".txt").read_text()


def test_the_same_segment_twice_is_stored_once(tmp_path: Path) -> None:
    """What a crash between insert and unlink leaves behind."""
    with RunningCollector(tmp_path) as collector:
        assert collector.post(make_spans(10).SerializeToString()).status == 200
        wait_for(lambda: any((tmp_path / "journal").glob("*.otlp")), "a segment")
        (path,) = (tmp_path / "journal").glob("*.otlp")
        kept = (path.name, path.read_bytes())
        collector.wait_stored(10)
    (tmp_path / "journal" / kept[0]).write_bytes(kept[1])
    with RunningCollector(tmp_path) as collector:
        collector.wait_stored(10)
        assert collector.sql("SELECT count() FROM otel_traces") == [[10]]
        assert not any((tmp_path / "journal").glob("*.otlp"))


def test_what_is_set_aside_can_be_imported(tmp_path: Path) -> None:
    """Here it is the database that cannot read a good request, as one of an older release might not."""
    with RunningCollector(tmp_path) as collector:
        refuse_reading(collector)
        for first, name in ((1, "chat"), (3, "strange"), (5, "chat")):
            assert collector.post(make_spans(2, first=first, name=name).SerializeToString()).status == 200
        wait_for(
            lambda: collector.metric('quarantined_requests_total{signal="traces",reason="unreadable"}') == 1,
            "quarantine",
        )
        collector.wait_stored(4)
        assert collector.sql("SELECT DISTINCT SpanName FROM otel_traces") == [["chat"]]
    (file,) = (tmp_path / "journal" / "quarantine").glob("*.pb")
    client = storage.connect(f"chdb://{tmp_path}")
    client.command("ALTER TABLE otel_traces DROP CONSTRAINT strict")
    assert import_files(client, [file]).items == {"traces": 2}
    found = client.query("SELECT SpanName, count() FROM otel_traces GROUP BY ALL ORDER BY ALL").result_rows
    assert found == [("chat", 4), ("strange", 2)]
    client.close()


def refuse_reading(collector: RunningCollector) -> None:
    """A check that answers as the database's decoder does to a span of a certain name, before anything is stored."""
    client = storage.connect(collector.config.storage)
    client.command(
        "ALTER TABLE otel_traces ADD CONSTRAINT strict CHECK throwIf(SpanName = 'strange', 'INCORRECT_DATA') = 0"
    )
    client.close()


def test_a_database_that_can_read_nothing_is_no_fault_of_the_requests(tmp_path: Path) -> None:
    """Nothing is set aside then: it waits until somebody has mended the schema."""
    with RunningCollector(tmp_path, drain_s=0.1) as collector:
        client = storage.connect(collector.config.storage)
        client.command(
            "CREATE MATERIALIZED VIEW strict ENGINE = Null AS SELECT throwIf(1, 'INCORRECT_DATA') AS x FROM otlp_traces"
        )
        assert collector.post(make_spans(3).SerializeToString()).status == 200
        wait_for(lambda: collector.metric('store_failures_total{signal="traces",kind="refused"}') >= 2, "failures")
        assert collector.metric('quarantined_requests_total{signal="traces",reason="unreadable"}') == 0
        assert collector.metric("storage_up") == 0
        client.command("DROP TABLE strict")
        client.close()
        collector.wait_stored(3)
        assert collector.sql("SELECT count() FROM otel_traces") == [[3]]
        assert collector.metric("storage_up") == 1


def test_64_senders_of_single_spans_leave_few_parts(tmp_path: Path) -> None:
    senders, each = 64, 12
    with RunningCollector(tmp_path) as collector:

        def send(sender: int) -> None:
            for i in range(each):
                body = make_spans(1, first=1 + sender * each + i).SerializeToString()
                assert collector.post(body).status == 200

        with ThreadPoolExecutor(senders) as pool:
            list(pool.map(send, range(senders)))
        collector.wait_stored(senders * each)
        ((spans, parts),) = collector.sql(
            "SELECT (SELECT uniqExact(SpanId) FROM otel_traces), count() FROM system.parts "
            "WHERE active AND database = currentDatabase() AND table = 'otel_traces'"
        )
        assert spans == senders * each
        assert parts < 100
