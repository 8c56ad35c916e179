"""What the tables should hold: OTLP requests decoded by opentelemetry-proto, in plain Python."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from promptpath.storage.ingest import RECORDED_FROM_NS, RECORDED_TO_NS

CAPTURES = Path(__file__).parents[2] / "data" / "captures"
TOKEN_COLUMNS = {
    "promptpath.token.gaps_us": ("TokenGapsUs", 2**32 - 1),
    "promptpath.token.counts": ("TokenCounts", 2**16 - 1),
}
_KINDS = ("Unspecified", "Internal", "Server", "Client", "Producer", "Consumer")


class Number:
    """Equal to any text of a double."""

    def __init__(self, value: float) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        found = float(str(other))
        return found == self.value or (math.isnan(found) and math.isnan(self.value))

    def __repr__(self) -> str:
        return f"Number({self.value!r})"


class Json:
    """Equal to any JSON text of a value."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return _alike(json.loads(str(other)), self.value)

    def __repr__(self) -> str:
        return f"Json({self.value!r})"


def _alike(found: Any, expected: Any) -> bool:
    """Equality, but a double of 2^53 or more may be written as an integer, in fewer digits than the exact one has."""
    if isinstance(expected, float):
        return not isinstance(found, (str, bool)) and float(found) == expected
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(_alike, found, expected))
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(_alike(found[key], expected[key]) for key in expected)
    return bool(found == expected and isinstance(found, bool) == isinstance(expected, bool))


def requests(path: Path) -> list[bytes]:
    """Bodies of a capture: each behind its length, 4 bytes, big-endian."""
    data = path.read_bytes()
    bodies = []
    while data:
        size = int.from_bytes(data[:4], "big")
        bodies.append(data[4 : 4 + size])
        data = data[4 + size :]
    return bodies


def plain(value: Any) -> Any:
    """An AnyValue as JSON knows it."""
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    if kind == "array_value":
        return [plain(item) for item in value.array_value.values]
    if kind == "kvlist_value":
        return {pair.key: plain(pair.value) for pair in value.kvlist_value.values}
    if kind == "bytes_value":
        return base64.b64encode(value.bytes_value).decode()
    if kind == "double_value" and not math.isfinite(value.double_value):
        return None
    return getattr(value, kind)


def text(value: Any) -> Any:
    """What an attribute map holds for an AnyValue."""
    kind = value.WhichOneof("value")
    if kind is None:
        return ""
    if kind in ("array_value", "kvlist_value"):
        return Json(plain(value))
    if kind == "double_value":
        return Number(value.double_value)
    if kind == "bool_value":
        return "true" if value.bool_value else "false"
    return str(plain(value))


def attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: text(pair.value) for pair in pairs}


def is_token_list(pair: Any) -> bool:
    items = pair.value.array_value.values
    return (
        pair.key in TOKEN_COLUMNS
        and pair.value.WhichOneof("value") == "array_value"
        and all(item.WhichOneof("value") == "int_value" for item in items)
    )


def tokens(pairs: Any, column: str) -> list[int]:
    for pair in pairs:
        if is_token_list(pair) and TOKEN_COLUMNS[pair.key][0] == column:
            most = TOKEN_COLUMNS[pair.key][1]
            return [min(max(item.int_value, 0), most) for item in pair.value.array_value.values]
    return []


def resource_columns(resource: Any, scope: Any) -> dict[str, Any]:
    known = attributes(resource.resource.attributes)
    return {
        "ResourceAttributes": known,
        "ResourceSchemaUrl": resource.schema_url,
        "ServiceName": known.get("service.name", ""),
        "ScopeName": scope.scope.name,
        "ScopeVersion": scope.scope.version,
        "ScopeAttributes": attributes(scope.scope.attributes),
        "ScopeSchemaUrl": scope.schema_url,
        "Tenant": "",
    }


_LETTERS = {
    None: "n",
    "string_value": "s",
    "bool_value": "b",
    "int_value": "i",
    "double_value": "d",
    "bytes_value": "x",
}


def letters(value: Any) -> str:
    """The kind of an AnyValue as `Types` has it; what is nested deeper than one level is stored as text."""
    kind = value.WhichOneof("value")
    if kind in _LETTERS:
        return _LETTERS[kind]
    is_list = kind == "array_value"
    inner = value.array_value.values if is_list else [pair.value for pair in value.kvlist_value.values]
    kinds = [item.WhichOneof("value") for item in inner]
    if "array_value" in kinds or "kvlist_value" in kinds:
        return "s"
    found = "".join(_LETTERS[kind] for kind in kinds)
    found = found[:1] if len(set(found)) == 1 else found
    return f"[{found}]" if is_list else f"{{{found}}}"


