"""What stalls came from that the spans of their batch do not show: prompts stored before, the clocks of GPUs.

One query a batch each. A stored prompt's prefill is where it is drawn, on its root's clock; the row's own offset leads
to its engine's. A GPU's clock fell if its lowest value during the stall is at most 85 % of its median in the ten
seconds before: boost clocks wander by a few per cent, a throttled GPU falls by a fifth and more. Where nothing was
measured nothing is said.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from promptpath.collector.assemble.ragged import offsets_of
from promptpath.collector.assemble.stalls import SHARE

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

#: Names of a GPU's clock: ours and that of NVIDIA's DCGM exporter (MHz). Points name the GPU by its UUID.
CLOCK_METRICS: Final = ("hw.gpu.clock.frequency", "DCGM_FI_DEV_SM_CLOCK")
#: The clock fell if it is at most this share of what it was.
FALLEN: Final = 0.85
#: Before a stall so long, by points so many at least, the clock is known.
_BEFORE_NS: Final = 10_000_000_000
_POINTS_BEFORE: Final = 3
#: Stalls looked up at once.
_MAX_STALLS: Final = 1_000


def explain(client: Client, prompts: pa.Table, opened: list[pa.Table], tenant: str = "") -> pa.Table:
    """`prompts` with the causes of those of `opened` (tables of `stalls.OPEN_SCHEMA`) that storage explains.

    prompts: columns of PROMPT_SCHEMA, of a tenant; nothing is said of what others sent.
    """
    if not opened:
        return prompts
    every = pa.concat_tables(opened).combine_chunks()
    found: dict[int, tuple[str, str]] = {}
    for first in range(0, every.num_rows, _MAX_STALLS):
        stalls = every.slice(first, _MAX_STALLS)
        uuids = stalls["gpu_uuids"].to_pylist()
        if any(uuids):
            found |= {first + index: ("gpu_clock", detail) for index, detail in _clocks(client, stalls, uuids, tenant)}
        found |= {first + index: ("prefill", one) for index, one in _prefills(client, stalls, uuids, tenant)}
    return _told(prompts, every, found) if found else prompts


def _prefills(client: Client, stalls: pa.Table, uuids: list[list[str]], tenant: str) -> list[tuple[int, str]]:
    """(stall, prompt) where a stored prompt's prefill on the same engine covers enough of a stall."""
    parameters = {
        "prompt_ids": stalls["prompt_id"].to_pylist(),
        "services": stalls["service"].to_pylist(),
        "hosts": stalls["host"].to_pylist(),
        "gpus": [",".join(sorted(one)) for one in uuids],
        "starts": stalls["start_ns"].to_pylist(),
        "ends": stalls["end_ns"].to_pylist(),
        "from_ns": pc.min(stalls["start_ns"]).as_py(),
        "to_ns": pc.max(stalls["end_ns"]).as_py(),
        "share": SHARE,
        "tenant": tenant,
    }
    return [(int(index), str(one)) for index, one in client.query(_sql("stall_prefills"), parameters).result_rows]


def _clocks(client: Client, stalls: pa.Table, uuids: list[list[str]], tenant: str) -> list[tuple[int, str]]:
    """(stall, what is to be said) where the clock of one of the engine's GPUs fell."""
    which = np.repeat(np.arange(len(uuids)), [len(one) for one in uuids])
    parameters: dict[str, Any] = {
        "names": list(CLOCK_METRICS),
        "stalls": which.tolist(),
        "gpus": [uuid for one in uuids for uuid in one],
        "starts": stalls["start_ns"].to_numpy()[which].tolist(),
        "ends": stalls["end_ns"].to_numpy()[which].tolist(),
        "before_ns": _BEFORE_NS,
        "points": _POINTS_BEFORE,
        "tenant": tenant,
        "fallen": FALLEN,
        "from_ns": pc.min(stalls["start_ns"]).as_py() - _BEFORE_NS,
        "to_ns": pc.max(stalls["end_ns"]).as_py(),
    }
    rows = client.query(_sql("stall_clocks"), parameters).result_rows
    return [
        (int(index), f"{uuid} {before:g} to {during:g} {unit}".rstrip()) for index, uuid, before, during, unit in rows
    ]


def _told(prompts: pa.Table, stalls: pa.Table, found: dict[int, tuple[str, str]]) -> pa.Table:
    rows = pc.index_in(stalls["prompt_id"], value_set=prompts["prompt_id"].combine_chunks()).to_numpy()
    causes, details = (prompts[f"stall_causes.{name}"].combine_chunks() for name in ("cause", "detail"))
    offsets = causes.offsets.to_numpy()
    numbers = stalls["number"].to_numpy()
    words, more = causes.flatten().to_pylist(), details.flatten().to_pylist()
    for index, (cause, detail) in found.items():
        at = int(offsets[rows[index]] - offsets[0] + numbers[index])
        words[at], more[at] = cause, detail
    count = np.diff(offsets)
    lists = offsets_of(np.repeat(np.arange(len(count)), count), len(count))
    for name, values in (("cause", words), ("detail", more)):
        column = pa.ListArray.from_arrays(lists, pa.array(values, type=pa.string()))
        place = prompts.column_names.index(f"stall_causes.{name}")
        prompts = prompts.set_column(place, prompts.schema.field(place), column)
    return prompts


@lru_cache
def _sql(name: str) -> str:
    return files("promptpath.collector.assemble").joinpath(f"{name}.sql").read_text(encoding="utf-8")
