"""What an assembler asks: which traces changed, and where it stood."""

from __future__ import annotations

from typing import TYPE_CHECKING

from promptpath.storage.queries.sql import arrow, load

if TYPE_CHECKING:
    import pyarrow as pa
    from clickhouse_connect.driver.client import Client


def changed_traces(client: Client, *, since_ns: int, quiet_ns: int, limit: int = 100_000) -> pa.Table:
    """Traces of which spans arrived after `since_ns`, and none after `quiet_ns` (Unix ns), by their last arrival.

    Columns: `trace_id arrived_ns first_start_ns last_end_ns` and `spans` (those that arrived after `since_ns`).
    An arrival is stamped when its insert begins and seen when it ends: take `since_ns` some seconds before the
    `quiet_ns` of the round before. A trace that is assembled twice gives the same rows.
    """
    return arrow(client, load("changed_traces"), {"since_ns": since_ns, "quiet_ns": quiet_ns, "limit": limit})


def load_position(client: Client, name: str) -> int:
    """Up to when (Unix ns) this assembler has read arrivals; 0 if it never has."""
    rows = client.query(load("assembler_position"), parameters={"name": name}).result_rows
    return int(rows[0][0]) if rows else 0


def save_position(client: Client, name: str, position_ns: int) -> None:
    """Remembers up to when this assembler has read arrivals. Save it after the prompts are stored."""
    client.command(load("save_assembler_position"), parameters={"name": name, "position_ns": position_ns})
