"""Assembled prompts beside the truth: what is missing, doubled or wrong, and by how much."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from promptpath.collector.simulate.deliveries import Ints
from promptpath.semconv import Part

Bools = npt.NDArray[np.bool_]

#: How far a part of a TTFT may be off: the larger of the two, the second of the TTFT.
TOLERANCE_NS: Final = 500_000
TOLERANCE_SHARE: Final = 0.005
_NONE: Final = np.iinfo(np.int64).min
_PARTS: Final = tuple(f"ttft_{part}_ns" for part in Part)
#: Columns that must be equal, in the truth and in `prompts` alike.
_EQUAL: Final = (
    "status", "model", "request_model", "operation", "attempts", "ttft_source", "gaps_source", "output_tokens",
    "input_tokens", "first_tokens", "gap_tokens", "preemptions", "workflow_id", "conversation_id", "agent_name", "hops",
    "hosts",
)  # fmt: skip
#: Columns of durations, within the tolerance.
_CLOSE: Final = (
    "e2e_ns", "ttft_ns", *_PARTS, "retry_ns", "tpot_ns", "ttft_engine_ns", "itl_p50_ns", "itl_p99_ns", "itl_max_ns",
)  # fmt: skip


@dataclass
class Verdict:
    """What the comparison found. Lists hold prompt ids of the truth.

    prompts, whole: how many there are, and of which all spans were sent. missing, doubled, strange: prompts without a
    row, with several, and rows that are no prompt's. not_summing: rows whose parts do not add up to their TTFT. wrong:
    per column, whole prompts that differ. worst_ns: per duration, the largest error among whole prompts. parts_wrong:
    whole prompts any part of which is off. offsets, offsets_wrong: clock offsets told, and those beyond their own
    error bound.
    """

    prompts: int
    whole: int
    missing: list[str]
    doubled: list[str]
    strange: list[str]
    not_summing: list[str]
    wrong: dict[str, list[str]] = field(default_factory=dict)
    worst_ns: dict[str, int] = field(default_factory=dict)
    parts_wrong: list[str] = field(default_factory=list)
    offsets: int = 0
    offsets_wrong: int = 0

    def figures(self) -> dict[str, Any]:
        """Numbers only."""
        whole = max(self.whole, 1)
        return {
            "prompts": self.prompts,
            "whole": self.whole,
            "missing": len(self.missing),
            "doubled": len(self.doubled),
            "strange": len(self.strange),
            "not_summing": len(self.not_summing),
            "parts_right": round(1 - len(self.parts_wrong) / whole, 6),
            "offsets": self.offsets,
            "offsets_right": round(1 - self.offsets_wrong / max(self.offsets, 1), 6),
            "wrong": {name: len(ids) for name, ids in self.wrong.items() if ids},
            "worst_ms": {name: round(value / 1e6, 3) for name, value in self.worst_ns.items()},
        }


def judge(truth: pa.Table, prompts: pa.Table) -> Verdict:
    """Compare rows of `truth.parquet` with rows of `prompts`."""
    rows, missing, doubled, strange = _match(truth, prompts)
    found = rows >= 0
    true, told = truth.filter(pa.array(found)), prompts.take(pa.array(rows[found]))
    ids = true["prompt_id"].to_pylist()
    whole = true["whole"].to_numpy(zero_copy_only=False).astype(np.bool_)

    def names(wrong: Bools) -> list[str]:
        return [ids[index] for index in np.flatnonzero(wrong)]

    ttft = _ints(prompts, "ttft_ns")
    sums = np.sum([np.where(ttft == _NONE, 0, _ints(prompts, name)) for name in _PARTS], axis=0)
    apart = np.flatnonzero((ttft != _NONE) & (sums != ttft))
    verdict = Verdict(
        prompts=truth.num_rows,
        whole=int(whole.sum()),
        missing=missing,
        doubled=doubled,
        strange=strange,
        not_summing=prompts["prompt_id"].take(pa.array(apart)).to_pylist(),
    )
    allowed = np.maximum(TOLERANCE_NS, np.maximum(_ints(true, "ttft_ns"), 0) * TOLERANCE_SHARE)
    parts_wrong = np.zeros(len(ids), dtype=np.bool_)
    for name in _CLOSE:
        off, differ = _differences(true, told, name)
        bound = np.maximum(allowed, np.abs(_ints(true, name)) * TOLERANCE_SHARE) if name not in _PARTS else allowed
        wrong = whole & (differ | (off > bound))
        verdict.worst_ns[name] = int(off[whole].max(initial=0))
        verdict.wrong[name] = names(wrong)
        if name in _PARTS:
            parts_wrong |= wrong
    verdict.parts_wrong = names(parts_wrong)
    for name in _EQUAL:
        verdict.wrong[name] = names(whole & _unequal(true[name], told[name]))
    verdict.wrong["streaming"] = names(whole & _unequal(true["streaming"], told["streaming"]))
    verdict.wrong["stalls"] = names(whole & _unequal(true["stalls"], told["stalls"]))
    verdict.wrong["gaps"] = names(whole & _gaps_differ(true, told))
    _offsets(verdict, true, told)
    return verdict


def _match(truth: pa.Table, prompts: pa.Table) -> tuple[Ints, list[str], list[str], list[str]]:
    """The row of `prompts` for each row of the truth, -1 for none; missing, doubled and strange ids."""
    owner: dict[str, int] = {}
    for index, ids in enumerate(truth["ids"].to_pylist()):
        for one in ids:
            owner[one] = index
    exact = truth["prompt_id"].to_pylist()
    rows = np.full(truth.num_rows, -1, dtype=np.int64)
    doubled: set[str] = set()
    strange: list[str] = []
    for row, prompt_id in enumerate(prompts["prompt_id"].to_pylist()):
        index = owner.get(prompt_id, -1)
        if index < 0:
            strange.append(prompt_id)
            continue
        if rows[index] >= 0:
            doubled.add(exact[index])
        if rows[index] < 0 or prompt_id == exact[index]:
            rows[index] = row
    missing = [exact[index] for index in np.flatnonzero(rows < 0)]
    return rows, missing, sorted(doubled), strange


def _ints(table: pa.Table, name: str) -> Ints:
    """An integer column, its least value where it is null."""
    column = table[name].cast(pa.int64()).fill_null(_NONE)
    values: Ints = column.combine_chunks().to_numpy(zero_copy_only=False)
    return values


def _differences(true: pa.Table, told: pa.Table, name: str) -> tuple[Ints, Bools]:
    """Absolute differences, 0 where one is null; and where only one is null."""
    ours, theirs = _ints(true, name), _ints(told, name)
    both = (ours != _NONE) & (theirs != _NONE)
    off = np.where(both, np.abs(np.where(both, ours, 0) - np.where(both, theirs, 0)), 0)
    return off, (ours == _NONE) != (theirs == _NONE)


def _unequal(ours: pa.ChunkedArray, theirs: pa.ChunkedArray) -> Bools:
    return np.array(
        [one != other for one, other in zip(ours.to_pylist(), theirs.to_pylist(), strict=True)], dtype=np.bool_
    )


def _gaps_differ(true: pa.Table, told: pa.Table) -> Bools:
    """Where the gaps are not as many, or one is further off than rounding and drift explain (3 µs and 0.1 %)."""
    wrong = np.zeros(true.num_rows, dtype=np.bool_)
    for index, (ours, theirs) in enumerate(zip(true["gaps_ns"].to_pylist(), told["gaps_us"].to_pylist(), strict=True)):
        if len(ours) != len(theirs):
            wrong[index] = True
            continue
        gaps = np.array(ours, dtype=np.float64)
        wrong[index] = bool((np.abs(gaps - np.array(theirs, dtype=np.float64) * 1e3) > 3000 + gaps * 1e-3).any())
    return wrong


def _offsets(verdict: Verdict, true: pa.Table, told: pa.Table) -> None:
    offset, error, truth = (
        _ints(told, "clock_offset_ns"),
        _ints(told, "clock_error_ns"),
        _ints(true, "clock_offset_ns"),
    )
    whole = true["whole"].to_numpy(zero_copy_only=False).astype(np.bool_)
    known = whole & (offset != _NONE) & (error != _NONE) & (truth != _NONE)
    verdict.offsets = int(known.sum())
    verdict.offsets_wrong = int((np.abs(offset[known] - truth[known]) > error[known]).sum())
