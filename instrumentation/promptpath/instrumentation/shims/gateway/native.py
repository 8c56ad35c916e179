"""FastAPI's own tracing (0.165 on), which begins by itself wherever a tracer provider is set.

Where the provider is the one that Promptpath set up, nobody has asked FastAPI for spans: for inference requests its
tracing steps back (its metrics and logs do not), and the ASGI shim's SERVER span is the only one. Where the program
has set the provider, or has told FastAPI to trace, FastAPI's spans stay and ours lie inside them.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Awaitable, Callable
from typing import Any, Final

from opentelemetry import trace

from promptpath.instrumentation.safety import guard
from promptpath.instrumentation.shims.gateway.covering import is_inference
from promptpath.instrumentation.wrapping import wrap

_without_tracing: Final[weakref.WeakKeyDictionary[Any, Any]] = weakref.WeakKeyDictionary()


def step_back(group: str) -> None:
    """Put the patch on; it belongs to `group`."""
    wrap("fastapi.telemetry._asgi", "NativeTelemetry.__call__", _call, group=group)


def _call(
    wrapped: Callable[..., Awaitable[None]], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Awaitable[None]:
    with guard("fastapi.native_tracing"):
        config = instance.config
        if (
            config["tracing"]
            and config["tracer_provider"] is None
            and not config["auto_configure"]
            and is_inference(kwargs["scope"])
            and _provider_is_ours()
        ):
            quiet = _without_tracing.get(instance)
            if quiet is None:
                quiet = _without_tracing[instance] = type(instance)({**config, "tracing": False})
            answer: Awaitable[None] = quiet(**kwargs)
            return answer
    return wrapped(*args, **kwargs)


def _provider_is_ours() -> bool:
    bootstrap = sys.modules.get("promptpath.instrumentation.bootstrap")
    own = bootstrap.own_provider() if bootstrap is not None else None
    return own is not None and trace.get_tracer_provider() is own
