"""The ASGI middleware: a span around each inference request that an application serves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from promptpath.instrumentation import recorder
from promptpath.instrumentation.safety import guard
from promptpath.instrumentation.shims.gateway.covering import COVERED, is_inference
from promptpath.instrumentation.shims.gateway.exchange import Exchange
from promptpath.semconv import Stage

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class AsgiMiddleware:
    """Wraps an ASGI application. It never changes a message, an exception, or when one is passed on.

    Args:
        app: the application.
        role: gateway, router, server or edge; by default the process's role.
    """

    def __init__(self, app: App, role: Stage | str | None = None) -> None:
        self.app = app
        self.role = Stage(role) if role is not None else None
        self.active = True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.active and is_inference(scope):
            await serve(self.app, scope, receive, send, self.role)
        else:
            await self.app(scope, receive, send)


async def serve(app: App, scope: Scope, receive: Receive, send: Send, role: Stage | None) -> None:
    """Run the application on one inference request, with a span around it."""
    exchange: Exchange | None = None
    with guard("asgi.begin"):
        exchange = Exchange(scope, role)
        scope[COVERED] = True
    if exchange is None:
        await app(scope, receive, send)
        return
    span = exchange.span
    token = recorder.attach(span)
    try:
        if span.recording:
            await app(scope, exchange.receiving(receive), exchange.sending(send))
        else:
            await app(scope, receive, send)
    except BaseException as error:
        exchange.raised(error)
        raise
    finally:
        exchange.end()
        recorder.detach(token)
