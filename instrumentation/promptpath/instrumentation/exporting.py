"""Sending spans: the exporters that `OTEL_*` names, made when there is something to send, quiet when nobody listens.

Nothing is imported, connected or started before the first span ends. A collector that is away is said once in the
log, not once a batch, and what is lost is counted.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections import deque
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, Final

from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY, attach, detach, set_value
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from promptpath.instrumentation.counter import Counter

_log: Final = logging.getLogger("promptpath")

#: Exporters whose place is known, so that no entry points are searched for them: signal and name to module and class.
_KNOWN: Final = {
    ("traces", "otlp_proto_http"): ("opentelemetry.exporter.otlp.proto.http.trace_exporter", "OTLPSpanExporter"),
    ("traces", "otlp_proto_grpc"): ("opentelemetry.exporter.otlp.proto.grpc.trace_exporter", "OTLPSpanExporter"),
    ("metrics", "otlp_proto_http"): ("opentelemetry.exporter.otlp.proto.http.metric_exporter", "OTLPMetricExporter"),
    ("metrics", "otlp_proto_grpc"): ("opentelemetry.exporter.otlp.proto.grpc.metric_exporter", "OTLPMetricExporter"),
}
#: What an exporter imports and cannot while the interpreter ends, which is when a short program sends its first spans.
_NOT_AT_EXIT: Final = {"otlp_proto_grpc": "opentelemetry.sdk._logs"}
_LOGGERS: Final = (
    "opentelemetry.exporter.otlp.proto.http.trace_exporter",
    "opentelemetry.exporter.otlp.proto.http.metric_exporter",
    "opentelemetry.exporter.otlp.proto.grpc.exporter",
    "opentelemetry.exporter.otlp.common.http",
    "opentelemetry.sdk._shared_internal",
    "opentelemetry.sdk.trace.export",
    "opentelemetry.sdk.trace",
    "urllib3.connectionpool",
)
#: Our default, where `OTEL_BSP_SCHEDULE_DELAY` is not set [ms].
_SCHEDULE_DELAY_MS: Final = 500
#: Spans kept for an export without a thread, and how many go at once.
_AT_EXIT: Final = 2048
_BATCH: Final = 512


class _Quiet(threading.local):
    """Whether this thread is inside an export (or hand-over) of ours, and what takes the warnings said there."""

    hear: Callable[[str], None] | None = None


_quiet: Final = _Quiet()


def _keep_quiet(record: logging.LogRecord) -> bool:
    hear = _quiet.hear
    if hear is None or record.levelno < logging.WARNING:
        return True
    hear(record.getMessage())
    return False


def _ignore(_message: str) -> None:
    """For warnings that are counted elsewhere."""


def exporter_names(signal: str) -> list[str]:
    """The exporters that `OTEL_*` asks for, for `traces` or `metrics`; none for `none`."""
    wanted = os.environ.get(f"OTEL_{signal.upper()}_EXPORTER", "otlp")
    names = [name.strip() for name in wanted.split(",") if name.strip()]
    protocol = (
        os.environ.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL")
        or os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL")
        or "http/protobuf"
    )
    otlp = "otlp_proto_grpc" if protocol.strip() == "grpc" else "otlp_proto_http"
    return [otlp if name == "otlp" else name for name in names if name != "none"]


def load_exporter(signal: str, name: str) -> Any:
    """The exporter's class.

    Raises:
        LookupError: no exporter of that name is installed.
    """
    place = _KNOWN.get((signal, name))
    if place is not None:
        return getattr(import_module(place[0]), place[1])
    for found in entry_points(group=f"opentelemetry_{signal}_exporter", name=name):
        return found.load()
    raise LookupError(f"OTEL_{signal.upper()}_EXPORTER names {name!r}, and no such exporter is installed")


def prepare_exporter(name: str) -> None:
    """Import what must not wait for the first export: little, and nothing that connects or keeps a thread."""
    if name in _NOT_AT_EXIT:
        import_module(_NOT_AT_EXIT[name])


class Outage:
    """Whether sending works, said once when it stops and once when it works again, and the counts of both.

    Args:
        what: what is sent, in the plural: `spans`.
        endpoint: says where to.

    Attributes:
        is_down: the last attempt has failed, or the one that is running is in a retry.
    """

    def __init__(self, what: str, endpoint: Callable[[], str]) -> None:
        self._what = what
        self._endpoint = endpoint
        self.is_down = False
        self.sent = 0
        self.lost = 0
        self.last_error = ""
        for name in _LOGGERS:
            logging.getLogger(name).addFilter(_keep_quiet)

    def attempt(self, send: Callable[[], bool], count: int) -> bool:
        """Send a batch of so many; False if that failed. Never raises."""
        _quiet.hear = self._trouble
        try:
            worked = send()
        except Exception as error:
            worked = False
            self._trouble(f"{type(error).__name__}: {error}")
        finally:
            _quiet.hear = None
        if worked:
            self.sent += count
            if self.is_down:
                self.is_down = False
                _log.info("promptpath: %s are being sent again; %d were lost", self._what, self.lost)
        else:
            self.lost += count
            if not self.is_down:
                self._trouble("no reason given")
        return worked

    def _trouble(self, message: str) -> None:
        self.last_error = redact(message)
        if self.is_down:
            return
        self.is_down = True
        _log.warning(
            "promptpath: %s cannot be sent to %s (%s). The program is not affected; what is lost is counted, and no "
            "more is said until it works",
            self._what,
            redact(self._endpoint()) or "the exporter",
            self.last_error,
        )

    def forget(self) -> None:
        """Start counting anew."""
        self.sent = self.lost = 0
        self.is_down = False


class QuietExporter(SpanExporter):
    """Makes the real exporter at the first export, counts what is sent and lost, and says an outage once.

    Args:
        make: makes the real exporter.
    """

    def __init__(self, make: Callable[[], SpanExporter]) -> None:
        self._make = make
        self._exporter: SpanExporter | None = None
        self._of_parent: SpanExporter | None = None
        self.outage = Outage("spans", lambda: self.endpoint)

    @property
    def endpoint(self) -> str:
        """Where the real exporter sends to, once there is one and it says so."""
        return str(getattr(self._exporter, "_endpoint", ""))

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send a batch; never raises."""

        def send() -> bool:
            if self._exporter is None:
                self._exporter = self._make()
            return self._exporter.export(spans) is SpanExportResult.SUCCESS

        done = self.outage.attempt(send, len(spans))
        return SpanExportResult.SUCCESS if done else SpanExportResult.FAILURE

    def shutdown(self) -> None:
        """Shut the real exporter down; a retry that waits is ended by it."""
        if self._exporter is not None:
            self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Nothing is buffered here."""
        return self._exporter is None or self._exporter.force_flush(timeout_millis)

    def after_fork_in_child(self) -> None:
        """The parent's connection is the parent's: two processes on one socket would mix their requests."""
        # Kept, not destroyed: its destructor could speak on the connection.
        self._of_parent = self._exporter
        self._exporter = None
        self.outage.forget()


_SECRET_IN_URL: Final = re.compile(r"(?<=://)[^/@\s]*@|\?[^\s]*")


def redact(text: str) -> str:
    """URLs in a text without user, password and query."""
    return _SECRET_IN_URL.sub("", text) if "://" in text or "@" in text else text


def queue_of(processor: object) -> deque[Any] | None:
    """The queue of a batch span processor (ours or the SDK's, of any release), if it has one."""
    inner = getattr(processor, "_batch_processor", processor)
    for name in ("queue", "_queue"):
        queue = getattr(inner, name, None)
        if isinstance(queue, deque) and queue.maxlen:
            return queue
    return None


def has_room(span_processor: object, count: int = 1) -> bool:
    """Whether so many spans fit: False while a batch processor under this (multi) processor is three quarters full."""
    for processor in getattr(span_processor, "_span_processors", (span_processor,)):
        queue = queue_of(processor)
        if queue is not None and queue.maxlen is not None and queue.maxlen - len(queue) < max(count, queue.maxlen // 4):
            return False
    return True


class BatchProcessor(SpanProcessor):
    """The SDK's batch span processor, started by the first span, with dropped spans counted.

    `OTEL_BSP_*` are respected; the schedule delay is 500 ms where they say nothing.
    """

    def __init__(self, exporter: QuietExporter) -> None:
        self.exporter = exporter
        self.queue_full = Counter()
        self._inner: BatchSpanProcessor | None = None
        #: Spans that ended when no thread could be started any more.
        self._at_exit: deque[ReadableSpan] = deque(maxlen=_AT_EXIT)
        self._lock = threading.Lock()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._after_fork_in_child)

    def _after_fork_in_child(self) -> None:
        self._lock = threading.Lock()
        self._at_exit.clear()
        self.queue_full = Counter()
        self.exporter.after_fork_in_child()

    @property
    def queue(self) -> deque[Any] | None:
        """The inner processor's queue, once there is one."""
        return queue_of(self._inner) if self._inner is not None else None

    def _start(self) -> BatchSpanProcessor | None:
        with self._lock:
            if self._inner is None:
                delay_ms = None if os.environ.get("OTEL_BSP_SCHEDULE_DELAY") else _SCHEDULE_DELAY_MS
                try:
                    self._inner = BatchSpanProcessor(self.exporter, schedule_delay_millis=delay_ms)
                except RuntimeError:  # while it ends, Python 3.12 starts no threads
                    return None
            return self._inner

    def on_end(self, span: ReadableSpan) -> None:
        """Queue a span."""
        inner = self._inner or self._start()
        if inner is None:
            self._at_exit.append(span)
            return
        queue = queue_of(inner)
        if queue is None or len(queue) != queue.maxlen:
            inner.on_end(span)
            return
        self.queue_full.add()
        _quiet.hear = _ignore
        try:
            inner.on_end(span)
        finally:
            _quiet.hear = None

    def _export_at_exit(self) -> None:
        token = attach(set_value(_SUPPRESS_INSTRUMENTATION_KEY, True))
        try:
            while self._at_exit:
                count = min(len(self._at_exit), _BATCH)
                self.exporter.export([self._at_exit.popleft() for _ in range(count)])
        finally:
            detach(token)

    def dropped(self) -> dict[str, int]:
        """Spans lost here, by reason."""
        counts = {"export_queue_full": self.queue_full.value, "export_failed": self.exporter.outage.lost}
        return {reason: count for reason, count in counts.items() if count}

    def shutdown(self) -> None:
        """Export what is left and end the worker."""
        self._export_at_exit()
        if self._inner is not None:
            self._inner.shutdown()  # type: ignore[no-untyped-call]

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Export what is queued."""
        self._export_at_exit()
        return self._inner is None or self._inner.force_flush(timeout_millis)
