"""The engine: steps of 10 ms plus 1 ms per token computed, without noise."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from promptpath.collector.simulate.engine import Engine, EngineSpec, Sequence
from promptpath.collector.simulate.kernel import NEVER, Kernel, Signal
from promptpath.collector.simulate.scenario import Scenario, parse_regressions
from promptpath.collector.simulate.service_times import ServiceTimes

MS = 1_000_000


class Exact(random.Random):
    """No noise."""

    def lognormvariate(self, mu: float, sigma: float) -> float:
        return 1.0


class Bench:
    """An engine alone in a kernel."""

    def __init__(self, regression: str = "", **spec: Any) -> None:
        self.kernel = Kernel(0)
        spec = {"step_ms": 10.0, "prefill_us": 1000.0, "decode_us": 0.0, "block_tokens": 1, "blocks": 10_000} | spec
        scenario = Scenario(start_ns=0, regressions=parse_regressions(regression))
        rng = Exact(1)
        self.engine = Engine(self.kernel, EngineSpec("m", **spec), ServiceTimes(scenario, rng), rng)

    def submit(self, prompt: int, target: int, at_ms: int = 0, cancel_ms: int = 0, **more: Any) -> Sequence:
        one = Sequence("m", prompt, target, Signal(), **more)
        self.kernel.at(at_ms * MS, lambda _: self.engine.submit(one, cancel_ms * MS if cancel_ms else NEVER))
        return one


def in_ms(times: list[int]) -> list[float]:
    return [time / MS for time in times]


def test_queue_prefill_decode() -> None:
    bench = Bench()
    one = bench.submit(20, 3, at_ms=5)
    bench.kernel.run()
    assert (one.queued_ns, one.scheduled_ns, one.first_ns) == (5 * MS, 5 * MS, 35 * MS)
    assert in_ms(one.times) == [35, 45, 55]
    assert (one.counts, one.complete, one.ended_ns, one.chunks) == ([1, 1, 1], True, 55 * MS, [0, 20])


def test_who_comes_in_mid_step_waits_for_its_end_and_shares_the_next() -> None:
    bench = Bench()
    first, second = bench.submit(10, 5), bench.submit(20, 2, at_ms=25)
    bench.kernel.run()
    assert second.scheduled_ns == 30 * MS
    # A prefill in a step makes the others' tokens late.
    assert in_ms(first.times) == [20, 30, 60, 70, 80]
    assert in_ms(second.times) == [60, 70]


def test_a_long_prompt_is_computed_in_chunks() -> None:
    bench = Bench(token_budget=16)
    one = bench.submit(40, 1)
    bench.kernel.run()
    assert (one.scheduled_ns, one.first_ns) == (0, (26 + 26 + 18) * MS)
    assert one.chunks == [0, 16]


def test_no_more_than_fit_run_at_once() -> None:
    bench = Bench(max_sequences=1)
    one, two = bench.submit(10, 2), bench.submit(10, 2)
    bench.kernel.run()
    assert (two.ahead, two.scheduled_ns, one.ended_ns) == (0, 30 * MS, 30 * MS)


def test_without_memory_the_youngest_is_thrown_out_and_computed_anew() -> None:
    bench = Bench(blocks=30)
    old, young = bench.submit(10, 12), bench.submit(10, 12)
    bench.kernel.run()
    assert (old.preemptions, young.preemptions) == (0, 1)
    assert (old.made, young.made, old.complete, young.complete) == (12, 12, True, True)
    # From the first token to being thrown out, and for how long.
    offset, length = young.preempted_us
    assert young.first_ns + offset * 1000 + length * 1000 >= old.ended_ns
    assert young.times == sorted(young.times)


def test_a_prefix_that_was_seen_before_is_cached() -> None:
    bench = Bench()
    bench.submit(20, 1, prefix=3, prefix_tokens=16)
    again = bench.submit(20, 1, at_ms=100, prefix=3, prefix_tokens=16)
    other = bench.submit(20, 1, at_ms=200, prefix=4, prefix_tokens=16)
    bench.kernel.run()
    assert (again.cached, again.first_ns - again.scheduled_ns) == (16, 14 * MS)
    assert other.cached == 0


def test_a_cancelled_sequence_makes_no_more_and_frees_its_room() -> None:
    bench = Bench(max_sequences=1)
    one = bench.submit(10, 100, cancel_ms=45)
    waiting = bench.submit(10, 2, at_ms=1, cancel_ms=30)
    after = bench.submit(10, 2, at_ms=2)
    bench.kernel.run()
    assert (in_ms(one.times), one.complete, one.ended_ns) == ([20, 30, 40], False, 45 * MS)
    assert (waiting.scheduled_ns, waiting.ended_ns, waiting.complete) == (0, 30 * MS, False)
    assert (after.complete, after.scheduled_ns) == (True, 50 * MS)


def test_speculation_makes_several_tokens_a_step() -> None:
    bench = Bench(speculate=3, accept=1.0)
    one = bench.submit(10, 10)
    bench.kernel.run()
    assert (one.counts, one.proposed, one.accepted) == ([1, 4, 4, 1], 9, 9)
    assert in_ms(one.times)[0] == 20


def test_a_cache_from_elsewhere_brings_the_first_token() -> None:
    bench = Bench()
    one = bench.submit(500, 3, transfer_ns=7 * MS)
    bench.kernel.run()
    assert in_ms(one.times) == [7, 17, 27]
    assert one.transferred_ns == one.first_ns == 7 * MS


def test_other_choices_begin_with_the_first_token() -> None:
    bench = Bench()
    other = Sequence("m", 10, 2, Signal())
    one = bench.submit(10, 3, siblings=[other])
    bench.kernel.run()
    assert in_ms(one.times) == [20, 30, 40]
    assert (in_ms(other.times), other.complete) == ([30, 40], True)


def test_a_prompt_without_output_ends_with_its_prefill() -> None:
    bench = Bench()
    one = bench.submit(10, 0)
    bench.kernel.run()
    assert (one.first_ns, one.times, one.complete) == (20 * MS, [], True)


@pytest.mark.parametrize(("stage", "first", "second"), [("prefill", 40, 50), ("decode", 20, 40)])
def test_a_regression_stretches_its_steps(stage: str, first: int, second: int) -> None:
    bench = Bench(regression=f"stage={stage},factor=2,at=0")
    one = bench.submit(10, 2)
    bench.kernel.run()
    assert in_ms(one.times) == [first, second]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 60), st.integers(1, 30), st.integers(0, 400), st.sampled_from([0, 0, 0, 50, 300])),
        min_size=1,
        max_size=12,
    ),
    st.integers(100, 300),
    st.integers(8, 64),
    st.integers(0, 3),
)
def test_whatever_comes_all_is_made_and_all_memory_is_freed(
    wanted: list[tuple[int, int, int, int]], blocks: int, budget: int, speculate: int
) -> None:
    bench = Bench(blocks=blocks, token_budget=budget, speculate=speculate, max_sequences=4)
    made = [
        (bench.submit(prompt, target, at, at + cancel if cancel else 0), target, cancel)
        for prompt, target, at, cancel in wanted
    ]
    bench.kernel.run()
    for one, target, cancel in made:
        assert one.is_over
        assert one.made == sum(one.counts) <= target
        assert one.complete == (one.made == target)
        assert one.complete or cancel
        assert one.times == sorted(one.times)
        assert one.queued_ns <= (one.scheduled_ns or one.ended_ns)
    assert bench.engine.load == 0
    assert bench.engine._free == blocks
