"""Random OTLP requests, and OTLP/JSON of them by a route that shares nothing with the code under test."""

from __future__ import annotations

import base64
from typing import Any

from google.protobuf import json_format
from hypothesis import strategies as st

from promptpath.collector.otlp import Signal

_ID_LENGTHS = {"trace_id": 16, "span_id": 8, "parent_span_id": 8}
_INTS = {
    "INT32": (-(1 << 31), (1 << 31) - 1),
    "INT64": (-(1 << 63), (1 << 63) - 1),
    "UINT32": (0, (1 << 32) - 1),
    "UINT64": (0, (1 << 64) - 1),
    "SINT32": (-(1 << 31), (1 << 31) - 1),
    "FIXED32": (0, (1 << 32) - 1),
    # Times above the signed range are invalid by themselves, and have a test of their own.
    "FIXED64": (0, (1 << 63) - 1),
    "SFIXED64": (-(1 << 63), (1 << 63) - 1),
}
_TYPE_NAMES = {
    value: name.removeprefix("TYPE_")
    for name, value in vars(json_format.descriptor.FieldDescriptor).items()
    if name.startswith("TYPE_")
}


def _scalar(field: Any) -> st.SearchStrategy[Any]:
    name = _TYPE_NAMES[field.type]
    if field.enum_type is not None:
        return st.sampled_from([value.number for value in field.enum_type.values])
    if name == "STRING":
        return st.text(max_size=8)
    if name == "BYTES":
        length = _ID_LENGTHS.get(field.name)
        return st.binary(max_size=8) if length is None else st.binary(min_size=length, max_size=length).filter(any)
    if name == "BOOL":
        return st.booleans()
    if name == "DOUBLE":
        return st.floats(allow_nan=False)
    return st.integers(*_INTS[name])


@st.composite
def messages(draw: st.DrawFn, cls: Any, *, nesting: int = 3) -> Any:
    """A message of a protobuf class with random fields; identifiers have their proper lengths."""
    message = cls()
    _fill(draw, message, nesting)
    return message


def _fill(draw: st.DrawFn, message: Any, nesting: int) -> None:
    recursive = message.DESCRIPTOR.name in ("ArrayValue", "KeyValueList")
    for field in message.DESCRIPTOR.fields:
        if recursive and nesting <= 0:
            continue
        required = field.name in ("trace_id", "span_id")
        repeated = field.is_repeated
        if not required and not draw(st.booleans()):
            continue
        count = draw(st.integers(1, 2)) if repeated else 1
        for _ in range(count):
            if field.message_type is not None:
                child = getattr(message, field.name).add() if repeated else getattr(message, field.name)
                child.SetInParent()
                _fill(draw, child, nesting - 1 if recursive else nesting)
            elif repeated:
                getattr(message, field.name).append(draw(_scalar(field)))
            else:
                setattr(message, field.name, draw(_scalar(field)))


def requests(signal: Signal) -> st.SearchStrategy[Any]:
    """Random export requests of a signal."""
    return messages(signal.request)


def to_otlp_json(message: Any, *, names: bool, numbers: bool, snake: bool) -> Any:
    """OTLP/JSON as Python objects, made by protobuf's own JSON writer with identifiers turned into hex.

    names: enums by name; numbers: 64-bit integers as numbers instead of strings; snake: proto field names.
    """
    tree = json_format.MessageToDict(message, use_integers_for_enums=not names, preserving_proto_field_name=snake)
    return _otlp(tree, message.DESCRIPTOR, numbers)


def _otlp(tree: Any, descriptor: Any, numbers: bool) -> Any:
    fields = {field.json_name: field for field in descriptor.fields} | {
        field.name: field for field in descriptor.fields
    }
    return {key: _otlp_value(value, fields[key], numbers) for key, value in tree.items()}


def _otlp_value(value: Any, field: Any, numbers: bool) -> Any:
    if isinstance(value, list):
        return [_otlp_value(item, field, numbers) for item in value]
    if field.message_type is not None:
        return _otlp(value, field.message_type, numbers)
    if field.name in _ID_LENGTHS:
        return base64.b64decode(value).hex()
    if numbers and _TYPE_NAMES[field.type].endswith("64"):
        return int(value)
    return value
