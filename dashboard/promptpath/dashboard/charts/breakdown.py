"""What a TTFT was made of: over time as stacked medians, and for one prompt as one bar."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import altair as alt

from promptpath.dashboard import format as fmt
from promptpath.dashboard.charts import base
from promptpath.dashboard.theme import PART_COLOR, Ink
from promptpath.semconv import Part

PARTS = tuple(part.value for part in Part)
COLORS = {part.value: PART_COLOR[part] for part in Part}


def over_time(rows: Sequence[base.Row], buckets: base.Buckets, *, ink: Ink, height: int = 220) -> base.Chart:
    """The median of each part per bucket, stacked. `rows`: `bucket`, one field a part [ns or None], `ttft_p50`."""
    largest = max((sum(row[part] or 0 for part in PARTS) for row in rows), default=0)
    divisor, unit = fmt.axis_unit(largest)
    pieces: list[base.Row] = []
    bands: list[base.Row] = []
    for row in rows:
        bucket = int(row["bucket"])
        start, end = buckets.start_ms(bucket), buckets.end_ms(bucket)
        if end <= start or row["ttft_p50"] is None:
            continue
        pieces += [
            {"start_ms": start, "end_ms": end, "part": part, "value": (row[part] or 0) / divisor} for part in PARTS
        ]
        texts = {part: fmt.duration(row[part]) for part in PARTS}
        bands.append({"start_ms": start, "end_ms": end, "TTFT": fmt.duration(row["ttft_p50"]), **texts})
    data = base.frame(base.stacked(pieces, PARTS, "value", "part"), ["start_ms", "end_ms", "part", "low", "high"])
    bars = (
        alt.Chart(data)
        .mark_rect(clip=True)
        .encode(
            x=base.time_axis(buckets),
            x2="end_ms",
            y=base.value_axis("low", unit),
            y2="high:Q",
            color=base.color_by("part", COLORS),
        )
    )
    tooltip = [
        alt.Tooltip("start_ms:T", title="from", format="%H:%M:%S"),
        alt.Tooltip("TTFT:N", title="TTFT, median"),
        *[alt.Tooltip(f"{part}:N", title=part) for part in PARTS],
    ]
    return base.finish(bars + base.hover_bands(bands, buckets, tooltip, ink.surface), height=height)


def bar(parts: Mapping[str, int], ttft_ns: int, *, ink: Ink, height: int = 84) -> base.Chart:
    """One prompt's TTFT as one bar from 0 to the TTFT. `parts`: ns by part; what is 0 has no piece."""
    divisor, unit = fmt.axis_unit(ttft_ns)
    rows: list[base.Row] = []
    low = 0
    for part in PARTS:
        ns = parts.get(part) or 0
        if ns > 0:
            share = ns / ttft_ns if ttft_ns else 0.0
            rows.append(
                {
                    "part": part,
                    "low": low / divisor,
                    "high": (low + ns) / divisor,
                    "middle": (low + ns / 2) / divisor,
                    "duration": fmt.duration(ns),
                    "share": fmt.percent(share),
                    # A label only where the piece is wide enough to hold it.
                    "label": f"{part} {share * 100:.0f} %" if share >= 0.11 else "",
                }
            )
        low += ns
    columns = ["part", "low", "high", "middle", "duration", "share", "label"]
    data = base.frame(rows, columns)
    x = alt.X(
        "low:Q",
        scale=alt.Scale(domain=[0, ttft_ns / divisor if ttft_ns else 1], nice=False),
        axis=alt.Axis(title=None, grid=False, tickCount=8, labelExpr=f"datum.label + ' {unit}'"),
    )
    pieces = (
        alt.Chart(data)
        .mark_bar(height=30, stroke=ink.surface, strokeWidth=1)
        .encode(
            x=x,
            x2="high:Q",
            color=base.color_by("part", {part: COLORS[part] for part in PARTS if (parts.get(part) or 0) > 0}),
            tooltip=[alt.Tooltip("part:N"), alt.Tooltip("duration:N"), alt.Tooltip("share:N", title="share of TTFT")],
        )
    )
    labels = (
        alt.Chart(data).mark_text(fontSize=11, color="#10161d", limit=160).encode(x=alt.X("middle:Q"), text="label:N")
    )
    return base.finish(pieces + labels, height=height)
