"""From an ended span of ours to what the SDK's span processors and exporters take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, cast

from opentelemetry.attributes import BoundedAttributes
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan, SpanProcessor, Tracer
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.trace import SpanContext, Status

from promptpath import semconv
from promptpath.instrumentation import clock
from promptpath.instrumentation.live import LiveSpan
from promptpath.instrumentation.safety import guard

#: Laid over the resource of a forked child by `bootstrap`; empty in a process that was not forked.
overlay: Final[dict[str, Any]] = {}
_resources: Final[dict[int, tuple[Resource, Resource]]] = {}


def gaps_us(start_mono_ns: int, deliveries_mono_ns: Sequence[int]) -> list[int]:
    """Deliveries as gaps [µs]: start to the first, then from each to the next.

    Gaps are differences of rounded offsets, so rounding never adds up: the sum of the first k gaps is the offset of
    delivery k, rounded to the microsecond. Never negative, also where two threads have marked out of order.
    """
    offsets_us = [0]
    latest_us = 0
    for at_ns in deliveries_mono_ns:
        offset_us = (at_ns - start_mono_ns + 500) // 1000
        if offset_us > latest_us:
            latest_us = offset_us
        offsets_us.append(latest_us)
    return [after - before for before, after in pairwise(offsets_us)]


def _attributes(span: LiveSpan) -> dict[str, Any]:
    attributes: dict[str, Any] = dict(span.attributes)
    if span.stage is not None:
        attributes[semconv.STAGE] = str(span.stage)
    if span._error_type is not None:
        attributes[semconv.ERROR_TYPE] = span._error_type
    delivered = span._delivered
    if delivered:
        attributes[semconv.TOKEN_GAPS_US] = gaps_us(span.start_mono_ns, span.deliveries_mono_ns[:delivered])
        counts = span.delivery_counts
        if counts is not None and any(count != 1 for count in counts[:delivered]):
            attributes[semconv.TOKEN_COUNTS] = counts[:delivered]
    return attributes


def _resource(tracer: Tracer) -> Resource:
    resource: Resource = tracer.resource
    if not overlay:
        return resource
    known = _resources.get(id(resource))
    if known is None or known[0] is not resource:
        changed = {key: value for key, value in overlay.items() if key in resource.attributes}
        known = _resources[id(resource)] = (resource, resource.merge(Resource(changed)))
    return known[1]


def _limit(tracer: Tracer, name: str) -> int | None:
    limit: int | None = getattr(getattr(tracer, "_span_limits", None), name, None)
    return limit


def _parent(span: LiveSpan) -> SpanContext | None:
    parent = span._parent
    return parent.get_span_context() if isinstance(parent, LiveSpan) else parent


def _events(span: LiveSpan) -> tuple[Event, ...]:
    return tuple(Event(name, BoundedAttributes(None, values), at_ns) for name, values, at_ns in span._events or ())


class Built(ReadableSpan):
    """The SDK's form of an ended span, still open for attributes while processors are told of its start."""

    def get_span_context(self) -> SpanContext | None:
        """Its ids and flags."""
        return self._context

    def is_recording(self) -> bool:
        """True: attributes are taken."""
        return True

    def set_attribute(self, key: str, value: Any) -> None:
        """Set an attribute."""
        self._attributes[key] = value  # type: ignore[index]

    def set_attributes(self, attributes: Mapping[str, Any]) -> None:
        """Set several attributes."""
        for key, value in attributes.items():
            self.set_attribute(key, value)


def build(span: LiveSpan, tracer: Tracer) -> Built:
    """The SDK's form of an ended span, for the tracer (provider, scope) that it was started under."""
    bounded: Mapping[str, Any] = BoundedAttributes(
        _limit(tracer, "max_span_attributes"),
        _attributes(span),
        immutable=False,
        max_value_len=_limit(tracer, "max_span_attribute_length"),
    )
    start_ns = clock.wall_ns(span.start_mono_ns)
    return Built(
        name=span.name,
        context=span.get_span_context(),
        parent=_parent(span),
        resource=_resource(tracer),
        attributes=bounded,
        events=_events(span),
        links=span._links,
        kind=span.kind,
        instrumentation_info=getattr(tracer, "instrumentation_info", None),
        status=span._status or Status(),
        start_time=start_ns,
        end_time=max(start_ns, clock.wall_ns(span._end_mono_ns)),
        instrumentation_scope=getattr(tracer, "_instrumentation_scope", None),
    )


def _wants_start(processor: object) -> bool:
    """Whether a processor does something when a span starts, as those do that copy baggage to attributes."""
    if isinstance(processor, (BatchSpanProcessor, SimpleSpanProcessor)):
        return False
    parts = getattr(processor, "_span_processors", None)
    if parts is not None:
        return any(map(_wants_start, parts))
    return type(processor).on_start is not SpanProcessor.on_start  # type: ignore[attr-defined]


def hand_over(span: LiveSpan) -> None:
    """Build a span and give it to the span processors of its provider.

    A processor that acts on a span's start is told of it here, with the context that it started in, as the request's
    thread is not to wait for it.
    """
    assert span._pipeline is not None
    tracer = span._pipeline.tracer
    built = build(span, tracer)
    processor = tracer.span_processor
    if _wants_start(processor):
        base = span._base
        with guard("builder.on_start"):
            processor.on_start(cast("Any", built), base.context if isinstance(base, LiveSpan) else base)
    processor.on_end(built)


def forget_resources() -> None:
    """Forget the resources made with an earlier overlay."""
    _resources.clear()
