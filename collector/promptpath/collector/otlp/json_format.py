"""OTLP/JSON to protobuf.

Not the generic protobuf JSON mapping: identifiers are hex there, enums are mostly numbers, and faults have to be named
with their place. The tables are made once from the protobuf descriptors, so a new field of the protocol needs no code.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import struct
from collections.abc import Callable
from typing import Any, Final

from promptpath.collector.otlp.errors import Malformed
from promptpath.collector.otlp.signals import Signal
from promptpath.collector.otlp.wire import _is_repeated

_HEX_FIELDS: Final = frozenset({"trace_id", "span_id", "parent_span_id"})
_Encoder = Callable[[Any], bytes]
_DOUBLE: Final = struct.Struct("<d").pack
_U64: Final = struct.Struct("<Q").pack
_I64: Final = struct.Struct("<q").pack
_U32: Final = struct.Struct("<I").pack


class _Fault(Exception):
    """A fault below; `path` grows on the way up."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what
        self.path: list[str] = []


def to_protobuf(signal: Signal, body: bytes) -> bytes:
    """Encodes an OTLP/JSON export request as protobuf. Unknown fields are left out, as the protocol asks.

    Raises:
        Malformed: not JSON, or not an export request; names the place, such as
            `resourceSpans[0].scopeSpans[0].spans[2].traceId`.
    """
    try:
        value = json.loads(body)
    except json.JSONDecodeError as error:
        raise Malformed(f"the body is not JSON: {error.msg} (line {error.lineno}, column {error.colno})") from None
    except UnicodeDecodeError as error:
        raise Malformed(f"the body is not JSON: not UTF-8 at byte {error.start}") from None
    except RecursionError:
        raise Malformed("the body is not JSON that can be read: nested too deeply") from None
    except ValueError as error:  # a number with thousands of digits
        raise Malformed(f"the body is not JSON: {error}") from None
    try:
        return _table(signal.request.DESCRIPTOR).encode(value)
    except _Fault as fault:
        place = "".join(fault.path).lstrip(".") or "the body"
        raise Malformed(f"{place}: {fault.what}") from None
    except RecursionError:
        raise Malformed("the body is nested too deeply") from None


class _Field:
    """How one field is read: its tag, its encoder (payload behind the tag), and where it stands."""

    __slots__ = ("encode", "oneof", "packed", "repeated", "tag")

    def __init__(self, field: Any) -> None:
        self.repeated: bool = _is_repeated(field)
        self.oneof: str | None = field.containing_oneof.name if field.containing_oneof is not None else None
        self.packed = (
            self.repeated and field.message_type is None and field.type not in (field.TYPE_STRING, field.TYPE_BYTES)
        )
        self.encode, wire_type = _encoder(field)
        self.tag = _varint(field.number << 3 | (2 if self.packed else wire_type))


