"""Percentiles over time: TTFT, and what a token costs once the answer flows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import altair as alt

from promptpath.dashboard import format as fmt
from promptpath.dashboard.charts import base
from promptpath.dashboard.theme import QUANTILE_COLOR, Ink


def percentiles(
    rows: Sequence[base.Row],
    buckets: base.Buckets,
    lines: Mapping[str, str],
    *,
    ink: Ink,
    count: str,
    height: int = 220,
) -> base.Chart:
    """Lines of percentiles over time.

    `rows` have `bucket`, the fields named by `lines` (field -> label; ns, None where nothing was measured) and
    `count`, the number of samples. A bucket without a value breaks the line rather than bridging it.
    """
    largest = max((row[field] for row in rows for field in lines if row[field] is not None), default=0)
    divisor, unit = fmt.axis_unit(largest)
    by_bucket = {int(row["bucket"]): row for row in rows}
    points: list[base.Row] = []
    bands: list[base.Row] = []
    for bucket in range(buckets.count):
        row = by_bucket.get(bucket)
        start, end = buckets.start_ms(bucket), buckets.end_ms(bucket)
        for field, label in lines.items():
            value = row[field] if row else None
            points.append(
                {
                    "middle_ms": (start + end) / 2,
                    "line": label,
                    "value": None if value is None else value / divisor,
                    # A value with no neighbour makes no line: it gets a point.
                    "alone": value is not None and _alone(by_bucket, bucket, field),
                }
            )
        if row:
            shown = {label: fmt.duration(row[field]) for field, label in lines.items()}
            bands.append({"start_ms": start, "end_ms": end, "samples": fmt.count(row[count]), **shown})
    colors = {label: QUANTILE_COLOR.get(label.split()[-1], "#2b7bba") for label in lines.values()}
    data = base.frame(points, ["middle_ms", "line", "value"])
    x = base.time_axis(buckets, "middle_ms")
    y = base.value_axis("value", unit)
    color = base.color_by("line", colors, symbol="stroke")
    line = alt.Chart(data).mark_line(strokeWidth=2, interpolate="linear", clip=True).encode(x=x, y=y, color=color)
    layers = [line]
    lone = [point for point in points if point["alone"]]
    if lone:
        dots = alt.Chart(base.frame(lone, ["middle_ms", "line", "value"]))
        layers.append(dots.mark_point(size=28, filled=True, opacity=1, clip=True).encode(x=x, y=y, color=color))
    tooltip = [
        alt.Tooltip("start_ms:T", title="from", format="%H:%M:%S"),
        *[alt.Tooltip(f"{label}:N", title=label) for label in lines.values()],
        alt.Tooltip("samples:N", title=count),
    ]
    return base.finish(alt.layer(base.hover_bands(bands, buckets, tooltip, ink.line), *layers), height=height)


def _alone(by_bucket: Mapping[int, base.Row], bucket: int, field: str) -> bool:
    neighbours = (by_bucket.get(bucket - 1), by_bucket.get(bucket + 1))
    return all(row is None or row[field] is None for row in neighbours)
