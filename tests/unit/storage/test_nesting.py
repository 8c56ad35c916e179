"""Values nested deeper than the ingest SQL declares become JSON text; everything else stays as it is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList

from promptpath.storage import StorageError
from promptpath.storage.nesting import flatten


def _list(*items: AnyValue) -> AnyValue:
    return AnyValue(array_value=ArrayValue(values=items))


def _map(**items: AnyValue) -> AnyValue:
    return AnyValue(kvlist_value=KeyValueList(values=[KeyValue(key=k, value=v) for k, v in items.items()]))


def _flat(value: AnyValue) -> AnyValue:
    request = ExportTraceServiceRequest()
    span = request.resource_spans.add().scope_spans.add().spans.add(name="s")
    span.events.add(name="e").attributes.add(key="k", value=value)
    result = ExportTraceServiceRequest.FromString(flatten("traces", request.SerializeToString()))
    kept: AnyValue = result.resource_spans[0].scope_spans[0].spans[0].events[0].attributes[0].value
    return kept


@pytest.mark.parametrize(
    "value",
    [
        AnyValue(),
        AnyValue(string_value="x"),
        _list(AnyValue(int_value=1), AnyValue()),
        _map(a=AnyValue(bytes_value=b"\xff")),
        _list(),
    ],
)
def test_declared_depth_is_left_alone(value: AnyValue) -> None:
    assert _flat(value) == value


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (_list(_list(AnyValue(int_value=1))), [[1]]),
        (_list(_map(), AnyValue(bool_value=True)), [{}, True]),
        (
            _map(a=_list(AnyValue(double_value=float("nan")), AnyValue(bytes_value=b"\x00\xff")), b=AnyValue()),
            {"a": [None, "AP8="], "b": None},
        ),
        (_list(_list(_list(_map(é=AnyValue(string_value="ü"))))), [[[{"é": "ü"}]]]),
    ],
)
def test_deeper_becomes_json(value: AnyValue, expected: Any) -> None:
    flat = _flat(value)
    assert flat.WhichOneof("value") == "string_value"
    assert json.loads(flat.string_value) == expected


def test_log_bodies_too() -> None:
    request = ExportLogsServiceRequest()
    record = request.resource_logs.add().scope_logs.add().log_records.add()
    record.body.CopyFrom(_map(messages=_list(_map(role=AnyValue(string_value="user")))))
    result = ExportLogsServiceRequest.FromString(flatten("logs", request.SerializeToString()))
    body = result.resource_logs[0].scope_logs[0].log_records[0].body.string_value
    assert json.loads(body) == {"messages": [{"role": "user"}]}


def test_garbage_is_refused() -> None:
    with pytest.raises(StorageError, match="no OTLP traces request"):
        flatten("traces", b"\xff\xff\xff")
