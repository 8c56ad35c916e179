"""Says where a protobuf body is broken.

The C parser only answers "Error parsing message". This walk is made after it has failed, never before.
"""

from __future__ import annotations

from typing import Any, Final

_VARINT: Final = 0
_FIXED64: Final = 1
_LENGTH: Final = 2
_START_GROUP: Final = 3
_END_GROUP: Final = 4
_FIXED32: Final = 5
#: The C parser's own limit.
_MAX_DEPTH: Final = 100


class _Fault(Exception):
    def __init__(self, offset: int, what: str) -> None:
        super().__init__(what)
        self.offset = offset
        self.what = what


def find_fault(descriptor: Any, data: bytes) -> str:
    """The first fault of `data` read as `descriptor`, with the path of the field and the offset of the byte."""
    path: list[str] = []
    try:
        _walk(descriptor, data, 0, len(data), path)
    except _Fault as fault:
        place = ".".join(path) or descriptor.name
        return f"{place}: {fault.what} (at byte {fault.offset} of {len(data)})"
    return f"not a valid {descriptor.name}"


def _walk(descriptor: Any, data: bytes, start: int, end: int, path: list[str]) -> None:
    if len(path) > _MAX_DEPTH:
        raise _Fault(start, f"nested deeper than {_MAX_DEPTH} levels")
    fields = descriptor.fields_by_number
    seen: dict[int, int] = {}
    position = start
    while position < end:
        tag_at = position
        tag, position = _varint(data, position, end)
        number, wire_type = tag >> 3, tag & 7
        if number == 0:
            raise _Fault(tag_at, "field number 0")
        field = fields.get(number)
        repeated = field is not None and _is_repeated(field)
        index = seen.get(number, 0)
        seen[number] = index + 1
        name = f"field {number}" if field is None else f"{field.name}[{index}]" if repeated else field.name
        path.append(name)
        position = _value(field, wire_type, data, position, end, path)
        path.pop()


def _value(field: Any, wire_type: int, data: bytes, position: int, end: int, path: list[str]) -> int:
    """Checks one value and returns the position after it; leaves `path` as it is where it raises."""
    if wire_type == _VARINT:
        return _varint(data, position, end)[1]
    if wire_type in (_FIXED32, _FIXED64):
        width = 4 if wire_type == _FIXED32 else 8
        if position + width > end:
            raise _Fault(position, f"truncated: {width} bytes expected, {end - position} left")
        return position + width
    if wire_type in (_START_GROUP, _END_GROUP):
        raise _Fault(position, "a group, which this protocol does not have")
    if wire_type != _LENGTH:
        raise _Fault(position, f"wire type {wire_type} does not exist")
    length, position = _varint(data, position, end)
    after = position + length
    if after > end:
        raise _Fault(position, f"truncated: {length} bytes expected, {end - position} left")
    if field is not None and field.message_type is not None:
        _walk(field.message_type, data, position, after, path)
    elif field is not None and field.type == field.TYPE_STRING:
        try:
            data[position:after].decode("utf-8")
        except UnicodeDecodeError as error:
            raise _Fault(position + error.start, "a string that is not UTF-8") from None
    return after


def _varint(data: bytes, position: int, end: int) -> tuple[int, int]:
    value = 0
    start = position
    for shift in range(0, 70, 7):
        if position >= end:
            raise _Fault(start, "truncated in the middle of a number")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise _Fault(start, "a number longer than 10 bytes")


def _is_repeated(field: Any) -> bool:
    # protobuf 7 has only the property, protobuf 5 only the label.
    repeated = getattr(field, "is_repeated", None)
    return bool(field.label == field.LABEL_REPEATED if repeated is None else repeated)
