"""uvicorn: ASGI applications that are not Starlette's are wrapped where the server loads them."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, Final

from promptpath.instrumentation.safety import guard
from promptpath.instrumentation.shims.gateway.middleware import AsgiMiddleware
from promptpath.instrumentation.wrapping import wrap

_placed: Final[weakref.WeakSet[AsgiMiddleware]] = weakref.WeakSet()


def watch_servers(group: str) -> None:
    """Put the patch on; it belongs to `group`."""
    wrap("uvicorn.config", "Config.load", _load, group=group)


def forget_servers() -> None:
    """What was wrapped only passes through from now on."""
    for middleware in list(_placed):
        middleware.active = False
    _placed.clear()


def _load(wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    result = wrapped(*args, **kwargs)
    with guard("uvicorn.load"):
        if not _has_starlette(instance.loaded_app):
            instance.loaded_app = middleware = AsgiMiddleware(instance.loaded_app)
            _placed.add(middleware)
    return result


def _has_starlette(application: Any) -> bool:
    """Whether an application is Starlette's, or a chain of middleware around one, or covered by hand."""
    layers = 0
    while application is not None and layers < 100:
        if isinstance(application, AsgiMiddleware):
            return True
        if any(
            f"{base.__module__}.{base.__name__}" == "starlette.applications.Starlette"
            for base in type(application).__mro__
        ):
            return True
        application, layers = getattr(application, "app", None), layers + 1
    return False
