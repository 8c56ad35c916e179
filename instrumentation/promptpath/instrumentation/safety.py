"""Nothing of ours may break the program that it runs in.

Only our own code is wrapped: the host's exceptions are never swallowed here. A failure is counted by place, said once
in the log at WARNING, and passed by.
"""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, TypeVar, cast

_log: Final = logging.getLogger("promptpath")
_failures: Final[dict[str, int]] = {}

_F = TypeVar("_F", bound=Callable[..., Any])


def note_failure(where: str, error: BaseException) -> None:
    """Count a failure of ours at a place; the first at each place is logged. Never raises."""
    count = _failures.get(where, 0) + 1
    _failures[where] = count
    if count > 1:
        return
    # Logging itself may be what is broken.
    try:
        _log.warning(
            "promptpath: %s failed and was passed by (%s: %s); further failures here are only counted",
            where,
            type(error).__name__,
            error,
        )
        _log.debug("promptpath: %s", where, exc_info=error)
    except Exception:  # noqa: S110
        pass


class guard:  # noqa: N801
    """Context manager: an `Exception` inside is counted and passed by. `BaseException`s (cancellation) go through.

    Args:
        where: the place, a short dotted name; the key in `failures()`.
    """

    __slots__ = ("_where",)

    def __init__(self, where: str) -> None:
        self._where = where

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> bool:
        if error is None or not isinstance(error, Exception):
            return False
        note_failure(self._where, error)
        return True


def guarded(where: str, default: Any = None) -> Callable[[_F], _F]:
    """Decorator for functions of ours, sync or async: on an `Exception` the default is returned instead.

    Args:
        where: the place, a short dotted name; the key in `failures()`.
        default: what a failed call returns.
    """

    def decorate(function: _F) -> _F:
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def run_async(*args: Any, **kwargs: Any) -> Any:
                try:
                    return await function(*args, **kwargs)
                except Exception as error:
                    note_failure(where, error)
                    return default

            return cast("_F", run_async)

        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            except Exception as error:
                note_failure(where, error)
                return default

        return cast("_F", run)

    return decorate


def failures() -> dict[str, int]:
    """Failures of ours so far: place to count."""
    return dict(_failures)
