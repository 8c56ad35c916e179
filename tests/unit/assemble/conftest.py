"""Small traces by hand: spans as dicts with everything left out that does not matter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from promptpath.collector.assemble import PROMPT_SCHEMA, SPAN_SCHEMA, AssembleConfig, assemble

Row = dict[str, Any]
T0 = 1_700_000_000_000_000_000

_DEFAULTS: Row = {
    "trace_id": "0" * 31 + "1",
    "parent_id": "",
    "start_ns": 0,
    "duration_ns": 0,
    "kind": "INTERNAL",
    "scope": "test",
    "service": "svc",
    "host": "host",
    "loopback": False,
    "inference": False,
    "agent": False,
    "failed": False,
    **{field.name: "" for field in SPAN_SCHEMA if field.type == pa.string()},
    **{field.name: [] for field in SPAN_SCHEMA if pa.types.is_list(field.type)},
}
_DEFAULTS |= {"trace_id": "0" * 31 + "1", "kind": "INTERNAL", "scope": "test", "service": "svc", "host": "host"}
_CALLS = ("client", "call")
_HOPS = ("client", "call", "edge", "gateway", "router", "server", "inbound")


def span(span_id: str, parent: str = "", start: int = 0, end: int = 0, stage: str = "", **more: Any) -> Row:
    """A span row; `start` and `end` in ns from T0. Kind, inference and process follow from stage and service."""
    row = {field.name: None for field in SPAN_SCHEMA} | _DEFAULTS
    row |= {"span_id": span_id, "parent_id": parent, "start_ns": T0 + start, "duration_ns": end - start, "stage": stage}
    row |= {"kind": "CLIENT" if stage in _CALLS else "SERVER" if stage in _HOPS else "INTERNAL"}
    row |= {"inference": stage in _HOPS}
    row |= more
    if not row["process"]:
        row["process"] = f"{row['service']}@{row['host']}"
    return row


def run(*spans: Row, **config: Any) -> list[Row]:
    """The prompt rows of some spans."""
    table = pa.Table.from_pylist(list(spans), schema=SPAN_SCHEMA)
    prompts = assemble(table, AssembleConfig(assembled_at_ns=T0, **config))
    assert prompts.schema == PROMPT_SCHEMA
    columns = {name: prompts[name] for name in PROMPT_SCHEMA.names}
    for name in ("start_time", "end_time", "assembled_at", "workflow_start", "workflow_end"):
        columns[name] = columns[name].cast(pa.int64())
    rows: list[Row] = pa.table(columns).to_pylist()
    return rows


@pytest.fixture(scope="session")
def make() -> Callable[..., Row]:
    return span


@pytest.fixture(scope="session")
def prompts() -> Callable[..., list[Row]]:
    return run


@pytest.fixture(scope="session")
def prompt() -> Callable[..., Row]:
    def only(*spans: Row, **config: Any) -> Row:
        rows = run(*spans, **config)
        assert len(rows) == 1, [row["prompt_id"] for row in rows]
        return rows[0]

    return only


PARTS = ("network", "gateway", "router", "tokenize", "queue", "prefill", "post", "stream", "unattributed")


@pytest.fixture(scope="session")
def parts() -> Callable[[Row], Row]:
    """The parts of a TTFT that are not 0."""

    def of(row: Row) -> Row:
        found = {part: row[f"ttft_{part}_ns"] for part in PARTS}
        if row["ttft_ns"] is None:
            assert set(found.values()) == {None}
            return {}
        assert sum(found.values()) == row["ttft_ns"]
        return {part: value for part, value in found.items() if value}

    return of


@pytest.fixture(scope="session")
def pieces() -> Callable[..., list[tuple[Any, ...]]]:
    """Segments as (stage, span id, start, duration), the critical ones or the others."""

    def of(row: Row, *, critical: bool = True) -> list[tuple[Any, ...]]:
        columns = ("stage", "span_id", "start_ns", "duration_ns", "critical")
        rows = zip(*(row[f"segments.{name}"] for name in columns), strict=True)
        return [tuple(values[:4]) for values in rows if values[4] == critical]

    return of
