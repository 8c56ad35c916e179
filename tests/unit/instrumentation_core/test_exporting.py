"""Sending: nothing before it is needed, one word about an outage, every loss counted."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from promptpath.instrumentation import exit_flush, recorder
from promptpath.instrumentation.exporting import (
    BatchProcessor,
    QuietExporter,
    exporter_names,
    has_room,
    load_exporter,
    redact,
)


class Exporter(SpanExporter):
    """An exporter that waits while it is held, and fails while it is told to."""

    _endpoint = "http://user:secret@collector:4318/v1/traces?key=secret"

    def __init__(self) -> None:
        self.held = threading.Event()
        self.held.set()
        self.entered = threading.Event()
        self.fails = False
        self.got: list[str] = []

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.entered.set()
        assert self.held.wait(10)
        if self.fails:
            logging.getLogger("opentelemetry.exporter.otlp.proto.http.trace_exporter").error("refused")
            return SpanExportResult.FAILURE
        self.got += [span.name for span in spans]
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        pass


@pytest.fixture
def exporter() -> Exporter:
    return Exporter()


@pytest.fixture
def processor(sdk: Any, exporter: Exporter, monkeypatch: pytest.MonkeyPatch) -> BatchProcessor:
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "4")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "1")
    made = BatchProcessor(QuietExporter(lambda: exporter))
    sdk.provider.add_span_processor(made)
    return made


def spans(count: int) -> list[Any]:
    made = []
    for number in range(count):
        span = recorder.start(str(number), scope="promptpath.test")
        span.end()
        made.append(span)
    return made


def test_nothing_starts_before_the_first_span(sdk: Any) -> None:
    before = threading.active_count()

    def never() -> SpanExporter:
        raise AssertionError("made without need")

    processor = BatchProcessor(QuietExporter(never))
    assert processor.force_flush()
    processor.shutdown()
    assert threading.active_count() == before


def test_spans_over_the_queue_are_counted(
    sdk: Any, processor: BatchProcessor, exporter: Exporter, caplog: pytest.LogCaptureFixture
) -> None:
    exporter.held.clear()
    tracer = sdk.provider.get_tracer("foreign")  # hands over at once, as the program's own spans do
    tracer.start_span("held").end()
    assert exporter.entered.wait(5)
    for number in range(6):
        tracer.start_span(str(number)).end()
    assert not has_room(sdk.provider._active_span_processor)
    assert processor.dropped() == {"export_queue_full": 2}
    exporter.held.set()
    assert sdk.provider.force_flush()
    assert exporter.got == ["held", "2", "3", "4", "5"]
    assert caplog.records == []


def test_ours_wait_for_room_instead(sdk: Any, processor: BatchProcessor, exporter: Exporter) -> None:
    spans(200)
    assert recorder.force_flush(10_000)
    assert processor.dropped() == {}
    assert sorted(map(int, exporter.got)) == list(range(200))


def test_an_outage_is_said_once_and_its_end_once(
    sdk: Any, processor: BatchProcessor, exporter: Exporter, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        exporter.fails = True
        for _ in range(3):
            spans(1)
            recorder.force_flush(5000)
        exporter.fails = False
        for _ in range(2):
            spans(1)
            recorder.force_flush(5000)
    assert [record.getMessage() for record in caplog.records] == [
        "promptpath: spans cannot be sent to http://collector:4318/v1/traces (refused). The program is not affected; "
        "what is lost is counted, and no more is said until it works",
        "promptpath: spans are being sent again; 3 were lost",
    ]
    assert processor.dropped() == {"export_failed": 3}
    assert (processor.exporter.outage.sent, processor.exporter.outage.lost) == (2, 3)


def test_an_exporter_that_cannot_be_made(sdk: Any, caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> SpanExporter:
        raise LookupError("no such exporter")

    processor = BatchProcessor(QuietExporter(broken))
    sdk.provider.add_span_processor(processor)
    spans(2)
    recorder.force_flush(5000)
    assert processor.dropped() == {"export_failed": 2}
    assert len(caplog.records) == 1
    assert "no such exporter" in caplog.text


def test_other_logging_of_the_program_is_not_touched(caplog: pytest.LogCaptureFixture, exporter: Exporter) -> None:
    QuietExporter(lambda: exporter)
    logging.getLogger("opentelemetry.exporter.otlp.proto.http.trace_exporter").error("the program's own")
    assert caplog.messages == ["the program's own"]


@pytest.mark.parametrize(
    ("variables", "names"),
    [
        ({}, ["otlp_proto_http"]),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, ["otlp_proto_grpc"]),
        (
            {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf"},
            ["otlp_proto_http"],
        ),
        ({"OTEL_TRACES_EXPORTER": "none"}, []),
        ({"OTEL_TRACES_EXPORTER": "console, otlp"}, ["console", "otlp_proto_http"]),
    ],
)
def test_exporters_by_the_standard_variables(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], names: list[str]
) -> None:
    for name in ("OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert exporter_names("traces") == names
    for name in names:
        assert issubclass(load_exporter("traces", name), SpanExporter)


def test_an_unknown_exporter_is_named() -> None:
    with pytest.raises(LookupError, match="OTEL_TRACES_EXPORTER names 'zebra'"):
        load_exporter("traces", "zebra")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://user:pw@host:4318/v1/traces?token=x", "https://host:4318/v1/traces"),
        ("http://localhost:4318", "http://localhost:4318"),
        ("refused by http://u:p@h/x, retrying", "refused by http://h/x, retrying"),
        ("plain", "plain"),
    ],
)
def test_secrets_in_urls(text: str, shown: str) -> None:
    assert redact(text) == shown


def test_work_without_a_timeout_is_given_one() -> None:
    never = threading.Event()
    assert exit_flush.within(5, lambda: True)
    assert not exit_flush.within(5, lambda: False)
    assert not exit_flush.within(0.05, never.wait)
    assert not exit_flush.within(60, never.wait, in_vain=lambda: True)
    never.set()
