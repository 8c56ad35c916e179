"""Queries of the Overview page: headline figures and what they were over time.

Time is cut into buckets of `step_ns` from `filters.since_ns` on; a bucket that held no prompt has no row.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from promptpath.storage.queries.dashboard import Filters, sql
from promptpath.storage.queries.sql import arrow

#: Rows of the TTFT heat map for each factor of ten.
HEAT_BINS_PER_DECADE: Final = 10
#: Most cells of a heat map; the fullest are kept.
HEAT_CELLS_MAX: Final = 2_000
#: Inter-token latencies are read from at most about so many prompts, chosen by their id.
ITL_PROMPTS_MAX: Final = 20_000


def headline(client: Any, filters: Filters) -> dict[str, Any]:
    """Figures over the whole range.

    `prompts ok streamed input_tokens output_tokens` counts, `first_ns last_ns` (None without prompts), `ttft e2e tpot`
    each as a list of the 50th, 95th and 99th percentile in ns, None where nothing was measured.
    """
    row: dict[str, Any] = arrow(client, sql("overview_headline"), filters.parameters()).to_pylist()[0]
    if not row["prompts"]:
        row["first_ns"] = row["last_ns"] = None
    for name in ("ttft", "e2e", "tpot"):
        row[name] = [None if value is None or value != value else float(value) for value in row[name]]
    return row


def series(client: Any, filters: Filters, step_ns: int) -> pa.Table:
    """One row a bucket.

    `bucket prompts streamed ttft_p50 ttft_p95 ttft_p99 tpot_p50 tpot_p95` [ns], medians of the nine parts as `network`
    … `unattributed` [ns], `input_tokens output_tokens`. Percentiles are null in a bucket where nothing was measured.
    """
    return arrow(client, sql("overview_series"), {**filters.parameters(), "step_ns": step_ns})


def statuses(client: Any, filters: Filters, step_ns: int) -> pa.Table:
    """One row a bucket and status: `bucket status prompts`."""
    return arrow(client, sql("overview_statuses"), {**filters.parameters(), "step_ns": step_ns})


def heat(client: Any, filters: Filters, step_ns: int) -> pa.Table:
    """One row a cell of the TTFT heat map: `bucket bin prompts`.

    Bin b holds TTFTs from 10^(b / HEAT_BINS_PER_DECADE) ns up to those of bin b + 1.
    """
    parameters = {"step_ns": step_ns, "bins_per_decade": HEAT_BINS_PER_DECADE, "cells": HEAT_CELLS_MAX}
    return arrow(client, sql("overview_heat"), {**filters.parameters(), **parameters})


def itl(client: Any, filters: Filters, step_ns: int, prompts: int) -> pa.Table:
    """Percentiles over tokens: `bucket itl_p50 itl_p95 itl_p99` [ns], `tokens`; bucket -1 is the whole range.

    `prompts` is how many the filters take: of more than `ITL_PROMPTS_MAX`, one in `itl_sample(prompts)` is read.
    """
    parameters = {"step_ns": step_ns, "one_in": itl_sample(prompts)}
    return arrow(client, sql("overview_itl"), {**filters.parameters(), **parameters})


def itl_sample(prompts: int) -> int:
    """Of so many prompts, one in how many is read for inter-token latencies."""
    return max(1, -(-prompts // ITL_PROMPTS_MAX))
