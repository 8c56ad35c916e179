"""Which requests an engine's steps worked on, from what can be seen of them."""

from __future__ import annotations

import random
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from promptpath.instrumentation.shims.engine.batch import Batch, Tracked

MS = 1_000_000


def test_a_request_waits_until_a_step_takes_it_up() -> None:
    batch: Batch[Tracked] = Batch()
    first, second = Tracked(1 * MS), Tracked(2 * MS)
    batch.add(first)
    batch.add(second)
    assert (first.ahead, second.ahead, batch.waiting) == (0, 1, 2)
    batch.stepped(10 * MS, 20 * MS, 1, [(first, 1, 0)])  # the budget was enough for one prompt
    batch.stepped(21 * MS, 30 * MS, 2, [(first, 1, 0)])  # ... and for a part of the second one
    batch.stepped(31 * MS, 40 * MS, 2, [(first, 1, 0), (second, 1, 0)])
    assert (first.scheduled_ns, first.first_token_ns, first.prefill_batch) == (10 * MS, 20 * MS, 1)
    assert (second.scheduled_ns, second.first_token_ns, second.prefill_batch) == (21 * MS, 40 * MS, 2)
    assert (first.token_ns, first.decode_batch) == ([20 * MS, 30 * MS, 40 * MS], 2)


def test_a_step_of_prompts_only() -> None:
    batch: Batch[Tracked] = Batch()
    old, new = Tracked(0), Tracked(5 * MS)
    batch.add(old)
    batch.stepped(1 * MS, 2 * MS, 1, [(old, 1, 0)])
    batch.add(new)
    batch.stepped(6 * MS, 9 * MS, 1, [(new, 1, 0)])  # decoding paused for a prompt
    assert (new.scheduled_ns, new.first_token_ns) == (6 * MS, 9 * MS)
    assert old.token_ns == [2 * MS]


def test_a_request_added_during_a_step_was_not_in_it_before_it_came() -> None:
    batch: Batch[Tracked] = Batch()
    late = Tracked(15 * MS)
    batch.add(late)
    batch.stepped(10 * MS, 20 * MS, 1, [(late, 1, 0)])
    assert (late.scheduled_ns, late.first_token_ns) == (15 * MS, 20 * MS)


def test_the_engines_own_time_of_a_token() -> None:
    batch: Batch[Tracked] = Batch()
    request = Tracked(0)
    batch.add(request)
    batch.stepped(1 * MS, 9 * MS, 1, [(request, 1, 8 * MS)])
    assert request.first_token_ns == 8 * MS


def test_removed_requests_hold_nobody_up() -> None:
    batch: Batch[Tracked] = Batch()
    gone, stays = Tracked(0), Tracked(0)
    batch.add(gone)
    batch.add(stays)
    batch.remove(gone)
    batch.remove(gone)
    batch.stepped(1 * MS, 2 * MS, 1, [])
    assert (gone.scheduled_ns, stays.scheduled_ns) == (0, 1 * MS)


@dataclass
class _Truth:
    tokens_left: int
    prompt_left: int
    scheduled: int = 0
    first: int = 0


@given(st.integers(0, 2**32), st.integers(1, 6), st.integers(16, 128))
def test_against_a_scheduler_that_serves_prompts_in_order(seed: int, most: int, budget: int) -> None:
    """A scheduler with a token budget and chunked prefill, as the engines have it: what we infer is what it did."""
    rng = random.Random(seed)
    batch: Batch[Tracked] = Batch()
    live: list[tuple[Tracked, _Truth]] = []
    done: list[tuple[Tracked, _Truth]] = []
    now = 1
    for step in range(60):
        for _ in range(rng.randrange(3) if step < 25 else 0):
            request = Tracked(now)
            live.append((request, _Truth(rng.randrange(1, 8), rng.randrange(1, 200))))
            batch.add(request)
            now += 1
        start, now = now, now + 10
        left, worked_on = budget, 0
        progress = []
        running = [pair for pair in live if pair[1].scheduled]
        for request, truth in running:
            if truth.first and left:
                left, worked_on = left - 1, worked_on + 1
                truth.tokens_left -= 1
                progress.append((request, 1, 0))
        for request, truth in live:
            if truth.first or not left or (not truth.scheduled and len(running) >= most):
                continue
            if not truth.scheduled:
                truth.scheduled = start
                running.append((request, truth))
            taken = min(left, truth.prompt_left)
            left, worked_on = left - taken, worked_on + 1
            truth.prompt_left -= taken
            if not truth.prompt_left:
                truth.first = now
                truth.tokens_left -= 1
                progress.append((request, 1, 0))
        batch.stepped(start, now, worked_on, progress)
        for pair in [pair for pair in live if pair[1].first and pair[1].tokens_left <= 0]:
            live.remove(pair)
            batch.remove(pair[0])
            done.append(pair)
        now += 1
    for request, truth in [*live, *done]:
        assert (request.scheduled_ns, request.first_token_ns) == (truth.scheduled, truth.first)
        assert request.token_ns == sorted(request.token_ns)
