"""Gaps, ITL percentiles, TPOT, stalls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

Row = dict[str, Any]
Make = Callable[..., Row]
Prompt = Callable[..., Row]
US = 1000


def test_percentiles_are_over_gaps_apportioned_to_tokens(make: Make, prompt: Prompt) -> None:
    row = prompt(make("a", "", 0, 10**9, "client", gaps_us=[100, 30, 40, 10], counts=[2, 3, 1, 2], output_tokens=8))
    samples = np.array([10, 10, 10, 40, 5, 5]) * 1000.0
    assert row["itl_p50_ns"] == round(float(np.quantile(samples, 0.5)))
    assert row["itl_p99_ns"] == round(float(np.quantile(samples, 0.99)))
    assert row["itl_max_ns"] == 40 * US
    assert row["tpot_ns"] == round(80 * US / 7)
    assert (row["first_tokens"], row["gaps_us"], row["gap_tokens"]) == (2, [30, 40, 10], [3, 1, 2])


@settings(max_examples=100, deadline=None)
@given(
    answers=st.lists(
        st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 5)), min_size=1, max_size=12), min_size=1, max_size=6
    )
)
def test_as_numpy_has_them(make: Make, prompts: Callable[..., list[Row]], answers: list[list[tuple[int, int]]]) -> None:
    rows = prompts(
        *(
            make(f"{number:016x}", "", 0, 10**10, "client", trace_id=f"{number:032x}",
                 gaps_us=[gap for gap, _ in answer], counts=[count for _, count in answer])
            for number, answer in enumerate(answers)
        )
    )  # fmt: skip
    for row, answer in zip(rows, answers, strict=True):
        samples = np.array([gap * 1000 / count for gap, count in answer[1:] for _ in range(count)])
        wanted = [round(float(np.quantile(samples, q))) for q in (0.5, 0.99, 1.0)] if len(samples) else [None] * 3
        got = [row["itl_p50_ns"], row["itl_p99_ns"], row["itl_max_ns"]]
        # Halves may round either way after different orders of floating-point operations.
        assert [value is None for value in got] == [value is None for value in wanted]
        assert all(abs(a - b) <= 1 for a, b in zip(got, wanted, strict=True) if a is not None)
        gaps = np.array([gap * 1000 for gap, _ in answer[1:]])
        limit = max(4 * float(np.median(gaps)), 50e6) if len(gaps) else 0
        assert row["stalls"] == int((gaps > limit).sum())


def test_a_stall_is_over_both_four_medians_and_50_ms(make: Make, prompt: Prompt) -> None:
    def stalls(*gaps_ms: float, **config: Any) -> Any:
        gaps = [0, *(int(gap * 1000) for gap in gaps_ms)]
        return prompt(make("a", "", 0, 10**10, "client", gaps_us=gaps), **config)["stalls"]

    assert stalls(10, 10, 10, 60) == 1
    assert stalls(10, 10, 10, 50) == 0  # not over 50 ms
    assert stalls(20, 20, 20, 80) == 0  # not over 4 medians
    assert stalls(20, 20, 20, 81, 300) == 2
    assert stalls(1, 1, 1, 49) == 0
    assert stalls(1, 1, 1, 49, stall_min_ns=40_000_000) == 1
    assert stalls(20, 20, 20, 70, stall_factor=3.0) == 1
    assert stalls() == 0
    assert prompt(make("a", "", 0, 100, "client"))["stalls"] is None


def test_stalls_are_measured_against_gaps_not_against_tokens(make: Make, prompt: Prompt) -> None:
    row = prompt(make("a", "", 0, 10**10, "client", gaps_us=[0, 40_000, 40_000, 100_000], counts=[1, 10, 10, 1]))
    assert row["stalls"] == 0


def test_one_delivery_of_k_tokens_is_k_tokens_at_one_instant(make: Make, prompt: Prompt) -> None:
    row = prompt(make("a", "", 0, 10_000, "client", gaps_us=[3], counts=[4], output_tokens=4))
    assert (row["tpot_ns"], row["first_tokens"], row["itl_p50_ns"], row["gaps_us"]) == (0, 4, None, [])


def test_one_token_has_no_tpot(make: Make, prompt: Prompt) -> None:
    row = prompt(make("a", "", 0, 10_000, "client", gaps_us=[3], output_tokens=1))
    assert (row["tpot_ns"], row["ttft_ns"]) == (None, 3 * US)


def test_gaps_come_from_the_outermost_hop_that_has_them(make: Make, prompt: Prompt) -> None:
    row = prompt(
        make("a", "", 0, 10**6, "client", service="app", first_token_ns=900),
        make("b", "a", 0, 10**6, "gateway", service="gate"),
        make("c", "b", 0, 10**6, "call", service="gate", gaps_us=[1, 2, 3]),
        make("d", "c", 0, 10**6, "server", service="engine", gaps_us=[1, 7, 7]),
    )
    assert (row["ttft_source"], row["gaps_source"], row["gaps_us"]) == ("client", "gateway", [2, 3])


def test_gaps_that_only_the_engines_decode_knows(make: Make, prompt: Prompt) -> None:
    row = prompt(
        make("a", "", 0, 10**6, "server", streaming=True),
        make("b", "a", 0, 500, "prefill"),
        make("c", "a", 500, 9000, "decode", gaps_us=[0, 4, 4]),
    )
    assert (row["gaps_source"], row["gaps_us"], row["ttft_ns"], row["ttft_source"]) == ("engine", [4, 4], 500, "engine")
    assert row["tpot_ns"] == 4 * US


def test_gaps_of_a_lost_attempt_are_not_the_prompts(make: Make, prompt: Prompt) -> None:
    row = prompt(
        make("a", "", 0, 10**6, "router", service="route"),
        make("b", "a", 0, 100, "call", service="route", failed=True),
        make("c", "b", 0, 90, "server", service="engine", gaps_us=[0, 9, 9]),
        make("d", "a", 200, 10**6, "call", service="route", gaps_us=[1, 2]),
    )
    assert (row["gaps_us"], row["gaps_source"]) == ([2], "router")
