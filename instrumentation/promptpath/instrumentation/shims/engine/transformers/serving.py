"""`transformers serve`: its one thread that generates, and the way of a request to it.

A request's context goes along to that thread, and the time until the thread takes it up is its `queue`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import copy_context
from time import monotonic_ns
from typing import Any, Final

from promptpath.instrumentation import recorder
from promptpath.instrumentation.safety import guard
from promptpath.instrumentation.shims.engine.transformers import generation
from promptpath.instrumentation.wrapping import unwrap_all, wrap

_UTILS: Final = "transformers.cli.serving.utils"


def wrap_all() -> None:
    """Put the shim on; the server's modules are patched when they are imported."""
    wrap(_UTILS, "InferenceThread.submit", _submit)
    wrap(_UTILS, "InferenceThread.async_submit", _submit)


def unwrap() -> None:
    """Take it off."""
    unwrap_all()


def _submit(wrapped: Callable[..., Any], _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    with guard("transformers.submit"):
        if args and recorder.request_span() is not None:
            args = (_carried(args[0]), *args[1:])
    return wrapped(*args, **kwargs)


def _carried(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, to be called in the context of now."""
    context = copy_context()
    context.run(generation.submitted_ns.set, monotonic_ns())

    def run(*args: Any, **kwargs: Any) -> Any:
        return context.run(function, *args, **kwargs)

    return run
