"""The event kernel."""

from __future__ import annotations

from typing import Any

from promptpath.collector.simulate.kernel import Kernel, Process, Signal


def test_events_run_in_order_and_those_of_one_instant_as_they_were_made() -> None:
    kernel, seen = Kernel(100), []
    for when, name in ((300, "c"), (200, "a"), (200, "b"), (50, "now")):
        kernel.at(when, lambda name: seen.append((kernel.now, name)), name)
    kernel.run()
    assert seen == [(100, "now"), (200, "a"), (200, "b"), (300, "c")]


def test_processes_sleep_wait_and_return() -> None:
    kernel, seen = Kernel(0), []
    signal = Signal()

    def inner() -> Process[str]:
        value = yield signal
        yield kernel.now + 5
        return f"{value} at {kernel.now}"

    def outer() -> Process[None]:
        seen.append((yield from inner()))

    done = kernel.start(outer())
    kernel.at(30, signal.fire, "fired")
    kernel.run()
    assert seen == ["fired at 35"]
    ended: list[Any] = []
    done.wait(ended.append)
    assert ended == [None]


def test_a_signal_that_has_fired_does_not_wait_and_does_not_fire_again() -> None:
    kernel, signal = Kernel(0), Signal()
    signal.fire(1)
    signal.fire(2)

    def process() -> Process[Any]:
        return (yield signal)

    seen: list[Any] = []
    kernel.start(process()).wait(seen.append)
    assert seen == [1]
