"""Hosts' clocks: wrong by an offset, running too fast or too slow, and set anew once by NTP."""

from __future__ import annotations

import random
from dataclasses import dataclass

from promptpath.collector.simulate.deliveries import Ints
from promptpath.collector.simulate.kernel import NEVER

_BILLION = 1_000_000_000


@dataclass(frozen=True)
class Clock:
    """A host's clock: true time plus an offset.

    offset_ns: at `start_ns`; drift_ppb: gained per second [ns]; step_ns: added from `step_at_ns` on. A process anchors
    its clock when it takes up a request, so that a request's spans in one process never see a step.
    """

    start_ns: int
    offset_ns: int = 0
    drift_ppb: int = 0
    step_at_ns: int = NEVER
    step_ns: int = 0

    def read(self, true_ns: int, since_ns: int) -> int:
        """What the clock shows at an instant to a process that has been at work on its request since another."""
        shown = true_ns + self.offset_ns + (true_ns - self.start_ns) * self.drift_ppb // _BILLION
        return shown + self.step_ns if since_ns >= self.step_at_ns else shown

    def elapsed(self, from_ns: int, to_ns: Ints) -> Ints:
        """Durations as the clock counts them."""
        true = to_ns - from_ns
        return true + true * self.drift_ppb // _BILLION


def make(rng: random.Random, start_ns: int, length_ns: int, *, skew_ns: int, drift_ppm: float, step_ns: int) -> Clock:
    """A clock somewhere within the given bounds; its step, if there is one, lies in the middle half of the run."""
    offset = rng.uniform(-skew_ns, skew_ns)
    drift = rng.uniform(-drift_ppm, drift_ppm)
    at = rng.uniform(0.25, 0.75)
    step = rng.uniform(-step_ns, step_ns)
    return Clock(
        start_ns=start_ns,
        offset_ns=round(offset),
        drift_ppb=round(drift * 1000),
        step_at_ns=start_ns + round(at * length_ns) if step_ns else NEVER,
        step_ns=round(step),
    )
