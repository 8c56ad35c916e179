"""Bytes and query times of `otel_traces` with other forms of ids and other codecs: python ids_and_codecs.py PROMPTS.

Each variant holds the same simulated spans in one merged part; a query is the best of some rounds, by processor time.
"""

from __future__ import annotations

import sys
import tempfile
import time
from typing import Any

from promptpath.cli.benches.size import StoreSink
from promptpath.collector.simulate import Scenario, simulate
from promptpath.storage import connect, migrate

_ROUNDS = 5
#: name -> (columns to change, the value to put into each)
_VARIANTS: dict[str, dict[str, tuple[str, str]]] = {
    "as it is": {},
    "ids FixedString": {
        "TraceId": ("FixedString(16) CODEC(ZSTD(1))", "unhex(TraceId)"),
        "SpanId": ("FixedString(8) CODEC(ZSTD(1))", "unhex(SpanId)"),
        "ParentSpanId": ("FixedString(8) CODEC(ZSTD(1))", "unhex(ParentSpanId)"),
    },
    "ids UInt128, UInt64": {
        "TraceId": ("UInt128 CODEC(ZSTD(1))", "reinterpretAsUInt128(reverse(unhex(TraceId)))"),
        "SpanId": ("UInt64 CODEC(NONE)", "reinterpretAsUInt64(reverse(unhex(SpanId)))"),
        "ParentSpanId": ("UInt64 CODEC(ZSTD(1))", "reinterpretAsUInt64(reverse(unhex(ParentSpanId)))"),
    },
    "ids ZSTD(3)": {name: ("String CODEC(ZSTD(3))", name) for name in ("TraceId", "SpanId", "ParentSpanId")},
    "gaps ZSTD(1)": {"TokenGapsUs": ("Array(UInt32) CODEC(ZSTD(1))", "TokenGapsUs")},
    "gaps T64('bit'), ZSTD(1)": {"TokenGapsUs": ("Array(UInt32) CODEC(T64('bit'), ZSTD(1))", "TokenGapsUs")},
    "gaps T64('bit'), ZSTD(3)": {"TokenGapsUs": ("Array(UInt32) CODEC(T64('bit'), ZSTD(3))", "TokenGapsUs")},
    "duration ZSTD(1)": {"Duration": ("UInt64 CODEC(ZSTD(1))", "Duration")},
    "attributes ZSTD(3)": {
        name: ("Map(LowCardinality(String), String) CODEC(ZSTD(3))", name)
        for name in ("SpanAttributes", "ResourceAttributes")
    },
}
_HEX = {
    "ids FixedString": ("lower(hex(TraceId))", "unhex({id:String})"),
    "ids UInt128, UInt64": ("lower(hex(TraceId))", "reinterpretAsUInt128(reverse(unhex({id:String})))"),
}


def main(prompts: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        client = connect(f"chdb://{folder}/store")
        migrate(client)
        simulate(Scenario(prompts=prompts), [StoreSink(client)])
        client.command("CREATE TABLE seed AS otel_traces")
        client.command("INSERT INTO seed SELECT * FROM otel_traces")
        for name, changed in _VARIANTS.items():
            _try(client, name, changed)
        client.close()


def _try(client: Any, name: str, changed: dict[str, tuple[str, str]]) -> None:
    columns = client.query("SELECT name, type, compression_codec FROM system.columns WHERE table = 'seed'").result_rows
    made = ", ".join(
        f"`{column}` {changed[column][0] if column in changed else kind + ' ' + codec}"
        for column, kind, codec in columns
    )
    chosen = ", ".join(changed[column][1] if column in changed else f"`{column}`" for column, _, _ in columns)
    client.command("DROP TABLE IF EXISTS variant SYNC")
    client.command(
        f"CREATE TABLE variant ({made}, INDEX i TraceId TYPE bloom_filter(0.001) GRANULARITY 1) ENGINE = MergeTree"
        " PARTITION BY toDate(Timestamp, 'UTC') ORDER BY (toStartOfMinute(Timestamp), TraceId, Timestamp)"
    )
    began = time.process_time()
    client.command(f"INSERT INTO variant SELECT {chosen} FROM seed")
    insert_s = time.process_time() - began
    client.command("OPTIMIZE TABLE variant FINAL")
    spans = client.command("SELECT count() FROM variant")
    sizes = dict(
        client.query(
            "SELECT column, sum(column_data_compressed_bytes) FROM system.parts_columns"
            " WHERE active AND table = 'variant' GROUP BY column"
        ).result_rows
    )
    shown, wanted = _HEX.get(name, ("TraceId", "{id:String}"))
    some = client.command("SELECT TraceId FROM seed ORDER BY cityHash64(TraceId) LIMIT 1")
    one = _best(client, f"SELECT {shown}, SpanName, Duration FROM variant WHERE TraceId = {wanted}", id=some)
    group = _best(client, f"SELECT count() FROM (SELECT {shown} AS t, count() FROM variant GROUP BY t)")
    raw = _best(client, "SELECT count() FROM (SELECT TraceId AS t, count() FROM variant GROUP BY t)")
    watched = changed or ("TraceId", "SpanId", "ParentSpanId", "TokenGapsUs", "Duration", "SpanAttributes")
    parts = ", ".join(f"{column} {sizes[column] / spans:.2f}" for column in watched)
    print(
        f"{name:26} {sum(sizes.values()) / spans:6.2f} B a span ({parts}); "
        f"insert {insert_s / spans * 1e6:.2f} us a span, one trace {one:.2f} ms, "
        f"by trace as hex {group:.1f} ms, as stored {raw:.1f} ms",
        flush=True,
    )


def _best(client: Any, query: str, **parameters: Any) -> float:
    times = []
    for _ in range(_ROUNDS):
        began = time.process_time()
        client.query(query, parameters=parameters)
        times.append(time.process_time() - began)
    return min(times) * 1000


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5000)
