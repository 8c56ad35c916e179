"""For the scripts that drive an engine: spans kept in memory, and scenarios run one after the other.

    @scenario
    def greedy() -> Any: ...    # what it returns is handed on beside the spans

    run()                       # prints {name: {"spans": [...], "says": ...}, ..., "failures": {...}}

Imported first, so that Promptpath finds the program's own SDK set up.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

_exporter = InMemorySpanExporter()
_provider = TracerProvider(shutdown_on_exit=False)
_provider.add_span_processor(SimpleSpanProcessor(_exporter))
trace.set_tracer_provider(_provider)

import promptpath.auto  # noqa: E402, F401
from promptpath.instrumentation import doctor, recorder, safety  # noqa: E402
from promptpath.instrumentation.live import LiveSpan  # noqa: E402

_scenarios: dict[str, Callable[[], Any]] = {}

#: What is added to a span's times to get those of `time.monotonic_ns`.
_OFFSET_NS = time.monotonic_ns() - time.time_ns()


def scenario(function: Callable[[], Any]) -> Callable[[], Any]:
    """A scenario, under its function's name."""
    _scenarios[function.__name__] = function
    return function


def request() -> LiveSpan:
    """A request served, as the shim of a web server has it."""
    return recorder.start("POST /generate", scope="t", stage="server", kind=SpanKind.SERVER)


def spans() -> list[dict[str, Any]]:
    """The spans since the last time, by start; of those that start together, the longer first."""
    assert recorder.force_flush(5000)
    found = sorted(_exporter.get_finished_spans(), key=lambda span: (span.start_time or 0, -(span.end_time or 0)))
    _exporter.clear()
    names = {span.get_span_context().span_id: span.name for span in found}
    return [_plain(span, names) for span in found]


def _plain(span: ReadableSpan, names: dict[int, str]) -> dict[str, Any]:
    attributes = dict(span.attributes or {})
    parent = span.parent
    return {
        "name": span.name,
        "kind": span.kind.name,
        "parent": names.get(parent.span_id, "?") if parent is not None else None,
        "trace": span.get_span_context().trace_id,
        "start_ns": (span.start_time or 0) + _OFFSET_NS,
        "end_ns": (span.end_time or 0) + _OFFSET_NS,
        "gaps_us": list(attributes.pop("promptpath.token.gaps_us", ())),
        "attributes": attributes,
        "status": span.status.status_code.name,
    }


def run() -> None:
    """Run the scenarios and print what they said and what spans they made."""
    done: dict[str, Any] = {}
    for name, function in _scenarios.items():
        says = function()
        done[name] = {"says": says, "spans": spans()}
    done["failures"] = safety.failures()
    done["doctor"] = doctor.report()
    json.dump(done, sys.stdout)
