"""ASGI servers: the span of a request served, the tokens that pass through it, and what became of it.

Starlette's applications (FastAPI's are such) are wrapped where they are called, any other where uvicorn loads it. Under
another server:

    app = AsgiMiddleware(app)

Requests on inference paths get a SERVER span whose stage is this process's role (`PROMPTPATH_ROLE`); others pass
untouched. Where another instrumentation has a SERVER span for the request already (FastAPI's own, OpenTelemetry's),
that span gets the stage and ours lies inside it as an INTERNAL span with the token gaps: no request has two SERVER
spans.
"""

from __future__ import annotations

import weakref
from collections.abc import Awaitable, Collection
from importlib.util import find_spec
from typing import Any, ClassVar, Final

from opentelemetry.instrumentation.instrumentor import BaseInstrumentor  # type: ignore[attr-defined]

from promptpath.instrumentation.safety import guard
from promptpath.instrumentation.shims.gateway import native, uvicorn
from promptpath.instrumentation.shims.gateway.covering import is_inference
from promptpath.instrumentation.shims.gateway.middleware import App, AsgiMiddleware, serve
from promptpath.instrumentation.wrapping import unwrap_all, wrap

__all__ = ["AsgiInstrumentor", "AsgiMiddleware"]


class AsgiInstrumentor(BaseInstrumentor):  # type: ignore[misc]
    """Puts the ASGI shim on Starlette (and with it on FastAPI) and on uvicorn."""

    library: ClassVar[tuple[str, ...]] = ("starlette.applications", "uvicorn.config")

    def instrumentation_dependencies(self) -> Collection[str]:
        # Either is enough, which the base class cannot say: asked for is what there is.
        there = [text for text in ("starlette >= 0.27", "uvicorn >= 0.20") if find_spec(text.split()[0]) is not None]
        return there or ("starlette >= 0.27",)

    def _instrument(self, **kwargs: Any) -> None:
        wrap("starlette.applications", "Starlette.__call__", _call)
        native.step_back(__name__)
        uvicorn.watch_servers(__name__)

    def _uninstrument(self, **kwargs: Any) -> None:
        unwrap_all()
        uvicorn.forget_servers()
        _take_out()


def _call(wrapped: App, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Awaitable[None]:
    if len(args) != 3 or kwargs or not is_inference(args[0]):
        return wrapped(*args, **kwargs)
    with guard("asgi.foreign_middleware"):
        if _is_inside_foreign(instance):
            return wrapped(*args)
    return serve(wrapped, args[0], args[1], args[2], None)


# --- OpenTelemetry's own ASGI middleware ------------------------------------------------------------------------------
# It sits in the application's middleware stack, so below the place where we wrap. There ours goes right inside it.

_seen: Final[weakref.WeakKeyDictionary[Any, tuple[object, bool]]] = weakref.WeakKeyDictionary()
_placed: Final[list[tuple[Any, AsgiMiddleware]]] = []


def _is_inside_foreign(application: Any) -> bool:
    """Whether another's middleware covers this application's requests; ours is then placed inside it, once."""
    stack = application.middleware_stack
    if stack is None:
        # As Starlette does on the first request.
        application.middleware_stack = stack = application.build_middleware_stack()
    seen = _seen.get(application)
    if seen is not None and seen[0] is stack:
        return seen[1]
    found = False
    layer, layers = stack, 0
    while layer is not None and layers < 100:
        kind = type(layer)
        if kind.__name__ == "OpenTelemetryMiddleware" and kind.__module__ == "opentelemetry.instrumentation.asgi":
            if not isinstance(layer.app, AsgiMiddleware):
                ours = AsgiMiddleware(layer.app)
                layer.app = ours
                _placed.append((layer, ours))
            found = True
            break
        layer, layers = getattr(layer, "app", None), layers + 1
    _seen[application] = (stack, found)
    return found


def _take_out() -> None:
    for layer, ours in _placed:
        ours.active = False
        if layer.app is ours:
            layer.app = ours.app
    _placed.clear()
    _seen.clear()
