"""`python -m promptpath.cli.benches.overhead_work RECORDER PROMPTS`: records prompts, prints what it cost, as JSON.

Processor time: ns_per_token and us_per_stage of the thread that serves the request, us_per_prompt (and
us_per_bare_prompt, without its tokens) of the whole process, until everything is handed over.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final

STAGES: Final = ("parse", "tokenize", "queue", "prefill", "detokenize", "stream")
TOKENS: Final = 128
#: What a program exits with that has nothing to measure.
MISSING: Final = 3
_LOOPS: Final = 2_000
_ROUNDS: Final = 5


@dataclass
class Recorder:
    """request: the span of a request, as the current one. stage: makes and ends a span of a stage within the given
    one. token: what to call for each token within a span, None where there is nothing. flush: returns when all is
    handed over."""

    request: Callable[[str], AbstractContextManager[Any]]
    stage: Callable[[str, Any], object]
    token: Callable[[Any], Callable[[], object]] | None
    flush: Callable[[], object]


def promptpath() -> Recorder:
    """Ours, with the SDK that it hands its spans to."""
    from promptpath.instrumentation import recorder

    _sdk()

    class Request:
        def __init__(self, name: str) -> None:
            self._name = name

        def __enter__(self) -> recorder.LiveSpan:
            self._span = recorder.start(self._name, scope="bench", stage=self._name)
            self._token = recorder.attach(self._span)
            return self._span

        def __exit__(self, *_: object) -> None:
            recorder.detach(self._token)
            self._span.end()

    def stage(name: str, above: recorder.LiveSpan) -> None:
        recorder.start(name, scope="bench", stage=name, parent=above).end()

    return Recorder(Request, stage, lambda span: span.mark, lambda: recorder.force_flush(30_000))


def sdk() -> Recorder:
    """The OpenTelemetry SDK, a token being an event."""
    provider = _sdk()
    tracer = provider.get_tracer("bench")
    return Recorder(
        lambda name: tracer.start_as_current_span(name, attributes={"promptpath.stage": name}),
        lambda name, _: tracer.start_span(name, attributes={"promptpath.stage": name}).end(),
        lambda span: lambda: span.add_event("token"),
        lambda: provider.force_flush(30_000),
    )


def logfire() -> Recorder:
    """logfire, whose spans are always current ones, a token being an event of its span."""
    import logfire as it
    from opentelemetry.trace import get_current_span

    it.configure(
        send_to_logfire=False,
        console=False,
        inspect_arguments=False,
        additional_span_processors=[_nowhere()],
    )

    def add(_: Any) -> Callable[[], object]:
        span = get_current_span()
        return lambda: span.add_event("token")

    def stage(name: str, _: Any) -> None:
        with it.span(name, stage=name):
            pass

    return Recorder(lambda name: it.span(name, stage=name), stage, add, it.force_flush)


def ddtrace() -> Recorder:
    """ddtrace, sending to an agent that takes all."""
    from ddtrace.trace import tracer

    def stage(name: str, above: Any) -> None:
        tracer.start_span(name, child_of=above, resource=name).finish()

    return Recorder(lambda name: tracer.trace(name, resource=name), stage, None, tracer.flush)


def _nowhere() -> Any:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

    class Nowhere(SpanExporter):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            return SpanExportResult.SUCCESS

        def shutdown(self) -> None:
            pass

    return BatchSpanProcessor(Nowhere(), max_queue_size=1 << 20)


def _sdk() -> Any:
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider

    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(_nowhere())
    trace.set_tracer_provider(provider)
    return provider


def costs(recorder: Recorder, prompts: int) -> dict[str, float]:
    """What `prompts` prompts cost. `recorder` has been used before: what is made at first is not counted."""
    found: dict[str, float] = {}
    for name, tokens in (("us_per_bare_prompt", 0), ("us_per_prompt", TOKENS)):
        if tokens and recorder.token is None:
            continue
        began = time.process_time_ns()
        for _ in range(prompts):
            _prompt(recorder, tokens)
        recorder.flush()
        found[name] = (time.process_time_ns() - began) / prompts / 1000
    found["us_per_stage"] = _best_ns(recorder, lambda span: lambda: recorder.stage("queue", span)) / 1000
    if recorder.token is not None:
        found["ns_per_token"] = _best_ns(recorder, recorder.token)
    return found


def _best_ns(recorder: Recorder, work_in: Callable[[Any], Callable[[], object]]) -> float:
    """Of what is called for a request's span: the least of some rounds, for some have a collection of garbage in them
    that is as large as the program is."""
    best = math.inf
    for _ in range(_ROUNDS):
        with recorder.request("server") as span:
            work = work_in(span)
            began = time.thread_time_ns()
            for _ in range(_LOOPS):
                work()
            best = min(best, (time.thread_time_ns() - began) / _LOOPS)
        recorder.flush()
    return best


def _prompt(recorder: Recorder, tokens: int) -> None:
    with recorder.request("server") as span:
        for stage in STAGES:
            recorder.stage(stage, span)
        if tokens and recorder.token is not None:
            token = recorder.token(span)
            for _ in range(tokens):
                token()


def main() -> int:
    """0, or MISSING where the recorder is not installed."""
    try:
        recorder = {"promptpath": promptpath, "sdk": sdk, "logfire": logfire, "ddtrace": ddtrace}[sys.argv[1]]()
    except ModuleNotFoundError:
        return MISSING
    costs(recorder, 20)
    print(json.dumps(costs(recorder, int(sys.argv[2]))), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
