"""Deliveries on their way."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from promptpath.collector.simulate.deliveries import (
    Deliveries,
    Relay,
    held_back,
    joined,
    merged,
    one_by_one,
    stalled,
)


def deliveries(at: list[int], tokens: list[int] | None = None) -> Deliveries:
    return Deliveries(np.array(at, dtype=np.int64), np.array(tokens or [1] * len(at), dtype=np.int64))


def plain(found: Deliveries) -> list[tuple[int, int]]:
    return list(zip(found.at_ns.tolist(), found.tokens.tolist(), strict=True))


some = st.lists(st.tuples(st.integers(0, 10_000), st.integers(1, 4)), min_size=1, max_size=30).map(
    lambda pairs: deliveries(sorted(at for at, _ in pairs), [tokens for _, tokens in pairs])
)


@given(some, st.integers(0, 500), st.integers(0, 500), st.integers(0, 12_000), st.integers(0, 5000))
def test_no_token_is_lost_and_none_overtakes(found: Deliveries, delay: int, jitter: int, at: int, span: int) -> None:
    relay = Relay(1)
    for after in (
        relay.pass_on(found, delay, jitter),
        relay.pass_on(found, delay, jitter, first_delay_ns=7),
        stalled(found, 0.5, span),
        merged(found, at, at + span),
        held_back(found, at, 3),
        one_by_one(found, 3),
        joined(found),
    ):
        assert after.total() == found.total()
        assert (np.diff(after.at_ns) >= 0).all()
        assert after.first_ns >= found.first_ns


def test_pass_on_without_jitter() -> None:
    assert plain(Relay(1).pass_on(deliveries([10, 20, 30]), 5, 0)) == [(15, 1), (25, 1), (35, 1)]
    assert plain(Relay(1).pass_on(deliveries([10, 20, 30]), 5, 0, 25)) == [(35, 1), (35, 1), (35, 1)]


def test_a_stall_pauses_all_behind_it_but_never_the_first() -> None:
    found = deliveries([0, 10, 20, 30, 400])
    assert plain(stalled(found, 0.0, 100)) == [(0, 1), (110, 1), (110, 1), (110, 1), (400, 1)]
    assert plain(stalled(deliveries([0, 10]), 0.0, 100)) == [(0, 1), (10, 1)]


def test_merged_reads_at_once_what_came_meanwhile() -> None:
    assert plain(merged(deliveries([0, 10, 20, 30], [1, 2, 3, 4]), 5, 25)) == [(0, 1), (25, 5), (30, 4)]


def test_held_back_lets_what_waited_pass_one_by_one() -> None:
    assert plain(held_back(deliveries([0, 10, 20, 90]), 50, 5)) == [(50, 1), (55, 1), (60, 1), (90, 1)]


def test_one_by_one() -> None:
    assert plain(one_by_one(deliveries([0, 10], [2, 3]), 4)) == [(0, 1), (4, 1), (10, 1), (14, 1), (18, 1)]


def test_until_keeps_what_came_in_time() -> None:
    assert plain(deliveries([0, 10, 20]).until(10)) == [(0, 1), (10, 1)]
    assert len(deliveries([5]).until(4)) == 0
