"""Batches of spans as a busy stack leaves them, for measuring the assembler. Built of columns: no Python per span."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from promptpath.collector.assemble import SPAN_SCHEMA
from promptpath.collector.assemble.schema import CODED

_T0: Final = 1_700_000_000_000_000_000
_TOKENS: Final = 30
_MS: Final = 1_000_000


@dataclass(frozen=True)
class _Kind:
    """One span of the template. starts: ms from the prompt's start; length, first delivery: ms."""

    parent: int
    kind: str
    scope: str
    service: str
    stage: str
    starts: float
    length: float | None = None
    first: float | None = None


#: A prompt through client, gateway, router and engine, on three hosts; lengths in ms. None: to the end of the answer.
_TEMPLATE: Final = (
    _Kind(-1, "CLIENT", "promptpath.openai", "demo-client", "client", 0, None, 60),
    _Kind(0, "CLIENT", "promptpath.httpx", "demo-client", "call", 0.4, None, 59.2),
    _Kind(1, "INTERNAL", "promptpath.httpx", "demo-client", "dns", 0.5, 0.4),
    _Kind(1, "INTERNAL", "promptpath.httpx", "demo-client", "tcp", 1.0, 0.6),
    _Kind(1, "INTERNAL", "promptpath.httpx", "demo-client", "tls", 1.7, 2.1),
    _Kind(1, "SERVER", "promptpath.asgi", "gateway", "gateway", 5, None, 54),
    _Kind(5, "INTERNAL", "promptpath.fastapi", "gateway", "gateway", 5.2, 0.5),
    _Kind(5, "INTERNAL", "promptpath.fastapi", "gateway", "gateway", 5.8, 0.2),
    _Kind(5, "INTERNAL", "promptpath.fastapi", "gateway", "gateway", 6.1, 0.9),
    _Kind(5, "CLIENT", "promptpath.httpx", "gateway", "call", 7.2, None, 51),
    _Kind(9, "SERVER", "promptpath.asgi", "router", "router", 8, None, 49),
    _Kind(10, "CLIENT", "promptpath.httpx", "router", "call", 8.5, 2.5),
    _Kind(10, "CLIENT", "promptpath.httpx", "router", "call", 12, None, 45),
    _Kind(12, "SERVER", "promptpath.asgi", "engine", "server", 12.6, None, 44),
    _Kind(13, "INTERNAL", "promptpath.openvino_genai", "engine", "parse", 12.7, 0.3),
    _Kind(13, "INTERNAL", "promptpath.openvino_genai", "engine", "tokenize", 13.1, 0.8),
    _Kind(13, "INTERNAL", "promptpath.openvino_genai", "engine", "queue", 14, 9),
    _Kind(13, "INTERNAL", "promptpath.openvino_genai", "engine", "prefill", 23, 33),
    _Kind(13, "INTERNAL", "promptpath.openvino_genai", "engine", "decode", 56, None, 0),
    _Kind(13, "INTERNAL", "promptpath.openvino_genai", "engine", "detokenize", 56, 0.2),
    _Kind(13, "INTERNAL", "promptpath.asgi", "engine", "stream", 56.3, 0.3),
)
_FAILED_CALL: Final = 11
_HOST_OF: Final = {"demo-client": 0, "gateway": 1, "router": 1, "engine": 2}
_SERVED: Final = ("client", "call", "edge", "gateway", "router", "server")


