"""The vectorised assembler gives, row for row, what plain Python gives that follows the same rules span by span."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from promptpath.cli.benches.assemble import agreed, load_reference, rows_of
from promptpath.cli.benches.spans import as_selected, demo_batch
from promptpath.collector.assemble import SPAN_SCHEMA, AssembleConfig, assemble, windows

Row = dict[str, Any]
Make = Callable[..., Row]

CONTAINERS = ("client", "call", "edge", "gateway", "router", "server", "inbound")
INNER = (
    "dns", "tcp", "tls", "parse", "tokenize", "queue", "prefill", "decode", "detokenize", "stream", "load",
    "safety", "safety", "structure",
)  # fmt: skip
T0 = 1_700_000_000_000_000_000
SETTINGS = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def differences(table: pa.Table) -> list[tuple[str, str, Any, Any]]:
    """(prompt, column, assembler's, reference's) wherever they do not agree."""
    reference = load_reference()
    assert reference is not None
    found = agreed(rows_of(assemble(table, AssembleConfig(assembled_at_ns=1))))
    wanted = reference(table.to_pylist())
    assert [row["prompt_id"] for row in found] == [row["prompt_id"] for row in wanted]
    return [
        (row["prompt_id"], name, value, other[name])
        for row, other in zip(found, wanted, strict=True)
        for name, value in row.items()
        if value != other[name]
    ]


def span_of(make: Make, rng: random.Random, number: int, ids: list[str], trace: str, circles: bool) -> Row:
    """A span in any relation to those before it (in `ids`), saying anything."""
    stage = rng.choice(("", *CONTAINERS, *CONTAINERS, *INNER))
    is_hop = stage in CONTAINERS
    service, host = rng.randint(0, 2), rng.randint(0, 2)
    start = rng.randint(0, 60)
    among = ids if circles else ids[:number]
    parent = rng.choice(among) if among and rng.random() < 0.9 else ""
    gaps = rng.choice((0, 0, 1, 5)) if is_hop or stage == "decode" else 0
    parts = rng.choice((0, 0, 0, 2)) if is_hop else 0
    return make(
        ids[number],
        "" if parent == ids[number] else parent,
        start,
        start + rng.randint(0, 60),
        stage,
        trace_id=trace,
        service=f"service{service}",
        host=f"host{host}",
        process=f"p{service}{host}",
        kind=rng.choice(("CLIENT", "SERVER", "INTERNAL")) if rng.random() < 0.2 else make("x", stage=stage)["kind"],
        inference=is_hop or rng.random() < 0.03,
        loopback=rng.random() < 0.1,
        agent=rng.random() < 0.05,
        role=rng.choice(("", "", "", "forward", "forwarded", "prefill", "decode")),
        failed=rng.random() < 0.15,
        gaps_us=[rng.choice((0, 0, 1, 2, 60_000, 90_000)) for _ in range(gaps)],
        counts=[rng.randint(0, 3) for _ in range(rng.choice((0, gaps)))],
        first_token_ns=rng.choice((None, None, rng.randint(0, 60))),
        first_byte_ns=rng.choice((None, rng.randint(0, 60))),
        part_stages=[rng.choice(("queue", "prefill", "decode")) for _ in range(parts)],
        part_starts_ns=[rng.randint(-5, 50) for _ in range(parts)],
        part_durations_ns=[rng.randint(-5, 50) for _ in range(parts)],
        streaming=rng.choice((None, None, True, True, False)),
        choices=rng.choice((None, None, 1, 2)),
        operation=rng.choice(("", "chat", "embeddings")),
        model=rng.choice(("", "m1", "m2")),
        request_model=rng.choice(("", "r1", "r2")),
        finish_reason=rng.choice(("", "", "stop", "content_filter", "abort")),
        http_status=rng.choice((None, 200, 429, 503, 404)),
        error_type=rng.choice(("", "", "", "TimeoutError", "503", "X")),
        abort=rng.choice(("", "", "", "client", "server", "timeout", "disconnect")),
        tenant=rng.choice(("", "t1", "t2")),
        input_tokens=rng.choice((None, 5, 7)),
        cached_tokens=rng.choice((None, 5)),
        output_tokens=rng.choice((None, 0, 5, 17)),
        reasoning_tokens=rng.choice((None, 5)),
        preemptions=rng.choice((None, 1)),
        tcp_rtt_us=rng.choice((None, 5)),
        tcp_retransmits=rng.choice((None, 1)),
        cost_usd=rng.choice((None, 0.25)),
        conversation_id=rng.choice(("", "c1")),
        agent_name=rng.choice(("", "a1", "a2")),
        gpu_uuids=rng.choice(([], ["g1"], ["g2", "g1"])),
    )


def batch_of(make: Make, seed: int, traces: int, size: int) -> pa.Table:
    """Traces of up to `size` spans, some with circles of parents, some spans twice; in any order."""
    rng = random.Random(seed)
    hex_ids = rng.random() < 0.7
    rows: list[Row] = []
    for number in range(traces):
        ids = [f"{one:016x}" if hex_ids else f"span{one}" for one in rng.sample(range(1, 500), rng.randint(1, size))]
        circles = rng.random() < 0.15
        for index in range(len(ids)):
            row = span_of(make, rng, index, ids, f"{number * 7919 % 9973:032x}", circles)
            rows.append(row)
            if rng.random() < 0.05:
                rows.append(row | {"duration_ns": row["duration_ns"] + rng.randint(-5, 5)})
    rng.shuffle(rows)
    return pa.Table.from_pylist(rows, schema=SPAN_SCHEMA)


@SETTINGS
@given(seed=st.integers(0, 2**32))
def test_random_trees(make: Make, seed: int) -> None:
    assert differences(batch_of(make, seed, traces=4, size=25)) == []


@pytest.mark.parametrize("seed", range(4))
def test_batches_of_random_trees(make: Make, seed: int) -> None:
    assert differences(batch_of(make, seed, traces=150, size=25)) == []


@pytest.mark.parametrize("seed", range(12))
def test_batches_with_lost_spans(make: Make, seed: int) -> None:
    """Parents that never came: placed, adopted, or nobody's, by the same rules."""
    rng = random.Random(seed)
    table = batch_of(make, seed, traces=120, size=10)
    kept = pa.array([rng.random() > 0.15 for _ in range(table.num_rows)])
    assert differences(table.filter(kept)) == []


@pytest.mark.parametrize("seed", range(3))
def test_realistic_batches_with_lost_spans(seed: int) -> None:
    rng = random.Random(seed)
    table = demo_batch(150, seed=seed)
    assert differences(table.filter(pa.array([rng.random() > 0.1 for _ in range(table.num_rows)]))) == []


@pytest.mark.parametrize("in_order", [False, True])
def test_realistic_batches(in_order: bool) -> None:
    table = demo_batch(400, seed=3, in_order=in_order)
    assert differences(table) == []
    assert differences(as_selected(table)) == []


@pytest.mark.parametrize("seed", range(6))
def test_windows_change_nothing(make: Make, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """A large batch is worked on in windows; small ones here, so that there are many."""
    random_trees = batch_of(make, seed, traces=100, size=20)
    lost = random_trees.filter(pa.array([number % 9 > 0 for number in range(random_trees.num_rows)]))
    for table in (random_trees, lost, demo_batch(100, seed=seed)):
        whole = assemble(table, AssembleConfig(assembled_at_ns=1))
        with monkeypatch.context() as patched:
            patched.setattr(windows, "_WINDOW", 60)
            assert assemble(table, AssembleConfig(assembled_at_ns=1)) == whole
