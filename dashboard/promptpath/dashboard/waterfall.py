"""Rows and pieces of a prompt's waterfall: one row a stage span, nested as the calls were. Pure, no I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from promptpath import semconv
from promptpath.dashboard.prompt_view import Prompt, Span, attribute, hops
from promptpath.semconv import Stage

#: Rows and pieces drawn at most; the shortest rows go first, and the page says how many.
ROWS_MAX: Final = 400
PIECES_MAX: Final = 850

#: Stages that are worked out, not emitted: a piece of one of them does not say what its span is.
_DERIVED: Final = frozenset({Stage.TRANSIT.value, Stage.UNATTRIBUTED.value})
#: Stages whose spans have names of their own worth showing.
_NAMED: Final = frozenset({"gateway", "router", "edge", "safety", "structure"})


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of one row, in ns since the prompt's start. `critical`: this span owned the time, not a deeper one."""

    row: int
    stage: str
    start_ns: int
    end_ns: int
    critical: bool


@dataclass(frozen=True, slots=True)
class Row:
    """One stage span. `heading`: it is where the prompt enters a hop."""

    span_id: str
    label: str
    stage: str
    name: str
    hop: str
    host: str
    depth: int
    heading: bool
    failed: str
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class Waterfall:
    """Rows from the top down and the pieces on them. `hidden` rows were too many to draw."""

    rows: tuple[Row, ...]
    pieces: tuple[Piece, ...]
    hidden: int

    @property
    def end_ns(self) -> int:
        """End of the last piece."""
        return max((piece.end_ns for piece in self.pieces), default=0)


def build(prompt: Prompt, spans: Sequence[Span]) -> Waterfall:
    """Nest the prompt's segments by the spans' parents, children in the order they began.

    A span whose parent has no row hangs under its nearest ancestor that has one. Where the raw spans are gone (they may
    expire before the prompt's row), the rows stand flat in the order they began.
    """
    pieces = _pieces(prompt)
    raw = {str(span["SpanId"]): span for span in spans}
    parents = {span_id: str(span["ParentSpanId"]) for span_id, span in raw.items()}
    starts = {span_id: min(piece.start_ns for piece in group) for span_id, group in pieces.items()}
    ends = {span_id: max(piece.end_ns for piece in group) for span_id, group in pieces.items()}
    hop_of = _hops_of_spans(prompt)
    root = str(prompt["root_span_id"])

    children: dict[str | None, list[str]] = {}
    above: dict[str, str | None] = {}
    for span_id in pieces:
        above[span_id] = None if span_id == root else _row_above(span_id, parents, pieces)
        children.setdefault(above[span_id], []).append(span_id)
    order = _depth_first(children, starts, ends)
    kept, hidden = _fit(order, pieces, above)
    hosts = {hop.name: hop.host for hop in hops(prompt, spans)}

    rows: list[Row] = []
    drawn: list[Piece] = []
    for span_id, depth in order:
        if span_id not in kept:
            continue
        parent = above[span_id]
        hop = hop_of[span_id]
        stage = _stage_of(pieces[span_id], raw.get(span_id))
        heading = parent is None or hop_of[parent] != hop
        name = str(raw[span_id]["SpanName"]) if span_id in raw else stage
        callee = next((hop_of[child] for child in children.get(span_id, []) if hop_of[child] != hop), "")
        failed = _failure(raw.get(span_id))
        attempt = attribute(raw[span_id], semconv.ATTEMPT) if span_id in raw else ""
        rows.append(
            Row(
                span_id=span_id,
                label=_label(stage, name, hop, callee, attempt, failed, heading=heading),
                stage=stage,
                name=name,
                hop=hop,
                host=hosts.get(hop, ""),
                depth=depth,
                heading=heading,
                failed=failed,
                start_ns=starts[span_id],
                end_ns=ends[span_id],
            )
        )
        row = len(rows) - 1
        drawn += [Piece(row, p.stage, p.start_ns, p.end_ns, p.critical) for p in pieces[span_id]]
    return Waterfall(tuple(rows), tuple(drawn), hidden)


