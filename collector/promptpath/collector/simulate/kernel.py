"""A discrete-event kernel: simulated time, events in their order, processes as generators.

A process yields an instant (ns) to sleep until then, or a `Signal` to sleep until it is fired; it is sent the signal's
value. `yield from` calls another process's steps. Events of one instant run in the order in which they were made, so a
run is the same each time.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator
from typing import Any, Final, TypeVar

NEVER: Final = 1 << 62
"""An instant that does not come."""

_T = TypeVar("_T")


class Signal:
    """Something that happens once; one process waits for it."""

    __slots__ = ("_fired", "_value", "_waiting")

    def __init__(self) -> None:
        self._fired = False
        self._value: Any = None
        self._waiting: Callable[[Any], None] | None = None

    def fire(self, value: Any = None) -> None:
        """It has happened; the process that waits goes on at once. Firing again does nothing."""
        if self._fired:
            return
        self._fired, self._value = True, value
        if self._waiting is not None:
            self._waiting(value)

    def wait(self, resume: Callable[[Any], None]) -> None:
        """Call `resume` with the value when it has happened, now if it has."""
        if self._fired:
            resume(self._value)
        else:
            self._waiting = resume


Process = Generator[int | Signal, Any, _T]


class Kernel:
    """The clock and the events. Attribute `now`: true time [ns]."""

    __slots__ = ("_count", "_events", "now")

    def __init__(self, start_ns: int) -> None:
        self.now = start_ns
        self._events: list[tuple[int, int, Callable[[Any], None], Any]] = []
        self._count = 0

    def at(self, when_ns: int, call: Callable[[Any], None], argument: Any = None) -> None:
        """Call `call(argument)` at an instant; one that is past is now."""
        self._count += 1
        heapq.heappush(self._events, (max(when_ns, self.now), self._count, call, argument))

    def start(self, process: Process[Any]) -> Signal:
        """Begin a process now; the signal fires with what it returns."""
        done = Signal()

        def resume(value: Any) -> None:
            try:
                wanted = process.send(value)
            except StopIteration as end:
                done.fire(end.value)
                return
            if isinstance(wanted, Signal):
                wanted.wait(resume)
            else:
                self.at(wanted, resume)

        resume(None)
        return done

    def run(self) -> None:
        """Run until nothing is left to happen."""
        events = self._events
        while events:
            self.now, _, call, argument = heapq.heappop(events)
            call(argument)
