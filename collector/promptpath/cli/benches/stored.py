"""A batch of spans as the assembler service gets one: simulated, stored in an embedded database, selected from it."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa

from promptpath.collector.assemble.store import read_spans
from promptpath.collector.simulate import ProtobufFile, Scenario, simulate
from promptpath.storage import client_factory, migrate
from promptpath.storage.ingest import insert

_BATCH_BYTES: Final = 8 << 20
_ROUNDS: Final = 3
#: Of a trace that comes in pieces each piece is a row.
_TRACES: Final = "SELECT TraceId FROM otel_traces GROUP BY TraceId ORDER BY min(Timestamp), TraceId"


def requests(path: Path) -> Iterator[bytes]:
    """The requests of a file that `ProtobufFile` wrote, joined to bodies of some megabytes."""
    parts: list[bytes] = []
    size = 0
    with path.open("rb") as file:
        while head := file.read(4):
            parts.append(file.read(struct.unpack(">I", head)[0]))
            size += len(parts[-1])
            if size > _BATCH_BYTES:
                yield b"".join(parts)
                parts, size = [], 0
    if parts:
        yield b"".join(parts)


def selected(prompts: int, folder: Path) -> tuple[pa.Table, float]:
    """The spans of `prompts` simulated prompts of mixed topologies as `read_spans` gives them, and what that took:
    seconds of processor time of all threads, the engine's too, in the best of some rounds.

    folder: for the spans and the store; empty.
    """
    path = folder / "traces.pb"
    simulate(Scenario(seed=1, prompts=prompts), [ProtobufFile(path)], folder)
    client = client_factory(f"chdb://{folder}/store")()
    try:
        migrate(client)
        for number, body in enumerate(requests(path)):
            insert(client, "traces", body, f"bench-{number}")
        traces = [str(trace) for (trace,) in client.query(_TRACES).result_rows]
        times = []
        for _ in range(_ROUNDS):
            began = time.process_time()
            table = read_spans(client, traces)
            times.append(time.process_time() - began)
        return table, min(times)
    finally:
        client.close()
