"""Systems that could not be recorded: spans made from their released source, against rows worked out by hand.

All times are in milliseconds here; `tests/data/derived/make.py` says where the spans' names and units come from.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Row = dict[str, Any]
MS = 1_000_000
DERIVED = Path(__file__).parents[2] / "data" / "derived"

_SPEC = importlib.util.spec_from_file_location("rules_rows", Path(__file__).with_name("conftest.py"))
assert _SPEC is not None
assert _SPEC.loader is not None
_rows = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_rows)

#: Of each sample its prompts: the root's number, its critical pieces (stage, span's number, start, duration), and
#: what else is not empty; times in ms.
EXPECTED: dict[str, list[tuple[int, list[tuple[str, int, float, float]], Row]]] = {
    # One prompt of two choices: the prompt's tokens once, those of both choices, the first token of the first.
    "vllm-n2": [
        (
            1,
            [("unattributed", 2, 0, 10), ("queue", 2, 10, 10), ("prefill", 2, 20, 30), ("decode", 2, 50, 80),
             ("decode", 1, 130, 20)],
            {"parts": {"queue": 10, "prefill": 30, "unattributed": 10}, "ttft_source": "engine", "ttft_engine_ns": 50,
             "input_tokens": 20, "output_tokens": 20, "tpot_ns": 100 / 19},
        )
    ],
    "sglang": [
        (
            1,
            [("tokenize", 3, 0, 5), ("unattributed", 1, 5, 3), ("queue", 7, 8, 20), ("prefill", 9, 28, 16),
             ("prefill", 10, 44, 16), ("unattributed", 1, 60, 1), ("decode", 11, 61, 137), ("unattributed", 1, 198, 2)],
            # The first token as the request says it; the slices end a little before.
            {"parts": {"tokenize": 5, "queue": 20, "prefill": 32, "unattributed": 4}, "ttft_source": "engine",
             "ttft_engine_ns": 61, "input_tokens": 100, "cached_tokens": 64, "output_tokens": 16, "model": "m",
             "finish_reason": "stop", "tpot_ns": 9.2},
        )
    ],
    # What the decode worker waits for is said by the prefill worker: its stages own the time.
    "sglang-disaggregated": [
        (
            1,
            [("router", 1, 0, 10), ("tokenize", 4, 10, 4), ("unattributed", 10, 14, 2), ("queue", 6, 16, 4),
             ("queue", 7, 20, 10), ("prefill", 8, 30, 50), ("kv_transfer", 9, 80, 18), ("queue", 15, 98, 2),
             ("unattributed", 10, 100, 5), ("decode", 16, 105, 183), ("unattributed", 10, 288, 2),
             ("router", 1, 290, 10)],
            {"parts": {"router": 10, "tokenize": 4, "queue": 16, "prefill": 68, "unattributed": 7},
             "ttft_source": "engine", "ttft_engine_ns": 70, "input_tokens": 100, "output_tokens": 20,
             "first_byte_ns": 2, "hops": ["router", "prefill", "decode"], "hosts": ["a", "a", "a"],
             "operation": "chat", "tpot_ns": 188 / 19},
        )
    ],
    "sglang-router": [
        (1, [("router", 1, 0, 250)], {"first_byte_ns": 1.5, "operation": "chat", "attempts": 1})
    ],
    # The first token is the first `send_generation`.
    "tgi": [
        (
            1,
            [("unattributed", 1, 0, 1), ("parse", 2, 1, 1), ("parse", 5, 2, 1), ("tokenize", 6, 3, 7),
             ("parse", 5, 10, 1), ("unattributed", 1, 11, 1), ("queue", 8, 12, 20), ("prefill", 9, 32, 40),
             ("decode", 9, 72, 76), ("unattributed", 1, 148, 2)],
            {"parts": {"tokenize": 10, "queue": 20, "prefill": 40, "unattributed": 2}, "ttft_source": "engine",
             "ttft_engine_ns": 72},
        )
    ],
    "tensorrt-llm": [
        (
            1,
            [("queue", 1, 0, 20), ("prefill", 1, 20, 70), ("unattributed", 1, 90, 310)],
            {"parts": {"queue": 20, "prefill": 70}, "ttft_source": "engine", "ttft_engine_ns": 90,
             "input_tokens": 64, "output_tokens": 32, "finish_reason": "length"},
        )
    ],
    "triton": [
        (
            1,
            [("unattributed", 1, 0, 2), ("tokenize", 3, 2, 8), ("unattributed", 1, 10, 81), ("detokenize", 7, 91, 6),
             ("unattributed", 1, 97, 3)],
            {"first_byte_ns": 98, "model": "ensemble", "request_model": "ensemble"},
        )
    ],
    "lmdeploy": [
        (1, [("unattributed", 1, 0, 1), ("parse", 2, 1, 2), ("unattributed", 1, 3, 117)], {"operation": "chat"})
    ],
    "deepspeed": [
        (
            1,
            [("unattributed", 1, 0, 2), ("parse", 2, 2, 2), ("unattributed", 1, 4, 76)],
            {"operation": "text_completion", "status": "error", "error_type": "503"},
        )
    ],
    # The refused try is lost, and belongs to the router.
    "kong": [
        (
            1,
            [("gateway", 1, 0, 1), ("gateway", 2, 1, 1), ("gateway", 3, 2, 4), ("safety", 4, 6, 4), ("dns", 5, 10, 2),
             ("router", 6, 12, 3), ("unattributed", 7, 15, 480), ("gateway", 1, 495, 5)],
            {"operation": "chat", "attempts": 2, "retry_ns": 3, "completeness": 0.0},
        )
    ],
    "nginx": [
        (
            1,
            [("gateway", 1, 0, 300)],
            {"operation": "chat", "status": "rate_limited", "error_type": "429", "first_byte_ns": 120, "attempts": 1},
        )
    ],
    "dynamo": [
        (
            1,
            [("router", 1, 0, 10), ("prefill", 3, 10, 48), ("router", 1, 58, 2), ("decode", 4, 60, 335),
             ("router", 1, 395, 5)],
            {"parts": {"router": 10, "prefill": 48}, "ttft_source": "engine", "ttft_engine_ns": 48,
             "operation": "chat", "hosts": ["a", "a", "a"],
             "hops": ["dynamo-frontend", "dynamo-worker-vllm-prefill", "dynamo-worker-vllm-decode"]},
        )
    ],
    # The prefill worker left no span: the call to it is unattributed.
    "llm-d": [
        (
            1,
            [("gateway", 1, 0, 1), ("router", 2, 1, 5), ("gateway", 1, 6, 4), ("router", 3, 10, 1),
             ("unattributed", 4, 11, 50), ("router", 3, 61, 1), ("transit", 5, 62, 1), ("unattributed", 6, 63, 3),
             ("queue", 6, 66, 2), ("prefill", 6, 68, 15), ("decode", 6, 83, 200), ("unattributed", 6, 283, 5),
             ("transit", 5, 288, 1), ("router", 3, 289, 1), ("gateway", 1, 290, 10)],
            {"parts": {"network": 1, "gateway": 5, "router": 7, "queue": 2, "prefill": 15, "unattributed": 53},
             "ttft_source": "engine", "ttft_engine_ns": 20, "input_tokens": 50, "output_tokens": 21, "tpot_ns": 10,
             "model": "m", "request_model": "m", "operation": "chat", "hops": ["llm-d-epp", "llm-d-sidecar", "vllm"],
             "hosts": ["epp", "pod", "pod"], "completeness": 0.5, "clock_offset_ns": 0, "clock_error_ns": 10,
             "attempts": 1},
        )
    ],
    "openrouter": [
        (
            1,
            [("gateway", 1, 0, 20), ("router", 2, 20, 200), ("router", 1, 220, 30), ("unattributed", 3, 250, 450),
             ("unattributed", 3, 700, 1290), ("gateway", 1, 1990, 10)],
            {"parts": {"gateway": 20, "router": 230, "unattributed": 450}, "ttft_source": "gateway", "attempts": 2,
             "retry_ns": 230, "completeness": 0.0, "streaming": True, "operation": "chat", "model": "openai/gpt-x",
             "request_model": "openai/gpt-x", "finish_reason": "stop", "input_tokens": 40, "cached_tokens": 32,
             "output_tokens": 60, "reasoning_tokens": 8, "cost_usd": 0.0025, "conversation_id": "s-1"},
        )
    ],
    "portkey": [
        (
            1,
            [("unattributed", 1, 0, 900)],
            {"operation": "chat", "model": "gpt-4o-2024-08-06", "request_model": "gpt-4o", "finish_reason": "stop",
             "input_tokens": 12, "output_tokens": 30, "completeness": 0.0},
        )
    ],
    "portkey-older": [
        (
            1,
            [("unattributed", 1, 0, 900)],
            {"operation": "", "model": "gpt-4o", "request_model": "gpt-4o", "finish_reason": "stop",
             "input_tokens": 12, "output_tokens": 30, "completeness": 0.0},
        )
    ],
    "langdb": [
        (
            1,
            [("gateway", 1, 0, 2), ("router", 2, 2, 10), ("gateway", 3, 12, 2), ("safety", 4, 14, 16),
             ("gateway", 3, 30, 1), ("unattributed", 5, 31, 209), ("unattributed", 5, 240, 350),
             ("gateway", 3, 590, 5), ("gateway", 1, 595, 5)],
            {"parts": {"gateway": 5, "router": 10, "post": 16, "unattributed": 209}, "ttft_source": "gateway",
             "streaming": True, "model": "gpt-4o-mini-2024", "request_model": "gpt-4o-mini", "input_tokens": 9,
             "output_tokens": 12, "cost_usd": 0.001, "completeness": 0.0},
        )
    ],
    # A request of the rails is no prompt; what it asks models is.
    "nemo-guardrails": [
        (
            4,
            [("unattributed", 4, 0, 94)],
            {"operation": "chat", "model": "guard", "request_model": "guard", "input_tokens": 30, "output_tokens": 1,
             "completeness": 0.0},
        ),
        (
            6,
            [("unattributed", 6, 0, 288)],
            {"operation": "chat", "model": "main", "request_model": "main", "input_tokens": 10, "output_tokens": 20,
             "finish_reason": "stop", "completeness": 0.0},
        ),
    ],
    "otel-genai": [
        (
            2,
            [("unattributed", 2, 0, 150), ("unattributed", 2, 150, 250)],
            {"parts": {"unattributed": 150}, "ttft_source": "client", "streaming": True, "operation": "chat",
             "model": "m-1", "request_model": "m", "finish_reason": "tool_calls", "input_tokens": 100,
             "cached_tokens": 80, "output_tokens": 51, "reasoning_tokens": 10, "completeness": 0.0,
             "workflow_id": f"{1:016x}", "agent_name": "helper", "conversation_id": "talk"},
        ),
        (
            4,
            [("unattributed", 4, 0, 20)],
            {"operation": "chat", "model": "m", "request_model": "m", "status": "rate_limited", "error_type": "429",
             "completeness": 0.0, "workflow_id": f"{1:016x}", "agent_name": "helper", "conversation_id": "talk"},
        ),
    ],
    "otel-genai-old": [
        (
            1,
            [("unattributed", 1, 0, 50)],
            {"operation": "text_completion", "model": "m", "request_model": "m", "input_tokens": 7,
             "status": "timeout", "error_type": "APITimeoutError", "completeness": 0.0},
        )
    ],
    "openllmetry": [
        (
            2,
            [("unattributed", 2, 0, 100), ("unattributed", 2, 100, 200)],
            {"parts": {"unattributed": 100}, "ttft_source": "client", "streaming": True, "operation": "chat",
             "model": "m-1", "request_model": "m", "finish_reason": "stop", "input_tokens": 5, "cached_tokens": 4,
             "output_tokens": 3, "reasoning_tokens": 1, "completeness": 0.0, "workflow_id": f"{1:016x}",
             "agent_name": "story"},
        )
    ],
    "openinference": [
        (
            1,
            [("unattributed", 1, 0, 125), ("unattributed", 1, 125, 375)],
            {"parts": {"unattributed": 125}, "ttft_source": "client", "streaming": True, "operation": "chat",
             "model": "m-1", "request_model": "m", "finish_reason": "stop", "input_tokens": 11, "cached_tokens": 6,
             "output_tokens": 22, "reasoning_tokens": 2, "completeness": 0.0, "cost_usd": 0.002,
             "conversation_id": "s-1"},
        )
    ],
    "openlit": [
        (
            1,
            [("unattributed", 1, 0, 200), ("unattributed", 1, 200, 600)],
            {"parts": {"unattributed": 200}, "ttft_source": "client", "streaming": True, "operation": "chat",
             "model": "m-1", "request_model": "m", "finish_reason": "stop", "input_tokens": 8, "output_tokens": 40,
             "completeness": 0.0, "cost_usd": 0.0004},
        )
    ],
    "langfuse": [
        (
            2,
            [("unattributed", 2, 0, 250), ("unattributed", 2, 250, 250)],
            {"parts": {"unattributed": 250}, "ttft_source": "client", "streaming": True, "operation": "chat",
             "model": "m", "request_model": "m", "input_tokens": 10, "output_tokens": 20, "completeness": 0.0,
             "cost_usd": 0.003, "workflow_id": f"{1:016x}", "conversation_id": "s-1"},
        )
    ],
    "bedrock": [
        (
            1,
            [("unattributed", 1, 0, 450)],
            {"streaming": True, "operation": "chat", "model": "anthropic.claude", "request_model": "anthropic.claude",
             "finish_reason": "end_turn", "input_tokens": 10, "output_tokens": 20, "completeness": 0.0},
        )
    ],
    "azure": [
        (
            1,
            [("unattributed", 1, 0, 350)],
            {"operation": "chat", "status": "rejected", "error_type": "401", "completeness": 0.0},
        )
    ],
    "databricks": [
        (
            1,
            [("unattributed", 1, 0, 100), ("unattributed", 1, 100, 200)],
            {"parts": {"unattributed": 100}, "ttft_source": "client", "streaming": True, "operation": "chat",
             "model": "databricks-llama", "request_model": "databricks-llama", "input_tokens": 5, "cached_tokens": 4,
             "output_tokens": 6, "completeness": 0.0, "cost_usd": 0.003},
        )
    ],
}  # fmt: skip


def _ns(key: str, value: Any) -> Any:
    """Milliseconds of columns that are times, in ns."""
    if key == "parts":
        return {part: round(ms * MS) for part, ms in value.items()}
    return round(value * MS) if key.endswith("_ns") and value is not None else value


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_whole_rows(assembled: Callable[[str, str], list[Row]], name: str) -> None:
    spans = _rows.spans_of("derived", name)
    wanted = []
    for root, critical, said in EXPECTED[name]:
        pieces = [
            (stage, f"{span:016x}", round(start * MS), round(length * MS)) for stage, span, start, length in critical
        ]
        values = {key: _ns(key, value) for key, value in said.items()}
        if run := spans.get(str(said.get("workflow_id", ""))):
            values |= {"workflow_start": run["start"], "workflow_end": run["end"]}
        wanted.append(_rows.whole(spans[f"{root:016x}"], pieces, **values))
    found = _rows.differences(assembled("derived", name), wanted)
    assert found == {}


def test_every_sample_has_its_rows() -> None:
    assert {path.stem for path in DERIVED.glob("*.jsonl")} == set(EXPECTED)
