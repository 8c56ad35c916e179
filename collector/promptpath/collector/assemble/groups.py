"""Which stored traces belong to the same prompts, though no trace context leads from one to the other.

The ids of every trace that is assembled are kept in `trace_join_keys`. A trace is assembled together with those that
share an id with it and lie near it in time, and with those that share one with these. So whichever of them comes last
has all of them assembled again, as one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from promptpath.collector.assemble import keys
from promptpath.collector.assemble.join_times import TOLERANCE_NS
from promptpath.collector.assemble.schema import Ints

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

#: An id that more traces than this have at about one time names no prompt.
_MAX_TRACES: Final = 64
#: How often traces that were found may lead to further ones: client, gateway, router, engine, its workers.
_MAX_STEPS: Final = 5
_MAX_KEYS: Final = 5_000
_HOUR_NS: Final = 3_600_000_000_000

_FIND: Final = """
    SELECT wanted.key AS key, known.TraceId AS trace_id,
        toUnixTimestamp64Nano(min(known.FirstStart)) AS start_ns, toUnixTimestamp64Nano(max(known.LastEnd)) AS end_ns
    FROM trace_join_keys AS known
    INNER JOIN (SELECT arrayJoin({keys:Array(String)}) AS key, sipHash64(key) AS hash) AS wanted
        ON known.KeyHash = wanted.hash
    WHERE known.KeyHash IN (SELECT sipHash64(arrayJoin({keys:Array(String)})))
        AND known.FirstStart BETWEEN fromUnixTimestamp64Nano({from_ns:Int64}, 'UTC')
            AND fromUnixTimestamp64Nano({to_ns:Int64}, 'UTC')
    GROUP BY key, trace_id
