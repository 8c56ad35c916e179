"""Deliveries of tokens on their way: instants (ns, true time) and how many tokens each brings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


@dataclass(slots=True)
class Deliveries:
    """Deliveries in order. at_ns, tokens: shape (n,)."""

    at_ns: Ints
    tokens: Ints

    def __len__(self) -> int:
        return len(self.at_ns)

    @property
    def first_ns(self) -> int:
        return int(self.at_ns[0])

    @property
    def last_ns(self) -> int:
        return int(self.at_ns[-1])

    def until(self, end_ns: int) -> Deliveries:
        """Those not after an instant."""
        count = int(np.searchsorted(self.at_ns, end_ns, side="right"))
        return self if count == len(self.at_ns) else Deliveries(self.at_ns[:count], self.tokens[:count])

    def total(self) -> int:
        """Tokens of all."""
        return int(self.tokens.sum())


class Relay:
    """Passes deliveries on with a delay each; none overtakes another."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def pass_on(self, found: Deliveries, delay_ns: int, jitter_ns: int, first_delay_ns: int = -1) -> Deliveries:
        """Each later by a delay and exponential jitter.

        first_delay_ns: of the first, where it is known; then without jitter.
        """
        extra = self._rng.standard_exponential(len(found.at_ns))
        extra *= jitter_ns
        at = found.at_ns + extra.astype(np.int64)
        at += delay_ns
        if first_delay_ns >= 0 and len(at):
            at[0] = found.at_ns[0] + first_delay_ns
        np.maximum.accumulate(at, out=at)
        return Deliveries(at, found.tokens)


def stalled(found: Deliveries, at: float, length_ns: int) -> Deliveries:
    """A pause before one delivery (at: where, from 0 to 1), and everything behind it waits; the first never waits."""
    if len(found) < 3:
        return found
    index = 1 + int(at * (len(found) - 1))
    times = found.at_ns.copy()
    np.maximum(times[index:], times[index] + length_ns, out=times[index:])
    return Deliveries(times, found.tokens)


def merged(found: Deliveries, from_ns: int, to_ns: int) -> Deliveries:
    """What comes between two instants is read at once, as one delivery at the second."""
    at = found.at_ns
    at = np.where((at > from_ns) & (at <= to_ns), to_ns, at)
    return joined(Deliveries(at, found.tokens))


def joined(found: Deliveries) -> Deliveries:
    """Deliveries of one instant made one."""
    at = found.at_ns
    begins = np.flatnonzero(np.concatenate(([True], at[1:] != at[:-1]))) if len(at) else np.zeros(0, dtype=np.int64)
    if len(begins) == len(at):
        return found
    return Deliveries(at[begins], np.add.reduceat(found.tokens, begins))


def held_back(found: Deliveries, until_ns: int, apart_ns: int) -> Deliveries:
    """Nothing passes before an instant; what waited then passes one by one."""
    at = np.maximum(found.at_ns, until_ns)
    waited = int(np.searchsorted(found.at_ns, until_ns, side="right"))
    at[:waited] += np.arange(waited, dtype=np.int64) * apart_ns
    np.maximum.accumulate(at, out=at)
    return Deliveries(at, found.tokens)


def one_by_one(found: Deliveries, apart_ns: int) -> Deliveries:
    """Every token a delivery of its own, as a client hands out the chunks of one read."""
    if int(found.tokens.max(initial=1)) == 1:
        return found
    at = np.repeat(found.at_ns, found.tokens)
    before = np.cumsum(found.tokens) - found.tokens
    within = np.arange(len(at), dtype=np.int64) - np.repeat(before, found.tokens)
    at += within * apart_ns
    np.maximum.accumulate(at, out=at)
    return Deliveries(at, np.ones(len(at), dtype=np.int64))
