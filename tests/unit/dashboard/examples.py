"""A prompt row and its spans, small enough to reckon by hand."""

from __future__ import annotations

from typing import Any

from promptpath.semconv import Part

MS = 1_000_000

#: span id -> parent, name, service, stage, attributes
SPANS: dict[str, tuple[str, str, str, str, dict[str, str]]] = {
    "a": ("", "chat m", "client", "client", {}),
    "b": ("a", "POST", "client", "call", {"promptpath.attempt": "1", "error.type": "503"}),
    "c": ("a", "POST", "client", "call", {"promptpath.attempt": "2"}),
    "d": ("c", "POST /v1/chat/completions", "engine", "server", {}),
    "x": ("d", "framework", "engine", "", {}),
    "e": ("x", "queue", "engine", "queue", {}),
    "f": ("x", "llm_prefill", "engine", "prefill", {}),
}

#: stage, hop, span, start, length, critical (ms); first token at 100 ms, end at 200 ms
SEGMENTS: tuple[tuple[str, str, str, int, int, bool], ...] = (
    ("client", "client", "a", 10, 190, False),
    ("transit", "client", "a", 0, 10, True),
    ("router", "client", "b", 10, 10, True),
    ("transit", "client", "c", 20, 5, True),
    ("call", "client", "c", 25, 70, False),
    ("transit", "client", "c", 95, 5, True),
    ("transit", "client", "c", 100, 20, True),
    ("call", "client", "c", 120, 80, False),
    ("unattributed", "engine", "d", 25, 5, True),
    ("server", "engine", "d", 30, 65, False),
    ("queue", "engine", "e", 30, 25, True),
    ("prefill", "engine", "f", 55, 40, True),
)


def prompt(**changes: Any) -> dict[str, Any]:
    """A row of `prompts` as Python values; keyword arguments replace columns."""
    parts_ms = {"network": 20, "router": 10, "queue": 25, "prefill": 40, "unattributed": 5}
    row: dict[str, Any] = {
        "prompt_id": "a",
        "trace_id": "t",
        "root_span_id": "a",
        "start_ns": 1_700_000_000_123_456_789,
        "tenant": "",
        "service": "client",
        "model": "m",
        "request_model": "m",
        "operation": "chat",
        "streaming": True,
        "status": "ok",
        "error_type": "",
        "finish_reason": "stop",
        "ttft_ns": 100 * MS,
        "e2e_ns": 200 * MS,
        "tpot_ns": 10 * MS,
        "first_tokens": 1,
        "gaps_us": [10_000] * 9,
        "gap_tokens": [1] * 9,
        "gaps_source": "client",
        "hops": ["client", "engine"],
        "hosts": ["h1", "h2"],
        "attempts": 2,
        "retry_ns": 10 * MS,
        "completeness": 0.5,
        "joined_by": "",
        "agent_name": "",
        "workflow_id": "",
        "conversation_id": "",
        **{f"ttft_{part}_ns": parts_ms.get(part, 0) * MS for part in Part},
        "segments.stage": [segment[0] for segment in SEGMENTS],
        "segments.hop": [segment[1] for segment in SEGMENTS],
        "segments.span_id": [segment[2] for segment in SEGMENTS],
        "segments.start_ns": [segment[3] * MS for segment in SEGMENTS],
        "segments.duration_ns": [segment[4] * MS for segment in SEGMENTS],
        "segments.critical": [segment[5] for segment in SEGMENTS],
    }
    return {**row, **changes}


def spans() -> list[dict[str, Any]]:
    """The raw spans, attribute maps as Arrow gives them: lists of pairs."""
    return [
        {
            "SpanId": span_id,
            "ParentSpanId": parent,
            "SpanName": name,
            "ServiceName": service,
            "StatusCode": "Error" if "error.type" in attributes else "Unset",
            "SpanAttributes": [*attributes.items(), *([("promptpath.stage", stage)] if stage else [])],
            "ResourceAttributes": [("host.id", f"h{1 + (service == 'engine')}"), ("host.name", f"{service}-host")],
        }
        for span_id, (parent, name, service, stage, attributes) in SPANS.items()
    ]