"""


def complete(
    client: Client,
    spans: pa.Table,
    trace_ids: Sequence[str],
    read: Callable[[Sequence[str]], pa.Table],
    tenant: str = "",
) -> tuple[pa.Table, list[str]]:
    """The spans of some traces and of all that belong to the same prompts; and the ids of all these traces.

    spans: those of `trace_ids`. read: reads the spans of traces. tenant: whose all of them are.
    Remembers the ids of the traces it sees.
    """
    known = set(trace_ids)
    all_spans, new = [spans], spans
    for _ in range(_MAX_STEPS):
        others = sorted(_near(client, new, tenant) - known)
        if not others:
            break
        known |= set(others)
        new = read(others)
        all_spans.append(new)
    return pa.concat_tables(all_spans), sorted(known)


def remember(client: Client, prompts: pa.Table, tenant: str = "") -> None:
    """Store which traces were joined by nothing but their times, so that whichever of them is assembled again has the
    others assembled with it.

    prompts: PROMPT_SCHEMA. tenant: whose they are.
    """
    by_time = pc.and_(
        pc.equal(prompts["joined_by"], "time"), pc.greater(pc.list_value_length(prompts["joined_traces"]), 0)
    )
    joined = prompts.filter(by_time).combine_chunks()
    if joined.num_rows == 0:
        return
    column = joined["joined_traces"].combine_chunks()
    row = pc.list_parent_indices(column)
    ends = pc.list_flatten(column), joined["trace_id"].combine_chunks().take(row)
    both = pa.table(
        {
            "trace_id": pa.concat_arrays(ends),
            "key": keys.own_keys(pa.concat_arrays(ends[::-1])),
            **{
                name: pa.concat_arrays([joined[time].combine_chunks().cast(pa.int64()).take(row)] * 2)
                for name, time in (("start_ns", "start_time"), ("end_ns", "end_time"))
            },
        }
    )
    if tenant:
        both = both.set_column(1, "key", _owned(both["key"], tenant))
    _write(client, both)


def _near(client: Client, spans: pa.Table, tenant: str) -> set[str]:
    """Traces that share ids with those of `spans` and lie near them in time. Stores the ids that are new."""
    if spans.num_rows == 0:
        return set()
    plain = pa.table(
        {
            name: column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column
            for name, column in zip(spans.column_names, spans.columns, strict=True)
        }
    ).combine_chunks()
    extents = _extents(plain)
    own = pa.table({"trace_id": extents["trace_id"], "key": keys.own_keys(extents["trace_id"].combine_chunks())})
    ids = keys.of_traces(plain)
    if tenant:
        ids, own = (table.set_column(1, "key", _owned(table["key"], tenant)) for table in (ids, own))
    mine = pa.concat_tables([ids, own]).join(extents, "trace_id", join_type="inner")
    stored = _find(client, mine["key"].unique(), extents)
    _remember(client, ids.join(extents, "trace_id", join_type="inner"), stored)
    pairs = mine.join(stored, "key", join_type="inner", right_suffix="_other")
    away = pc.not_equal(pairs["trace_id"], pairs["trace_id_other"])
    close = pc.less_equal(pairs["start_ns"], pc.add(pairs["end_ns_other"], TOLERANCE_NS))
    close = pc.and_(close, pc.less_equal(pairs["start_ns_other"], pc.add(pairs["end_ns"], TOLERANCE_NS)))
    pairs = pairs.filter(pc.and_(away, close)).combine_chunks()
    near = set(keys.links(plain)["linked"].unique().to_pylist())
    if pairs.num_rows:
        code = _codes(pairs["key"])
        fair = np.bincount(code)[code] <= _MAX_TRACES
        near |= set(pairs["trace_id_other"].filter(pa.array(fair)).unique().to_pylist())
    return near


def _owned(names: pa.ChunkedArray, tenant: str) -> pa.ChunkedArray:
    """Keys that no other tenant has: what names a tenant has no such character."""
    return pc.binary_join_element_wise(pa.scalar(f"{tenant}\x1f"), names, "")


def _codes(column: pa.ChunkedArray) -> Ints:
    encoded = column.combine_chunks().dictionary_encode()
    return np.asarray(encoded.indices.to_numpy(zero_copy_only=False), dtype=np.int64)


def _extents(spans: pa.Table) -> pa.Table:
    """`trace_id start_ns end_ns` of each trace."""
    ends = pa.table(
        {
            "trace_id": spans["trace_id"],
            "start": spans["start_ns"],
            "end": pc.add(spans["start_ns"], spans["duration_ns"]),
        }
    )
    found = ends.group_by("trace_id").aggregate([("start", "min"), ("end", "max")])
    return found.select(["trace_id", "start_min", "end_max"]).rename_columns(["trace_id", "start_ns", "end_ns"])


def _find(client: Client, wanted: pa.Array, extents: pa.Table) -> pa.Table:
    """Stored `key trace_id start_ns end_ns` of some keys, near the times of `extents`."""
    times = {
        "from_ns": int(pc.min(extents["start_ns"]).as_py()) - _HOUR_NS,
        "to_ns": int(pc.max(extents["end_ns"]).as_py()) + TOLERANCE_NS,
    }
    schema = pa.schema(
        [("key", pa.string()), ("trace_id", pa.string()), ("start_ns", pa.int64()), ("end_ns", pa.int64())]
    )
    found = [schema.empty_table()]
    for first in range(0, len(wanted), _MAX_KEYS):
        some = wanted.slice(first, _MAX_KEYS).to_pylist()
        found.append(client.query_arrow(_FIND, parameters={"keys": some} | times).select(schema.names).cast(schema))
    return pa.concat_tables(found)


def _remember(client: Client, mine: pa.Table, stored: pa.Table) -> None:
    """Store the ids of traces that are not stored yet, or that last longer than was stored."""
    new = mine.join(stored, ["trace_id", "key"], join_type="left outer", right_suffix="_stored")
    known = pc.and_(
        pc.less_equal(new["start_ns_stored"], new["start_ns"]), pc.greater_equal(new["end_ns_stored"], new["end_ns"])
    )
    new = new.filter(pc.invert(pc.fill_null(known, False))).combine_chunks()
    if new.num_rows == 0:
        return
    _write(client, new)


def _write(client: Client, rows: pa.Table) -> None:
    """Store `key trace_id start_ns end_ns`."""
    time = pa.timestamp("ns", "UTC")
    client.insert_arrow(
        "trace_join_keys",
        pa.table(
            {
                "key": rows["key"],
                "TraceId": rows["trace_id"],
                "FirstStart": rows["start_ns"].cast(time),
                "LastEnd": rows["end_ns"].cast(time),
            }
        ),
    )
