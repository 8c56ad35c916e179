"""The truth of a prompt's time."""

from __future__ import annotations

import pytest

from promptpath.collector.simulate.ledger import Ledger
from promptpath.semconv import Part


def nonzero(ledger: Ledger) -> dict[str, int]:
    return {part: ns for part, ns in ledger.parts().items() if ns}


def test_parts_sum_to_the_ttft() -> None:
    ledger = Ledger(100)
    ledger.spend(Part.NETWORK, 150)
    ledger.spend(Part.QUEUE, 150)
    ledger.spend(Part.PREFILL, 400)
    assert ledger.ttft_ns is None
    ledger.seen("engine")
    ledger.spend(Part.NETWORK, 450)
    ledger.seen("client")
    assert (ledger.ttft_ns, ledger.source) == (350, "client")
    assert nonzero(ledger) == {"network": 100, "prefill": 250}
    assert sum(ledger.parts().values()) == ledger.ttft_ns


def test_a_lost_attempt_is_the_routers_with_the_wait_after_it() -> None:
    ledger = Ledger(0)
    ledger.spend(Part.GATEWAY, 10)
    mark = ledger.attempt()
    ledger.spend(Part.NETWORK, 30)
    ledger.spend(Part.TOKENIZE, 50)
    ledger.lose(mark, 70, 100)
    ledger.spend(Part.PREFILL, 130)
    ledger.seen("router")
    assert nonzero(ledger) == {"gateway": 10, "router": 90, "prefill": 30}
    assert ledger.retry_ns == 90


def test_an_outer_attempt_swallows_inner_ones() -> None:
    ledger = Ledger(0)
    outer = ledger.attempt()
    ledger.spend(Part.NETWORK, 10)
    inner = ledger.attempt()
    ledger.lose(inner, 20, 30)
    ledger.lose(outer, 40, 50)
    assert ledger.retry_ns == 50
    assert nonzero(ledger) == {"router": 50}


def test_time_does_not_run_backwards() -> None:
    ledger = Ledger(100)
    with pytest.raises(AssertionError, match="backwards"):
        ledger.spend(Part.POST, 99)
