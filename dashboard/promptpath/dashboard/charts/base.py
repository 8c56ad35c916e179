"""What the charts share: time axes, stacking, hover bands, and the bound on what one chart may send to a browser."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import altair as alt
import pandas as pd

#: Room for the labels of a y axis, so that charts above each other share their time axis. Pixels.
Y_EXTENT: Final = 48
#: About the most marks that one chart sends to the browser.
POINTS_MAX: Final = 2_000

_TICK_STEPS_S: Final = (
    1,
    2,
    5,
    10,
    15,
    30,
    60,
    120,
    300,
    600,
    900,
    1_800,
    3_600,
    7_200,
    10_800,
    21_600,
    43_200,
    86_400,
)

Chart = Any
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Buckets:
    """Time cut into equal buckets from `since_ns` on; the last one may reach past `until_ns`. Unix nanoseconds.

    `offset_s` is how far the viewer's clocks are ahead of UTC, for ticks at round times.
    """

    since_ns: int
    until_ns: int
    step_ns: int
    offset_s: int = 0

    @property
    def count(self) -> int:
        """Number of buckets."""
        return max(1, -(-(self.until_ns - self.since_ns) // self.step_ns))

    def start_ms(self, bucket: int) -> float:
        """Start of a bucket in Unix milliseconds, the unit of Vega's time."""
        return (self.since_ns + bucket * self.step_ns) / 1e6

    def end_ms(self, bucket: int) -> float:
        """End of a bucket in Unix milliseconds, not past the end of the range."""
        return min(self.since_ns + (bucket + 1) * self.step_ns, self.until_ns) / 1e6

    def seconds(self, bucket: int) -> float:
        """Length of a bucket within the range, for rates."""
        return (self.end_ms(bucket) - self.start_ms(bucket)) / 1e3


def frame(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> pd.DataFrame:
    """Rows as a data frame that has its columns even where there are no rows."""
    out = pd.DataFrame.from_records([dict(row) for row in rows], columns=list(columns))
    # Altair cannot tell the type of a column without values.
    return out if rows else out.astype(float)


def time_axis(buckets: Buckets, field: str = "start_ms") -> alt.X:
    """The x axis of a chart over time: the whole range, labelled in the viewer's zone.

    A plain number axis with ticks of our own: Vega-Lite reads the ends of a temporal one twice, for x and x2, and
    warns.
    """
    ticks = time_ticks(buckets)
    axis = alt.Axis(
        title=None,
        grid=False,
        values=ticks,
        labelExpr=f"timeFormat(datum.value, '{_time_pattern(ticks)}')",
        labelOverlap=True,
    )
    domain = [buckets.since_ns / 1e6, buckets.until_ns / 1e6]
    return alt.X(f"{field}:Q", scale=alt.Scale(domain=domain, nice=False, zero=False), axis=axis)


def time_ticks(buckets: Buckets) -> list[int]:
    """Round moments within the range in Unix ms, at most eight, round in the viewer's zone."""
    span_s = (buckets.until_ns - buckets.since_ns) / 1e9
    step_s = next((step for step in _TICK_STEPS_S if span_s / step <= 8), -(-int(span_s) // (8 * 86_400)) * 86_400)
    offset_s = buckets.offset_s
    first = -(-(buckets.since_ns // 10**9 + offset_s) // step_s) * step_s - offset_s
    return [second * 1000 for second in range(first, buckets.until_ns // 10**9 + 1, step_s)]


def _time_pattern(ticks: Sequence[int]) -> str:
    """How ticks are written: as little as tells them apart, the date where they reach over midnights."""
    step_ms = ticks[1] - ticks[0] if len(ticks) > 1 else 60_000
    if step_ms % 86_400_000 == 0:
        return "%b %d"
    if len(ticks) > 1 and ticks[-1] - ticks[0] > 36 * 3_600_000:
        return "%b %d %H:%M"
    return "%H:%M" if step_ms % 60_000 == 0 else "%H:%M:%S"


def value_axis(field: str, unit: str) -> alt.Y:
    """A y axis from zero on, its labels with the unit (none where that is empty)."""
    label = f"datum.label + ' {unit}'" if unit else "datum.label"
    axis = alt.Axis(title=None, tickCount=5, labelExpr=label, minExtent=Y_EXTENT)
    return alt.Y(f"{field}:Q", scale=alt.Scale(zero=True, nice=True), axis=axis)


def hover_bands(rows: Sequence[Row], buckets: Buckets, tooltip: Sequence[alt.Tooltip], ink_line: str) -> alt.Chart:
    """One unseen band a bucket, as high as the chart, that shows the bucket's figures wherever the pointer is in it."""
    hover = alt.selection_point(on="pointerover", clear="pointerout", fields=["start_ms"], empty=False)
    columns = ["start_ms", "end_ms", *[str(item.shorthand).split(":")[0] for item in tooltip]]
    bands: alt.Chart = (
        alt.Chart(frame(rows, list(dict.fromkeys(columns))))
        .mark_rect(color=ink_line)
        .encode(
            x=time_axis(buckets),
            x2="end_ms",
            opacity=alt.condition(hover, alt.value(0.35), alt.value(0)),
            tooltip=list(tooltip),
        )
        .add_params(hover)
    )
    return bands


def stacked(rows: Sequence[Row], keys: Sequence[str], value: str, key: str) -> list[Row]:
    """Rows stacked per bucket in the order of `keys`: `low` and `high` beside each value; nulls and zeros left out."""
    by_bucket: dict[Any, list[Row]] = {}
    for row in rows:
        by_bucket.setdefault(row["start_ms"], []).append(row)
    rank = {name: position for position, name in enumerate(keys)}
    out: list[Row] = []
    for group in by_bucket.values():
        low = 0.0
        for row in sorted(group, key=lambda item: rank.get(item[key], len(rank))):
            amount = row[value]
            if not amount:
                continue
            out.append({**row, "low": low, "high": low + amount})
            low += amount
    return out


def color_by(field: str, colors: Mapping[str, str], *, legend: bool = True, symbol: str = "square") -> alt.Color:
    """Colour by name, the legend above the chart in the mapping's order. `symbol`: `square`, or `stroke` for lines."""
    scale = alt.Scale(domain=list(colors), range=list(colors.values()))
    shown = (
        alt.Legend(orient="top", title=None, symbolType=symbol, symbolStrokeWidth=2.5, symbolOpacity=1, labelLimit=180)
        if legend
        else None
    )
    return alt.Color(f"{field}:N", scale=scale, sort=list(colors), legend=shown)


def finish(chart: Chart, *, height: int) -> Chart:
    """The look that all charts have: no frame, quiet grid, a fixed height, as wide as its place."""
    return (
        chart.properties(height=height, padding={"left": 2, "top": 4, "right": 6, "bottom": 2})
        .configure_view(strokeWidth=0)
        .configure_axis(
            gridOpacity=0.5, domainOpacity=0.6, labelFontSize=11, titleFontSize=11, titleFontWeight="normal"
        )
        .configure_legend(labelFontSize=11, symbolSize=90, padding=0, offset=6)
    )


def marks(chart: Chart) -> int:
    """How many rows of data a chart sends to the browser."""
    spec: dict[str, Any] = chart.to_dict(format="vega-lite", validate=False)
    return sum(len(rows) for rows in spec.get("datasets", {}).values())
