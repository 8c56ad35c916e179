"""Holds what the demo's client measured against what is stored."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from promptpath.semconv import Part

#: Below both, a stored TTFT agrees with the client's own.
AGREES_NS = 1_000_000
AGREES_SHARE = 0.01


@dataclass
class Outcome:
    """What came of the comparison; durations in ns."""

    sent: int
    missing: list[dict[str, Any]] = field(default_factory=list)
    surplus: int = 0
    """Rows beyond what was sent."""
    statuses: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How many of (kind of prompt, stored status)."""
    streamed: int = 0
    """Prompts for which the client saw a first token."""
    with_ttft: int = 0
    """Rows that have a TTFT."""
    differences_ns: list[int] = field(default_factory=list)
    """Stored minus measured, where both saw a first token."""
    disagreeing: list[tuple[str, int, int | None]] = field(default_factory=list)
    """(prompt id, measured, stored) where they differ by more than both bounds."""
    unclosed: list[str] = field(default_factory=list)
    """Prompt ids whose parts do not add up to their TTFT exactly."""
    unattributed_shares: list[float] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """Whether every prompt sent has its row, and no other row came up."""
        return not self.missing and not self.surplus


def rows_of_traces(client: Any, trace_ids: Sequence[str]) -> list[dict[str, Any]]:
    """The prompts of some traces, oldest first, without their segments and gaps."""
    parts = ", ".join(f"ttft_{part}_ns" for part in Part)
    table = client.query_arrow(
        "SELECT prompt_id, trace_id, model, request_model, status, streaming, ttft_ns, ttft_source, "
        f"e2e_ns, output_tokens, attempts, retry_ns, hops, {parts} FROM prompts "
        "WHERE trace_id IN {traces:Array(String)} ORDER BY start_time",
        parameters={"traces": list(trace_ids)},
        use_strings=True,
    )
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def compare(records: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]]) -> Outcome:
    """Matches records and rows by trace, and within an agent's trace by order."""
    outcome = Outcome(sent=len(records))
    by_trace: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        by_trace[row["trace_id"]].append(row)
    traces: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for record in records:
        traces[record["trace_id"]].append(record)
    for trace_id, sent in traces.items():
        stored = by_trace[trace_id]
        outcome.surplus += max(0, len(stored) - len(sent))
        sent.sort(key=lambda record: record["order"])
        outcome.missing += [dict(record) for record in sent[len(stored) :]]
        for record, row in zip(sent, stored, strict=False):
            _compare_one(outcome, record, row)
    return outcome


def _compare_one(outcome: Outcome, record: Mapping[str, Any], row: Mapping[str, Any]) -> None:
    outcome.statuses[record["kind"], row["status"]] += 1
    measured, stored = record["ttft_ns"], row["ttft_ns"]
    outcome.streamed += measured is not None
    outcome.with_ttft += stored is not None
    if stored is not None:
        parts = [row[f"ttft_{part}_ns"] or 0 for part in Part]
        if sum(parts) != stored:
            outcome.unclosed.append(row["prompt_id"])
        if stored > 0:
            outcome.unattributed_shares.append((row["ttft_unattributed_ns"] or 0) / stored)
    if measured is None and stored is None:
        return
    if measured is None or stored is None:
        outcome.disagreeing.append((row["prompt_id"], measured, stored))
        return
    difference = stored - measured
    outcome.differences_ns.append(difference)
    if abs(difference) > max(AGREES_NS, AGREES_SHARE * measured):
        outcome.disagreeing.append((row["prompt_id"], measured, stored))


def report(outcome: Outcome) -> list[str]:
    """The comparison in a few lines."""
    kinds = Counter({kind: 0 for kind, _ in outcome.statuses})
    lines = [f"{outcome.sent} prompts sent, {sum(outcome.statuses.values())} of them stored"]
    for kind in kinds:
        told = ", ".join(f"{n} {status}" for (of, status), n in sorted(outcome.statuses.items()) if of == kind)
        lines.append(f"  {kind:<13} {told}")
    if outcome.missing:
        some = ", ".join(f"{record['kind']} in trace {record['trace_id']}" for record in outcome.missing[:5])
        lines.append(f"{len(outcome.missing)} have no row: {some}")
    if outcome.surplus:
        lines.append(f"{outcome.surplus} rows more than prompts were sent")
    lines.append(f"{outcome.streamed} gave a first token, {outcome.with_ttft} rows have a TTFT")
    if outcome.differences_ns:
        sizes = [abs(difference) / 1e6 for difference in outcome.differences_ns]
        lines.append(
            f"TTFT stored against measured by the client: median {statistics.median(sizes):.3f} ms apart, "
            f"at most {max(sizes):.3f} ms; {len(outcome.disagreeing)} differ by more than 1 ms and 1 %"
        )
    if outcome.unattributed_shares:
        lines.append(
            f"unattributed: {100 * statistics.median(outcome.unattributed_shares):.1f} % of the TTFT at the median"
        )
    if outcome.unclosed:
        lines.append(f"the parts of {len(outcome.unclosed)} prompts do not add up: {', '.join(outcome.unclosed[:5])}")
    return lines
