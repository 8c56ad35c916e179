"""Stalls whose cause lies outside of their batch: in prompts stored before, in the clocks of GPUs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from promptpath.collector.assembler import AssemblerService

Row = dict[str, Any]
INTERNAL, SERVER = 1, 2
MS = 1_000_000
T0 = 1_700_000_000_000_000_000
STALL_MS = 400
GPU = "GPU-1"


@pytest.fixture
def assembled(factory: Any, store: Any, put: Any, request_of: Any) -> Any:
    """Store spans of an engine and assemble them at once."""
    store.command("TRUNCATE TABLE otel_metrics_gauge")
    service = AssemblerService(factory, grace_s=0)

    def run(*spans: Any, host: str = "gpu-host", gpu: str = GPU) -> None:
        resource = {"service.name": "engine", "host.id": host, "service.instance.id": f"{host} {gpu}"}
        put(store, request_of(*spans, resource=resource | {"promptpath.gpu.uuids": [gpu]}))
        # What was assembled before is done, and not assembled with these.
        assert service.run_once() > 0

    yield run
    service.close()


def stalled(number: int = 1) -> list[tuple[Any, ...]]:
    """An answer that pauses from 200 ms to 600 ms after its start."""
    trace = {"trace": f"{number:032x}"}
    gaps = [100_000, 50_000, 50_000, STALL_MS * 1000, 50_000, 50_000]
    said = {"promptpath.stage": "server", "promptpath.token.gaps_us": gaps}
    return [("POST /v1/chat/completions", SERVER, 0, 1_000 * MS, said, trace | {"id": f"{number:016x}"})]


def prefilling(number: int, start: int, end: int) -> list[tuple[Any, ...]]:
    trace, root = {"trace": f"{number:032x}"}, f"{number:016x}"
    return [
        ("POST /v1/chat/completions", SERVER, start - MS, end + MS, {"promptpath.stage": "server"},
         trace | {"id": root}),
        ("prefill", INTERNAL, start, end, {"promptpath.stage": "prefill"},
         trace | {"id": f"{number + 99:016x}", "parent": root}),
    ]  # fmt: skip


def causes(rows: list[Row], number: int = 1) -> list[tuple[str, str]]:
    (row,) = (row for row in rows if row["prompt_id"] == f"{number:016x}")
    return list(zip(row["stall_causes.cause"], row["stall_causes.detail"], strict=True))


def test_a_prefill_of_a_prompt_stored_before(assembled: Any, stored: Callable[[], list[Row]]) -> None:
    assembled(*prefilling(2, 250 * MS, 550 * MS), *prefilling(3, 210 * MS, 260 * MS))
    assembled(*prefilling(4, 200 * MS, 600 * MS), host="another")
    assembled(*prefilling(5, 200 * MS, 600 * MS), gpu="GPU-2")
    assembled(*stalled())
    assert causes(stored()) == [("prefill", f"{2:016x}")]


def test_a_short_prefill_explains_nothing(assembled: Any, stored: Callable[[], list[Row]]) -> None:
    assembled(*prefilling(2, 250 * MS, 300 * MS), *prefilling(3, 700 * MS, 990 * MS))
    assembled(*stalled())
    assert causes(stored()) == [("", "")]


def measured(store: Any, points: dict[int, float], name: str = "hw.gpu.clock.frequency", gpu: str = GPU) -> None:
    """Points of a GPU's clock: ms from T0, MHz."""
    rows = [(T0 + at * MS, value) for at, value in points.items()]
    store.insert_arrow(
        "otel_metrics_gauge",
        pa.table(
            {
                "MetricName": [name] * len(rows),
                "MetricUnit": ["MHz"] * len(rows),
                "Attributes": pa.array([[("hw.id", gpu)]] * len(rows), type=pa.map_(pa.string(), pa.string())),
                "TimeUnix": pa.array([at for at, _ in rows], type=pa.timestamp("ns")),
                "Value": [value for _, value in rows],
            }
        ),
    )


STEADY = dict.fromkeys(range(-3000, 200, 100), 1980.0)


@pytest.mark.parametrize(
    ("during", "told"),
    [
        ({300: 1980.0, 400: 1410.0, 500: 1980.0}, [("gpu_clock", "GPU-1 1980 to 1410 MHz")]),
        ({300: 1900.0, 400: 1800.0}, [("", "")]),
        ({700: 1000.0}, [("", "")]),
        ({}, [("", "")]),
    ],
    ids=["fell", "wandered", "fell afterwards", "not measured"],
)
def test_a_gpu_whose_clock_fell(
    assembled: Any, store: Any, stored: Callable[[], list[Row]], during: dict[int, float], told: list[tuple[str, str]]
) -> None:
    measured(store, STEADY | during)
    measured(store, STEADY | {400: 500.0}, gpu="GPU-2")
    measured(store, STEADY | {400: 1.0}, name="hw.gpu.utilization")
    assembled(*stalled())
    assert causes(stored()) == told


def test_a_clock_that_was_never_known_before_says_nothing(
    assembled: Any, store: Any, stored: Callable[[], list[Row]]
) -> None:
    measured(store, {150: 1980.0, 300: 1000.0})
    assembled(*stalled())
    assert causes(stored()) == [("", "")]
