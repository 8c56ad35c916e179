"""A store in real chDB, as the assembler's own tests have it, and whole rows written by hand."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from promptpath.collector.assembler import AssemblerService
from promptpath.collector.otlp import Reader, Signal

Row = dict[str, Any]
DATA = Path(__file__).parents[2] / "data"
PARTS = ("network", "gateway", "router", "tokenize", "queue", "prefill", "post", "stream", "unattributed")
_STALLS = tuple(f"stall_causes.{name}" for name in ("at_us", "gap_us", "cause", "detail"))
_SEGMENTS = ("stage", "hop", "span_id", "start_ns", "duration_ns", "critical")

_FILE = Path(__file__).parents[1] / "assemble" / "conftest.py"
_SPEC = importlib.util.spec_from_file_location("assemble_store", _FILE)
assert _SPEC is not None
assert _SPEC.loader is not None
_store = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_store)
factory, store, put, stored = _store.factory, _store.store, _store.put, _store.stored
request_of = _store.request_of


def spans_of(kind: str, name: str) -> dict[str, Row]:
    """The spans of a file by id: as sent, with `values` (attributes), `service`, `host`, `start` and `end` (ns)."""
    path = DATA / kind / (f"{name}.jsonl" if kind == "derived" else f"{name}/traces.jsonl")
    found: dict[str, Row] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        for resource in json.loads(line)["resourceSpans"]:
            said = _plain(resource["resource"]["attributes"])
            host = (
                said.get("host.id") or said.get("host.name") or said.get("service.instance.id") or said["service.name"]
            )
            for span in (span for scope in resource["scopeSpans"] for span in scope["spans"]):
                start, end = int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"])
                more = {"values": _plain(span.get("attributes", [])), "start": start, "end": end}
                found[span["spanId"]] = span | more | {"service": said["service.name"], "host": host}
    return found


def _plain(attributes: list[Row]) -> Row:
    return {one["key"]: next(iter(one["value"].values())) for one in attributes}


@pytest.fixture
def assembled(store: Any, factory: Any, put: Any, stored: Any) -> Callable[[str, str], list[Row]]:
    """The prompts of a file, whole, with their segments as (stage, span id, start, duration) of the critical ones."""

    def run(kind: str, name: str) -> list[Row]:
        path = DATA / kind / (f"{name}.jsonl" if kind == "derived" else f"{name}/traces.jsonl")
        reader = Reader()
        lines = path.read_bytes().splitlines()
        put(store, b"".join(reader.read_json(Signal.TRACES, line).body for line in lines if line.strip()))
        service = AssemblerService(factory)
        written = service.flush()
        service.close()
        assert service.stats["failed_traces"] == 0
        rows: list[Row] = stored()
        assert written == len(rows)
        return [_checked(row, spans_of(kind, name)) for row in rows]

    return run


def _checked(row: Row, spans: dict[str, Row]) -> Row:
    """The row without `assembled_at` and with its critical segments only; the others are checked here: each lies in
    its span, on one side of the first token, and names a hop of the prompt."""
    pieces = list(zip(*(row.pop(f"segments.{name}") for name in _SEGMENTS), strict=True))
    row.pop("assembled_at")
    for name in ("workflow_start", "workflow_end"):
        row[name] = getattr(row[name], "value", row[name])
    for stage, hop, span_id, start, duration, critical in pieces:
        assert hop in row["hops"]
        assert duration > 0
        if not critical:
            span = spans[span_id]
            assert duration <= span["end"] - span["start"], stage
            assert row["ttft_ns"] is None or not start < row["ttft_ns"] < start + duration
    critical = [(stage, span, start, length) for stage, _, span, start, length, on in pieces if on]
    assert sum(length for *_, length in critical) == row["e2e_ns"]
    if row["ttft_ns"] is not None:
        assert sum(row[f"ttft_{part}_ns"] for part in PARTS) == row["ttft_ns"]
    return row | {"critical": critical}


def whole(root: Row, critical: list[tuple[str, str, int, int]], *, parts: Row | None = None, **said: Any) -> Row:
    """A whole row: what is not said is empty. parts: ns of the parts of the TTFT that are not 0; None: no TTFT."""
    row: Row = {
        "prompt_id": root["spanId"], "trace_id": root["traceId"], "root_span_id": root["spanId"],
        "start_time": root["start"], "end_time": root["end"], "e2e_ns": root["end"] - root["start"],
        "service": root["service"], "hops": [root["service"]], "hosts": [root["host"]], "status": "ok", "attempts": 1,
        "retry_ns": 0, "critical": critical,
    }  # fmt: skip
    row |= dict.fromkeys(
        ("tenant", "model", "request_model", "operation", "error_type", "finish_reason", "ttft_source", "gaps_source",
         "joined_by", "workflow_id", "conversation_id", "agent_name", "token_tenant"), ""
    )  # fmt: skip
    row |= dict.fromkeys(
        ("streaming", "input_tokens", "cached_tokens", "output_tokens", "reasoning_tokens", "ttft_ns", "ttft_engine_ns",
         "tpot_ns", "itl_p50_ns", "itl_p99_ns", "itl_max_ns", "stalls", "first_tokens", "first_byte_ns", "preemptions",
         "tcp_rtt_us", "tcp_retransmits", "clock_offset_ns", "clock_error_ns", "completeness", "cost_usd", "energy_j",
         "workflow_start", "workflow_end")
    )  # fmt: skip
    row |= {name: [] for name in ("gaps_us", "gap_tokens", "gpu_uuids", "joined_traces", *_STALLS)}
    row |= {f"ttft_{part}_ns": None if parts is None else parts.get(part, 0) for part in PARTS}
    if parts is not None:
        row["ttft_ns"] = sum(parts.values())
    assert set(said) <= set(row)
    return row | said


def differences(got: list[Row], wanted: list[Row]) -> Row:
    """Where rows differ: (what is there, what should be) by `row number column`."""
    found: Row = {}
    for number in range(max(len(got), len(wanted))):
        one = got[number] if number < len(got) else {}
        other = wanted[number] if number < len(wanted) else {}
        found |= {
            f"{number} {key}": (one.get(key), other.get(key))
            for key in sorted(one.keys() | other.keys())
            if one.get(key) != other.get(key) or (key in one) != (key in other)
        }
    return found
