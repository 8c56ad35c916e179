"""Values nested deeper than the ingest SQL declares become JSON text, so that they are kept and readable."""

from __future__ import annotations

import base64
import json
import math
from typing import TYPE_CHECKING, Any, Literal

from promptpath.storage.errors import StorageError

if TYPE_CHECKING:
    from google.protobuf.message import Message

#: A value may be a list or map (level 1) of plain values; lists or maps inside those become JSON text.
DECLARED_DEPTH = 1


def flatten(signal: Literal["traces", "metrics", "logs"], body: bytes) -> bytes:
    """Rewrites a batch so that no value is nested deeper than `DECLARED_DEPTH`.

    A list or map that holds another one is replaced whole by its JSON text, which is what the store would hold for it
    anyway: bytes are base64, a missing value is null, NaN and infinities are null (JSON has none).

    Raises:
        StorageError: the bytes are no such request.
    """
    request = _request(signal)
    try:
        request.ParseFromString(body)
    except Exception as error:
        raise StorageError(f"these bytes are no OTLP {signal} request ({error}): set them aside") from error
    _walk(request)
    flat: bytes = request.SerializeToString()
    return flat


def to_json(value: Any) -> Any:
    """An OTLP AnyValue as a Python value that `json` can write."""
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    if kind == "array_value":
        return [to_json(item) for item in value.array_value.values]
    if kind == "kvlist_value":
        return {pair.key: to_json(pair.value) for pair in value.kvlist_value.values}
    if kind == "bytes_value":
        return base64.b64encode(value.bytes_value).decode()
    if kind == "double_value":
        return value.double_value if math.isfinite(value.double_value) else None
    return getattr(value, kind)


def _request(signal: str) -> Message:
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    kinds: dict[str, type[Message]] = {
        "traces": ExportTraceServiceRequest,
        "metrics": ExportMetricsServiceRequest,
        "logs": ExportLogsServiceRequest,
    }
    return kinds[signal]()


def _walk(message: Any) -> None:
    if message.DESCRIPTOR.full_name == "opentelemetry.proto.common.v1.AnyValue":
        _shorten(message)
        return
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        if field.is_repeated:
            for item in value:
                _walk(item)
        else:
            _walk(value)


def _shorten(value: Any) -> None:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        inner = list(value.array_value.values)
    elif kind == "kvlist_value":
        inner = [pair.value for pair in value.kvlist_value.values]
    else:
        return
    if any(item.WhichOneof("value") in ("array_value", "kvlist_value") for item in inner):
        value.string_value = json.dumps(to_json(value), separators=(",", ":"), ensure_ascii=False)
