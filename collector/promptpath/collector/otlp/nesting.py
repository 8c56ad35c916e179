"""How deep attribute values nest: a check that costs no Python per value.

The database declares its structure by hand to a fixed depth and refuses a whole batch with anything deeper. The check
parses with a copy of the protocol in which the value type is unrolled to that depth: what lies deeper is then an
*unknown field*, which the C parser can drop, and two sizes tell whether anything was dropped. A look at the bytes
spares most bodies that.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from opentelemetry.proto.common.v1 import common_pb2

from promptpath.collector.otlp.signals import Signal

_Bytes = npt.NDArray[np.uint8]
_Places = npt.NDArray[np.intp]

_COMMON: Final = common_pb2.DESCRIPTOR.package
_RECURSIVE: Final = ("AnyValue", "ArrayValue", "KeyValueList", "KeyValue")


def bounded_messages(depth: int) -> dict[Signal, Any]:
    """Request classes that know values with at most `depth` levels of arrays and maps (0: scalars only)."""
    pool = descriptor_pool.DescriptorPool()
    added: set[str] = set()
    messages: dict[Signal, Any] = {}
    for signal in Signal:
        descriptor = signal.request.DESCRIPTOR
        _add_file(pool, descriptor.file, depth, added)
        found = pool.FindMessageTypeByName(descriptor.full_name)
        messages[signal] = message_factory.GetMessageClass(found)
    return messages


def _add_file(pool: Any, file: Any, depth: int, added: set[str]) -> None:
    if file.name in added:
        return
    added.add(file.name)
    for dependency in file.dependencies:
        _add_file(pool, dependency, depth, added)
    proto = descriptor_pb2.FileDescriptorProto()
    file.CopyToProto(proto)
    if file.package == _COMMON:
        _unroll(proto, depth)
    pool.Add(proto)


def _unroll(proto: Any, depth: int) -> None:
    """Replaces the recursive types by `AnyValue`, `AnyValue1`, … each holding the next; the last holds scalars only."""
    originals = {message.name: message for message in proto.message_type if message.name in _RECURSIVE}
    kept = [message for message in proto.message_type if message.name not in _RECURSIVE]
    unrolled: list[Any] = []
    for level in range(depth + 1):
        for name in _RECURSIVE:
            message = descriptor_pb2.DescriptorProto()
            message.CopyFrom(originals[name])
            message.name = _level_name(name, level)
            # A map at one level holds pairs of the next: only attributes themselves are pairs of level 0.
            inner = {"AnyValue": level + 1, "ArrayValue": level, "KeyValueList": level, "KeyValue": level}[name]
            _redirect(message, inner, last=depth)
            unrolled.append(message)
    del proto.message_type[:]
    proto.message_type.extend(unrolled + kept)


def _redirect(message: Any, level: int, *, last: int) -> None:
    if level > last:
        scalars = [field for field in message.field if field.type_name == ""]
        del message.field[:]
        message.field.extend(scalars)
        return
    for field in message.field:
        name = field.type_name.rpartition(".")[2]
        if name in _RECURSIVE:
            field.type_name = f".{_COMMON}.{_level_name(name, level)}"


def _level_name(name: str, level: int) -> str:
    return f"{name}{level}" if level else name


def may_nest(body: bytes) -> bool:
    """Whether a body may hold an array or map inside another: a look at its bytes, some 0.2 us a span.

    False is certain for what common encoders write; True also comes for a map of scalars, and by chance. It looks for
    the tag of an array or a map right behind the header of a value whose length it would fill exactly.
    """
    data = np.frombuffer(body, np.uint8)
    at = np.flatnonzero((data == _ARRAY_TAG) | (data == _MAP_TAG))
    is_map = data[at] == _MAP_TAG
    for width in range(1, _MAX_VARINT + 1):
        # The tag before a length of so many bytes; few are left after that.
        tag = data.take(at - width - 1, mode="clip")
        holds = (tag == _ELEMENT_TAG) | (is_map & ((tag == _VALUE_TAG) | (tag == _LOG_BODY_TAG)))
        if _any_fills(data, at[holds], width):
            return True
    return False


def _any_fills(data: _Bytes, at: _Places, width: int) -> bool:
    """Whether one of the fields at some places is as long as the length says that stands before it."""
    outer = np.zeros(len(at), np.int64)
    for i in range(1, width + 1):  # read backwards
        outer = (outer << 7) + (data.take(at - i, mode="clip").astype(np.int64) & 0x7F)
    whole = np.ones(len(at), np.int64)
    open_ended = np.ones(len(at), bool)
    for i in range(_MAX_VARINT):  # its own length, and what that takes
        byte = data.take(at + 1 + i, mode="clip").astype(np.int64)
        whole += np.where(open_ended, 1 + ((byte & 0x7F) << 7 * i), 0)
        open_ended &= byte >= 0x80
    return bool(np.any(outer == whole))


#: Field numbers of the protocol as tags: AnyValue's array and map, an element of either, a pair's value, a log's body.
_ARRAY_TAG: Final = 0x2A
_MAP_TAG: Final = 0x32
_ELEMENT_TAG: Final = 0x0A
_VALUE_TAG: Final = 0x12
_LOG_BODY_TAG: Final = 0x2A
_MAX_VARINT: Final = 4
