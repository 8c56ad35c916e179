"""The SQL files of this folder, and how they are asked."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    from clickhouse_connect.driver.client import Client


@cache
def load(name: str) -> str:
    """The text of `NAME.sql` in this folder."""
    return files(__package__).joinpath(f"{name}.sql").read_text("utf-8")


def arrow(client: Client, text: str, parameters: Mapping[str, Any]) -> pa.Table:
    """Runs a query with bound parameters. It passes no settings, so a read-only client may run it."""
    table: pa.Table = client.query_arrow(text, parameters=dict(parameters))
    return table


def nanoseconds(moment: Any) -> int | None:
    """A point in time as Unix nanoseconds: from ns, or from a datetime (one without a zone is UTC). None stays None."""
    import datetime as dt

    if moment is None or isinstance(moment, int):
        return moment
    if isinstance(moment, dt.datetime):
        aware = moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)
        since_epoch = aware - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
        return (since_epoch.days * 86_400 + since_epoch.seconds) * 1_000_000_000 + since_epoch.microseconds * 1_000
    raise TypeError(f"{moment!r} is neither nanoseconds nor a datetime")
