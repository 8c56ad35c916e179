"""Starting spans, making them current, and finding the one that encloses.

    span = recorder.start("POST", scope="promptpath.httpx", stage="call", kind=SpanKind.CLIENT)
    with recorder.use(span):
        ...
        span.mark()
    span.end()

The sampler is asked when a span starts, on the caller's thread, so that ids and flags are right for propagation.
Spans are built and exported elsewhere (`builder.py`). Nothing here blocks or raises.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import Token
from time import monotonic_ns
from typing import Any, cast

from opentelemetry import baggage
from opentelemetry import context as context_api
from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY, Context
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, TraceState
from opentelemetry.trace.propagation import _SPAN_KEY
from opentelemetry.trace.span import TraceFlags
from opentelemetry.util.types import AttributeValue

from promptpath import semconv
from promptpath.instrumentation import exit_flush
from promptpath.instrumentation.builder import builder
from promptpath.instrumentation.live import (
    REQUEST_KEY,
    TOKEN_STAGES,
    TOKENS_KEY,
    DeadSpan,
    LiveSpan,
)
from promptpath.instrumentation.pipeline import Pipeline, pipeline
from promptpath.instrumentation.safety import note_failure

__all__ = [
    "LiveSpan",
    "attach",
    "current",
    "detach",
    "dropped",
    "force_flush",
    "record",
    "request_span",
    "start",
    "tokens_span",
    "use",
]

_get_current = context_api.get_current
#: An older spelling of the suppression key, still set by some.
_SUPPRESS_PLAIN = "suppress_instrumentation"


def start(
    name: str,
    *,
    scope: str,
    stage: str | None = None,
    kind: SpanKind = SpanKind.INTERNAL,
    attributes: Mapping[str, AttributeValue] | None = None,
    parent: Context | LiveSpan | None = None,
    links: Sequence[Link] | None = None,
    start_mono_ns: int | None = None,
) -> LiveSpan:
    """Start a span. It is not made current; see `use`.

    Args:
        name: the span's name.
        scope: the instrumentation scope, `promptpath.<shim>`.
        stage: a value of `promptpath.stage`, or None.
        kind: CLIENT for calls, SERVER for requests served.
        attributes: at its start; those that a sampler may want to see.
        parent: the current context if None; a context; or a span of ours.
        links: links to other spans.
        start_mono_ns: when it started, monotonic [ns]; now if None.

    Returns:
        The span; with `recording` False if it is not sampled, instrumentation is suppressed, or there is no SDK.
    """
    if start_mono_ns is None:
        start_mono_ns = monotonic_ns()
    try:
        return _start(name, scope, stage, kind, attributes, parent, links, start_mono_ns)
    except Exception as error:  # a sampler or an id generator of the program may fail
        note_failure("recorder.start", error)
        return DeadSpan(name, stage, kind, {}, None, parent or _get_current(), None, 0, 0, 0, start_mono_ns)


def _start(
    name: str,
    scope: str,
    stage: str | None,
    kind: SpanKind,
    attributes: Mapping[str, AttributeValue] | None,
    parent: Context | LiveSpan | None,
    links: Sequence[Link] | None,
    start_mono_ns: int,
) -> LiveSpan:
    base: Context | LiveSpan = _get_current() if parent is None else parent
    upper: Any
    if isinstance(base, LiveSpan):
        upper = base if base.recording else base.get_span_context()
        suppressed = False if base.recording else base._pipeline is None
    else:
        suppressed = bool(base.get(_SUPPRESS_INSTRUMENTATION_KEY) or base.get(_SUPPRESS_PLAIN))
        upper = base.get(_SPAN_KEY)
        if not isinstance(upper, LiveSpan) or not upper.recording:
            upper = upper.get_span_context() if isinstance(upper, Span) else None
    way = None if suppressed else pipeline(scope)
    if way is None:
        if not suppressed:
            builder.no_provider.add()
        return _dead(name, stage, kind, None, base, upper, start_mono_ns)

    trace_state: TraceState | None
    decision: Decision | None = None
    if isinstance(upper, LiveSpan):
        trace_id, flags, trace_state = upper._trace_id, upper._trace_flags, upper._trace_state
        known = way.samples_local and flags & 1
    elif upper is not None and upper.is_valid:
        trace_id, flags, trace_state = upper.trace_id, int(upper.trace_flags), upper.trace_state
        if not flags & 1 and (way.drops_remote if upper.is_remote else way.drops_local):
            return _dead(name, stage, kind, way, base, upper, start_mono_ns, trace_id, flags, trace_state)
        known = (way.samples_remote if upper.is_remote else way.samples_local) and flags & 1
    else:
        upper = None
        trace_id, flags, trace_state = way.new_trace_id(), way.root_flags | 1, None
        known = way.samples_roots
    own = dict(attributes) if attributes else {}
    if not known:
        if stage is not None:
            own[semconv.STAGE] = str(stage)
        context = base.context if isinstance(base, LiveSpan) else base
        decision, own, trace_state = way.ask_sampler(context, trace_id, name, kind, own, tuple(links or ()))
        flags = flags | 1 if decision is Decision.RECORD_AND_SAMPLE else flags & ~1
        if decision is Decision.DROP:
            return _dead(name, stage, kind, way, base, upper, start_mono_ns, trace_id, flags, trace_state)

    span = LiveSpan(name, stage, kind, own, way, base, upper, trace_id, way.new_span_id(), flags, start_mono_ns)
    if trace_state:
        span._trace_state = trace_state
    if links:
        span._links = tuple(links)
    if stage in TOKEN_STAGES:
        prompt_id = baggage.get_baggage(semconv.PROMPT_ID, base.context if isinstance(base, LiveSpan) else base)
        if prompt_id is not None:
            own.setdefault(semconv.PROMPT_ID, str(prompt_id))
    return span


def _dead(
    name: str,
    stage: str | None,
    kind: SpanKind,
    way: Pipeline | None,
    base: Context | LiveSpan,
    upper: LiveSpan | SpanContext | None,
    start_mono_ns: int,
    trace_id: int = 0,
    flags: int = 0,
    trace_state: TraceState | None = None,
) -> DeadSpan:
    """A span that records nothing and passes on what came in; a trace that begins unsampled gets ids to say so."""
    came = upper.get_span_context() if isinstance(upper, LiveSpan) else upper
    span = DeadSpan(name, stage, kind, {}, way, base, came, trace_id, 0, flags, start_mono_ns)
    if came is not None and came.is_valid:
        if way is not None and (int(came.trace_flags) != flags or trace_state != came.trace_state):
            came = SpanContext(came.trace_id, came.span_id, came.is_remote, TraceFlags(flags), trace_state)
        span._span_context = came
    elif way is not None:
        span._span_context = SpanContext(trace_id, way.new_span_id(), False, TraceFlags(flags), trace_state)
    return span


def record(
    name: str,
    *,
    scope: str,
    stage: str | None,
    start_mono_ns: int,
    end_mono_ns: int,
    parent: Context | LiveSpan | None = None,
    kind: SpanKind = SpanKind.INTERNAL,
    attributes: Mapping[str, AttributeValue] | None = None,
    status_error: str | None = None,
) -> None:
    """Record a span that is over already; the arguments are those of `start`.

    Args:
        start_mono_ns, end_mono_ns: monotonic [ns].
        status_error: the `error.type` if it failed.
    """
    span = start(
        name,
        scope=scope,
        stage=stage,
        kind=kind,
        attributes=attributes,
        parent=parent,
        start_mono_ns=start_mono_ns,
    )
    if status_error is not None:
        span.fail(status_error)
    span.end(end_mono_ns=end_mono_ns)


def current() -> LiveSpan | None:
    """The current span, if it is one of ours and has not ended."""
    span = _get_current().get(_SPAN_KEY)
    return span if isinstance(span, LiveSpan) and not span._end_mono_ns else None


def _innermost(key: str) -> LiveSpan | None:
    span = cast("LiveSpan | None", _get_current().get(key))
    return span if span is not None and not span._end_mono_ns else None


def request_span() -> LiveSpan | None:
    """The innermost enclosing live span of a request served (stage gateway, router, server or edge).

    A step within a request may have the request's stage (`authenticate`, stage gateway): that is not the request.
    """
    return _innermost(REQUEST_KEY)


def tokens_span() -> LiveSpan | None:
    """The innermost enclosing live span that deliveries of tokens are marked on: a prompt or a request."""
    return _innermost(TOKENS_KEY)


def attach(span: LiveSpan) -> Token[Context]:
    """Make a span current; give the token to `detach`."""
    return context_api.attach(span.context)


def detach(token: Token[Context]) -> None:
    """Undo `attach`. Quietly does nothing in another context than that of `attach` (a generator closed elsewhere)."""
    try:
        context_api._RUNTIME_CONTEXT.detach(token)
    except (ValueError, RuntimeError):
        return


@contextmanager
def use(span: LiveSpan) -> Iterator[LiveSpan]:
    """Make a span current for a `with` block. It does not end the span."""
    token = attach(span)
    try:
        yield span
    finally:
        detach(token)


def force_flush(timeout_ms: int = 30_000) -> bool:
    """Build, hand over and export what has ended so far.

    Returns:
        False if that was not done within the time [ms]; what remains is exported later.
    """
    return exit_flush.force_flush(timeout_ms)


def dropped() -> int:
    """Spans lost in this process, for whatever reason (`promptpath doctor` tells them apart)."""
    return sum(exit_flush.dropped_by_reason().values())