def kinds(pairs: Any) -> str:
    found = "".join(letters(pair.value) for pair in pairs)
    return "" if set(found) <= {"s"} else found


def _numbers(values: Any) -> str:
    return ",".join(map(str, values))


def _span_types(resource: Any, scope: Any, span: Any) -> str:
    dropped = [
        [resource.resource.dropped_attributes_count, scope.scope.dropped_attributes_count],
        [event.dropped_attributes_count for event in span.events],
        [link.dropped_attributes_count for link in span.links],
    ]
    flags = [link.flags for link in span.links]
    parts = [
        kinds(pair for pair in span.attributes if not is_token_list(pair)),
        kinds(resource.resource.attributes),
        kinds(scope.scope.attributes),
        ",".join(kinds(event.attributes) for event in span.events),
        ",".join(kinds(link.attributes) for link in span.links),
        ";".join(map(_numbers, dropped)) if any(map(any, dropped)) else "",
        _numbers(flags) if any(flags) else "",
    ]
    return "|".join(parts).rstrip("|,")


def _record_types(resource: Any, scope: Any, record: Any) -> str:
    dropped = [resource.resource.dropped_attributes_count, scope.scope.dropped_attributes_count]
    parts = [
        kinds(record.attributes),
        kinds(resource.resource.attributes),
        kinds(scope.scope.attributes),
        letters(record.body),
        "" if record.time_unix_nano else "t",
        _numbers(dropped) if any(dropped) else "",
    ]
    return "|".join(parts).rstrip("|")


def span_rows(bodies: list[bytes]) -> Iterator[dict[str, Any]]:
    for body in bodies:
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            for scope in resource.scope_spans:
                for span in scope.spans:
                    types = {"Types": _span_types(resource, scope, span)}
                    yield resource_columns(resource, scope) | _span(span) | types


#: Goes before a body (`envelope(RECEIVED_NS)`) where it has times that are not believed.
RECEIVED_NS = 1_790_000_000_000_000_000
_HOUR_NS = 3600 * 10**9
_DAY_NS = 24 * _HOUR_NS
_LONGEST_NS = 30 * _DAY_NS


def can_be(time_ns: int, oldest_ns: int = RECORDED_FROM_NS, newest_ns: int = RECORDED_TO_NS) -> bool:
    return oldest_ns <= time_ns <= newest_ns


def moved(time_ns: int) -> int:
    """By whole days into the one that ends an hour after the batch was received."""
    last = RECEIVED_NS + _HOUR_NS
    return last - (last - time_ns) % _DAY_NS


def span_times(start_ns: int, end_ns: int, **window: int) -> dict[str, Any]:
    start, end = can_be(start_ns, **window), can_be(end_ns, **window)
    lasts = 0 <= end_ns - start_ns <= _LONGEST_NS
    if start and end and lasts:
        times: tuple[int, int, str] = (start_ns, end_ns - start_ns, "")
    elif start and not (end and end_ns > start_ns):
        times = (start_ns, 0, "end")
    elif end:
        times = (end_ns, 0, "start")
    elif start_ns and lasts and end_ns > start_ns:
        times = (moved(start_ns), end_ns - start_ns, "moved")
    else:
        times = (RECEIVED_NS, 0, "start,end")
    sent = (start_ns, end_ns) if times[2] else (0, 0)
    return dict(zip(("Timestamp", "Duration", "Clamped", "SentStart", "SentEnd"), (*times, *sent), strict=True))


def _record_times(own_ns: int, observed_ns: int) -> dict[str, Any]:
    time_ns = own_ns or observed_ns
    if can_be(time_ns):
        return {"Timestamp": time_ns, "Clamped": "", "SentTime": 0}
    if can_be(observed_ns) or not time_ns:
        return {"Timestamp": observed_ns or RECEIVED_NS, "Clamped": "time", "SentTime": own_ns}
    return {"Timestamp": moved(time_ns), "Clamped": "moved", "SentTime": own_ns}


