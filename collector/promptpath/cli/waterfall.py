"""A prompt's waterfall on a terminal: who it is, what its TTFT was made of, every stage on one time axis, its tokens.

Pure: from a row of `prompts` (a dict; `segments` as its parallel arrays) to styled lines. Solid bars are the critical
path, the pieces that own their time; light ones are spans that were open while another owned it.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.text import Text

from promptpath.cli.tables import harmless
from promptpath.semconv import STAGE_DOMAIN, Domain, Part, Stage

_DOMAIN_STYLE = {
    Domain.REQUEST_NETWORK: "blue",
    Domain.CONTROL_PLANE: "magenta",
    Domain.CPU: "yellow",
    Domain.GPU: "green",
    Domain.GPU_FABRIC: "cyan",
    Domain.UNKNOWN: "bright_black",
}
_PART_STYLE = {
    Part.NETWORK: "blue",
    Part.GATEWAY: "magenta",
    Part.ROUTER: "bright_magenta",
    Part.TOKENIZE: "yellow",
    Part.QUEUE: "red",
    Part.PREFILL: "green",
    Part.POST: "bright_yellow",
    Part.STREAM: "cyan",
    Part.UNATTRIBUTED: "bright_black",
}
#: A gap is a stall over both (design, section 2).
_STALL_MEDIANS = 4
_STALL_US = 50_000
_LABEL_WIDTH_MAX = 34
_TIMES_WIDTH = 22


@dataclass(frozen=True, slots=True)
class Glyphs:
    """The characters that bars are made of."""

    solid: str
    light: str
    mark: str
    spark: str
    arrow: str
    dot: str
    dash: str


UNICODE = Glyphs(solid="█", light="░", mark="│", spark="▁▂▃▄▅▆▇█", arrow="→", dot="·", dash="–")
ASCII = Glyphs(solid="#", light="-", mark="|", spark="_.,:;+*#", arrow=">", dot="|", dash="-")


@dataclass(slots=True)
class Bar:
    """One span: its pieces as (start, duration, critical), relative to the prompt's start, in ns."""

    stage: str
    hop: str
    span_id: str
    pieces: list[tuple[int, int, bool]] = field(default_factory=list)

    @property
    def start_ns(self) -> int:
        """When it began."""
        return min(start for start, _, _ in self.pieces)

    @property
    def end_ns(self) -> int:
        """When it ended."""
        return max(start + duration for start, duration, _ in self.pieces)

    @property
    def own_ns(self) -> int:
        """How much of the critical path is its own."""
        return sum(duration for _, duration, critical in self.pieces if critical)


def render(
    row: Mapping[str, Any],
    *,
    width: int,
    glyphs: Glyphs = UNICODE,
    names: Mapping[str, str] | None = None,
    to_first_token: bool = False,
) -> list[Text]:
    """The lines of a prompt's waterfall.

    Args:
        row: a row of `prompts`.
        width: characters to a line.
        glyphs: `UNICODE` or `ASCII`.
        names: span names by span id, where known; else stages are shown.
        to_first_token: end the axis at the first token instead of the last byte.
    """
    width = max(60, width)
    row = {name: _harmless(value) for name, value in row.items()}
    names = {span_id: _harmless(name) for span_id, name in (names or {}).items()}
    lines = [*_header(row, width, glyphs), Text()]
    lines += _breakdown(row, width, glyphs)
    lines += _waterfall(row, width, glyphs, names, to_first_token)
    lines += _tokens(row, width, glyphs)
    for line in lines:
        line.truncate(width)
    return lines


def _harmless(value: Any) -> Any:
    """Texts of a row, and lists of them, on one line and without commands to the terminal."""
    if isinstance(value, str):
        return " ".join(harmless(value).split())
    if isinstance(value, list) and value and isinstance(value[0], str):
        return [_harmless(text) for text in value]
    return value


