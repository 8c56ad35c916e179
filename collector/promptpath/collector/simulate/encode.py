"""Spans as OTLP, written out by hand: protobuf, and JSON by the same outline.

Attributes repeat, so their encoding is remembered; what is left per span is a join of byte strings.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from promptpath.collector.simulate.deliveries import Ints
from promptpath.collector.simulate.spans import Span
from promptpath.collector.simulate.stack import Attributes, Value

_REMEMBERED: Final = 50_000
_GAPS: Final = "promptpath.token.gaps_us"
_COUNTS: Final = "promptpath.token.counts"
_times: Final = struct.Struct("<BQBQ").pack
_VERSION: Final = "0.1.0"

Pair = tuple[str, Value | tuple[int, ...]]


class Encoder(Protocol):
    """Makes bytes of spans and of requests. `span`: one span; `request`: spans of one process by scope."""

    def span(self, span: Span, start_ns: int, end_ns: int, gaps_us: Ints | None, counts: Ints | None) -> bytes: ...

    def request(self, resource: Attributes, scopes: Mapping[str, Iterable[bytes]]) -> bytes: ...


def varint(value: int) -> bytes:
    """A protobuf varint; negative numbers as 64-bit two's complement."""
    if value < 0:
        value += 1 << 64
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _field(number: int, body: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(body)) + body


class Protobuf:
    """OTLP protobuf (`opentelemetry/proto/trace/v1/trace.proto`)."""

    def __init__(self) -> None:
        self._pairs: dict[Pair, bytes] = {}
        self._names: dict[tuple[str, int], bytes] = {}
        self._errors: dict[str, bytes] = {"": b""}
        self._numbers: list[bytes] = [self._number(value) for value in range(1 << 14)]

    def span(self, span: Span, start_ns: int, end_ns: int, gaps_us: Ints | None, counts: Ints | None) -> bytes:
        """One `Span`, with the tag and length that it has in its scope."""
        name = self._names.get((span.name, span.kind))
        if name is None:
            name = _field(5, span.name.encode()) + b"\x30" + varint(span.kind)
            self._names[span.name, span.kind] = name
        pairs = self._pairs
        parts = [b"\x0a\x10", span.trace, b"\x12\x08", span.id]
        if span.parent:
            parts += (b"\x22\x08", span.parent)
        parts += (name, _times(0x39, start_ns, 0x41, end_ns))
        for pair in span.attributes:
            parts.append(pairs.get(pair) or self._pair(pair))
        if gaps_us is not None:
            parts.append(self._series(_GAPS, gaps_us))
        if counts is not None:
            parts.append(self._series(_COUNTS, counts))
        parts.append(self._errors.get(span.error) or self._error(span.error))
        body = b"".join(parts)
        return b"\x12" + varint(len(body)) + body

    def request(self, resource: Attributes, scopes: Mapping[str, Iterable[bytes]]) -> bytes:
        """One `ExportTraceServiceRequest`."""
        parts = [_field(1, b"".join(self._pair(pair, 1) for pair in resource))]
        for scope, spans in scopes.items():
            named = _field(1, _field(1, scope.encode()) + _field(2, _VERSION.encode()))
            parts.append(_field(2, named + b"".join(spans)))
        return _field(1, b"".join(parts))

    def _error(self, error: str) -> bytes:
        if not error:
            return b""
        made = self._pair(("error.type", error)) + _field(15, b"\x18\x02")
        self._errors[error] = made
        return made

    def _pair(self, pair: Pair, number: int = 9) -> bytes:
        key, value = pair
        made = _field(number, _field(1, key.encode()) + _field(2, _any(value)))
        if number == 9 and len(self._pairs) < _REMEMBERED:
            self._pairs[pair] = made
        return made

    @staticmethod
    def _number(value: int) -> bytes:
        body = b"\x18" + varint(value)
        return bytes((0x0A, len(body))) + body

    def _series(self, key: str, values: Ints) -> bytes:
        table, size = self._numbers, len(self._numbers)
        listed = b"".join([table[value] if value < size else self._number(value) for value in values.tolist()])
        return _field(9, _field(1, key.encode()) + _field(2, _field(5, listed)))


def _any(value: Value | tuple[int, ...]) -> bytes:
    if isinstance(value, str):
        return _field(1, value.encode())
    if isinstance(value, bool):
        return b"\x10\x01" if value else b"\x10\x00"
    if isinstance(value, int):
        return b"\x18" + varint(value)
    if isinstance(value, float):
        return b"\x21" + struct.pack("<d", value)
    return _field(5, b"".join(_field(1, _any(one)) for one in value))


class Json:
    """OTLP/JSON: one request a line, ids in hex, 64-bit numbers as text."""

    def __init__(self) -> None:
        self._pairs: dict[Pair, str] = {}

    def span(self, span: Span, start_ns: int, end_ns: int, gaps_us: Ints | None, counts: Ints | None) -> bytes:
        """One span object."""
        pairs = self._pairs
        attributes = [pairs.get(pair) or self._pair(pair) for pair in span.attributes]
        if gaps_us is not None:
            attributes.append(_json_pair((_GAPS, tuple(gaps_us.tolist()))))
        if counts is not None:
            attributes.append(_json_pair((_COUNTS, tuple(counts.tolist()))))
        status = ""
        if span.error:
            attributes.append(self._pair(("error.type", span.error)))
            status = ',"status":{"code":2}'
        parent = f'"parentSpanId":"{span.parent.hex()}",' if span.parent else ""
        return (
            f'{{"traceId":"{span.trace.hex()}","spanId":"{span.id.hex()}",{parent}"name":{json.dumps(span.name)},'
            f'"kind":{span.kind},"startTimeUnixNano":"{start_ns}","endTimeUnixNano":"{end_ns}",'
            f'"attributes":[{",".join(attributes)}]{status}}}'
        ).encode()

    def request(self, resource: Attributes, scopes: Mapping[str, Iterable[bytes]]) -> bytes:
        """One request object."""
        listed = [
            b'{"scope":{"name":"%s","version":"%s"},"spans":[%s]}'
            % (scope.encode(), _VERSION.encode(), b",".join(spans))
            for scope, spans in scopes.items()
        ]
        attributes = ",".join(self._pair(pair) for pair in resource).encode()
        return b'{"resourceSpans":[{"resource":{"attributes":[%s]},"scopeSpans":[%s]}]}' % (
            attributes,
            b",".join(listed),
        )

    def _pair(self, pair: Pair) -> str:
        made = _json_pair(pair)
        if len(self._pairs) < _REMEMBERED:
            self._pairs[pair] = made
        return made


def _json_pair(pair: Pair) -> str:
    return f'{{"key":{json.dumps(pair[0])},"value":{_json_any(pair[1])}}}'


def _json_any(value: Value | tuple[int, ...]) -> str:
    if isinstance(value, str):
        return f'{{"stringValue":{json.dumps(value)}}}'
    if isinstance(value, bool):
        return f'{{"boolValue":{"true" if value else "false"}}}'
    if isinstance(value, int):
        return f'{{"intValue":"{value}"}}'
    if isinstance(value, float):
        return f'{{"doubleValue":{value!r}}}'
    return f'{{"arrayValue":{{"values":[{",".join(map(_json_any, value))}]}}}}'
