"""Spans of other instrumentations that already cover what a shim is about to cover."""

from __future__ import annotations

from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind

from promptpath.instrumentation.live import LiveSpan


def covering_span(kind: SpanKind, prefixes: tuple[str, ...]) -> Span | None:
    """The current span, if it is not ours, records, and is of this kind with an attribute that begins so.

    Args:
        kind: SERVER for a request served, CLIENT for a call.
        prefixes: what its attributes begin with, such as `("http.", "url.")`; empty if its kind is enough.
    """
    span = trace.get_current_span()
    if isinstance(span, LiveSpan) or not span.is_recording() or getattr(span, "kind", None) is not kind:
        return None
    if prefixes and not any(str(key).startswith(prefixes) for key in getattr(span, "attributes", None) or ()):
        return None
    return span