def _span(span: Any) -> dict[str, Any]:
    return {
        **span_times(span.start_time_unix_nano, span.end_time_unix_nano),
        "TraceId": span.trace_id.hex(),
        "SpanId": span.span_id.hex(),
        "ParentSpanId": span.parent_span_id.hex(),
        "TraceState": span.trace_state,
        "SpanName": span.name,
        "SpanKind": _KINDS[span.kind] if 0 <= span.kind < len(_KINDS) else "Unspecified",
        "SpanAttributes": attributes(pair for pair in span.attributes if not is_token_list(pair)),
        "StatusCode": {1: "Ok", 2: "Error"}.get(span.status.code, "Unset"),
        "StatusMessage": span.status.message,
        "Events.Timestamp": [signed(event.time_unix_nano) for event in span.events],
        "Events.Name": [event.name for event in span.events],
        "Events.Attributes": [attributes(event.attributes) for event in span.events],
        "Links.TraceId": [link.trace_id.hex() for link in span.links],
        "Links.SpanId": [link.span_id.hex() for link in span.links],
        "Links.TraceState": [link.trace_state for link in span.links],
        "Links.Attributes": [attributes(link.attributes) for link in span.links],
        "TokenGapsUs": tokens(span.attributes, "TokenGapsUs"),
        "TokenCounts": tokens(span.attributes, "TokenCounts"),
        "Flags": span.flags,
        "DroppedAttributesCount": span.dropped_attributes_count,
        "DroppedEventsCount": span.dropped_events_count,
        "DroppedLinksCount": span.dropped_links_count,
    }


def signed(nanoseconds: int) -> int:
    """OTLP's times are unsigned, the tables' signed: beyond the year 2262 they wrap."""
    return nanoseconds - 2**64 if nanoseconds >= 2**63 else nanoseconds


def log_rows(bodies: list[bytes]) -> Iterator[dict[str, Any]]:
    for body in bodies:
        for resource in ExportLogsServiceRequest.FromString(body).resource_logs:
            for scope in resource.scope_logs:
                for record in scope.log_records:
                    yield resource_columns(resource, scope) | {
                        **_record_times(record.time_unix_nano, record.observed_time_unix_nano),
                        "TraceId": record.trace_id.hex(),
                        "SpanId": record.span_id.hex(),
                        "TraceFlags": record.flags & 255,
                        "SeverityText": record.severity_text,
                        "SeverityNumber": record.severity_number,
                        "Body": text(record.body),
                        "LogAttributes": attributes(record.attributes),
                        "EventName": record.event_name,
                        "ObservedTimestamp": signed(record.observed_time_unix_nano),
                        "DroppedAttributesCount": record.dropped_attributes_count,
                        "Flags": record.flags,
                        "Types": _record_types(resource, scope, record),
                    }


_TIMES = ("Timestamp", "ObservedTimestamp", "StartTimeUnix", "TimeUnix")
_TIME_LISTS = ("Events.Timestamp", "Exemplars.TimeUnix")


def stored(store: Any, table: str, where: str = "1") -> list[dict[str, Any]]:
    """Whole rows of a table, times as exact nanoseconds, without `IngestedAt` and `TimestampTime`."""
    names = [
        name
        for (name,) in store.client.query(
            "SELECT name FROM system.columns WHERE database = currentDatabase() AND table = {table:String} "
            "AND name NOT IN ('IngestedAt', 'TimestampTime') ORDER BY position",
            parameters={"table": table},
        ).result_rows
    ]
    columns = []
    for name in names:
        if name in _TIMES:
            columns.append(f"toUnixTimestamp64Nano(t.{name}) AS `{name}`")
        elif name in _TIME_LISTS:
            columns.append(f"arrayMap(x -> toUnixTimestamp64Nano(x), t.`{name}`) AS `{name}`")
        else:
            columns.append(f"t.`{name}` AS `{name}`")
    rows: list[dict[str, Any]] = store.dicts(f"SELECT {', '.join(columns)} FROM {table} AS t WHERE {where}")
    return rows


def same_rows(found: list[dict[str, Any]], expected: list[dict[str, Any]], *keys: str) -> None:
    """Asserts that two lists hold the same rows, whatever their order. `keys` tell rows apart, but for equal ones."""

    def order(row: dict[str, Any]) -> str:
        return json.dumps([str(row[key]) for key in keys])

    assert len(found) == len(expected)
    for one, other in zip(sorted(found, key=order), sorted(expected, key=order), strict=True):
        # Left: the rows that know how to compare numbers and JSON.
        assert other == one
