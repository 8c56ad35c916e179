"""What instrumentation costs on the request's thread: per token, per stage, per prompt; and off it, per span.

    python tests/bench/overhead_micro.py [--json]

Each figure is the best of several rounds, as other work on the machine only ever adds. `sdk_*` is the same work through
the OpenTelemetry SDK's own spans with a batch processor, for comparison. Nothing is sent anywhere.
"""

from __future__ import annotations

import argparse
import json
import platform
import threading
import time
from collections.abc import Callable, Sequence

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import SpanKind

from promptpath.instrumentation import recorder
from promptpath.instrumentation.builder import builder
from promptpath.instrumentation.by_hand import stage

ROUNDS = 7
TOKENS = 200_000
SPANS = 2_000


class Nowhere(SpanExporter):
    """Takes spans and does nothing with them."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        pass


def best_ns(work: Callable[[], None], count: int, after: Callable[[], object] = lambda: None) -> float:
    """Nanoseconds of this thread's CPU time for each of `count` units that `work` does."""
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.thread_time_ns()
        work()
        best = min(best, (time.thread_time_ns() - began) / count)
        after()
    return best


def empty_loop() -> None:
    for _ in range(TOKENS):
        pass


def marks() -> None:
    mark = recorder.start("decode", scope="bench", stage="decode").mark
    for _ in range(TOKENS):
        mark()


def counted_marks() -> None:
    mark = recorder.start("decode", scope="bench", stage="decode").mark
    for _ in range(TOKENS):
        mark(4)


def records(parent: recorder.LiveSpan) -> None:
    for _ in range(SPANS):
        recorder.record(
            "queue", scope="bench", stage="queue", start_mono_ns=1, end_mono_ns=2, parent=parent, attributes=None
        )


def starts_and_ends(parent: recorder.LiveSpan) -> None:
    for _ in range(SPANS):
        recorder.start("queue", scope="bench", stage="queue", parent=parent).end()


def current_stages() -> None:
    for _ in range(SPANS):
        span = recorder.start("queue", scope="bench", stage="queue")
        token = recorder.attach(span)
        recorder.detach(token)
        span.end()


def stages_by_hand() -> None:
    for _ in range(SPANS):
        with stage("queue"):
            pass


def sdk_spans(tracer: trace.Tracer) -> None:
    for _ in range(SPANS):
        with tracer.start_as_current_span("queue", attributes={"promptpath.stage": "queue"}):
            pass


def sdk_events(tracer: trace.Tracer) -> None:
    with tracer.start_as_current_span("decode") as span:
        for _ in range(SPANS):
            span.add_event("token")


def figures() -> dict[str, float]:
    """Figures by name; the unit is in the name."""
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(Nowhere()))
    trace.set_tracer_provider(provider)
    tracer = provider.get_tracer("bench")
    loop_ns = best_ns(empty_loop, TOKENS)
    parent = recorder.start("server", scope="bench", stage="server", kind=SpanKind.SERVER)

    def flush() -> None:
        recorder.force_flush(10_000)

    found: dict[str, float] = {}
    with recorder.use(parent):
        found["ns_per_token"] = best_ns(marks, TOKENS) - loop_ns
        found["ns_per_counted_token"] = best_ns(counted_marks, TOKENS) - loop_ns
        found["us_per_recorded_stage"] = best_ns(lambda: records(parent), SPANS, flush) / 1000
        found["us_per_stage"] = best_ns(lambda: starts_and_ends(parent), SPANS, flush) / 1000
        found["us_per_current_stage"] = best_ns(current_stages, SPANS, flush) / 1000
        found["us_per_stage_by_hand"] = best_ns(stages_by_hand, SPANS, flush) / 1000
        found["sdk_us_per_stage"] = best_ns(lambda: sdk_spans(tracer), SPANS, flush) / 1000
        found["sdk_ns_per_token_event"] = best_ns(lambda: sdk_events(tracer), SPANS)
    found["us_per_unsampled_stage"] = _unsampled_us()
    found["us_per_span_off_thread"] = _builder_us(parent)
    return {name: round(value, 3) for name, value in found.items()}


def _unsampled_us() -> float:
    context = trace.set_span_in_context(trace.NonRecordingSpan(trace.SpanContext(1, 1, True)))

    def work() -> None:
        for _ in range(SPANS):
            recorder.start("queue", scope="bench", stage="queue", parent=context).end()

    return best_ns(work, SPANS) / 1000


def _builder_us(parent: recorder.LiveSpan) -> float:
    """CPU time of building one span and handing it over, measured where the builder's work is done."""
    best = float("inf")
    for _ in range(ROUNDS):
        recorder.force_flush(10_000)
        with builder._draining:  # the builder's thread waits, so that this one does the work
            starts_and_ends(parent)
            builder.has_room = lambda _count: True
            began = time.thread_time_ns()
            done = builder._drain_locked()
            best = min(best, (time.thread_time_ns() - began) / max(1, done))
    return best / 1000


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description="Measures the instrumentation's own cost.")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    arguments = parser.parse_args()
    found = figures()
    if arguments.json:
        print(json.dumps({"name": "overhead_micro", "machine": platform.processor(), "figures": found}))
        return
    for name, value in found.items():
        print(f"{name:28}{value:10.3f}")
    print(f"threads: {', '.join(sorted(thread.name for thread in threading.enumerate()))}")


if __name__ == "__main__":
    main()
