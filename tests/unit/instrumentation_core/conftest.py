"""An SDK whose ids are counted up and whose spans stay in memory, so that spans are compared as whole dicts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.id_generator import IdGenerator

from promptpath.instrumentation import recorder


class CountingIds(IdGenerator):
    """Trace ids 0xa1, 0xa2, ...; span ids 1, 2, ..."""

    def __init__(self) -> None:
        self.traces = 0xA0
        self.spans = 0

    def generate_trace_id(self) -> int:
        self.traces += 1
        return self.traces

    def generate_span_id(self) -> int:
        self.spans += 1
        return self.spans


def as_dict(span: ReadableSpan) -> dict[str, Any]:
    """Everything that a span says, but its times."""
    assert span.context is not None
    assert span.instrumentation_scope is not None
    return {
        "name": span.name,
        "kind": span.kind.name,
        "trace_id": span.context.trace_id,
        "span_id": span.context.span_id,
        "flags": int(span.context.trace_flags),
        "trace_state": dict(span.context.trace_state),
        "parent": span.parent.span_id if span.parent else None,
        "attributes": dict(span.attributes or {}),
        "events": [(event.name, dict(event.attributes or {})) for event in span.events],
        "links": [link.context.span_id for link in span.links],
        "status": (span.status.status_code.name, span.status.description),
        "scope": span.instrumentation_scope.name,
        "resource": dict(span.resource.attributes),
        "dropped": (span.dropped_attributes, span.dropped_events, span.dropped_links),
    }


class Sdk:
    """The SDK of a test: its provider, and what was exported."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **options: Any) -> None:
        self.exporter = InMemorySpanExporter()
        options.setdefault("id_generator", CountingIds())
        options.setdefault("resource", Resource({"service.name": "test"}))
        self.provider = TracerProvider(shutdown_on_exit=False, **options)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        monkeypatch.setattr(trace, "_TRACER_PROVIDER", self.provider)

    as_dict = staticmethod(as_dict)

    def spans(self) -> list[ReadableSpan]:
        """What was exported since the last call, in the order of ending."""
        assert recorder.force_flush(5000)
        found = list(self.exporter.get_finished_spans())
        self.exporter.clear()
        return found

    def dicts(self) -> list[dict[str, Any]]:
        """The same as dicts."""
        return [as_dict(span) for span in self.spans()]


@pytest.fixture
def make_sdk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Sdk]]:
    """Sets the program's provider; called again, another one."""
    yield lambda **options: Sdk(monkeypatch, **options)
    recorder.force_flush(5000)


@pytest.fixture
def sdk(make_sdk: Callable[..., Sdk]) -> Sdk:
    """An SDK with the default sampler."""
    return make_sdk()


@pytest.fixture
def no_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program without an SDK."""
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
