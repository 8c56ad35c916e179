"""Export requests that can be told apart for ever: each has a number, and everything in it says it.

`unit(n, base_ns)` is a pure function, so that a run can be repeated, or checked, without keeping what was sent. A unit
is what some prompts leave behind: the spans of their engine, those of their client and gateway in another request, log
records, and points of all five kinds of metrics. Every tenth unit is dated a day earlier, so that batches touch two
partitions.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from promptpath.collector.otlp import Signal

#: Attribute of every span, record and point: its request's number, and its place in the request.
REQUEST: Final = "bench.request"
ITEM: Final = "bench.item"
REQUESTS_PER_UNIT: Final = 4
#: Requests of some are small, of some large; so are the batches that they make.
_PROMPTS: Final = (1, 1, 1, 1, 1, 3, 3, 3, 3, 40)
_MAX_PROMPTS: Final = 64
_SPANS_PER_PROMPT: Final = 8
_MS: Final = 1_000_000
_DAY_NS: Final = 86_400 * 1_000_000_000
_GAPS_US: Final = (60_000, *[10_000] * 7)
_KINDS: Final = {"internal": 1, "server": 2, "client": 3}


@dataclass(frozen=True)
class Numbered:
    """One request. items: spans, log records or data points in it; prompts: roots among its spans."""

    number: int
    signal: Signal
    body: bytes
    items: int
    prompts: int = 0


@dataclass(frozen=True)
class _Span:
    """place: in the prompt, also says its id; parent: another's place; times in ms from the prompt's start."""

    place: int
    parent: int | None
    kind: str
    stage: str
    begins: float
    ends: float
    #: µs from its start to the first delivery; None where no tokens pass.
    first_us: int | None = None


_ENGINE: Final = (
    _Span(3, 2, "server", "server", 10, 138, 49_000),
    _Span(4, 3, "internal", "queue", 11, 20),
    _Span(5, 3, "internal", "prefill", 20, 58),
    _Span(6, 3, "internal", "decode", 58, 137),
)
_GATEWAY: Final = (_Span(1, 0, "server", "gateway", 4, 139, 55_500), _Span(2, 1, "client", "call", 8, 138.5, 51_400))
_CLIENT: Final = (_Span(0, None, "client", "client", 0, 140, 60_000),)


def unit(n: int, base_ns: int) -> Iterator[Numbered]:
    """The requests of unit `n` of a run that began at `base_ns`."""
    dice = random.Random(n)
    prompts = range(n * _MAX_PROMPTS, n * _MAX_PROMPTS + dice.choice(_PROMPTS))
    start_ns = base_ns + n * 20 * _MS - (_DAY_NS if n % 10 == 3 else 0)
    number = n * REQUESTS_PER_UNIT
    yield _traces(number, prompts, start_ns, {"engine": _ENGINE}, dice)
    yield _traces(number + 1, prompts, start_ns, {"gateway": _GATEWAY, "app": _CLIENT}, dice)
    yield _logs(number + 2, prompts, start_ns)
    yield _metrics(number + 3, prompts, start_ns, dice)


def trace_id(prompt: int) -> bytes:
    return (prompt + 1).to_bytes(16, "big")


def span_id(prompt: int, place: int) -> bytes:
    return ((prompt + 1) * _SPANS_PER_PROMPT + place).to_bytes(8, "big")


def _traces(
    number: int, prompts: range, start_ns: int, services: dict[str, tuple[_Span, ...]], dice: random.Random
) -> Numbered:
    request = Signal.TRACES.request()
    items = roots = 0
    for service, template in services.items():
        group = request.resource_spans.add()
        _resource(group.resource, service)
        scope = group.scope_spans.add()
        scope.scope.name = "bench"
        for i, prompt in enumerate(prompts):
            begins_ns = start_ns + i * _MS
            for one in template:
                span = scope.spans.add(
                    trace_id=trace_id(prompt),
                    span_id=span_id(prompt, one.place),
                    parent_span_id=b"" if one.parent is None else span_id(prompt, one.parent),
                    name=one.stage,
                    kind=_KINDS[one.kind],
                    start_time_unix_nano=begins_ns + int(one.begins * _MS),
                    end_time_unix_nano=begins_ns + int(one.ends * _MS),
                )
                _mark(span.attributes, number, items)
                _text(span.attributes, "promptpath.stage", one.stage)
                if one.kind != "internal":
                    _text(span.attributes, "gen_ai.operation.name", "chat")
                    _text(span.attributes, "gen_ai.request.model", "smollm2")
                    _number(span.attributes, "gen_ai.usage.input_tokens", dice.randrange(2_000))
                    _number(span.attributes, "gen_ai.usage.output_tokens", len(_GAPS_US))
                if one.first_us is not None:
                    gaps = span.attributes.add(key="promptpath.token.gaps_us").value.array_value
                    for gap in (one.first_us, *_GAPS_US[1:]):
                        gaps.values.add(int_value=gap)
                items += 1
                roots += one.parent is None
    return Numbered(number, Signal.TRACES, request.SerializeToString(), items, roots)


def _logs(number: int, prompts: range, start_ns: int) -> Numbered:
    request = Signal.LOGS.request()
    group = request.resource_logs.add()
    _resource(group.resource, "engine")
    scope = group.scope_logs.add()
    items = 0
    for i, prompt in enumerate(prompts):
        for severity, text in ((9, "INFO"), (17, "ERROR")):
            record = scope.log_records.add(
                time_unix_nano=start_ns + i * _MS + items,
                severity_number=severity,
                severity_text=text,
                trace_id=trace_id(prompt),
                span_id=span_id(prompt, 3),
            )
            record.body.string_value = f"prompt {prompt}"
            _mark(record.attributes, number, items)
            items += 1
    return Numbered(number, Signal.LOGS, request.SerializeToString(), items)


def _metrics(number: int, prompts: range, start_ns: int, dice: random.Random) -> Numbered:
    request = Signal.METRICS.request()
    group = request.resource_metrics.add()
    _resource(group.resource, "engine")
    metrics = group.scope_metrics.add().metrics
    items = 0
    by_kind = {
        kind: metrics.add(name=f"bench.{kind}")
        for kind in ("gauge", "sum", "histogram", "exponential_histogram", "summary")
    }
    for kind, metric in by_kind.items():
        data = getattr(metric, kind)
        if kind in ("sum", "histogram", "exponential_histogram"):
            data.aggregation_temporality = 2
        for i in range(len(prompts)):
            point = data.data_points.add(start_time_unix_nano=start_ns, time_unix_nano=start_ns + i * _MS)
            _mark(point.attributes, number, items)
            items += 1
            if kind in ("gauge", "sum"):
                point.as_double = dice.random()
            else:
                point.count, point.sum = 3, 6.0
            if kind == "histogram":
                point.explicit_bounds.extend([1.0, 2.0])
                point.bucket_counts.extend([1, 1, 1])
    return Numbered(number, Signal.METRICS, request.SerializeToString(), items)


def _resource(resource: Any, service: str) -> None:
    _text(resource.attributes, "service.name", service)
    # One host: what clocks have to say of each other is not the matter here.
    _text(resource.attributes, "host.id", "host-1")


def _mark(attributes: Any, number: int, item: int) -> None:
    _number(attributes, REQUEST, number)
    _number(attributes, ITEM, item)


def _text(attributes: Any, key: str, value: str) -> None:
    attributes.add(key=key).value.string_value = value


def _number(attributes: Any, key: str, value: int) -> None:
    attributes.add(key=key).value.int_value = value
