"""How TTFTs were spread over time: what percentiles cannot show, such as two populations."""

from __future__ import annotations

import math
from collections.abc import Sequence

import altair as alt

from promptpath.dashboard import format as fmt
from promptpath.dashboard.charts import base
from promptpath.dashboard.theme import Ink

#: Name of the selection that a click on a cell makes; it holds the cell's `start_ms`, `end_ms`, `low_ns`, `high_ns`.
SELECTION = "cell"


def ttft(
    rows: Sequence[base.Row], buckets: base.Buckets, bins_per_decade: int, *, ink: Ink, height: int = 220
) -> base.Chart:
    """Heat map of TTFT on a logarithmic axis. `rows`: `bucket`, `bin` (see `overview.heat`), `prompts`."""
    largest = max((10 ** ((row["bin"] + 1) / bins_per_decade) for row in rows), default=0)
    divisor, unit = fmt.axis_unit(largest)
    cells: list[base.Row] = []
    for row in rows:
        bucket = int(row["bucket"])
        low_ns, high_ns = (10 ** ((row["bin"] + step) / bins_per_decade) for step in (0, 1))
        cells.append(
            {
                "start_ms": buckets.start_ms(bucket),
                "end_ms": buckets.end_ms(bucket),
                "low": low_ns / divisor,
                "high": high_ns / divisor,
                "low_ns": math.floor(low_ns),
                "high_ns": math.ceil(high_ns),
                "range": f"{fmt.duration(low_ns)} to {fmt.duration(high_ns)}",
                "prompts": int(row["prompts"]),
            }
        )
    columns = ["start_ms", "end_ms", "low", "high", "low_ns", "high_ns", "range", "prompts"]
    pick = alt.selection_point(
        name=SELECTION, fields=["start_ms", "end_ms", "low_ns", "high_ns"], on="click", empty=True
    )
    chart = (
        alt.Chart(base.frame(cells, columns))
        .mark_rect(clip=True, cursor="pointer")
        .encode(
            x=base.time_axis(buckets),
            x2="end_ms",
            y=alt.Y(
                "low:Q",
                scale=alt.Scale(type="log", nice=False),
                axis=alt.Axis(
                    title=None,
                    grid=False,
                    values=_ticks(cells),
                    labelExpr=f"datum.label + ' {unit}'",
                    minExtent=base.Y_EXTENT,
                ),
            ),
            y2="high:Q",
            color=alt.Color(
                "prompts:Q",
                scale=alt.Scale(type="sqrt", range=list(ink.heat)),
                legend=alt.Legend(
                    orient="top",
                    title="prompts",
                    titleOrient="left",
                    titleFontSize=11,
                    titleFontWeight="normal",
                    gradientLength=140,
                    tickCount=3,
                    tickMinStep=1,
                    format="d",
                ),
            ),
            tooltip=[
                alt.Tooltip("start_ms:T", title="from", format="%H:%M:%S"),
                alt.Tooltip("range:N", title="TTFT"),
                alt.Tooltip("prompts:Q"),
            ],
        )
        .add_params(pick)
    )
    return base.finish(chart, height=height)


def _ticks(cells: Sequence[base.Row]) -> list[float]:
    """1, 2 and 5 times each power of ten that lies within the cells; only the powers where that would be many."""
    if not cells:
        return []
    low, high = min(cell["low"] for cell in cells), max(cell["high"] for cell in cells)
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 2, 5) if len(decades) <= 4 else (1,)
    return [tick for decade in decades for step in steps if low <= (tick := step * 10.0**decade) <= high]
