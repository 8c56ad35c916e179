"""The encoding of deliveries: rounding never adds up, and nothing is ever negative."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from promptpath.instrumentation.readable import gaps_us

SECOND_NS = 1_000_000_000

starts = st.integers(0, 10**17)
steps = st.lists(st.integers(0, 30 * SECOND_NS), max_size=300)


def test_example() -> None:
    assert gaps_us(1000, [2_501_000, 2_501_400, 2_502_000]) == [2500, 0, 1]
    assert gaps_us(0, []) == []


@given(starts, steps)
def test_the_sum_of_gaps_is_the_rounded_offset_of_each_delivery(start_ns: int, steps_ns: list[int]) -> None:
    deliveries = []
    at_ns = start_ns
    for step_ns in steps_ns:
        at_ns += step_ns
        deliveries.append(at_ns)
    gaps = gaps_us(start_ns, deliveries)
    assert len(gaps) == len(deliveries)
    total_us = 0
    for gap_us, delivered_ns in zip(gaps, deliveries, strict=True):
        assert gap_us >= 0
        total_us += gap_us
        assert abs(total_us * 1000 - (delivered_ns - start_ns)) <= 500


@given(starts, st.lists(st.integers(-10 * SECOND_NS, 10 * SECOND_NS), max_size=50))
def test_deliveries_out_of_order_or_before_the_start_give_no_negative_gap(start_ns: int, offsets: list[int]) -> None:
    gaps = gaps_us(start_ns, [start_ns + offset for offset in offsets])
    assert all(gap >= 0 for gap in gaps)
    latest_ns = max([0, *offsets])
    assert abs(sum(gaps) * 1000 - latest_ns) <= 500
