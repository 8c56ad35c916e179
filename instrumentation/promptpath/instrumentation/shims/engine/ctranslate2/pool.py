"""The workers of a generator: calls wait for them in the order they came, which tells when one was taken up."""

from __future__ import annotations

import weakref
from contextlib import suppress
from typing import Protocol


class Job(Protocol):
    """A call. Times are monotonic [ns].

    Attributes:
        added_ns: when it was handed to the pool.
        done_ns: when its last token was computed, or it was over otherwise; 0 before.
    """

    added_ns: int
    done_ns: int


class Pool:
    """One generator's calls.

    Args:
        workers: how many calls are worked on at once.
    """

    def __init__(self, workers: int) -> None:
        self.workers = max(1, workers)
        # Weakly: the results of an asynchronous call may be let go before anybody has asked for them.
        self._jobs: list[weakref.ref[Job]] = []

    def add(self, job: Job) -> list[Job]:
        """A call comes in. Returns those that are before it."""
        others = [reference() for reference in list(self._jobs)]
        self._jobs.append(weakref.ref(job, self._forget))
        return [other for other in others if other is not None and not other.done_ns]

    def remove(self, job: Job) -> None:
        """A call is over."""
        self._forget(weakref.ref(job))

    def _forget(self, reference: weakref.ref[Job]) -> None:
        with suppress(ValueError):
            self._jobs.remove(reference)

    def taken_up_ns(self, job: Job, before: list[Job]) -> int:
        """When a worker took up a call: as soon as fewer of those before it were left than there are workers.

        Args:
            job: the call.
            before: those that were before it, as `add` gave them.
        """
        if len(before) < self.workers:
            return job.added_ns
        # Of one that nobody has seen end there is nothing to conclude.
        ended = sorted(other.done_ns for other in before if other.done_ns)
        place = len(before) - self.workers
        return max(job.added_ns, ended[place]) if place < len(ended) else job.added_ns
