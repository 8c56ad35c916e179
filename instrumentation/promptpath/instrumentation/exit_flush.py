"""Getting spans out in time: on request, and when the program ends.

At exit our builder must hand over its spans before the provider shuts its processors down. Handlers run last registered
first, and a provider registers its own when it is made; so ours is registered again whenever a new provider is seen.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from opentelemetry.sdk.trace import TracerProvider

from promptpath.instrumentation import pipeline
from promptpath.instrumentation.builder import builder
from promptpath.instrumentation.safety import guard, guarded

#: How long the exit of the program may wait for our hand-over [s].
_AT_EXIT_S: Final = 2.0
#: How often to ask whether a wait is in vain, and how much longer to wait if it is [s].
_LOOK_S: Final = 0.02
_IN_VAIN_S: Final = 0.3
#: Providers that `bootstrap` has made; the program may have set another since.
own_providers: Final[list[TracerProvider]] = []
#: Parts that know of spans lost after they were handed over (the processor of `bootstrap`): reason to count.
drop_sources: Final[list[Callable[[], dict[str, int]]]] = []


def dropped_by_reason() -> dict[str, int]:
    """Spans lost in this process, by reason."""
    counts = builder.dropped()
    for source in drop_sources:
        for reason, count in source().items():
            counts[reason] = counts.get(reason, 0) + count
    return counts


def within(timeout_s: float, work: Callable[[], Any], *, in_vain: Callable[[], bool] | None = None) -> bool:
    """Do work that has no timeout of its own on another thread.

    Args:
        timeout_s: how long to wait for it [s].
        work: what to do; a result of False is a failure.
        in_vain: asked meanwhile; once it says True, only a little longer is waited.

    Returns:
        False if it was not done, or failed, in time; then it goes on by itself.
    """
    done: list[bool] = []
    finished = threading.Event()

    def run() -> None:
        try:
            with guard("exit_flush.within"):
                done.append(work() is not False)
        finally:
            finished.set()

    try:
        threading.Thread(target=run, name="promptpath-flush", daemon=True).start()
    except RuntimeError:
        # While it ends, Python 3.12 starts no threads. The builder's, if it runs, still does.
        if not builder.run_errand(run):
            run()
    deadline = time.monotonic() + max(0.0, timeout_s)
    while not finished.is_set():
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            break
        finished.wait(left_s if in_vain is None else min(left_s, _LOOK_S))
        if in_vain is not None and in_vain():
            deadline = min(deadline, time.monotonic() + _IN_VAIN_S)
            in_vain = None
    return done == [True]


def force_flush(timeout_ms: int, *, ours_only: bool = False) -> bool:
    """See `recorder.force_flush`.

    Args:
        timeout_ms: for all of it [ms].
        ours_only: leave a provider of the program's own to itself, as at exit, where it has been shut down already.
    """
    deadline = time.monotonic() + timeout_ms / 1000
    while True:
        if builder.drain(timeout_s=max(0.0, deadline - time.monotonic())) < 0:
            return False
        for provider in _providers(ours_only):
            left_s = max(0.0, deadline - time.monotonic())
            if not within(left_s, partial(provider.force_flush, max(1, int(left_s * 1000)))):
                return False
        # The processors may have had no room for all of it at once.
        if not builder.waiting:
            return True
        if time.monotonic() >= deadline:
            return False


def _providers(ours_only: bool) -> list[TracerProvider]:
    current = pipeline.sdk_provider()
    if ours_only or current is None or current in own_providers:
        return list(own_providers)
    return [*own_providers, current]


class Busy:
    """Says whether the ending program is inside our own work, so that a signal does not cut into it.

    Attributes:
        now: inside.
        after: called when the outermost work is done.
    """

    def __init__(self) -> None:
        self.now = False
        self.after: list[Callable[[], None]] = []

    def __enter__(self) -> None:
        self.now = True

    def __exit__(self, *_: object) -> None:
        self.now = False
        for call in self.after:
            call()


busy: Final = Busy()


@guarded("exit_flush.at_exit")
def hand_over_at_exit() -> None:
    """Hand over what waits; the provider's own exit handler, which runs after, exports it."""
    with busy:
        deadline = time.monotonic() + _AT_EXIT_S
        while builder.waiting and time.monotonic() < deadline:
            if not builder.drain(timeout_s=_AT_EXIT_S):
                time.sleep(0.01)


def _be_first(_provider: object) -> None:
    atexit.unregister(hand_over_at_exit)
    atexit.register(hand_over_at_exit)


pipeline.on_new_provider.append(_be_first)
