"""Identifiers and times that the protocol calls invalid: such spans are refused one by one, the rest is accepted."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import Any, Final

_TRACE_ID: Final = attrgetter("trace_id")
_SPAN_ID: Final = attrgetter("span_id")
_PARENT_ID: Final = attrgetter("parent_span_id")
_START: Final = attrgetter("start_time_unix_nano")
_END: Final = attrgetter("end_time_unix_nano")
_TIME: Final = attrgetter("time_unix_nano")
_NO_TRACE: Final = bytes(16)
_NO_SPAN: Final = bytes(8)
#: Times are unsigned on the wire and signed in every database: 2262-04-11.
_TIME_LIMIT_NS: Final = 1 << 63


def spans_are_valid(spans: Any) -> bool:
    """Whether all spans of a scope are: identifiers of the right length and not zero, times that exist.

    Iterates in C (map, set, max).
    """
    spans = list(spans)  # one wrapper a span, not one for each look at it
    trace_ids = set(map(_TRACE_ID, spans))
    span_ids = set(map(_SPAN_ID, spans))
    return (
        set(map(len, trace_ids)) <= {16}
        and _NO_TRACE not in trace_ids
        and set(map(len, span_ids)) <= {8}
        and _NO_SPAN not in span_ids
        and set(map(len, map(_PARENT_ID, spans))) <= {0, 8}
        and _times_exist(map(_START, spans))
        and _times_exist(map(_END, spans))
    )


def records_are_valid(records: Any) -> bool:
    """Whether all log records of a scope are: identifiers empty or of the right length, times that exist."""
    records = list(records)
    return (
        set(map(len, map(_TRACE_ID, records))) <= {0, 16}
        and set(map(len, map(_SPAN_ID, records))) <= {0, 8}
        and _times_exist(map(_TIME, records))
    )


def _times_exist(times_ns: Iterable[int]) -> bool:
    return max(times_ns, default=0) < _TIME_LIMIT_NS


def drop_invalid(message: Any, scopes: str, group: str, items: str) -> tuple[int, str]:
    """Removes the invalid items of a request in place; returns how many, and the first one's fault with its place.

    Args:
        message: an export request.
        scopes, group, items: names of the nested repeated fields, such as `resource_spans`, `scope_spans`, `spans`.
    """
    fault_of = _span_fault if items == "spans" else _record_fault
    dropped = 0
    first = ""
    for i, resource in enumerate(getattr(message, scopes)):
        for j, scope in enumerate(getattr(resource, group)):
            entries = getattr(scope, items)
            faults = [(k, fault) for k, entry in enumerate(entries) if (fault := fault_of(entry))]
            if faults and not first:
                first = f"{scopes}[{i}].{group}[{j}].{items}[{faults[0][0]}].{faults[0][1]}"
            for k, _ in reversed(faults):
                del entries[k]
            dropped += len(faults)
    return dropped, first


def _span_fault(span: Any) -> str:
    return (
        _id_fault("trace_id", span.trace_id, 16)
        or _id_fault("span_id", span.span_id, 8)
        or (_id_fault("parent_span_id", span.parent_span_id, 8, zero=True) if span.parent_span_id else "")
        or _time_fault("start_time_unix_nano", span.start_time_unix_nano)
        or _time_fault("end_time_unix_nano", span.end_time_unix_nano)
    )


def _record_fault(record: Any) -> str:
    return (
        (_id_fault("trace_id", record.trace_id, 16, zero=True) if record.trace_id else "")
        or (_id_fault("span_id", record.span_id, 8, zero=True) if record.span_id else "")
        or _time_fault("time_unix_nano", record.time_unix_nano)
    )


def _id_fault(name: str, value: bytes, length: int, *, zero: bool = False) -> str:
    if len(value) != length:
        return f"{name}: {len(value)} bytes, {length} expected"
    return "" if zero or any(value) else f"{name}: all zero"


def _time_fault(name: str, value_ns: int) -> str:
    return "" if value_ns < _TIME_LIMIT_NS else f"{name}: {value_ns} is after the year 2262"
