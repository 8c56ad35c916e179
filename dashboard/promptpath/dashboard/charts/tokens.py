"""When each delivery of tokens came and how long it was waited for; stalls stand out."""

from __future__ import annotations

import altair as alt

from promptpath.dashboard import format as fmt
from promptpath.dashboard.charts import base
from promptpath.dashboard.prompt_view import Delivery, TokenTimeline
from promptpath.dashboard.theme import STALL_COLOR, TOKEN_COLOR, Ink

NORMAL, STALL = "gap", "stall"
_LABELLED = 6


def timeline(tokens: TokenTimeline, *, end_ns: int, ink: Ink, height: int = 190) -> base.Chart:
    """Gaps over the time at which the delivery came; where there are too many, each stretch keeps its longest."""
    shown = reduce(tokens.deliveries, base.POINTS_MAX - 50)
    divisor, unit = fmt.axis_unit(max(delivery.gap_us for delivery in shown) * 1000)
    x_divisor, x_unit = fmt.axis_unit(end_ns)
    rows = [
        {
            "at": delivery.at_ns / x_divisor,
            "gap": delivery.gap_us * 1000 / divisor,
            "zero": 0,
            "kind": STALL if delivery.stall else NORMAL,
            "came": fmt.duration(delivery.at_ns),
            "waited": fmt.duration(delivery.gap_us * 1000),
            "tokens": delivery.tokens,
        }
        for delivery in shown
    ]
    data = base.frame(rows, ["at", "gap", "zero", "kind", "came", "waited", "tokens"])
    x = alt.X(
        "at:Q",
        scale=alt.Scale(domain=[0, end_ns / x_divisor], nice=False),
        axis=alt.Axis(title=None, grid=False, tickCount=9, labelExpr=f"datum.label + ' {x_unit}'"),
    )
    y = base.value_axis("gap", unit)
    colors = {NORMAL: TOKEN_COLOR, **({STALL: STALL_COLOR} if tokens.stalls else {})}
    stems = (
        alt.Chart(data)
        .mark_rule(strokeWidth=max(1.0, min(4.0, 600 / max(len(rows), 1))))
        .encode(
            x=x,
            y=y,
            y2="zero:Q",
            color=base.color_by("kind", colors),
            tooltip=[
                alt.Tooltip("came:N", title="came at"),
                alt.Tooltip("waited:N", title="gap before it"),
                alt.Tooltip("tokens:Q"),
                alt.Tooltip("kind:N"),
            ],
        )
    )
    layers = [stems]
    layers += _guide(tokens.median_us, "median", divisor, y, ink, left=True)
    if tokens.stalls:
        layers += _guide(tokens.threshold_us, "stall over", divisor, y, ink, left=False)
    worst = sorted((row for row in rows if row["kind"] == STALL), key=lambda row: -float(str(row["gap"])))[:_LABELLED]
    if worst:
        layers.append(
            alt.Chart(base.frame(worst, ["at", "gap", "waited"]))
            .mark_text(color=STALL_COLOR, baseline="bottom", dy=-3, fontSize=11, fontWeight="bold")
            .encode(x=x, y=y, text="waited:N")
        )
    if tokens.first_ns is not None:
        first = base.frame([{"at": tokens.first_ns / x_divisor, "text": "first token"}], ["at", "text"])
        layers.append(alt.Chart(first).mark_rule(color=ink.text, strokeDash=[4, 3], strokeWidth=1.2).encode(x=x))
    return base.finish(alt.layer(*layers), height=height)


def _guide(us: float, name: str, divisor: int, y: alt.Y, ink: Ink, *, left: bool) -> list[base.Chart]:
    """A dashed line across the chart at a gap's length, named at one of its ends."""
    data = base.frame([{"gap": us * 1000 / divisor, "text": f"{name} {fmt.duration(us * 1000)}"}], ["gap", "text"])
    line = alt.Chart(data).mark_rule(color=ink.muted, strokeDash=[4, 3]).encode(y=y)
    text = alt.Chart(data).mark_text(
        color=ink.muted, align="left" if left else "right", baseline="bottom", dx=4 if left else -4, dy=-2, fontSize=11
    )
    return [line, text.encode(x=alt.value(0 if left else "width"), y=y, text="text:N")]


def reduce(deliveries: tuple[Delivery, ...], most: int) -> tuple[Delivery, ...]:
    """At most so many deliveries: of each run of neighbours the one with the longest gap, so that no stall is lost."""
    if len(deliveries) <= most:
        return deliveries
    run = -(-len(deliveries) // most)
    return tuple(
        max(deliveries[start : start + run], key=lambda delivery: delivery.gap_us)
        for start in range(0, len(deliveries), run)
    )
