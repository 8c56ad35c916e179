"""What the pages read: cached, bounded, read-only queries on pooled clients.

A page never sees a client or SQL. Every function raises `promptpath.storage.StorageError` where storage cannot be
reached, and `QueryFailed` where it refused or gave up on the query.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, ParamSpec, TypeVar

import streamlit as st

from promptpath.storage import DEFAULT_URL, StorageError, connect
from promptpath.storage.queries import dashboard, overview, prompts
from promptpath.storage.queries.dashboard import Filters, Order

#: How long an answer is reused. The end of a short relative range moves every 5 s, so a page stays fresh.
TTL_S: Final = 60
#: Raw spans of one trace that a page reads at most.
SPANS_MAX: Final = 5_000

_POOL_MAX: Final = 8
_P = ParamSpec("_P")
_R = TypeVar("_R")


class QueryFailed(Exception):
    """The database answered with an error: the query was too large for its bounds, or something is wrong. One line."""


def storage_url() -> str:
    """Where the prompts are: `PROMPTPATH_STORAGE`, else the embedded store of this user."""
    return os.environ.get("PROMPTPATH_STORAGE") or DEFAULT_URL


class ClientPool:
    """Read-only clients, each used by one thread at a time. A client whose query failed is closed, not reused."""

    def __init__(self, open_client: Callable[[], Any]) -> None:
        self._open = open_client
        self._free: list[Any] = []
        self._lock = threading.Lock()

    @contextmanager
    def client(self) -> Iterator[Any]:
        """A client for the time of a `with` block."""
        with self._lock:
            client = self._free.pop() if self._free else None
        client = client or self._open()
        try:
            yield client
        except BaseException:
            with suppress(Exception):
                client.close()
            raise
        with self._lock:
            if len(self._free) < _POOL_MAX:
                self._free.append(client)
                return
        client.close()

    def clear(self) -> None:
        """Close the clients that nobody uses, so that the next one is made anew."""
        with self._lock:
            free, self._free = self._free, []
        for client in free:
            with suppress(Exception):
                client.close()


@st.cache_resource(show_spinner=False)
def pool(url: str) -> ClientPool:
    """The process's pool of clients for one store."""
    return ClientPool(lambda: connect(url, readonly=True, settings=dashboard.LIMITS))


def _asking(query: Callable[..., _R], *arguments: Any, **options: Any) -> _R:
    """Run a query; once more on a new client if the connection was gone, as after a restart of the collector."""
    from clickhouse_connect.driver.exceptions import ClickHouseError, DatabaseError

    clients = pool(storage_url())
    for last_try in (False, True):
        try:
            with clients.client() as client:
                return query(client, *arguments, **options)
        except DatabaseError as error:
            raise QueryFailed(_one_line(error)) from error
        except (ClickHouseError, OSError) as error:
            clients.clear()
            if last_try:
                raise StorageError(f"the connection to {storage_url()} broke: {_one_line(error)}") from error
    raise AssertionError("unreachable: the second try returns or raises")


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= 400 else text[:399] + "…"


def _cached(function: Callable[_P, _R]) -> Callable[_P, _R]:
    cached: Callable[_P, _R] = st.cache_data(ttl=TTL_S, max_entries=200, show_spinner="Reading prompts …")(function)
    return cached


def refresh() -> None:
    """Forget cached answers; the next query of every page asks storage."""
    st.cache_data.clear()


@_cached
def headline(filters: Filters) -> dict[str, Any]:
    """See `overview.headline`."""
    return _asking(overview.headline, filters)


@_cached
def series(filters: Filters, step_ns: int) -> list[dict[str, Any]]:
    """See `overview.series`; a list of one dictionary a bucket."""
    return _rows(_asking(overview.series, filters, step_ns))


@_cached
def statuses(filters: Filters, step_ns: int) -> list[dict[str, Any]]:
    """See `overview.statuses`."""
    return _rows(_asking(overview.statuses, filters, step_ns))


@_cached
def heat(filters: Filters, step_ns: int) -> list[dict[str, Any]]:
    """See `overview.heat`."""
    return _rows(_asking(overview.heat, filters, step_ns))


@_cached
def itl(filters: Filters, step_ns: int, prompt_count: int) -> list[dict[str, Any]]:
    """See `overview.itl`."""
    return _rows(_asking(overview.itl, filters, step_ns, prompt_count))


@_cached
def filter_values(since_ns: int, until_ns: int) -> dict[str, list[str]]:
    """See `dashboard.filter_values`."""
    return _asking(dashboard.filter_values, since_ns, until_ns)


@_cached
def count_prompts(filters: Filters) -> int:
    """See `dashboard.count_prompts`."""
    return _asking(dashboard.count_prompts, filters)


@_cached
def list_prompts(filters: Filters, order: Order, descending: bool, limit: int, offset: int) -> list[dict[str, Any]]:
    """See `dashboard.list_prompts`."""
    return _rows(
        _asking(dashboard.list_prompts, filters, order=order, descending=descending, limit=limit, offset=offset)
    )


def newest_prompt() -> tuple[int, int | None]:
    """See `dashboard.newest_prompt`; never cached, for it is asked when a page has nothing to show."""
    return _asking(dashboard.newest_prompt)


@_cached
def find(text: str) -> list[str]:
    """Ids of the prompts that `prompts.find` gives for an id, a trace id, or the beginning of one."""
    table = _asking(prompts.find, text, limit=dashboard.PAGE_ROWS_MAX)
    return [str(prompt_id) for prompt_id in table.column("prompt_id").to_pylist()]


@_cached
def prompts_by_id(prompt_ids: tuple[str, ...]) -> list[dict[str, Any]]:
    """See `dashboard.prompts_by_id`."""
    return _rows(_asking(dashboard.prompts_by_id, prompt_ids))


@_cached
def prompt(prompt_id: str) -> dict[str, Any] | None:
    """One whole row of `prompts`, None where there is none."""
    rows = _rows(_asking(prompts.get_prompt, prompt_id))
    return rows[0] if rows else None


@_cached
def spans(trace_id: str, joined: tuple[str, ...], tenant: str) -> list[dict[str, Any]]:
    """Raw spans of a tenant's trace, and of those joined to it, in the order they began, at most `SPANS_MAX`."""
    return _rows(_asking(prompts.spans_of_trace, trace_id, joined=joined, tenant=tenant, limit=SPANS_MAX))


def _rows(table: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows
