"""Prompt rows with plausible values, as the assembler would write them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from promptpath.storage.rows import PROMPTS_SCHEMA

T0_NS = 1_796_000_040_000_000_123  # a whole minute and 123 ns
MINUTE_NS = 60_000_000_000


def prompt(number: int, **values: Any) -> dict[str, Any]:
    """One row; anything in `values` overrides."""
    row: dict[str, Any] = {}
    for column in PROMPTS_SCHEMA:
        kind = column.type
        if column.nullable:
            row[column.name] = None
        elif pa.types.is_list(kind):
            row[column.name] = []
        elif pa.types.is_string(kind):
            row[column.name] = ""
        else:
            row[column.name] = 0
    row |= {
        "prompt_id": f"{number:016x}",
        "trace_id": f"{number:032x}",
        "root_span_id": f"{number:016x}",
        "start_time": T0_NS + number,
        "end_time": T0_NS + number + 2_000_000_000,
        "service": "app",
        "model": "m",
        "operation": "chat",
        "streaming": True,
        "status": "ok",
        "ttft_ns": 100_000_000,
        "ttft_source": "client",
        "e2e_ns": 2_000_000_000,
        "attempts": 1,
        "assembled_at": T0_NS + number + 3_000_000_000,
    }
    return row | values


def table(*rows: dict[str, Any]) -> pa.Table:
    """Rows as the table that `insert_prompts` takes; times of day as plain ns."""
    columns = {}
    for column in PROMPTS_SCHEMA:
        kind = pa.int64() if pa.types.is_timestamp(column.type) else column.type
        columns[column.name] = pa.array([row[column.name] for row in rows], kind)
    return pa.table(columns)
