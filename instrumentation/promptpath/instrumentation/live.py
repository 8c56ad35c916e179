"""The span that lives on the request's path: plain fields, no locks, no SDK objects until somebody asks for one.

It is an OpenTelemetry `Span`, so foreign instrumentation nests under it and may set attributes on it; it is not the
SDK's. When it ends it is handed, as it is, to the builder thread (`builder.py`), which makes what exporters want of
it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from opentelemetry import baggage
from opentelemetry.context import Context
from opentelemetry.context import create_key as _create_key
from opentelemetry.trace import INVALID_SPAN_CONTEXT, Link, Span, SpanContext, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation import _SPAN_KEY
from opentelemetry.trace.span import TraceFlags, TraceState
from opentelemetry.util.types import AttributeValue

from promptpath.instrumentation import clock

if TYPE_CHECKING:
    from promptpath.instrumentation.pipeline import Pipeline

#: Context keys: the innermost request span (gateway, router, server, edge), and the innermost span that tokens are
#: marked on.
REQUEST_KEY = _create_key("promptpath-request")
TOKENS_KEY = _create_key("promptpath-tokens")

REQUEST_STAGES = frozenset({"gateway", "router", "server", "edge"})
TOKEN_STAGES = REQUEST_STAGES | {"client"}

#: Counts forks. A span started before a fork is the parent's: the child does not export it (it would be there twice).
generation = 0


def _after_fork_in_child() -> None:
    global generation
    generation += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


def _holds_request(values: Mapping[str, object]) -> bool:
    # A step of a gateway within the gateway's own request has its stage, and is no request.
    enclosing = values.get(REQUEST_KEY)
    return isinstance(enclosing, LiveSpan) and not enclosing._end_mono_ns


class LiveSpan(Span):
    """One live span. Made by `recorder.start`; all methods are cheap, never block and never raise.

    Attributes:
        start_mono_ns: its start, monotonic [ns].
        deliveries_mono_ns: when tokens were delivered, monotonic [ns].
        delivery_counts: tokens of each delivery; None while every delivery was of one token.
        first_text_ready_mono_ns: set by an engine shim on its server span: when the first token's text was ready [ns].
    """

    __slots__ = (
        "_base",
        "_end_mono_ns",
        "_generation",
        "_parent",
        "_pipeline",
        "_span_id",
        "_trace_flags",
        "_trace_id",
        "attributes",
        "deliveries_mono_ns",
        "delivery_counts",
        "kind",
        "name",
        "stage",
        "start_mono_ns",
    )

    recording: bool = True
    first_text_ready_mono_ns: int | None = None
    # Rarely set, so not worth a store at every start.
    _context: Context | None = None
    _span_context: SpanContext | None = None
    _trace_state: TraceState | None = None
    _links: tuple[Link, ...] = ()
    _events: list[tuple[str, Mapping[str, AttributeValue], int]] | None = None
    _error_type: str | None = None
    _status: Status | None = None
    _delivered = 0

    def __init__(
        self,
        name: str,
        stage: str | None,
        kind: SpanKind,
        attributes: dict[str, AttributeValue],
        pipeline: Pipeline | None,
        base: Context | LiveSpan,
        parent: LiveSpan | SpanContext | None,
        trace_id: int,
        span_id: int,
        trace_flags: int,
        start_mono_ns: int,
    ) -> None:
        self.name = name
        self.stage = stage
        self.kind = kind
        self.attributes = attributes
        self._pipeline = pipeline
        self._base = base
        self._parent = parent
        self._trace_id = trace_id
        self._span_id = span_id
        self._trace_flags = trace_flags
        self._generation = generation
        self._end_mono_ns = 0
        self.deliveries_mono_ns: list[int] = []
        self.delivery_counts: list[int] | None = None
        self.start_mono_ns = start_mono_ns

    # -- ours ----------------------------------------------------------------------------------------------------------

    @property
    def context(self) -> Context:
        """The OpenTelemetry context that holds this span, over the one it was started in."""
        made = self._context
        if made is None:
            base = self._base
            values = dict(base.context if isinstance(base, LiveSpan) else base)
            values[_SPAN_KEY] = self
            if self.stage == "client":
                values[TOKENS_KEY] = self
            elif self.stage in REQUEST_STAGES and (self.kind is SpanKind.SERVER or not _holds_request(values)):
                values[REQUEST_KEY] = values[TOKENS_KEY] = self
            self._context = made = Context(values)
        return made

    def add_baggage(self, key: str, value: str) -> None:
        """Have calls made under this span carry an entry of baggage. Without effect once its context is in use."""
        if self._context is None:
            base = self._base
            self._base = baggage.set_baggage(key, value, base.context if isinstance(base, LiveSpan) else base)

    @property
    def ended(self) -> bool:
        """Whether `end` has been called."""
        return self._end_mono_ns != 0

    def set(self, key: str, value: AttributeValue) -> None:
        """Set an attribute. Without effect once ended."""
        if not self._end_mono_ns:
            self.attributes[key] = value

    def update(self, attributes: Mapping[str, AttributeValue]) -> None:
        """Set several attributes. Without effect once ended."""
        if not self._end_mono_ns:
            self.attributes.update(attributes)

    def mark(self, tokens: int = 1) -> None:
        """Tokens were delivered now: one clock read and one append. Zero tokens are no delivery."""
        self.deliveries_mono_ns.append(monotonic_ns())
        if tokens != 1 or self.delivery_counts is not None:
            self._count(tokens)

    def _count(self, tokens: int) -> None:
        if tokens < 1:
            self.deliveries_mono_ns.pop()
            return
        counts = self.delivery_counts
        if counts is None:
            self.delivery_counts = counts = [1] * (len(self.deliveries_mono_ns) - 1)
        counts.append(tokens)

    def fail(self, error_type: str, message: str = "") -> None:
        """The work failed: status ERROR and `error.type`. The message must hold no content of the prompt."""
        if not self._end_mono_ns:
            self._error_type = error_type
            self._status = Status(StatusCode.ERROR, message or None)

    def end(self, end_time: int | None = None, *, end_mono_ns: int | None = None) -> None:
        """End the span, once; what is called later has no effect.

        Args:
            end_time: when it ended [ns], monotonic or wall clock (as OpenTelemetry's `end` takes it); now if not given.
            end_mono_ns: the same, monotonic, by name.
        """
        if self._end_mono_ns:
            return
        if end_mono_ns is None:
            end_mono_ns = monotonic_ns() if end_time is None else clock.mono_ns_of(end_time)
        self._delivered = len(self.deliveries_mono_ns)
        self._end_mono_ns = end_mono_ns
        if self._generation == generation:
            _push(self)

    # -- OpenTelemetry's Span ------------------------------------------------------------------------------------------

    def get_span_context(self) -> SpanContext:
        """Its ids and flags, as propagators write them."""
        made = self._span_context
        if made is None:
            self._span_context = made = SpanContext(
                self._trace_id, self._span_id, False, TraceFlags(self._trace_flags), self._trace_state
            )
        return made

    def is_recording(self) -> bool:
        """True until it ends, if it is sampled."""
        return not self._end_mono_ns

    def set_attribute(self, key: str, value: Any) -> None:
        """As `set`."""
        self.set(key, value)

    def set_attributes(self, attributes: Mapping[str, Any]) -> None:
        """As `update`."""
        self.update(attributes)

    def add_event(self, name: str, attributes: Any = None, timestamp: int | None = None) -> None:
        """Add an event. `timestamp`: wall clock [ns]; now if not given."""
        if self._end_mono_ns:
            return
        if self._events is None:
            self._events = []
        self._events.append((name, attributes or {}, timestamp or clock.now_ns()))

    def add_link(self, context: SpanContext, attributes: Any = None) -> None:
        """Add a link to another span."""
        if not self._end_mono_ns:
            self._links = (*self._links, Link(context, attributes))

    def update_name(self, name: str) -> None:
        """Rename the span."""
        if not self._end_mono_ns:
            self.name = name

    def set_status(self, status: Status | StatusCode, description: str | None = None) -> None:
        """Set the status."""
        if not self._end_mono_ns:
            self._status = status if isinstance(status, Status) else Status(status, description)

    def record_exception(
        self,
        exception: BaseException,
        attributes: Any = None,
        timestamp: int | None = None,
        escaped: bool = False,
    ) -> None:
        """Record an exception as an event: its type only, as its message may quote the prompt."""
        kind = type(exception)
        name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
        self.add_event("exception", {"exception.type": name, **(attributes or {})}, timestamp)


class DeadSpan(LiveSpan):
    """A span that records nothing: not sampled, suppressed, or no SDK. The context is passed on as it came."""

    recording = False

    @property
    def context(self) -> Context:
        """The context it was started in; it adds ids of its own only where it is the root of an unsampled trace."""
        base = self._base
        inherited = base.context if isinstance(base, LiveSpan) else base
        if self._span_context is None or self._span_context is self._parent:
            return inherited
        if self._context is None:
            self._context = Context({**inherited, _SPAN_KEY: self})
        return self._context

    def set(self, key: str, value: AttributeValue) -> None:
        """Nothing."""

    def update(self, attributes: Mapping[str, AttributeValue]) -> None:
        """Nothing."""

    def mark(self, tokens: int = 1) -> None:
        """Nothing."""

    def fail(self, error_type: str, message: str = "") -> None:
        """Nothing."""

    def end(self, end_time: int | None = None, *, end_mono_ns: int | None = None) -> None:
        """Nothing."""

    def get_span_context(self) -> SpanContext:
        """The ids and flags that came in."""
        return self._span_context or INVALID_SPAN_CONTEXT

    def is_recording(self) -> bool:
        """False."""
        return False

    def add_event(self, name: str, attributes: Any = None, timestamp: int | None = None) -> None:
        """Nothing."""

    def add_link(self, context: SpanContext, attributes: Any = None) -> None:
        """Nothing."""

    def update_name(self, name: str) -> None:
        """Nothing."""

    def set_status(self, status: Status | StatusCode, description: str | None = None) -> None:
        """Nothing."""


def _discard(span: LiveSpan) -> None:
    """Until the builder has connected itself."""


_push: Callable[[LiveSpan], None] = _discard


def connect(push: Callable[[LiveSpan], None]) -> None:
    """Say where ended spans go."""
    global _push
    _push = push