def duration(ns: int | None, glyphs: Glyphs = UNICODE) -> str:
    """A duration to three digits in the unit that fits; a dash for null."""
    if ns is None:
        return glyphs.dash
    if ns == 0:
        return "0"
    micro = "µs" if glyphs is UNICODE else "us"
    for limit, scale, unit in ((999_500, 1e3, micro), (999_500_000, 1e6, "ms")):
        if abs(ns) < limit:
            return f"{_three(ns / scale)} {unit}"
    return f"{_three(ns / 1e9)} s"


def _three(value: float) -> str:
    return f"{value:.{2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0}f}"


def _header(row: Mapping[str, Any], width: int, glyphs: Glyphs) -> list[Text]:
    dot = f"  {glyphs.dot}  "
    ok = row["status"] == "ok"
    title = Text.assemble(
        ("prompt ", "bold"), (row["prompt_id"], "bold"), dot, (row["model"] or "unknown model", "bold"), dot
    )
    title.append(row["status"], "green" if ok else "red")
    if row["error_type"]:
        title.append(f" ({row['error_type']})")
    if row["finish_reason"]:
        title.append(f"{dot}{row['finish_reason']}")
    who = [f"trace {row['trace_id']}", f"{row['start_time']:%Y-%m-%d %H:%M:%S.%f}"[:-3] + " UTC", row["service"]]
    who += [f"tenant {row['tenant']}"] if row["tenant"] else []
    if row["request_model"] and row["request_model"] != row["model"]:
        who.append(f"asked for {row['request_model']}")
    if row["agent_name"]:
        who.append(f"agent {row['agent_name']}")
    tokens = f"tokens {_count(row['input_tokens'], glyphs)} in, {_count(row['output_tokens'], glyphs)} out"
    figures = [
        tokens + (f", {row['cached_tokens']} cached" if row["cached_tokens"] else ""),
        f"TTFT {duration(row['ttft_ns'], glyphs)}"
        + (f" (seen by the {row['ttft_source']})" if row["ttft_source"] else ""),
        f"E2E {duration(row['e2e_ns'], glyphs)}",
        f"TPOT {duration(row['tpot_ns'], glyphs)}",
    ]
    if row["attempts"] > 1 or row["retry_ns"]:
        figures.append(f"{row['attempts']} attempts, {duration(row['retry_ns'], glyphs)} in retries")
    return [
        title,
        *_wrapped([Text(entry, "dim") for entry in who if entry], width, dot),
        *_wrapped([Text(entry) for entry in figures], width, dot),
    ]


def _count(value: int | None, glyphs: Glyphs) -> str:
    return glyphs.dash if value is None else str(value)


def _breakdown(row: Mapping[str, Any], width: int, glyphs: Glyphs) -> list[Text]:
    ttft_ns = row["ttft_ns"]
    if ttft_ns is None:
        why = "not streamed" if row["streaming"] is False else "no first token was seen"
        return [Text(f"no time to first token: {why}", "dim"), Text()]
    parts = [(part, int(row[f"ttft_{part}_ns"] or 0)) for part in Part]
    bar = Text()
    for (part, _), cells in zip(parts, _shares([ns for _, ns in parts], width), strict=True):
        bar.append(_part_glyph(part, glyphs) * cells, _PART_STYLE[part])
    entries = []
    for part, ns in parts:
        entry = Text()
        style = _PART_STYLE[part] if ns else "dim"
        entry.append(f"{_part_glyph(part, glyphs)} ", style)
        entry.append(f"{part} {duration(ns, glyphs)} {_percent(ns, ttft_ns)}", "" if ns else "dim")
        entries.append(entry)
    return [Text(f"time to first token {duration(ttft_ns, glyphs)}", "bold"), bar, *_wrapped(entries, width), Text()]


def _part_glyph(part: Part, glyphs: Glyphs) -> str:
    """A block, or without colours a letter of its own, which tells it from its neighbours."""
    if glyphs is UNICODE:
        return glyphs.solid
    return "F" if part is Part.PREFILL else part.value[0].upper()


