"""What is stored, as OTLP/JSON again: built by the database, a request a line, a bounded number of rows at a time.

Ids, times, names, status, kinds of attributes, links, events, counts and numbers come back as they were received. What
storage does not keep cannot: which request a row came in, metrics without points, lists within lists (they are stored
as JSON text), and of an attribute list NaN and infinities.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from promptpath.storage.errors import StorageError, reason

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

Signal = Literal["traces", "metrics", "logs"]

_FOLDER: Final = Path(__file__).parent / "exports"

#: Rows of one request, about: small enough to be held and sent, large enough to be fast.
_ROWS: Final = 5_000
_MINUTE: Final = dt.timedelta(minutes=1)


@dataclass(frozen=True)
class _Table:
    query: str
    table: str
    time: str
    #: What spreads the rows of a minute.
    spread: str


_TABLES: Final[Mapping[Signal, tuple[_Table, ...]]] = {
    "traces": (_Table("traces", "otel_traces", "Timestamp", "TraceId"),),
    "logs": (_Table("logs", "otel_logs", "Timestamp", "cityHash64(TraceId, SpanId, Body)"),),
    "metrics": tuple(
        _Table(f"metrics_{kind}", f"otel_metrics_{kind}", "TimeUnix", "cityHash64(Attributes, TimeUnix)")
        for kind in ("gauge", "sum", "histogram", "exponential_histogram", "summary")
    ),
}


_SPANS: Final = {
    "since": "Timestamp >= {since:DateTime64(9, 'UTC')}",
    "until": "Timestamp < {until:DateTime64(9, 'UTC')}",
    "service": "ServiceName = {service:String}",
    "trace_id": "TraceId = {trace_id:String}",
    "tenant": "Tenant = {tenant:String}",
}
_PROMPTS: Final = {
    "since": "start_time >= {since:DateTime64(9, 'UTC')}",
    "until": "start_time < {until:DateTime64(9, 'UTC')}",
    "service": "service = {service:String}",
    "trace_id": "trace_id = {trace_id:String}",
    "tenant": "token_tenant = {tenant:String}",
}


@dataclass(frozen=True)
class Filter:
    """Which rows: from `since` on and before `until` (by their own time), of a service, of a trace, of a tenant."""

    since: dt.datetime | None = None
    until: dt.datetime | None = None
    service: str = ""
    trace_id: str = ""
    tenant: str = ""


@dataclass(frozen=True)
class _Window:
    first: dt.datetime
    last: dt.datetime
    part: int
    parts: int
    rows: int


def export_json(
    client: Client, signal: Signal, only: Filter | None = None, progress: Callable[[int, int], None] | None = None
) -> Iterator[bytes]:
    """Lines of OTLP/JSON, in the order of time, each an export request of at most some thousand rows.

    Args:
        client: a client that may read.
        progress: called with the rows given so far and those that there are.

    Raises:
        StorageError: the database refused.
    """
    only = only or Filter()
    try:
        yield from _lines(client, signal, only, progress)
    except StorageError:
        raise
    except Exception as error:
        raise StorageError(f"cannot export {signal} ({reason(error)})") from error


def export_parquet(client: Client, table: str, only: Filter | None = None) -> Iterator[bytes]:
    """A table as one Parquet file, in pieces.

    Args:
        table: `otel_traces`, `otel_logs` or `prompts`.

    Raises:
        StorageError: the database refused.
    """
    only = only or Filter()
    names = _PROMPTS if table == "prompts" else _SPANS
    tests = [test for test, value in ((names[key], getattr(only, key)) for key in names) if value]
    query = f"SELECT * FROM {table} WHERE {' AND '.join(tests) or '1'}"
    try:
        with client.raw_stream(query, parameters=_parameters(only, None), fmt="Parquet") as stream:
            yield from stream
    except Exception as error:
        raise StorageError(f"cannot export {table} ({reason(error)})") from error


def _lines(
    client: Client, signal: Signal, only: Filter, progress: Callable[[int, int], None] | None
) -> Iterator[bytes]:
    tables = [table for table in _TABLES[signal] if not (only.trace_id and signal == "metrics")]
    windows = [(table, list(_windows(client, table, only))) for table in tables]
    total = sum(window.rows for _, found in windows for window in found)
    done = 0
    for table, found in windows:
        for window in found:
            line = client.raw_query(_query(table.query, table, only), parameters=_parameters(only, window))
            if line:
                yield bytes(line)
            done += window.rows
            if progress is not None:
                progress(done, total)


def _windows(client: Client, table: _Table, only: Filter) -> Iterator[_Window]:
    """Stretches of minutes with few rows, and parts of minutes with many."""
    counts = client.query(
        f"SELECT toUnixTimestamp(toStartOfMinute({table.time}, 'UTC')) AS minute, count() AS n FROM {table.table} "
        f"WHERE {_where(table, only, windowed=False)} GROUP BY minute ORDER BY minute",
        parameters=_parameters(only, None),
    ).result_rows
    first = last = None
    rows = 0
    for seconds, count in counts:
        minute = dt.datetime.fromtimestamp(int(seconds), dt.UTC)
        if first is not None and last is not None and rows + count > _ROWS:
            yield _Window(first, last, 0, 1, rows)
            first, rows = None, 0
        if count > _ROWS:
            parts = -(-count // _ROWS)
            yield from (_Window(minute, minute + _MINUTE, part, parts, count // parts) for part in range(parts))
            continue
        first, last, rows = first or minute, minute + _MINUTE, rows + int(count)
    if first is not None and last is not None:
        yield _Window(first, last, 0, 1, rows)


def _where(table: _Table, only: Filter, *, windowed: bool) -> str:
    tests = []
    if only.since is not None:
        tests.append(f"{table.time} >= {{since:DateTime64(9, 'UTC')}}")
    if only.until is not None:
        tests.append(f"{table.time} < {{until:DateTime64(9, 'UTC')}}")
    if only.service:
        tests.append("ServiceName = {service:String}")
    if only.trace_id:
        tests.append("TraceId = {trace_id:String}")
    if only.tenant:
        tests.append("Tenant = {tenant:String}")
    if windowed:
        tests.append(f"{table.time} >= {{first:DateTime('UTC')}} AND {table.time} < {{last:DateTime('UTC')}}")
        tests.append(f"cityHash64({table.spread}) % {{parts:UInt32}} = {{part:UInt32}}")
    return " AND ".join(tests) or "1"


def _query(name: str, table: _Table, only: Filter) -> str:
    return _text(name).replace("{{where}}", _where(table, only, windowed=True))


@lru_cache
def _text(name: str) -> str:
    text = (_FOLDER / f"{name}.sql").read_text()
    return text.replace("{{common}}", (_FOLDER / "common.sql").read_text().rstrip("\n"))


def _parameters(only: Filter, window: _Window | None) -> dict[str, Any]:
    found: dict[str, Any] = {"service": only.service, "trace_id": only.trace_id.lower(), "tenant": only.tenant}
    found |= {name: _instant(at) for name, at in (("since", only.since), ("until", only.until)) if at is not None}
    if window is not None:
        found |= {"first": _second(window.first), "last": _second(window.last)}
        found |= {"part": window.part, "parts": window.parts}
    return found


def _instant(at: dt.datetime) -> str:
    return at.astimezone(dt.UTC).strftime("%Y-%m-%d %H:%M:%S.%f")


def _second(at: dt.datetime) -> str:
    return at.strftime("%Y-%m-%d %H:%M:%S")