class _Table:
    """The fields of one message by both of their JSON names."""

    __slots__ = ("fields", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.fields: dict[str, _Field] = {}

    def encode(self, value: Any) -> bytes:
        if type(value) is not dict:
            raise _Fault(f"an object is expected, not {_kind(value)}")
        out: list[bytes] = []
        oneofs: dict[str, str] | None = None
        fields = self.fields
        for key, item in value.items():
            field = fields.get(key)
            if field is None or item is None:
                continue
            try:
                if field.repeated:
                    _encode_list(field, item, out)
                else:
                    out.append(field.tag)
                    out.append(field.encode(item))
            except _Fault as fault:
                fault.path.insert(0, f".{key}")
                raise
            if field.oneof is not None:
                oneofs = {} if oneofs is None else oneofs
                if oneofs.setdefault(field.oneof, key) != key:
                    raise _Fault(f"{oneofs[field.oneof]} and {key} exclude each other")
        return b"".join(out)


def _encode_list(field: _Field, items: Any, out: list[bytes]) -> None:
    if type(items) is not list:
        raise _Fault(f"a list is expected, not {_kind(items)}")
    encoded: list[bytes] = []  # its length tells where an element failed
    try:
        for item in items:
            encoded.append(field.encode(item))  # noqa: PERF401
    except _Fault as fault:
        fault.path.insert(0, f"[{len(encoded)}]")
        raise
    if field.packed:
        out.append(field.tag)
        out.append(_delimited(b"".join(encoded)))
    else:
        for payload in encoded:
            out.append(field.tag)
            out.append(payload)


_TABLES: Final[dict[str, _Table]] = {}


def _table(descriptor: Any) -> _Table:
    table = _TABLES.get(descriptor.full_name)
    if table is None:
        table = _TABLES[descriptor.full_name] = _Table(descriptor.name)  # before its fields: AnyValue holds itself
        for field in descriptor.fields:
            table.fields[field.json_name] = table.fields[field.name] = _Field(field)
    return table


def _encoder(field: Any) -> tuple[_Encoder, int]:
    """The encoder and the wire type of one value of this field."""
    if field.message_type is not None:
        table = _table(field.message_type)
        return lambda value: _delimited(table.encode(value)), 2
    if field.type == field.TYPE_BYTES:
        return (_hex if field.name in _HEX_FIELDS else _base64), 2
    if field.enum_type is not None:
        numbers = {value.name: value.number for value in field.enum_type.values}
        return lambda value: _enum(value, numbers), 0
    return {
        field.TYPE_STRING: (_string, 2),
        field.TYPE_BOOL: (_bool, 0),
        field.TYPE_DOUBLE: (_double, 1),
        field.TYPE_INT32: (lambda value: _varint(_integer(value, -(1 << 31), 1 << 31) & _MASK), 0),
        field.TYPE_INT64: (lambda value: _varint(_integer(value, -(1 << 63), 1 << 63) & _MASK), 0),
        field.TYPE_UINT32: (lambda value: _varint(_integer(value, 0, 1 << 32)), 0),
        field.TYPE_UINT64: (lambda value: _varint(_integer(value, 0, 1 << 64)), 0),
        field.TYPE_SINT32: (lambda value: _zigzag(_integer(value, -(1 << 31), 1 << 31)), 0),
        field.TYPE_SINT64: (lambda value: _zigzag(_integer(value, -(1 << 63), 1 << 63)), 0),
        field.TYPE_FIXED32: (lambda value: _U32(_integer(value, 0, 1 << 32)), 5),
        field.TYPE_FIXED64: (lambda value: _U64(_integer(value, 0, 1 << 64)), 1),
        field.TYPE_SFIXED64: (lambda value: _I64(_integer(value, -(1 << 63), 1 << 63)), 1),
    }[field.type]


_MASK: Final = (1 << 64) - 1


def _varint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _zigzag(value: int) -> bytes:
    return _varint((value << 1) ^ (value >> 63) if value >= 0 else ((-value) << 1) - 1)


def _delimited(payload: bytes) -> bytes:
    return _varint(len(payload)) + payload


def _string(value: Any) -> bytes:
    if type(value) is not str:
        raise _Fault(f"a string is expected, not {_kind(value)}")
    try:
        return _delimited(value.encode())
    except UnicodeEncodeError:
        raise _Fault("a string with half of a surrogate pair") from None


def _bool(value: Any) -> bytes:
    if type(value) is not bool:
        raise _Fault(f"true or false is expected, not {_kind(value)}")
    return b"\x01" if value else b"\x00"


def _integer(value: Any, low: int, high: int) -> int:
    """64-bit integers are strings in JSON, but numbers are common; a whole double is an integer too."""
    if type(value) is str:
        try:
            value = int(value, 10) if "_" not in value else None
        except ValueError:
            value = None
        if value is None:
            raise _Fault("not a whole number")
    elif type(value) is float and value.is_integer():
        value = int(value)
    elif type(value) is not int:
        raise _Fault(f"a whole number is expected, not {_kind(value)}")
    if not low <= value < high:
        raise _Fault(f"{value} is out of range")
    return int(value)


def _double(value: Any) -> bytes:
    if type(value) is str:
        try:
            value = {"Infinity": math.inf, "-Infinity": -math.inf}.get(value) or float(value)
        except ValueError:
            raise _Fault("not a number") from None
    if type(value) not in (float, int):
        raise _Fault(f"a number is expected, not {_kind(value)}")
    try:
        return _DOUBLE(value)
    except OverflowError:
        raise _Fault("out of range of a double") from None


def _enum(value: Any, numbers: dict[str, int]) -> bytes:
    if type(value) is str and value in numbers:
        return _varint(numbers[value] & _MASK)
    if type(value) is str and not value.lstrip("-").isdecimal():
        raise _Fault(f"{value[:60]!r} is none of {', '.join(numbers)}")
    return _varint(_integer(value, -(1 << 31), 1 << 31) & _MASK)


def _hex(value: Any) -> bytes:
    if type(value) is not str:
        raise _Fault(f"hex digits are expected, not {_kind(value)}")
    try:
        return _delimited(binascii.unhexlify(value))
    except ValueError:
        raise _Fault(f"{value[:60]!r} is not hex") from None


def _base64(value: Any) -> bytes:
    if type(value) is not str:
        raise _Fault(f"base64 is expected, not {_kind(value)}")
    text = value.replace("-", "+").replace("_", "/").rstrip("=")
    try:
        return _delimited(base64.b64decode(text + "=" * (-len(text) % 4), validate=True))
    except ValueError:
        raise _Fault("not base64") from None


def _kind(value: Any) -> str:
    return {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}.get(
        type(value), "a number"
    )
