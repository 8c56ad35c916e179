"""The last spans of a process: at exit, on SIGTERM, and in `multiprocessing` children, which skip `atexit`.

All of it is bounded: a collector that is away delays the end of a program by `LIMIT_S` and a little.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

import wrapt

from promptpath.instrumentation import exit_flush
from promptpath.instrumentation.safety import guarded

#: How long the end of the program may wait for the last spans [s].
LIMIT_S: Final = 3.0

#: Says that nobody takes our spans now; set by `bootstrap`, which knows the exporters.
is_in_vain: Callable[[], bool] = bool
#: Shutting down what is ours: the tracer provider, the meter provider.
_shutdowns: Final[list[Callable[[], object]]] = []
#: A SIGTERM that came while the ending program was inside our work.
_pending: Final[list[int]] = []


def _flush(*, ours_only: bool = False) -> None:
    timeout_ms = int(LIMIT_S * 1000)
    exit_flush.within(LIMIT_S, lambda: exit_flush.force_flush(timeout_ms, ours_only=ours_only), in_vain=is_in_vain)


@guarded("termination.finish")
def finish(*, ours_only: bool = True) -> None:
    """Send what is left, within `LIMIT_S`, then shut down what is ours.

    Args:
        ours_only: the program's own provider has seen to itself, by an exit handler that has run before.
    """
    with exit_flush.busy:
        _flush(ours_only=ours_only)
        while _shutdowns:
            # After a failed flush a worker may sit in a retry: it is left behind, as the daemon thread that it is.
            exit_flush.within(LIMIT_S / 4, _shutdowns.pop())


def _on_sigterm(number: int, _frame: FrameType | None) -> None:
    """Send the last spans, then end the way the program would have ended without us."""
    if exit_flush.busy.now and not _pending:
        # The program is ending and is inside our work, whose locks it holds: that is finished first.
        _pending.append(number)
        return
    # On another thread, with a limit: this one may hold any lock, as a signal comes between two instructions.
    _flush()
    _end_by(number)


def _end_by(number: int) -> None:
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)


def _after_busy() -> None:
    if _pending:
        _flush()
        _end_by(_pending[0])


@guarded("termination.sigterm")
def _watch_sigterm() -> None:
    # Only where SIGTERM would kill without a word, and only the main thread may set handlers. Servers such as uvicorn
    # put their own handler over it while they run, and raise the signal again when they are done.
    if threading.current_thread() is not threading.main_thread():
        return
    if os.environ.get("PROMPTPATH_SIGTERM_FLUSH", "1") == "0":
        return
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _on_sigterm)
        exit_flush.busy.after.append(_after_busy)


@guarded("termination.multiprocessing")
def _in_multiprocessing_child(_module: object) -> None:
    util: Any = sys.modules["multiprocessing.util"]
    util.Finalize(None, finish, kwargs={"ours_only": False}, exitpriority=0)


@guarded("termination.multiprocessing")
def _watch_multiprocessing(module: Any) -> None:
    # A forked child ends by os._exit after running these finalisers; it clears what was registered before the fork.
    module.register_after_fork(sys.modules[__name__], _in_multiprocessing_child)


def shut_down_at_exit(shutdown: Callable[[], object]) -> None:
    """Have a provider of ours, made without an exit handler of its own, shut down when the program ends."""
    _shutdowns.append(shutdown)
    atexit.unregister(finish)
    atexit.register(finish)


def arrange() -> None:
    """Arrange for the last spans of this process where `atexit` does not see to them. Once a process."""
    _watch_sigterm()
    wrapt.register_post_import_hook(_watch_multiprocessing, "multiprocessing.util")
