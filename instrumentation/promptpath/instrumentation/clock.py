"""One clock for a process: wall time that never runs backwards.

The wall clock is read once and tied to the monotonic clock; from then on time is the monotonic clock plus that
anchor. A step of the wall clock (NTP, a suspended machine) therefore never makes a span end before it starts. Hot
paths keep raw monotonic nanoseconds and convert when a span is built. A forked child takes a new anchor.
"""

from __future__ import annotations

import os
import time
from typing import Final

#: Raw monotonic time [ns]; what hot paths store.
mono: Final = time.monotonic_ns

#: Monotonic nanoseconds lie far below this, wall-clock nanoseconds far above it (2001); tells the two apart.
_WALL_FLOOR_NS: Final = 10**18


def _measure_anchor_ns() -> int:
    """Wall minus monotonic [ns], from the reading that was least disturbed of a few."""
    best_width_ns = 1 << 62
    best_ns = 0
    for _ in range(5):
        before_ns = time.monotonic_ns()
        wall = time.time_ns()
        after_ns = time.monotonic_ns()
        if after_ns - before_ns < best_width_ns:
            best_width_ns = after_ns - before_ns
            best_ns = wall - (before_ns + after_ns) // 2
    return best_ns


_anchor_ns = _measure_anchor_ns()


def _take_new_anchor() -> None:
    global _anchor_ns
    _anchor_ns = _measure_anchor_ns()


def now_ns() -> int:
    """Wall-clock time [ns since the epoch] on this process's own, never decreasing axis."""
    return mono() + _anchor_ns


def wall_ns(mono_ns: int) -> int:
    """Wall-clock time [ns since the epoch] of a monotonic reading of this process."""
    return mono_ns + _anchor_ns


def mono_ns_of(time_ns: int) -> int:
    """A time given either way, as monotonic [ns]: wall-clock nanoseconds are converted, monotonic ones kept."""
    return time_ns - _anchor_ns if time_ns > _WALL_FLOOR_NS else time_ns


def drift_ns() -> int:
    """How far the system's wall clock has moved from the anchored one since the anchor was taken [ns]."""
    return _measure_anchor_ns() - _anchor_ns


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_take_new_anchor)
