"""The truth beside the spans, as Parquet: `truth.parquet`, a row a prompt, and `clocks.parquet`, the clocks' errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from promptpath.collector.simulate.deliveries import Deliveries, Ints
from promptpath.collector.simulate.prompt import Prompt
from promptpath.collector.simulate.scenario import Scenario
from promptpath.collector.simulate.spans import CLIENT, SERVER
from promptpath.collector.simulate.stack import Stack
from promptpath.semconv import Part, Status

_CLOCK_EVERY_NS: Final = 10_000_000_000
_ROWS: Final = 20_000
_STALL_FACTOR: Final = 4.0
_STALL_MIN_NS: Final = 50_000_000
_time = pa.timestamp("ns", tz="UTC")
#: Quantiles of the gaps, apportioned to their tokens.
_ITL: Final = {"p50": 0.5, "p99": 0.99, "max": 1.0}
_ABORTED: Final = (Status.CLIENT_ABORT, Status.SERVER_ABORT, Status.TIMEOUT)

#: Times are true, durations in true ns; null where the definitions give no value. `whole`: all spans were sent.
#: `prompt_id`: of the root; `ids`: of all spans that can be a prompt's root if what is above them is lost.
#: `clock_offset_ns`: the answering engine's clock minus the root's, at the prompt's start.
TRUTH_SCHEMA: Final = pa.schema(
    [
        ("prompt_id", pa.string()),
        ("trace_id", pa.string()),
        ("ids", pa.list_(pa.string())),
        ("topology", pa.string()),
        ("start", _time),
        ("e2e_ns", pa.int64()),
        ("status", pa.string()),
        ("model", pa.string()),
        ("request_model", pa.string()),
        ("operation", pa.string()),
        ("streaming", pa.bool_()),
        ("choices", pa.uint16()),
        ("attempts", pa.uint16()),
        ("retry_ns", pa.int64()),
        ("ttft_ns", pa.int64()),
        ("ttft_source", pa.string()),
        ("ttft_engine_ns", pa.int64()),
        *((f"ttft_{part}_ns", pa.int64()) for part in Part),
        ("input_tokens", pa.uint32()),
        ("output_tokens", pa.uint32()),
        ("cached_tokens", pa.uint32()),
        ("first_tokens", pa.uint32()),
        ("gaps_source", pa.string()),
        ("gaps_ns", pa.list_(pa.int64())),
        ("gap_tokens", pa.list_(pa.uint16())),
        ("tpot_ns", pa.int64()),
        *((f"itl_{name}_ns", pa.int64()) for name in _ITL),
        ("stalls", pa.uint32()),
        ("preemptions", pa.uint32()),
        ("hops", pa.list_(pa.string())),
        ("hosts", pa.list_(pa.string())),
        ("workflow_id", pa.string()),
        ("conversation_id", pa.string()),
        ("agent_name", pa.string()),
        ("clock_offset_ns", pa.int64()),
        ("spans", pa.uint32()),
        ("whole", pa.bool_()),
    ]
)


class TruthFile:
    """Writes `truth.parquet` in portions."""

    def __init__(self, path: Path) -> None:
        self._writer = pq.ParquetWriter(path, TRUTH_SCHEMA, compression="zstd")
        self._rows: list[dict[str, Any]] = []

    def add(self, prompt: Prompt) -> None:
        """A prompt that is over."""
        self._rows.append(row_of(prompt))
        if len(self._rows) >= _ROWS:
            self._write()

    def close(self) -> None:
        """Write the rest."""
        self._write()
        self._writer.close()

    def _write(self) -> None:
        rows, self._rows = self._rows, []
        columns = [pa.array([row[field.name] for row in rows], type=field.type) for field in TRUTH_SCHEMA]
        self._writer.write_table(pa.table(columns, schema=TRUTH_SCHEMA))


def row_of(prompt: Prompt) -> dict[str, Any]:
    """The row of one prompt, TRUTH_SCHEMA."""
    root, engine = prompt.root, prompt.engine
    assert root is not None
    ledger = prompt.ledger
    ttft = ledger.ttft_ns if prompt.streaming else None
    parts = ledger.parts() if ttft is not None else None
    seen, gaps_source = prompt.seen, prompt.gaps_source
    decode_ns = None
    if prompt.told is not None:
        seen, gaps_source = _still_seen(prompt)
        made = prompt.engine_seen
        decode_ns = made.last_ns - made.first_ns if made is not None else None
    elif seen is None:
        seen, gaps_source = prompt.engine_seen, "engine" if prompt.engine_seen is not None else ""
    gaps = np.diff(seen.at_ns) if seen is not None else np.zeros(0, dtype=np.int64)
    offset = None
    if engine is not None and engine.host is not root.host:
        begun = prompt.begun_ns
        offset = engine.host.clock.read(begun, begun) - root.host.clock.read(begun, begun)
    output = _output_tokens(prompt)
    row = {
        "prompt_id": prompt.span_id.hex(),
        "trace_id": prompt.trace.hex(),
        "ids": [span.id.hex() for span in prompt.spans if span.kind in (CLIENT, SERVER)],
        "topology": prompt.topology,
        "start": prompt.begun_ns,
        "e2e_ns": prompt.ended_ns - prompt.begun_ns,
        "status": prompt.status.value,
        "model": prompt.reached or prompt.request_model,
        "request_model": prompt.request_model,
        "operation": prompt.operation,
        "streaming": prompt.streaming,
        "choices": len(prompt.outputs) or 1,
        "attempts": prompt.calls,
        "retry_ns": ledger.retry_ns,
        "ttft_ns": ttft,
        "ttft_source": ledger.source if ttft is not None else "",
        "ttft_engine_ns": prompt.engine_ns,
        **{f"ttft_{part}_ns": parts[part.value] if parts is not None else None for part in Part},
        "input_tokens": prompt.input_tokens if prompt.counted else None,
        "output_tokens": output,
        "cached_tokens": prompt.cached_tokens,
        "first_tokens": int(seen.tokens[0]) if seen is not None else None,
        "gaps_source": gaps_source,
        "gaps_ns": gaps,
        "gap_tokens": seen.tokens[1:] if seen is not None else [],
        "tpot_ns": _tpot(prompt, seen if prompt.told is not None else prompt.seen, gaps, ttft, output, decode_ns),
        **_itl(gaps, seen.tokens[1:] if seen is not None else gaps),
        "stalls": _stalls(gaps) if seen is not None else None,
        "preemptions": prompt.preemptions,
        "hops": [node.service for node in prompt.passed],
        "hosts": [node.host.id for node in prompt.passed],
        "workflow_id": prompt.workflow_id.hex(),
        "conversation_id": prompt.conversation_id,
        "agent_name": prompt.agent_name,
        "clock_offset_ns": offset,
        "spans": len(prompt.spans),
        "whole": prompt.whole,
    }
    return row | (prompt.told or {})


def _still_seen(prompt: Prompt) -> tuple[Deliveries | None, str]:
    """Deliveries at the outermost hop whose spans still say them, and which hop that is."""
    for span in prompt.spans:
        if span.found is not None and len(span.found):
            if span.node is prompt.engine:
                return span.found, "engine"
            return span.found, "client" if span.node is prompt.root and prompt.topology != "headless" else (
                "router" if span.node.service == "router" else "gateway"
            )
    return None, ""


def _output_tokens(prompt: Prompt) -> int | None:
    """What was answered; of an answer cut short, what was delivered to somebody outside of the engine."""
    if not prompt.chat:
        return None
    if prompt.status in (Status.OK, Status.BLOCKED):
        return sum(prompt.outputs)
    if prompt.status in _ABORTED:
        counted = prompt.seen is not None and prompt.gaps_source != "engine"
        return prompt.seen.total() if counted and prompt.seen is not None else None
    return prompt.generated or None


def _tpot(
    prompt: Prompt, seen: Deliveries | None, gaps: Ints, ttft: int | None, output: int | None, decode_ns: int | None
) -> int | None:
    """(last - first) / (N - 1), N the tokens of the choice that was delivered first.

    decode_ns: first to last token in the engine, which counts where nobody's deliveries are told.
    """
    if ttft is None or (seen is None and decode_ns is None):
        return None
    count = output if output is not None and len(prompt.outputs) == 1 else seen.total() if seen is not None else 0
    if count < 2:
        return None
    length = int(gaps.sum()) if seen is not None else decode_ns or 0
    return round(length / (count - 1))


def _itl(gaps: Ints, tokens: Ints) -> dict[str, int | None]:
    """Latencies between tokens: k tokens in one gap are k samples of a k-th of it."""
    samples = np.repeat(gaps / np.maximum(tokens, 1), tokens)
    if not len(samples):
        return {f"itl_{name}_ns": None for name in _ITL}
    return {f"itl_{name}_ns": round(float(np.quantile(samples, wanted))) for name, wanted in _ITL.items()}


def _stalls(gaps: Ints) -> int:
    if not len(gaps):
        return 0
    return int(np.count_nonzero(gaps > max(_STALL_FACTOR * float(np.median(gaps)), _STALL_MIN_NS)))


def write_clocks(path: Path, stack: Stack, scenario: Scenario, end_ns: int) -> None:
    """`clocks.parquet`: `host` (its id), `host_name`, `at` (true time), `offset_ns` (its clock minus true time)."""
    times = range(scenario.start_ns, end_ns + _CLOCK_EVERY_NS, _CLOCK_EVERY_NS)
    rows = [(host.id, host.name, at, host.clock.read(at, at) - at) for host in stack.hosts for at in times]
    table = pa.table(
        {
            "host": pa.array([row[0] for row in rows], pa.string()),
            "host_name": pa.array([row[1] for row in rows], pa.string()),
            "at": pa.array([row[2] for row in rows], _time),
            "offset_ns": pa.array([row[3] for row in rows], pa.int64()),
        }
    )
    pq.write_table(table, path, compression="zstd")