def _pieces(prompt: Prompt) -> dict[str, list[Piece]]:
    """Segments by span, in time, neighbours that differ in nothing joined (but not across the first token)."""
    names = ("stage", "span_id", "start_ns", "duration_ns", "critical")
    columns = [prompt[f"segments.{name}"] for name in names]
    ttft_ns = prompt["ttft_ns"]
    out: dict[str, list[Piece]] = {}
    for stage, span_id, start, length, critical in sorted(zip(*columns, strict=True), key=lambda item: int(item[2])):
        piece = Piece(0, str(stage), int(start), int(start) + int(length), bool(critical))
        group = out.setdefault(str(span_id), [])
        last = group[-1] if group else None
        if (
            last is not None
            and (last.stage, last.critical, last.end_ns) == (piece.stage, piece.critical, piece.start_ns)
            and piece.start_ns != ttft_ns
        ):
            group[-1] = Piece(0, last.stage, last.start_ns, piece.end_ns, last.critical)
        else:
            group.append(piece)
    return out


def _hops_of_spans(prompt: Prompt) -> dict[str, str]:
    return {str(s): str(h) for s, h in zip(prompt["segments.span_id"], prompt["segments.hop"], strict=True)}


def _row_above(span_id: str, parents: Mapping[str, str], pieces: Mapping[str, Any]) -> str | None:
    seen = {span_id}
    parent = parents.get(span_id, "")
    while parent and parent not in seen:
        if parent in pieces:
            return parent
        seen.add(parent)
        parent = parents.get(parent, "")
    return None


def _depth_first(
    children: Mapping[str | None, list[str]], starts: Mapping[str, int], ends: Mapping[str, int]
) -> list[tuple[str, int]]:
    def in_time(span_ids: Sequence[str]) -> list[str]:
        return sorted(span_ids, key=lambda span_id: (starts[span_id], -ends[span_id], span_id))

    out: list[tuple[str, int]] = []
    seen: set[str] = set()
    todo = [(span_id, 0) for span_id in reversed(in_time(children.get(None, [])))]
    while todo:
        span_id, depth = todo.pop()
        seen.add(span_id)
        out.append((span_id, depth))
        todo += [(child, depth + 1) for child in reversed(in_time(children.get(span_id, [])))]
    # Parents that form a circle are reached from no root; their rows are shown all the same.
    out += [(span_id, 0) for span_id in in_time([s for s in starts if s not in seen])]
    return out


def _fit(
    order: Sequence[tuple[str, int]], pieces: Mapping[str, list[Piece]], above: Mapping[str, str | None]
) -> tuple[set[str], int]:
    """The spans to draw: all, or those with the most critical time, then the longest, each with what it hangs under."""
    if len(order) <= ROWS_MAX and sum(len(group) for group in pieces.values()) <= PIECES_MAX:
        return {span_id for span_id, _ in order}, 0

    def weight(span_id: str) -> tuple[int, int]:
        group = pieces[span_id]
        critical = sum(piece.end_ns - piece.start_ns for piece in group if piece.critical)
        return critical, group[-1].end_ns - group[0].start_ns

    kept: set[str] = set()
    drawn = 0
    for span_id in sorted((span_id for span_id, _ in order), key=weight, reverse=True):
        line: list[str] = []
        at: str | None = span_id
        while at is not None and at not in kept and at not in line:
            line.append(at)
            at = above[at]
        more = sum(len(pieces[one]) for one in line)
        if len(kept) + len(line) <= ROWS_MAX and drawn + more <= PIECES_MAX:
            kept.update(line)
            drawn += more
    return kept, len(order) - len(kept)


def _stage_of(pieces: Sequence[Piece], span: Span | None) -> str:
    """The stage of the span itself: of a piece that was not worked out, else the span's own attribute."""
    for piece in pieces:
        if not piece.critical and piece.stage not in _DERIVED:
            return piece.stage
    if span is not None and (said := attribute(span, semconv.STAGE)):
        return said
    return next((piece.stage for piece in pieces if piece.stage not in _DERIVED), pieces[0].stage)


def _failure(span: Span | None) -> str:
    if span is None:
        return ""
    if said := attribute(span, semconv.ERROR_TYPE):
        return said
    return "error" if str(span.get("StatusCode", "")).lower().endswith("error") else ""


def _label(stage: str, name: str, hop: str, callee: str, attempt: str, failed: str, *, heading: bool) -> str:
    if heading:
        label = f"{hop or name} · {stage}"
    elif stage == Stage.CALL.value:
        label = f"call → {callee}" if callee else "call"
        if attempt not in ("", "1") or failed:
            label += f" #{attempt}" if attempt else ""
    else:
        label = name if stage in _NAMED or name == stage else f"{stage} · {name}"
    return f"{label} ✗ {failed}" if failed else label
