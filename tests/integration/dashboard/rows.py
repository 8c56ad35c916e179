"""Rows of `prompts` made by rule from a seed, for tests of queries and pages that need known or many prompts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from promptpath.semconv import Part
from promptpath.storage.rows import PROMPTS_SCHEMA

MODELS = ("smollm2-135m", "qwen3-8b", "llama-3.3-70b")
STATUSES = ("ok", "ok", "ok", "ok", "ok", "ok", "ok", "client_abort", "rate_limited", "error")


def prompt_rows(count: int, *, seed: int, since_ns: int, until_ns: int) -> pa.Table:
    """So many prompts spread over a time range; one in five did not stream, the middle third is slow in prefill."""
    rng = np.random.default_rng(seed)
    starts = np.sort(rng.integers(since_ns, until_ns, count))
    return pa.Table.from_pylist(
        [_row(rng, i, int(at), since_ns, until_ns) for i, at in enumerate(starts)], PROMPTS_SCHEMA
    )


def _row(rng: np.random.Generator, number: int, start_ns: int, since_ns: int, until_ns: int) -> dict[str, Any]:
    slow = 1 / 3 < (start_ns - since_ns) / (until_ns - since_ns) < 2 / 3
    model = MODELS[number % len(MODELS)]
    status = STATUSES[int(rng.integers(len(STATUSES)))]
    streams = number % 5 != 0 and status in ("ok", "client_abort")
    means_ms = {
        "network": 2.0, "gateway": 3.0, "router": 1.5, "tokenize": 4.0, "queue": 12.0,
        "prefill": 140.0 if slow else 45.0, "post": 0.8, "stream": 0.6, "unattributed": 1.0,
    }  # fmt: skip
    parts = {part.value: int(rng.gamma(4.0, means_ms[part.value] / 4) * 1e6) for part in Part}
    ttft_ns = sum(parts.values())
    deliveries = int(rng.integers(8, 120)) if streams else 0
    gaps_us = rng.gamma(20.0, 12_000 / 20, deliveries).astype(np.int64)
    if deliveries and number % 7 == 0:
        gaps_us[deliveries // 2] += 180_000
    answer_ns = int(gaps_us.sum()) * 1000
    e2e_ns = ttft_ns + answer_ns + 900_000
    root = f"{number:016x}"
    row: dict[str, Any] = {field.name: _blank(field) for field in PROMPTS_SCHEMA}
    row |= {
        "prompt_id": root,
        "trace_id": f"{number:032x}",
        "root_span_id": root,
        "start_time": start_ns,
        "end_time": start_ns + e2e_ns,
        "tenant": "red" if number % 2 else "blue",
        "service": "demo-client",
        "model": model,
        "operation": "chat",
        "streaming": streams,
        "status": status,
        "error_type": "" if status == "ok" else status,
        "input_tokens": 40 + number % 60,
        "output_tokens": deliveries + 1 if streams else 30,
        "e2e_ns": e2e_ns,
        "hops": ["demo-client", "demo-gateway", "demo-router", "demo-engine"],
        "hosts": ["host-a"] * 4,
        "attempts": 1,
        "completeness": 1.0,
        "request_model": model,
        "assembled_at": until_ns,
    }
    if streams:
        row |= {
            "ttft_ns": ttft_ns,
            "ttft_source": "client",
            **{f"ttft_{name}_ns": ns for name, ns in parts.items()},
            "tpot_ns": answer_ns // deliveries,
            "itl_p50_ns": int(np.median(gaps_us)) * 1000,
            "itl_p99_ns": int(np.percentile(gaps_us, 99)) * 1000,
            "itl_max_ns": int(gaps_us.max()) * 1000,
            "stalls": int(number % 7 == 0),
            "gaps_us": gaps_us.tolist(),
            "gap_tokens": [1] * deliveries,
            "first_tokens": 1,
            "gaps_source": "client",
            "ttft_engine_ns": parts["queue"] + parts["prefill"],
        }
    return row


def _blank(field: pa.Field) -> Any:
    if pa.types.is_list(field.type):
        return []
    if field.nullable:
        return None
    return "" if pa.types.is_string(field.type) else 0
