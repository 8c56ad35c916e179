"""OTLP/JSON to protobuf."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from promptpath.collector.otlp import Malformed, Reader, Signal
from promptpath.collector.otlp.json_format import to_protobuf

from .otlp_messages import requests, to_otlp_json

CAPTURES = Path(__file__).parents[2] / "data" / "captures"
TRACE = "5b8efff798038103d269b633813fc60c"
SPAN = "eee19b7ec3c1b174"


@pytest.mark.parametrize("signal", list(Signal))
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data(), names=st.booleans(), numbers=st.booleans(), snake=st.booleans())
def test_json_and_protobuf_say_the_same(
    signal: Signal, data: st.DataObject, names: bool, numbers: bool, snake: bool
) -> None:
    message = data.draw(requests(signal))
    body = json.dumps(to_otlp_json(message, names=names, numbers=numbers, snake=snake)).encode()
    assert signal.request.FromString(to_protobuf(signal, body)) == message


def _trace(span: dict[str, Any]) -> bytes:
    return json.dumps(
        {"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": TRACE, "spanId": SPAN} | span]}]}]}
    ).encode()


def _span(span: dict[str, Any]) -> Any:
    return (
        Signal.TRACES.request.FromString(to_protobuf(Signal.TRACES, _trace(span)))
        .resource_spans[0]
        .scope_spans[0]
        .spans[0]
    )


def test_values_in_the_forms_that_senders_use() -> None:
    span = _span(
        {
            "traceId": TRACE.upper(),
            "startTimeUnixNano": "1544712660000000000",
            "endTimeUnixNano": 1544712661000000000,
            "kind": "SPAN_KIND_SERVER",
            "status": {"code": 2, "message": None},
            "flags": 257.0,
            "notAField": {"anything": [1, 2]},
            "attributes": [
                {"key": "i", "value": {"intValue": -5}},
                {"key": "j", "value": {"intValue": "-9223372036854775808"}},
                {"key": "d", "value": {"doubleValue": 1}},
                {"key": "n", "value": {"doubleValue": "NaN"}},
                {"key": "inf", "value": {"doubleValue": "-Infinity"}},
                {"key": "b", "value": {"bytesValue": "aGk"}},
                {"key": "f", "value": {"boolValue": False}},
                {"key": "none"},
            ],
        }
    )
    assert span.trace_id.hex() == TRACE
    assert (span.start_time_unix_nano, span.end_time_unix_nano) == (1544712660000000000, 1544712661000000000)
    assert (span.kind, span.status.code, span.flags) == (2, 2, 257)
    values = {pair.key: pair.value for pair in span.attributes}
    assert (values["i"].int_value, values["j"].int_value, values["d"].double_value) == (-5, -(1 << 63), 1.0)
    assert math.isnan(values["n"].double_value)
    assert values["inf"].double_value == -math.inf
    assert values["b"].bytes_value == b"hi"
    assert values["f"].WhichOneof("value") == "bool_value"
    assert values["none"].WhichOneof("value") is None


SPAN_PATH = "resourceSpans[0].scopeSpans[0].spans[0]"


@pytest.mark.parametrize(
    ("span", "message"),
    [
        ({"traceId": "xyz"}, f"{SPAN_PATH}.traceId: 'xyz' is not hex"),
        ({"traceId": 7}, f"{SPAN_PATH}.traceId: hex digits are expected, not a number"),
        ({"name": 3}, f"{SPAN_PATH}.name: a string is expected, not a number"),
        ({"name": "\ud800"}, f"{SPAN_PATH}.name: a string with half of a surrogate pair"),
        ({"startTimeUnixNano": "soon"}, f"{SPAN_PATH}.startTimeUnixNano: not a whole number"),
        ({"startTimeUnixNano": 1.5}, f"{SPAN_PATH}.startTimeUnixNano: a whole number is expected, not a number"),
        ({"endTimeUnixNano": -1}, f"{SPAN_PATH}.endTimeUnixNano: -1 is out of range"),
        ({"flags": 1 << 32}, f"{SPAN_PATH}.flags: 4294967296 is out of range"),
        ({"attributes": {}}, f"{SPAN_PATH}.attributes: a list is expected, not an object"),
        (
            {"attributes": [{"key": "a"}, {"key": []}]},
            f"{SPAN_PATH}.attributes[1].key: a string is expected, not a list",
        ),
        (
            {"attributes": [{"value": {"boolValue": 1}}]},
            f"{SPAN_PATH}.attributes[0].value.boolValue: true or false is expected, not a number",
        ),
        (
            {"attributes": [{"value": {"boolValue": True, "intValue": 1}}]},
            f"{SPAN_PATH}.attributes[0].value: boolValue and intValue exclude each other",
        ),
        ({"attributes": [{"value": {"bytesValue": "?"}}]}, f"{SPAN_PATH}.attributes[0].value.bytesValue: not base64"),
        (
            {"attributes": [{"value": {"doubleValue": "x"}}]},
            f"{SPAN_PATH}.attributes[0].value.doubleValue: not a number",
        ),
        ({"events": [None]}, f"{SPAN_PATH}.events[0]: an object is expected, not null"),
    ],
)
def test_a_fault_is_named_with_its_place(span: dict[str, Any], message: str) -> None:
    with pytest.raises(Malformed) as caught:
        to_protobuf(Signal.TRACES, _trace(span))
    assert str(caught.value) == message


def test_an_unknown_enum_name_says_what_is_known() -> None:
    with pytest.raises(
        Malformed, match=r"spans\[0\]\.kind: 'SERVER' is none of SPAN_KIND_UNSPECIFIED, SPAN_KIND_INTERNAL"
    ):
        to_protobuf(Signal.TRACES, _trace({"kind": "SERVER"}))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "the body is not JSON: Expecting value (line 1, column 1)"),
        (b'{"a": 1,}', "the body is not JSON: "),
        (b"\xff{}", "the body is not JSON: not UTF-8 at byte 0"),
        (b"[]", "the body: an object is expected, not a list"),
        (b"[" * 200_000, "the body is not JSON that can be read: nested too deeply"),
        (b'{"resourceSpans": ' + b"1" * 5000 + b"}", "the body is not JSON: "),
    ],
)
def test_what_is_no_json_is_malformed(body: bytes, message: str) -> None:
    with pytest.raises(Malformed) as caught:
        to_protobuf(Signal.TRACES, body)
    assert str(caught.value).startswith(message)


def test_values_nested_without_end_are_malformed() -> None:
    value = '{"arrayValue":{"values":[' * 5000 + "{}" + "]}}" * 5000
    body = b'{"resourceSpans":[{"resource":{"attributes":[{"key":"a","value":' + value.encode() + b"}]}}]}"
    with pytest.raises(Malformed):
        Reader().read_json(Signal.TRACES, body)


@pytest.mark.parametrize("path", sorted(CAPTURES.glob("*/*.jsonl")), ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_captures_in_json_are_the_captures_in_protobuf(path: Path) -> None:
    signal = Signal(path.stem)
    framed = path.with_suffix(".pb").read_bytes()
    position = 0
    for line in path.read_bytes().splitlines():
        length = int.from_bytes(framed[position : position + 4], "big")
        position += 4
        expected = signal.request.FromString(framed[position : position + length])
        position += length
        assert signal.request.FromString(to_protobuf(signal, line)) == expected
    assert position == len(framed)
