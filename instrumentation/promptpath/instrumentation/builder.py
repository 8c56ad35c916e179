"""Off the request's thread: ended spans become the SDK's `ReadableSpan`s and go to the program's span processors.

A bounded queue of ended spans, and one daemon thread that starts with the first span (and anew in a forked child). The
thread sleeps without a timeout while nothing happens. What does not fit in the queue is dropped and counted.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from promptpath.instrumentation import live, pipeline
from promptpath.instrumentation.counter import Counter
from promptpath.instrumentation.exporting import has_room
from promptpath.instrumentation.live import LiveSpan
from promptpath.instrumentation.readable import hand_over
from promptpath.instrumentation.safety import guard, note_failure

#: How long ended spans gather before they are built [s]; short against the processors' own delay.
_INTERVAL_S: Final = 0.05
#: Rounds without work before the thread sleeps until it is woken.
_IDLE_ROUNDS: Final = 4
#: Spans built before other threads get a turn, so that building never holds up an event loop for long.
_TURN: Final = 4


def _sdk_has_room(count: int) -> bool:
    provider = pipeline.sdk_provider()
    return provider is None or has_room(getattr(provider, "_active_span_processor", None), count)


class Builder:
    """The queue and its thread.

    Args:
        limit: how many ended spans may wait; more are dropped.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.has_room = _sdk_has_room
        self.handed = 0
        self.queue_full = Counter()
        self.no_provider = Counter()
        self.not_built = Counter()
        self._fresh()

    def _fresh(self) -> None:
        self._queue: deque[LiveSpan] = deque()
        self._draining = threading.Lock()
        self._wake = threading.Event()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._asleep = True
        self._errands: deque[Callable[[], None]] = deque()

    def after_fork_in_child(self) -> None:
        """What waits is the parent's to export; locks may be held by threads that are not here."""
        self.handed = 0
        self.queue_full = Counter()
        self.no_provider = Counter()
        self.not_built = Counter()
        self._fresh()

    def push(self, span: LiveSpan) -> None:
        """Take an ended span. Never blocks, never raises."""
        queue = self._queue
        if len(queue) >= self.limit:
            self.queue_full.add()
            return
        queue.append(span)
        if self._asleep:
            self._rouse()

    def _rouse(self) -> None:
        if self._thread is not None:
            self._wake.set()
            return
        # Whoever loses this race leaves the start to the other.
        if not self._starting.acquire(blocking=False):
            return
        try:
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="promptpath-builder", daemon=True)
                self._asleep = False
                thread.start()
                self._thread = thread
        except RuntimeError:  # the interpreter is ending; the exit flush takes what waits
            self._asleep = True
        finally:
            self._starting.release()

    def run_errand(self, work: Callable[[], None]) -> bool:
        """Have the builder's thread do something, for those who can start no thread; False if it cannot either."""
        thread = self._thread
        if thread is None or not thread.is_alive() or thread is threading.current_thread():
            return False
        self._errands.append(work)
        self._wake.set()
        return True

    def _run(self) -> None:
        idle_rounds = 0
        while True:
            self._wake.wait(_INTERVAL_S)
            self._wake.clear()
            while self._errands:
                with guard("builder.errand"):
                    self._errands.popleft()()
            if self.drain() or self._queue:
                idle_rounds = 0
                continue
            idle_rounds += 1
            if idle_rounds < _IDLE_ROUNDS:
                continue
            self._asleep = True
            # A span pushed before the flag was up has woken nobody.
            if not self._queue:
                self._wake.wait()
            self._asleep = False
            idle_rounds = 0

    def drain(self, timeout_s: float = -1) -> int:
        """Build and hand over what waits, as far as the span processors have room.

        Args:
            timeout_s: how long to wait for another drain to finish [s]; forever if negative.

        Returns:
            How many spans were taken from the queue; -1 if another drain did not finish in time.
        """
        if not self._draining.acquire(timeout=timeout_s):
            return -1
        try:
            return self._drain_locked()
        finally:
            self._draining.release()

    def _drain_locked(self) -> int:
        done = 0
        queue = self._queue
        for _ in range(len(queue)):
            # What the processors have no room for waits here, where the queue is longer and a loss is counted.
            if done % _TURN == 0 and not self.has_room(_TURN):
                break
            try:
                span = queue.popleft()
            except IndexError:
                break
            try:
                hand_over(span)
                self.handed += 1
            except Exception as error:
                self.not_built.add()
                note_failure("builder.build", error)
            done += 1
            if done % _TURN == 0:
                time.sleep(0)
        return done

    @property
    def waiting(self) -> int:
        """Ended spans that have not been handed over."""
        return len(self._queue)

    def dropped(self) -> dict[str, int]:
        """Spans that were not handed over, by reason."""
        counts = {
            "queue_full": self.queue_full.value,
            "no_provider": self.no_provider.value,
            "not_built": self.not_built.value,
        }
        return {reason: count for reason, count in counts.items() if count}


def _limit() -> int:
    try:
        return max(1, int(os.environ.get("PROMPTPATH_QUEUE_SIZE", "8192")))
    except ValueError:
        return 8192


builder: Final = Builder(_limit())
live.connect(builder.push)


def _after_fork_in_child() -> None:
    builder.after_fork_in_child()
    pipeline.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
