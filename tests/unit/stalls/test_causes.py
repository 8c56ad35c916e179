"""What a stall came from: worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Row = dict[str, Any]
Make = Callable[..., Row]
MS = 1_000_000
SECOND = 1_000 * MS


def causes(row: Row) -> list[tuple[int, int, str, str]]:
    columns = (row[f"stall_causes.{name}"] for name in ("at_us", "gap_us", "cause", "detail"))
    return list(zip(*columns, strict=True))


def answer(make: Make, engine_gaps: list[int], number: int = 1, **more: Any) -> list[Row]:
    """A client with a stall of 200 ms after its third token, and an engine whose clock is 5 s ahead; gaps in ms."""
    ids = {"trace_id": f"{number:032x}"}
    gaps = [100_000, 10_000, 10_000, 200_000, 10_000, 10_000]
    return [
        make(f"c{number}", "", 0, SECOND, "client", service="app", gaps_us=gaps, **ids),
        make(f"s{number}", f"c{number}", 5 * SECOND + 20 * MS, 5 * SECOND + 900 * MS, "server", service="engine",
             host="gpu", gaps_us=[one * 1000 for one in engine_gaps], **ids, **more),
    ]  # fmt: skip


def test_the_way_from_the_engine(make: Make, prompt: Callable[..., Row]) -> None:
    row = prompt(*answer(make, [60, 10, 10, 12, 10, 10]))
    assert row["stalls"] == 1
    assert causes(row) == [(120_000, 200_000, "network", "engine gap 12000 us")]


def test_tokens_delivered_together_are_found_by_their_number(make: Make, prompt: Callable[..., Row]) -> None:
    """The client gets one token at a time, the engine counts three steps of two."""
    row = prompt(*answer(make, [60, 12, 12], counts=[2, 2, 2]))
    assert causes(row) == [(120_000, 200_000, "network", "engine gap 0 us")]


def test_other_numbers_of_tokens_say_nothing(make: Make, prompt: Callable[..., Row]) -> None:
    assert causes(prompt(*answer(make, [60, 10, 10]))) == [(120_000, 200_000, "", "")]


def test_preempted(make: Make, prompt: Callable[..., Row]) -> None:
    row = prompt(*answer(make, [60, 10, 10, 195, 10, 10], preempted_us=[85_000, 180_000]))
    assert causes(row) == [(120_000, 200_000, "preemption", "180000 us")]
    row = prompt(*answer(make, [60, 10, 10, 195, 10, 10], preempted_us=[500_000, 180_000]))
    assert causes(row) == [(120_000, 200_000, "", "")]


@pytest.mark.parametrize("engine_tells", [True, False])
def test_the_prefill_of_another_prompt(make: Make, prompts: Callable[..., list[Row]], engine_tells: bool) -> None:
    gaps = [60, 10, 10, 195, 10, 10] if engine_tells else []
    base = 5 * SECOND
    rows = prompts(
        *answer(make, gaps),
        make("c2", "", 0, SECOND, "client", service="app", trace_id=f"{2:032x}"),
        make("s2", "c2", base + 90 * MS, base + 800 * MS, "server", service="engine", host="gpu", trace_id=f"{2:032x}"),
        make("p2", "s2", base + 110 * MS, base + 260 * MS, "prefill", service="engine", host="gpu",
             trace_id=f"{2:032x}"),
        # On another engine, at the same time.
        make("s3", "", base + 90 * MS, base + 800 * MS, "server", service="other", host="gpu", trace_id=f"{3:032x}"),
        make("p3", "s3", base + 100 * MS, base + 300 * MS, "prefill", service="other", host="gpu",
             trace_id=f"{3:032x}"),
    )  # fmt: skip
    assert causes(rows[0]) == [(120_000, 200_000, "prefill", "c2")]
    assert [causes(row) for row in rows[1:]] == [[], []]


def test_its_own_prefill_is_no_cause(make: Make, prompt: Callable[..., Row]) -> None:
    base = 5 * SECOND
    row = prompt(
        *answer(make, [60, 10, 10, 195, 10, 10]),
        make("p1", "s1", base + 30 * MS, base + 400 * MS, "prefill", service="engine", host="gpu"),
    )
    assert causes(row) == [(120_000, 200_000, "", "")]


def test_of_prefills_in_one_step_the_same_is_named_in_any_order(make: Make, prompts: Callable[..., list[Row]]) -> None:
    base = 5 * SECOND
    spans = answer(make, [60, 10, 10, 195, 10, 10])
    for number in (2, 3, 4):
        trace = {"trace_id": f"{number:032x}"}
        engine = {"service": "engine", "host": "gpu", **trace}
        spans += [
            make(f"c{number}", "", 0, SECOND, "client", service="app", **trace),
            make(f"s{number}", f"c{number}", base + 90 * MS, base + 800 * MS, "server", **engine),
            make(f"p{number}", f"s{number}", base + 110 * MS, base + 260 * MS, "prefill", **engine),
        ]
    for order in (spans, spans[::-1]):
        [row] = [row for row in prompts(*order) if row["prompt_id"] == "c1"]
        assert causes(row) == [(120_000, 200_000, "prefill", "c4")]
