"""How much was asked and answered over time, and how it ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import altair as alt

from promptpath.dashboard import format as fmt
from promptpath.dashboard.charts import base
from promptpath.dashboard.theme import STATUS_COLOR, Ink, status_color

STATUSES = tuple(status.value for status in STATUS_COLOR)


def rates(
    rows: Sequence[base.Row],
    buckets: base.Buckets,
    fields: Mapping[str, str],
    *,
    ink: Ink,
    height: int = 220,
) -> base.Chart:
    """Events a second as lines.

    `rows`: `bucket` and the fields named by `fields` (field -> label); a bucket without a row is 0. The last bucket is
    left out until it is over.
    """
    by_bucket = {int(row["bucket"]): row for row in rows}
    points: list[base.Row] = []
    bands: list[base.Row] = []
    for bucket in range(buckets.count):
        start, end, seconds = buckets.start_ms(bucket), buckets.end_ms(bucket), buckets.seconds(bucket)
        if seconds < 0.95 * buckets.step_ns / 1e9:
            # A bucket that is not over yet would look like a drop.
            continue
        row = by_bucket.get(bucket, {})
        values = {label: (row.get(field) or 0) / seconds for field, label in fields.items()}
        points += [{"middle_ms": (start + end) / 2, "line": label, "value": value} for label, value in values.items()]
        bands.append({"start_ms": start, "end_ms": end, **{label: fmt.rate(value) for label, value in values.items()}})
    colors = dict(zip(fields.values(), ("#2b7bba", "#e69f00", "#109a73"), strict=False))
    line = (
        alt.Chart(base.frame(points, ["middle_ms", "line", "value"]))
        .mark_line(strokeWidth=2, clip=True)
        .encode(
            x=base.time_axis(buckets, "middle_ms"),
            y=base.value_axis("value", "/s"),
            color=base.color_by("line", colors, legend=len(fields) > 1, symbol="stroke"),
        )
    )
    tooltip = [
        alt.Tooltip("start_ms:T", title="from", format="%H:%M:%S"),
        *[alt.Tooltip(f"{label}:N", title=label) for label in fields.values()],
    ]
    return base.finish(base.hover_bands(bands, buckets, tooltip, ink.line) + line, height=height)


def statuses(rows: Sequence[base.Row], buckets: base.Buckets, *, ink: Ink, height: int = 220) -> base.Chart:
    """How prompts ended, stacked counts per bucket. `rows`: `bucket`, `status`, `prompts`."""
    seen = {str(row["status"]) for row in rows}
    order = [status for status in STATUSES if status in seen] + sorted(seen - set(STATUSES))
    pieces: list[base.Row] = []
    texts: dict[int, dict[str, str]] = {}
    for row in rows:
        bucket = int(row["bucket"])
        start, end = buckets.start_ms(bucket), buckets.end_ms(bucket)
        if end > start:
            pieces.append({"start_ms": start, "end_ms": end, "status": row["status"], "value": int(row["prompts"])})
            texts.setdefault(bucket, dict.fromkeys(order, "0"))[row["status"]] = fmt.count(row["prompts"])
    columns = ["start_ms", "end_ms", "status", "low", "high"]
    bars = (
        alt.Chart(base.frame(base.stacked(pieces, order, "value", "status"), columns))
        .mark_rect(clip=True)
        .encode(
            x=base.time_axis(buckets),
            x2="end_ms",
            y=base.value_axis("low", ""),
            y2="high:Q",
            color=base.color_by("status", {status: status_color(status) for status in order}),
        )
    )
    bands = [
        {"start_ms": buckets.start_ms(bucket), "end_ms": buckets.end_ms(bucket), **shown}
        for bucket, shown in texts.items()
    ]
    tooltip = [
        alt.Tooltip("start_ms:T", title="from", format="%H:%M:%S"),
        *[alt.Tooltip(f"{status}:N", title=status) for status in order],
    ]
    return base.finish(bars + base.hover_bands(bands, buckets, tooltip, ink.surface), height=height)
