"""A store of the test's own in real chDB, and OTLP bodies to put into it."""

from __future__ import annotations

import itertools
import json
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from promptpath.storage import client_factory, migrate
from promptpath.storage.ingest import insert

Row = dict[str, Any]
CAPTURES = Path(__file__).parents[2] / "data" / "captures"
T0 = 1_700_000_000_000_000_000
_TABLES = ("otel_traces", "otel_traces_trace_id_ts", "trace_arrivals", "prompts_rows", "prompt_minutes_rows",
"assembler_state_rows", "trace_join_keys", "clock_offsets")  # fmt: skip


@pytest.fixture(scope="module")
def factory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Any]]:
    """Makes clients of one store for a module: a process can have one embedded directory open at a time."""
    make = client_factory(f"chdb://{tmp_path_factory.mktemp('store')}")
    keep = make()
    migrate(keep)
    yield make
    keep.close()


@pytest.fixture
def store(factory: Callable[..., Any]) -> Iterator[Any]:
    """A client of an empty store."""
    client = factory()
    for table in _TABLES:
        client.command(f"TRUNCATE TABLE {table}")
    yield client
    client.close()


_token = itertools.count()


@pytest.fixture(scope="session")
def put() -> Callable[[Any, bytes], None]:
    def send(client: Any, body: bytes) -> None:
        insert(client, "traces", body, f"test-{next(_token)}")

    return send


@pytest.fixture(scope="session")
def capture() -> Callable[[str], bytes]:
    """The spans that a real system sent, as one OTLP request."""

    def read(name: str) -> bytes:
        data = (CAPTURES / name / "traces.pb").read_bytes()
        bodies, at = [], 0
        while at < len(data):
            (size,) = struct.unpack_from(">I", data, at)
            bodies.append(data[at + 4 : at + 4 + size])
            at += 4 + size
        return b"".join(bodies)

    return read


def _value(value: Any) -> Row:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, list):
        return {"arrayValue": {"values": [_value(one) for one in value]}}
    return {"stringValue": str(value)}


def _attributes(values: Row) -> list[Row]:
    return [{"key": key, "value": _value(value)} for key, value in values.items()]


@pytest.fixture(scope="session")
def request_of() -> Callable[..., bytes]:
    """An OTLP request of spans given as (name, kind, start ns, end ns, attributes, more); ns from T0."""

    def build(*spans: tuple[str, int, int, int, Row, Row], scope: str = "test", resource: Row | None = None) -> bytes:
        import base64

        rows = []
        for name, kind, start, end, attributes, more in spans:
            row: Row = {"name": name, "kind": kind, "attributes": _attributes(attributes)}
            row |= {"startTimeUnixNano": str(T0 + start), "endTimeUnixNano": str(T0 + end)}
            row |= {"traceId": more.get("trace", "0" * 31 + "1"), "spanId": more["id"]}
            row |= {"parentSpanId": more["parent"]} if "parent" in more else {}
            row |= {"status": {"code": 2}} if more.get("error") else {}
            row["events"] = [
                {"name": event, "timeUnixNano": str(T0 + at), "attributes": _attributes(values)}
                for event, at, values in more.get("events", [])
            ]
            for key in ("traceId", "spanId", "parentSpanId"):
                if key in row:
                    row[key] = base64.b64encode(bytes.fromhex(row[key])).decode()
            rows.append(row)
        body = {
            "resourceSpans": [
                {
                    "resource": {"attributes": _attributes({"service.name": "svc"} | (resource or {}))},
                    "scopeSpans": [{"scope": {"name": scope}, "spans": rows}],
                }
            ]
        }
        message = ParseDict(json.loads(json.dumps(body)), ExportTraceServiceRequest())
        return bytes(message.SerializeToString())

    return build


@pytest.fixture
def stored(store: Any) -> Callable[[], list[Row]]:
    """The stored prompts, in the order of their roots; times as ns."""

    def read() -> list[Row]:
        times = ", ".join(
            f"toUnixTimestamp64Nano({name}) AS {name}"
            for name in ("start_time", "end_time", "assembled_at", "workflow_start", "workflow_end")
        )
        table = store.query_arrow(f"SELECT * REPLACE ({times}) FROM prompts ORDER BY trace_id, start_time, prompt_id")
        rows: list[Row] = table.to_pylist()
        return rows

    return read
