"""Passes a request on to another server, and its answer back as it comes. The gateway and the router both use it."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio
import httpx
from fastapi import FastAPI, Response
from fastapi.responses import JSONResponse
from starlette.types import Message, Receive, Scope, Send

from promptpath.cli.demo.openai_format import error_body, install_error_handlers

_log = logging.getLogger(__name__)

#: An answer with one of these before its first token is no answer: the next target is asked.
_FAILED = frozenset({429, 500, 502, 503, 504})
_PASSED_HEADERS = ("content-type", "content-encoding", "retry-after", "cache-control", "x-request-id")
#: No pause between two tokens is this long, in seconds.
TIMEOUT = httpx.Timeout(120, connect=2)


@dataclass(frozen=True, slots=True)
class Target:
    """One server to ask, and the body to ask it with."""

    url: str
    body: bytes


class UpstreamBroke(Exception):
    """The other server's answer ended in the middle, after a part of it had been sent on."""


class Relay(Response):
    """Asks the targets in order until one answers, and streams that answer on without waiting for more than it must.

    With more than one target, a stream is held back until its first content: a target that fails before is replaced by
    the next, and the client never sees it. The last target's failure is passed on as it came. If the client hangs up,
    so do we.
    """

    def __init__(self, client: httpx.AsyncClient, targets: Sequence[Target]) -> None:
        super().__init__()
        self._client = client
        self._targets = targets

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        broken: UpstreamBroke | None = None
        async with anyio.create_task_group() as group:
            group.start_soon(_cancel_at_hang_up, receive, group.cancel_scope)
            try:
                await self._answer(send)
            except UpstreamBroke as failure:
                broken = failure  # raised below, as itself and not as a group
            group.cancel_scope.cancel()
        if broken is not None:
            raise broken

    async def _answer(self, send: Send) -> None:
        for at, target in enumerate(self._targets):
            last = at + 1 == len(self._targets)
            try:
                request = self._client.build_request(
                    "POST", target.url, content=target.body, headers={"Content-Type": "application/json"}
                )
                response = await self._client.send(request, stream=True)
            except httpx.TransportError as failure:
                _log.warning("%s: %s", target.url, failure or type(failure).__name__)
                continue
            try:
                if not last and response.status_code in _FAILED:
                    await response.aread()
                    _log.warning("%s answered %d", target.url, response.status_code)
                elif await self._pass_on(response, send, hold=not last):
                    return
            finally:
                with anyio.CancelScope(shield=True):
                    await response.aclose()
        body = error_body("no server could be reached", "server_error", "upstream_unreachable")
        await JSONResponse(body, status_code=502)({"type": "http"}, _no_receive, send)

    async def _pass_on(self, response: httpx.Response, send: Send, *, hold: bool) -> bool:
        """Sends the answer. False: it failed before anything of it was sent."""
        hold = hold and response.headers.get("content-type", "").startswith("text/event-stream")
        held = b""
        started = False

        async def start() -> None:
            names = [name for name in _PASSED_HEADERS if name in response.headers]
            head = [(name.encode("latin-1"), response.headers[name].encode("latin-1")) for name in names]
            await send({"type": "http.response.start", "status": response.status_code, "headers": head})

        try:
            async for chunk in response.aiter_raw():
                if not started and hold:
                    held += chunk
                    match _kind_of(held):
                        case "nothing yet":
                            continue
                        case "error":
                            _log.warning("%s sent an error before its first token", response.url)
                            return False
                    chunk = held
                if not started:
                    await start()
                    started = True
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        except httpx.TransportError as failure:
            _log.warning("%s broke off: %s", response.url, failure or type(failure).__name__)
            if started:
                raise UpstreamBroke(f"{response.url} broke off") from failure
            return False
        if not started:
            await start()
        await send({"type": "http.response.body", "body": b"" if started else held, "more_body": False})
        return True


async def _no_receive() -> Message:
    return {"type": "http.disconnect"}


async def _cancel_at_hang_up(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


def _kind_of(events: bytes) -> str:
    """What the complete events so far hold: `content`, `error` or `nothing yet`."""
    for event in events.split(b"\n\n")[:-1]:
        data = event.removeprefix(b"data:").strip()
        if data == b"[DONE]":
            return "content"
        try:
            body = json.loads(data)
        except ValueError:
            continue
        if "error" in body:
            return "error"
        for choice in body.get("choices", ()):
            if choice.get("delta", {}).get("content") or choice.get("finish_reason"):
                return "content"
    return "nothing yet"


def relaying_app(title: str) -> FastAPI:
    """An application with OpenAI's form of errors and, in `state.client`, a client for `Relay`."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        # Enough connections that nobody waits for one.
        limits = httpx.Limits(max_connections=200, max_keepalive_connections=50)
        async with httpx.AsyncClient(timeout=TIMEOUT, limits=limits) as app.state.client:
            yield

    app = FastAPI(title=title, lifespan=lifespan, openapi_url=None)
    install_error_handlers(app)
    return app
