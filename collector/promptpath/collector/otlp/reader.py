"""From a body and its headers to a checked request in protobuf."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from google.protobuf.message import DecodeError

from promptpath.collector.otlp import identity, json_format, nesting, tenant, wire
from promptpath.collector.otlp.encoding import decompress
from promptpath.collector.otlp.errors import Malformed, Unsupported
from promptpath.collector.otlp.signals import Signal
from promptpath.storage.nesting import DECLARED_DEPTH, flatten

PROTOBUF: Final = "application/x-protobuf"
JSON: Final = "application/json"

#: Below this, parsing a body once more costs less than looking at its bytes.
_SMALL_BYTES: Final = 8192

#: Repeated fields from the request down to the items, per signal. A metric's points lie one level deeper.
_LEVELS: Final = {
    Signal.TRACES: ("resource_spans", "scope_spans", "spans"),
    Signal.METRICS: ("resource_metrics", "scope_metrics", "metrics"),
    Signal.LOGS: ("resource_logs", "scope_logs", "log_records"),
}


@dataclass(frozen=True, slots=True)
class Request:
    """A request that may be stored.

    `body` is one export request in protobuf; `items` counts its spans, data points or log records; `rejected` those
    that were taken out because they are invalid by themselves, `message` says why (the first one's fault). `is_own`:
    of the collector's own spans.
    """

    signal: Signal
    body: bytes
    items: int
    rejected: int = 0
    message: str = ""
    is_own: bool = False


def media_type(content_type: str) -> str:
    """The media type of a `Content-Type`: `PROTOBUF` or `JSON`.

    Raises:
        Unsupported: another one, or none.
    """
    name = content_type.partition(";")[0].strip().lower()
    if name in (PROTOBUF, JSON):
        return name
    if not name:
        raise Unsupported(f"no content type; send {PROTOBUF} or {JSON}")
    raise Unsupported(f"content type {name!r} is not read here; send {PROTOBUF} or {JSON}")


class Reader:
    """Reads OTLP for a database that declares attribute values `value_depth` levels deep; deeper ones become JSON."""

    def __init__(self, value_depth: int = DECLARED_DEPTH) -> None:
        self._value_depth = value_depth
        self._bounded = nesting.bounded_messages(value_depth)

    def read(
        self,
        signal: Signal,
        body: bytes,
        *,
        content_type: str,
        content_encoding: str = "",
        max_bytes: int,
        owner: str = "",
    ) -> Request:
        """Decompresses, converts and checks a body; its rows are those of the tenant `owner`, whatever it says itself.

        Raises:
            Unsupported, TooLarge, Malformed: see `errors`.
        """
        media = media_type(content_type)
        plain = decompress(body, content_encoding, max_bytes=max_bytes)
        request = self.read_json(signal, plain) if media == JSON else self.read_protobuf(signal, plain)
        if owner or tenant.may_be_stamped(request.body):
            return replace(request, body=tenant.stamp(request.body, owner))
        return request

    def read_json(self, signal: Signal, body: bytes) -> Request:
        """Reads an OTLP/JSON export request."""
        return self.read_protobuf(signal, json_format.to_protobuf(signal, body))

    def read_protobuf(self, signal: Signal, body: bytes) -> Request:
        """Reads a protobuf export request. A good body is passed on as it came, byte for byte."""
        message = _parse(signal, body)
        if self._is_too_deep(signal, body):
            body = flatten(signal.value, body)
            message = _parse(signal, body)
        if signal is Signal.METRICS or _all_valid(message, signal):
            return Request(signal, body, _count(message, signal))
        rejected, why = identity.drop_invalid(message, *_LEVELS[signal])
        return Request(signal, message.SerializeToString(), _count(message, signal), rejected, why)

    def _is_too_deep(self, signal: Signal, body: bytes) -> bool:
        """Whether a value is nested too deep, or anything is newer than this program."""
        if len(body) > _SMALL_BYTES and self._value_depth > 0 and not nesting.may_nest(body):
            return False
        message = self._bounded[signal].FromString(body)
        message.DiscardUnknownFields()
        known = message.ByteSize()
        # Some encoders write defaults, so where sizes differ they are compared as one encoder writes them.
        return bool(known != len(body) and known != self._bounded[signal].FromString(body).ByteSize())


def _parse(signal: Signal, body: bytes) -> Any:
    try:
        return signal.request.FromString(body)
    except DecodeError:
        raise Malformed(wire.find_fault(signal.request.DESCRIPTOR, body)) from None


def _all_valid(message: Any, signal: Signal) -> bool:
    scopes, group, items = _LEVELS[signal]
    check = identity.spans_are_valid if signal is Signal.TRACES else identity.records_are_valid
    return all(
        check(getattr(scope, items)) for resource in getattr(message, scopes) for scope in getattr(resource, group)
    )


def _count(message: Any, signal: Signal) -> int:
    scopes, group, items = _LEVELS[signal]
    if signal is not Signal.METRICS:
        return sum(
            len(getattr(scope, items)) for resource in getattr(message, scopes) for scope in getattr(resource, group)
        )
    return sum(
        _points(metric)
        for resource in message.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    )


def _points(metric: Any) -> int:
    kind = metric.WhichOneof("data")
    return len(getattr(metric, kind).data_points) if kind else 0