def demo_batch(prompts: int, *, seed: int = 0, in_order: bool = False) -> pa.Table:
    """Spans of `prompts` prompts, about 20 each, SPAN_SCHEMA, as the collector's SELECT gives them.

    Every span that a prompt's tokens passed has a gap for each of 30 deliveries; one prompt in twenty had a call that
    failed and was made again; the clocks of the hosts differ by seconds. in_order: traces together and by time, as
    they lie in storage; else in any order.
    """
    rng = np.random.default_rng(seed)
    width = len(_TEMPLATE)
    keep = np.ones((prompts, width), dtype=np.bool_)
    keep[:, _FAILED_CALL] = rng.random(prompts) < 0.05
    flat = np.flatnonzero(keep)
    rows = flat if in_order else rng.permutation(flat)
    prompt, which = rows // width, rows % width

    factor = rng.lognormal(0, 0.25, prompts)
    begins = _T0 + np.cumsum(rng.exponential(2 * _MS, prompts)).astype(np.int64)
    gaps = rng.gamma(4, 5_000, (prompts, _TOKENS)).astype(np.int64) + 1
    answer = gaps[:, 1:].sum(axis=1) * 1000
    skew = np.concatenate(([0], rng.integers(-5_000, 5_000, 63))) * _MS
    host = rng.integers(0, 16, (prompts, 3)) + np.array([0, 16, 32])

    def per(name: str) -> npt.NDArray[Any]:
        return np.array([getattr(one, name) for one in _TEMPLATE])[which]

    start_ms = np.array([one.starts for one in _TEMPLATE])
    length_ms = np.array([-1.0 if one.length is None else one.length for one in _TEMPLATE])
    first_ms = np.array([-1.0 if one.first is None else one.first for one in _TEMPLATE])
    place = host[prompt, np.array([_HOST_OF[one.service] for one in _TEMPLATE])[which]]
    start = begins[prompt] + skew[place] + (start_ms[which] * factor[prompt] * _MS).astype(np.int64)
    first = (first_ms[which] * factor[prompt] * _MS).astype(np.int64)
    length = (length_ms[which] * factor[prompt] * _MS).astype(np.int64)
    length = np.where(length_ms[which] < 0, first + answer[prompt] + 1_000, length)

    has_gaps = first_ms[which] >= 0
    offsets = np.concatenate(([0], np.cumsum(np.where(has_gaps, _TOKENS, 0)))).astype(np.int32)
    values = gaps[prompt[has_gaps]]
    values[:, 0] = first[has_gaps] // 1000
    stage, service = per("stage"), per("service")
    ids = rng.integers(1, 2**63, (prompts, width), dtype=np.uint64)
    parent = np.array([one.parent for one in _TEMPLATE])[which]
    spans = _hex(ids[prompt, which])
    parents = np.where(parent < 0, "", _hex(ids[prompt, parent]))
    traces = np.char.add(
        _hex(rng.integers(1, 2**63, prompts, dtype=np.uint64)), _hex(np.arange(prompts, dtype=np.uint64))
    )
    root, server, retried = which == 0, stage == "server", which == _FAILED_CALL
    hop = np.isin(stage, _SERVED) & (per("scope") != "promptpath.fastapi")
    empty = pa.array(np.zeros(len(rows) + 1, dtype=np.int32))

    def some(where: npt.NDArray[np.bool_], value: str | npt.NDArray[Any]) -> pa.Array:
        return pa.array(np.where(where, value, ""), type=pa.string())

    def known(where: npt.NDArray[np.bool_], numbers: npt.NDArray[Any] | float) -> npt.NDArray[Any]:
        return np.ma.masked_array(np.broadcast_to(numbers, len(rows)), ~where)

    tokens_in = rng.integers(20, 2_000, prompts)[prompt]
    columns: dict[str, Any] = {
        "trace_id": traces[prompt],
        "span_id": spans,
        "parent_id": parents,
        "start_ns": start,
        "duration_ns": length,
        "kind": per("kind"),
        "scope": per("scope"),
        "service": service,
        "process": np.char.add(np.char.add(service, "-4e0f2c6a-"), place.astype(str)),
        "host": np.char.add("host-7d1b93-", place.astype(str)),
        "loopback": np.zeros(len(rows), dtype=np.bool_),
        "stage": stage,
        "inference": hop,
        "agent": np.zeros(len(rows), dtype=np.bool_),
        "failed": retried,
        "gaps_us": pa.ListArray.from_arrays(pa.array(offsets), pa.array(values.ravel().astype(np.uint32))),
        "first_byte_ns": known(stage == "call", np.maximum(first - 50_000, 0)),
        "streaming": known(root | (which == 5), True),
        "operation": some(hop, "chat"),
        "model": some(root | server, "smollm2-135m"),
        "request_model": some(hop, "smollm2-135m"),
        "finish_reason": some(root | server, "stop"),
        "http_status": known(hop & ~root, np.where(retried, 503, 200)),
        "error_type": some(retried, "503"),
        "tenant": some(which == 5, np.char.add("tenant-", (prompt % 50).astype(str))),
        "input_tokens": known(root | server, tokens_in),
        "output_tokens": known(root | server, _TOKENS),
        "tcp_rtt_us": known(which == 1, rng.integers(100, 900, len(rows))),
        "gpu_uuids": pa.ListArray.from_arrays(
            pa.array(np.concatenate(([0], np.cumsum(service == "engine"))).astype(np.int32)),
            pa.array(np.char.add("GPU-6f1e0c1d-", place[service == "engine"].astype(str))),
        ),
    }
    arrays = []
    for field in SPAN_SCHEMA:
        column = columns.get(field.name)
        if column is None and field.type == pa.string():
            column = pa.array([""]).take(pa.array(np.zeros(len(rows), dtype=np.int32)))
        elif column is None and pa.types.is_list(field.type):
            column = pa.ListArray.from_arrays(empty, pa.array([], type=field.type.value_type))
        elif column is None:
            column = pa.nulls(len(rows), field.type)
        arrays.append(column if isinstance(column, pa.Array) else pa.array(column).cast(field.type))
    return pa.Table.from_arrays(
        [array.cast(field.type) for array, field in zip(arrays, SPAN_SCHEMA, strict=True)], schema=SPAN_SCHEMA
    )


def as_selected(spans: pa.Table) -> pa.Table:
    """Spans with dictionaries where the collector's SELECT gives them."""
    for name in CODED:
        place = spans.schema.get_field_index(name)
        spans = spans.set_column(place, name, spans[name].combine_chunks().dictionary_encode())
    return spans


def _hex(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.str_]:
    """Numbers as 16 lower-case hex digits each."""
    digits = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)
    shifts = np.arange(60, -4, -4, dtype=np.uint64)
    text = digits[((numbers[..., None] >> shifts) & np.uint64(15)).astype(np.intp)]
    return np.ascontiguousarray(text.astype(np.uint32)).view("<U16")[..., 0]
