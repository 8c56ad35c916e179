"""Prompts: lists, one of them, and the spans it was made from.

Every function returns an Arrow table. Times of day come twice: as timestamps to the microsecond, for people, and
exactly, as Unix nanoseconds (`start_ns`), for `Table.to_pylist` cannot give nanosecond timestamps without pandas.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Literal

from promptpath.storage.queries.sql import arrow, load, nanoseconds

if TYPE_CHECKING:
    import pyarrow as pa
    from clickhouse_connect.driver.client import Client

Moment = dt.datetime | int
Order = Literal["newest", "oldest", "slowest", "fastest", "longest", "stalls", "tpot"]

#: Prompts without the value come last; ties are broken so that pages never overlap.
_ORDERS: Final[dict[Order, str]] = {
    "newest": "p.start_time DESC, prompt_id",
    "oldest": "p.start_time, prompt_id",
    "slowest": "ttft_ns DESC NULLS LAST, e2e_ns DESC, prompt_id",
    "fastest": "ttft_ns ASC NULLS LAST, e2e_ns, prompt_id",
    "longest": "e2e_ns DESC, prompt_id",
    "stalls": "stalls DESC NULLS LAST, itl_max_ns DESC NULLS LAST, prompt_id",
    "tpot": "tpot_ns DESC NULLS LAST, prompt_id",
}
_ID: Final = re.compile(r"[0-9a-f]{1,32}")
#: Most rows that a list returns, whatever is asked.
ROWS_MAX: Final = 10_000
#: Most spans of one trace.
SPANS_MAX: Final = 50_000


def list_prompts(
    client: Client,
    *,
    since: Moment | None = None,
    until: Moment | None = None,
    model: str | None = None,
    service: str | None = None,
    tenant: str | None = None,
    status: str | None = None,
    min_ttft_ns: int | None = None,
    max_ttft_ns: int | None = None,
    min_e2e_ns: int | None = None,
    workflow_id: str | None = None,
    order: Order = "newest",
    limit: int = 100,
    offset: int = 0,
) -> pa.Table:
    """Prompts that began from `since` on and before `until` (Unix ns or datetimes), without their segments and gaps.

    Raises:
        ValueError: `order` is none of `Order`, or `limit` or `offset` is negative.
    """
    if order not in _ORDERS:
        raise ValueError(f"order {order!r} is none of {', '.join(_ORDERS)}")
    if limit < 0 or offset < 0:
        raise ValueError("limit and offset are not negative")
    parameters = {
        "since_ns": nanoseconds(since),
        "until_ns": nanoseconds(until),
        "model": model,
        "service": service,
        "tenant": tenant,
        "status": status,
        "min_ttft_ns": min_ttft_ns,
        "max_ttft_ns": max_ttft_ns,
        "min_e2e_ns": min_e2e_ns,
        "workflow_id": workflow_id,
        "limit": min(limit, ROWS_MAX),
        "offset": offset,
    }
    return arrow(client, load("prompts").replace("/*order*/", _ORDERS[order]), parameters)


def slowest(client: Client, *, since: Moment | None = None, until: Moment | None = None, limit: int = 10) -> pa.Table:
    """The prompts with the longest TTFT, as `list_prompts` gives them."""
    return list_prompts(client, since=since, until=until, order="slowest", limit=limit)


def get_prompt(client: Client, prompt_id: str) -> pa.Table:
    """All columns of one prompt, and `start_ns end_ns assembled_ns`: one row, or none."""
    return arrow(client, load("prompt"), {"prompt_id": prompt_id.lower()})


def find(client: Client, text: str, *, limit: int = 100) -> pa.Table:
    """Prompts whose id or trace id is `text`, or else begins with it; exact matches alone if there are any.

    Columns: `prompt_id trace_id start_time start_ns model service status ttft_ns e2e_ns`. Anything that is no
    hexadecimal number finds nothing.
    """
    wanted = text.strip().lower()
    exact = "prompt_id = {id:String} OR trace_id = {id:String}"
    prefix = "startsWith(prompt_id, {id:String}) OR startsWith(trace_id, {id:String})"
    query = load("prompt_find")
    parameters = {"id": wanted if _ID.fullmatch(wanted) else "-", "limit": min(limit, ROWS_MAX)}
    found = arrow(client, query.replace("/*match*/", exact), parameters)
    if found.num_rows or parameters["id"] == "-":
        return found
    return arrow(client, query.replace("/*match*/", prefix), parameters)


def spans_of_trace(
    client: Client,
    trace_id: str,
    *,
    joined: Sequence[str] = (),
    tenant: str | None = None,
    limit: int = SPANS_MAX,
) -> pa.Table:
    """A trace's spans as they came, in the order in which they began: all columns of `otel_traces`.

    joined: further traces whose spans are wanted, as a prompt's `joined_traces` names them. tenant: only spans that
    were sent for it (a prompt's `token_tenant`); None: of all.

    Beside them `StartNs`, `EndNs` and `EventsNs`, exact. Attribute maps are Arrow maps (lists of pairs in Python).
    """
    query = load("spans_of_trace")
    trace_ids = [one.lower() for one in (trace_id, *joined)]
    parameters = {"trace_ids": trace_ids, "tenant": tenant, "limit": min(limit, SPANS_MAX)}
    found = arrow(client, query.replace("/*bounds*/", load("spans_of_trace_bounds")), parameters)
    if found.num_rows:
        return found
    # The bounds are whole seconds from 1970 to 2106; a clock outside of that must not hide a trace.
    return arrow(client, query, parameters)
