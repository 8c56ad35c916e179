"""A counter without a lock."""

from __future__ import annotations

import itertools


class Counter:
    """A counter that any thread may raise without a lock, also from a finaliser that interrupts another raise."""

    __slots__ = ("_next",)

    def __init__(self) -> None:
        self._next = itertools.count()

    def add(self) -> None:
        """One more."""
        next(self._next)

    @property
    def value(self) -> int:
        """How many so far."""
        return int(repr(self._next)[6:-1])
