"""The waterfall of one prompt: a row a stage span, solid where it was the critical path, light elsewhere."""

from __future__ import annotations

import json

import altair as alt

from promptpath.dashboard import format as fmt
from promptpath.dashboard.charts import base
from promptpath.dashboard.theme import DOMAIN_COLOR, DOMAIN_LABEL, Ink, stage_domain
from promptpath.dashboard.waterfall import Waterfall

LABEL_WIDTH = 250
#: What the legend and the time axis take of a chart's height [px]; the rows need theirs even where they are few.
_LEGEND_AND_AXIS = 52
_LIGHT = 0.26
#: A piece shorter than this part of the view is thinner than about two pixels.
_SEEN_PARTS = 500


def chart(
    waterfall: Waterfall,
    *,
    ttft_ns: int | None,
    view_ns: tuple[int, int],
    deliveries_ns: tuple[int, ...] = (),
    ink: Ink,
) -> base.Chart:
    """Draw a waterfall. `view_ns`: the stretch shown at first; `deliveries_ns`: ticks on the first row, one a delivery.

    Drag moves along the time axis, Ctrl and the wheel (or a pinch) zoom, a double click shows everything again. A bare
    wheel scrolls the page.
    """
    divisor, unit = fmt.axis_unit(view_ns[1] - view_ns[0])
    rows = waterfall.rows
    pieces: list[base.Row] = []
    for piece in waterfall.pieces:
        row = rows[piece.row]
        pieces.append(
            {
                "row": piece.row,
                "start": piece.start_ns / divisor,
                "lasts_ns": piece.end_ns - piece.start_ns,
                "end": piece.end_ns / divisor,
                "domain": DOMAIN_LABEL[stage_domain(piece.stage)],
                "path": "critical path" if piece.critical else "a deeper stage has the time",
                "opacity": 1.0 if piece.critical else _LIGHT,
                "stage": piece.stage,
                "span": row.name,
                "hop": f"{row.hop} on {row.host}" if row.host else row.hop,
                "starts": fmt.duration(piece.start_ns),
                "lasts": fmt.duration(piece.end_ns - piece.start_ns),
                "whole": fmt.duration(row.end_ns - row.start_ns),
                "failed": row.failed or "no",
            }
        )
    columns = [
        "row",
        "start",
        "end",
        "domain",
        "path",
        "opacity",
        "stage",
        "span",
        "hop",
        "starts",
        "lasts",
        "whole",
        "failed",
    ]
    data = base.frame(pieces, columns)
    row_height = 22 if len(rows) <= 40 else 16 if len(rows) <= 120 else 11
    seen = {piece["domain"] for piece in pieces}
    colors = {DOMAIN_LABEL[domain]: DOMAIN_COLOR[domain] for domain in DOMAIN_COLOR if DOMAIN_LABEL[domain] in seen}

    x = alt.X(
        "start:Q",
        scale=alt.Scale(domain=[view_ns[0] / divisor, view_ns[1] / divisor], nice=False, zero=False),
        axis=alt.Axis(
            title=None,
            orient="top",
            tickCount=9,
            labelExpr=f"datum.label + ' {unit}'",
            domain=False,
        ),
    )
    y = _row_axis(waterfall, row_height)
    zoom = alt.selection_interval(
        name="zoom",
        bind="scales",
        encodings=["x"],
        zoom="wheel![event.ctrlKey || event.metaKey]",
        clear="dblclick",
    )
    bars = (
        alt.Chart(data)
        .mark_bar(height={"band": 0.72}, clip=True, minBandSize=1)
        .encode(
            x=x,
            x2="end:Q",
            y=y,
            color=base.color_by("domain", colors),
            opacity=alt.Opacity("opacity:Q", scale=None, legend=None),
            tooltip=[
                alt.Tooltip("stage:N"),
                alt.Tooltip("span:N"),
                alt.Tooltip("hop:N"),
                alt.Tooltip("starts:N", title="starts at"),
                alt.Tooltip("lasts:N", title="lasts"),
                alt.Tooltip("whole:N", title="whole span"),
                alt.Tooltip("path:N"),
                alt.Tooltip("domain:N"),
                alt.Tooltip("failed:N"),
            ],
        )
        .add_params(zoom)
    )
    layers = [bars]
    # At less than a pixel or two a bar cannot be seen: a tick stands where it is, in its colour.
    thin = [piece for piece in pieces if piece["lasts_ns"] < (view_ns[1] - view_ns[0]) / _SEEN_PARTS]
    if thin:
        layers.append(
            alt.Chart(base.frame(thin, ["row", "start", "domain", "opacity"]))
            .mark_tick(thickness=2, height={"band": 0.72}, clip=True, tooltip=None)
            .encode(
                x=x,
                y=y,
                color=base.color_by("domain", colors),
                opacity=alt.Opacity("opacity:Q", scale=None, legend=None),
            )
        )
    if deliveries_ns:
        ticks = base.frame([{"row": 0, "start": at / divisor} for at in deliveries_ns], ["row", "start"])
        layers.append(
            alt.Chart(ticks).mark_tick(color=ink.text, thickness=1, height=8, clip=True, opacity=0.7).encode(x=x, y=y)
        )
    if ttft_ns is not None:
        first = base.frame([{"start": ttft_ns / divisor, "text": "first token"}], ["start", "text"])
        layers.append(
            alt.Chart(first).mark_rule(color=ink.text, strokeDash=[4, 3], strokeWidth=1.2, clip=True).encode(x=x)
        )
        layers.append(
            alt.Chart(first)
            .mark_text(color=ink.text, align="left", baseline="bottom", dx=4, fontSize=11, clip=True)
            .encode(x=x, y=alt.value("height"), text="text:N")
        )
    return base.finish(alt.layer(*layers), height=row_height * max(len(rows), 1) + _LEGEND_AND_AXIS)


def _row_axis(waterfall: Waterfall, row_height: int) -> alt.Y:
    """Rows named by their labels, indented by depth, where a hop begins in bold."""
    # The zero-width space keeps Vega from trimming the indent.
    labels = ["\u200b" + "\u2003" * min(row.depth, 12) + row.label for row in waterfall.rows]
    headings = [position for position, row in enumerate(waterfall.rows) if row.heading]
    weight = alt.condition(f"indexof({headings}, datum.value) >= 0", alt.value("bold"), alt.value("normal"))
    return alt.Y(
        "row:O",
        scale=alt.Scale(domain=list(range(len(labels)))),
        axis=alt.Axis(
            title=None,
            labelExpr=f"{json.dumps(labels)}[datum.value]",
            labelAlign="left",
            labelPadding=LABEL_WIDTH,
            labelLimit=LABEL_WIDTH - 6,
            labelFontSize=12 if row_height > 16 else 10,
            labelFontWeight=weight,
            labelOverlap=False,
            labelFlush=False,
            ticks=False,
            domain=False,
            grid=True,
            gridDash=[1, 3],
            minExtent=LABEL_WIDTH,
            maxExtent=LABEL_WIDTH,
        ),
    )
