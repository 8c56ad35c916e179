"""Queries of the dashboard's pages: filters that all of them share, lists of prompts, and what may be filtered by.

Every query is one `.sql` file beside this module, with bound parameters; `/*filters*/` and `/*columns*/` in it stand
for what is in `dashboard_filters.sql` and `dashboard_columns.sql`. Each is bounded in time, memory and rows by
`LIMITS`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Literal

import pyarrow as pa

from promptpath.storage.queries.sql import arrow, load

#: Settings of the read-only client that a page asks with; the endpoint may hold it to less.
LIMITS: Final[Mapping[str, Any]] = {
    "max_execution_time": 20,
    "max_result_rows": 20_000,
    "result_overflow_mode": "throw",
    "max_memory_usage": 2_000_000_000,
}

#: Most rows that one page of a table holds.
PAGE_ROWS_MAX: Final = 200

Order = Literal[
    "start_time", "ttft_ns", "e2e_ns", "tpot_ns", "itl_p99_ns", "itl_max_ns", "output_tokens", "input_tokens"
]
ORDERS: Final[tuple[Order, ...]] = (
    "start_time",
    "ttft_ns",
    "e2e_ns",
    "tpot_ns",
    "itl_p99_ns",
    "itl_max_ns",
    "output_tokens",
    "input_tokens",
)


@dataclass(frozen=True, slots=True)
class Filters:
    """Which prompts. Times are Unix nanoseconds, `since_ns` within and `until_ns` without; an empty tuple takes all.

    `min_ttft_ns` and `max_ttft_ns` (without) of 0 do not filter; else prompts without a TTFT are left out.
    """

    since_ns: int
    until_ns: int
    models: tuple[str, ...] = ()
    services: tuple[str, ...] = ()
    tenants: tuple[str, ...] = ()
    statuses: tuple[str, ...] = ()
    min_ttft_ns: int = 0
    max_ttft_ns: int = 0

    @property
    def span_ns(self) -> int:
        """Length of the time range."""
        return self.until_ns - self.since_ns

    def parameters(self) -> dict[str, Any]:
        """Values for the placeholders of `dashboard_filters.sql`."""
        return {
            "since_ns": self.since_ns,
            "until_ns": self.until_ns,
            "models": list(self.models),
            "services": list(self.services),
            "tenants": list(self.tenants),
            "statuses": list(self.statuses),
            "min_ttft_ns": self.min_ttft_ns,
            "max_ttft_ns": self.max_ttft_ns,
        }


@cache
def sql(name: str) -> str:
    """Text of `NAME.sql` beside this module, what several queries share filled in."""
    text = load(name)
    for shared in ("filters", "columns"):
        if f"/*{shared}*/" in text:
            text = text.replace(f"/*{shared}*/", load(f"dashboard_{shared}").strip())
    return text


def count_prompts(client: Any, filters: Filters) -> int:
    """How many prompts the filters take."""
    table = arrow(client, sql("dashboard_count"), filters.parameters())
    return int(table.column("prompts")[0].as_py())


def list_prompts(
    client: Any, filters: Filters, *, order: Order = "start_time", descending: bool = True, limit: int, offset: int = 0
) -> pa.Table:
    """One page of prompts, nulls last whatever the direction; ties are broken, so that pages never overlap.

    Columns: `prompt_id trace_id start_ns model service tenant operation streaming status error_type ttft_ns`,
    `ttft_source`, the nine `ttft_*_ns` parts, `e2e_ns tpot_ns itl_p99_ns itl_max_ns stalls input_tokens output_tokens
    attempts hops`.

    Raises ValueError for an unknown order, a page of more than `PAGE_ROWS_MAX` rows, or a negative offset.
    """
    if order not in ORDERS:
        raise ValueError(f"cannot order prompts by {order!r}; one of {', '.join(ORDERS)}")
    if not 0 < limit <= PAGE_ROWS_MAX or offset < 0:
        raise ValueError(f"a page holds 1 to {PAGE_ROWS_MAX} rows from an offset of 0 on, not {limit} from {offset}")
    direction = "DESC" if descending else "ASC"
    text = sql("dashboard_prompts").replace("/*order*/", f"{order} {direction} NULLS LAST")
    return arrow(client, text, {**filters.parameters(), "limit": limit, "offset": offset})


def prompts_by_id(client: Any, prompt_ids: Sequence[str]) -> pa.Table:
    """Some prompts in the order they began, at most `PAGE_ROWS_MAX`; the columns are those of `list_prompts`."""
    return arrow(client, sql("dashboard_by_id"), {"ids": list(prompt_ids), "limit": PAGE_ROWS_MAX})


def filter_values(client: Any, since_ns: int, until_ns: int) -> dict[str, list[str]]:
    """Models, services, tenants and statuses seen in a time range, each sorted, at most 500 of each."""
    table = arrow(client, sql("dashboard_values"), {"since_ns": since_ns, "until_ns": until_ns})
    row = table.to_pylist()[0]
    return {name: [str(value) for value in row[name]] for name in ("models", "services", "tenants", "statuses")}


def newest_prompt(client: Any) -> tuple[int, int | None]:
    """Number of prompts in the store, and when the newest began (Unix nanoseconds; None in an empty store)."""
    row = arrow(client, sql("dashboard_newest"), {}).to_pylist()[0]
    return (int(row["prompts"]), int(row["newest_ns"])) if row["prompts"] else (0, None)