def _percent(ns: int, of_ns: int) -> str:
    share = 100 * ns / of_ns if of_ns else 0.0
    return f"{share:.0f} %" if share >= 1 or not ns else "<1 %"


def _shares(values: Sequence[int], cells: int) -> list[int]:
    """Cells for each value, in proportion; they add up to `cells`, and whatever is not 0 gets one."""
    total = sum(values)
    if total <= 0:
        return [0] * len(values)
    out = [max(1, value * cells // total) if value > 0 else 0 for value in values]
    order = sorted(range(len(values)), key=lambda at: values[at], reverse=True)
    out[order[0]] += cells - sum(out)
    return out


def _wrapped(entries: Sequence[Text], width: int, between: str = "   ") -> list[Text]:
    """Entries one after the other, on as many lines as they need."""
    lines: list[Text] = []
    for entry in entries:
        if lines and lines[-1].cell_len + len(between) + entry.cell_len <= width:
            lines[-1].append(between, "dim").append_text(entry)
        else:
            lines.append(Text().append_text(entry))
    return lines


def bars(row: Mapping[str, Any]) -> list[Bar]:
    """The spans of a prompt from its segments, those of a hop together, in the order in which the prompt passed."""
    found: dict[str, Bar] = {}
    columns = [row[f"segments.{name}"] for name in ("stage", "hop", "span_id", "start_ns", "duration_ns", "critical")]
    own_time = (Stage.TRANSIT, Stage.UNATTRIBUTED)
    for stage, hop, span_id, start_ns, duration_ns, critical in zip(*columns, strict=True):
        bar = found.setdefault(span_id, Bar(stage, hop, span_id))
        # A span's own time may be called transit or unattributed; the rest of it says what the span is.
        if bar.stage in own_time and stage not in own_time:
            bar.stage = stage
        bar.pieces.append((int(start_ns), int(duration_ns), bool(critical)))
    place = {hop: at for at, hop in reversed(list(enumerate(row["hops"])))}
    return sorted(found.values(), key=lambda bar: (place.get(bar.hop, len(place)), bar.start_ns, -bar.end_ns))


def _waterfall(
    row: Mapping[str, Any], width: int, glyphs: Glyphs, names: Mapping[str, str], to_first_token: bool
) -> list[Text]:
    drawn = bars(row)
    ttft_ns = row["ttft_ns"]
    end_ns = (
        ttft_ns if to_first_token and ttft_ns else max([int(row["e2e_ns"] or 0), *(bar.end_ns for bar in drawn), 1])
    )
    drawn = [bar for bar in drawn if bar.start_ns < end_ns]
    if not drawn:
        return []
    label_width = min(_LABEL_WIDTH_MAX, max(12, width // 4))
    cells = width - label_width - _TIMES_WIDTH - 2
    lines = [_axis(label_width, cells, end_ns, ttft_ns, glyphs)]
    hop = None
    depth = {name: at for at, name in reversed(list(enumerate(row["hops"])))}
    hosts = dict(zip(row["hops"], row["hosts"], strict=False))
    several_hosts = len(set(row["hosts"])) > 1
    for bar in drawn:
        indent = "  " * depth.get(bar.hop, 0)
        if bar.hop != hop:
            hop = bar.hop
            title = Text(_fit(indent + (hop or "unknown"), label_width), "bold")
            if several_hosts and hosts.get(hop):
                title.append(f" on {hosts[hop]}", "dim")
            lines.append(title)
        lines.append(_bar_line(bar, indent, names.get(bar.span_id, ""), label_width, cells, end_ns, glyphs))
    legend = f"{glyphs.solid} its own time   {glyphs.light} open, while another has the time"
    lines += [Text(" " * (label_width + 1) + legend, "dim"), Text()]
    return lines


def _axis(label_width: int, cells: int, end_ns: int, ttft_ns: int | None, glyphs: Glyphs) -> Text:
    axis = [" "] * (cells + 1)
    texts = [(0, "0"), (cells, duration(end_ns, glyphs))]
    if ttft_ns is not None and ttft_ns < end_ns:
        texts.insert(1, (ttft_ns * cells // end_ns, f"{glyphs.mark} first token"))
    for at, text in texts:
        start = max(0, min(at, cells + 1 - len(text)))
        if all(axis[i] == " " for i in range(max(0, start - 1), min(len(axis), start + len(text) + 1))):
            axis[start : start + len(text)] = text
    heading = " own".rjust(11) + "start".rjust(11)
    return Text(" " * (label_width + 1) + "".join(axis) + heading, "dim")


def _bar_line(bar: Bar, indent: str, name: str, label_width: int, cells: int, end_ns: int, glyphs: Glyphs) -> Text:
    stage = bar.stage
    label = f"{indent}  {stage}" + (f" {name}" if name and name != stage else "")
    style = _DOMAIN_STYLE[STAGE_DOMAIN[Stage(stage)]] if stage in set(Stage) else _DOMAIN_STYLE[Domain.UNKNOWN]
    painted = [" "] * cells
    for start_ns, duration_ns, critical in sorted(bar.pieces, key=lambda piece: piece[2]):
        first = min(cells - 1, start_ns * cells // end_ns)
        last = min(cells, max(first + 1, -(-(start_ns + duration_ns) * cells // end_ns)))
        glyph = glyphs.solid if critical else glyphs.light
        if start_ns < end_ns:
            painted[first:last] = glyph * (last - first)
    own = duration(bar.own_ns, glyphs) if bar.own_ns else ""
    line = Text(_fit(label, label_width).ljust(label_width) + " ")
    line.append("".join(painted), style)
    line.append(own.rjust(12))
    line.append(duration(bar.start_ns, glyphs).rjust(11), "dim")
    return line


def _fit(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "~"


def _tokens(row: Mapping[str, Any], width: int, glyphs: Glyphs) -> list[Text]:
    gaps = [int(gap) for gap in row["gaps_us"]]
    if not gaps:
        return []
    median = statistics.median(gaps)
    stalls = [at for at, gap in enumerate(gaps) if gap > _STALL_MEDIANS * median and gap > _STALL_US]
    head = Text.assemble(("tokens ", "bold"))
    head.append(
        f"{len(gaps) + 1} deliveries, gaps between them: median {duration(int(median) * 1000, glyphs)}, "
        f"ITL p99 {duration(row['itl_p99_ns'], glyphs)}, longest {duration(max(gaps) * 1000, glyphs)}"
    )
    lines = [head, _sparkline(gaps, set(stalls), width, glyphs)]
    elapsed_us = [0]
    for gap in gaps:
        elapsed_us.append(elapsed_us[-1] + gap)
    if stalls:
        first_ns = int(row["ttft_ns"] or 0)
        told = [
            f"{duration(gaps[at] * 1000, glyphs)} at {duration(first_ns + elapsed_us[at] * 1000, glyphs)}"
            for at in sorted(stalls, key=lambda at: gaps[at], reverse=True)[:3]
        ]
        more = ", ..." if len(stalls) > len(told) else ""
        lines.append(Text(f"stalls {len(stalls)}: " + ", ".join(told) + more, "red"))
    else:
        lines.append(Text("no stalls", "dim"))
    return lines


def _sparkline(gaps: Sequence[int], stalls: set[int], width: int, glyphs: Glyphs) -> Text:
    """A character a gap, or the longest of several where they do not fit."""
    group = -(-len(gaps) // width)
    top = max(gaps) or 1
    line = Text()
    for start in range(0, len(gaps), group):
        some = range(start, min(start + group, len(gaps)))
        level = max(gaps[at] for at in some) * (len(glyphs.spark) - 1) // top
        line.append(glyphs.spark[level], "red" if stalls.intersection(some) else "green")
    return line
