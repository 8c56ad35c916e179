"""OTLP over HTTP: `/v1/{traces,metrics,logs}`, and the collector's own `/metrics`, `/healthz`, `/readyz`."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any, Final

from fastapi import FastAPI, Request, Response
from google.protobuf import json_format
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect

from promptpath.collector import otlp, rpc_status, selfmetrics
from promptpath.collector.auth import AuthError
from promptpath.collector.errors import JournalError
from promptpath.collector.intake import Busy, Held, Intake, Refusal, response_of
from promptpath.collector.otlp import JSON, OtlpError, Signal, TooLarge, TooSlow

#: Bodies over this are read in a worker thread, so that one of them does not hold up the others.
_OFFLOAD_BYTES: Final = 128 << 10
#: The same for compressed ones, which may be a thousand times as large once they are not.
_OFFLOAD_PACKED_BYTES: Final = 16 << 10
#: How far past the limit a body is still read (and dropped), so that its sender gets to see the answer.
_DRAIN_FACTOR: Final = 4
#: Seconds until the next piece of a body must be there, and the whole of it.
PIECE_S: Final = 15.0
BODY_S: Final = 120.0
#: Reasons of refusals that come before a body has been read to its end.
_UNREAD: Final = (TooLarge.reason, TooSlow.reason, "busy")


def build_app(
    intake: Intake,
    metrics: selfmetrics.SelfMetrics,
    is_ready: Callable[[], str],
    executor: Executor,
    cors_origins: Sequence[str] = (),
) -> FastAPI:
    """The application.

    Args:
        is_ready: says why the collector is not ready to accept, or "" if it is.
        executor: threads for large bodies.
        cors_origins: whose pages may send from browsers; `*` for any.
    """
    app = FastAPI(title="Promptpath collector", docs_url=None, redoc_url=None, openapi_url=None)
    receiver = _Receiver(intake, executor)
    if cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(cors_origins),
            allow_methods=["POST"],
            allow_headers=["*"],
            expose_headers=["Retry-After", "WWW-Authenticate"],
            max_age=3600,
        )

    for signal in Signal:
        app.add_api_route(
            f"/v1/{signal.value}", receiver.endpoint(signal), methods=["POST"], response_model=None, name=signal.value
        )

    @app.get("/healthz")
    async def healthz() -> Response:
        return Response("ok\n", media_type="text/plain")

    @app.get("/readyz")
    async def readyz() -> Response:
        reason = is_ready()
        return Response(f"{reason or 'ok'}\n", status_code=503 if reason else 200, media_type="text/plain")

    @app.get("/metrics")
    async def prometheus(request: Request) -> Response:
        openmetrics, content_type = selfmetrics.answer_to(request.headers.get("accept", ""))
        return Response(metrics.render(openmetrics=openmetrics), headers={"Content-Type": content_type})

    return app


class _Receiver:
    def __init__(self, intake: Intake, executor: Executor) -> None:
        self._intake = intake
        self._executor = executor

    def endpoint(self, signal: Signal) -> Callable[[Request], Any]:
        async def export(request: Request) -> Response:
            return await self._export(signal, request)

        return export

    async def _export(self, signal: Signal, request: Request) -> Response:
        with self._intake.holding() as held:
            return await self._receive(signal, request, held)

    async def _receive(self, signal: Signal, request: Request, held: Held) -> Response:
        started = time.perf_counter()
        content_type = request.headers.get("content-type", "")
        encoding = request.headers.get("content-encoding", "")
        try:
            tenant = self._intake.tenant_of(request.headers.get("authorization"))
            otlp.media_type(content_type)
            body = await _body(request, self._intake.max_body_bytes, held)
            if len(body) > (_OFFLOAD_PACKED_BYTES if encoding else _OFFLOAD_BYTES):
                loop = asyncio.get_running_loop()
                read = await loop.run_in_executor(
                    self._executor, self._intake.read, signal, body, content_type, encoding, tenant
                )
            else:
                read = self._intake.read(signal, body, content_type, encoding, tenant)
            keeping = time.perf_counter()
            # A sender that hangs up takes nothing back: what the journal was given it writes.
            await asyncio.shield(asyncio.wrap_future(self._intake.keep(read)))
        except ClientDisconnect:
            return Response(status_code=400)  # nobody is there to read it
        except AuthError as error:
            # A sender that is still at it would not see the answer.
            with contextlib.suppress(ClientDisconnect, TooLarge, TooSlow):
                await _body(request, 0, held, drain=self._intake.max_body_bytes)
            return _refusal(self._intake.refused(signal, "http", error, started), content_type)
        except (OtlpError, JournalError, Busy) as error:
            return _refusal(self._intake.refused(signal, "http", error, started), content_type)
        self._intake.acknowledged(read, "http", started, keeping)
        return _answer(response_of(read), content_type)


async def _body(request: Request, limit: int, held: Held, *, drain: int | None = None) -> bytes:
    """The body as it came, at most `limit` bytes of it; up to `drain` more is dropped while it is read."""
    loop = asyncio.get_running_loop()
    last_chance = loop.time() + BODY_S
    last = limit * _DRAIN_FACTOR if drain is None else drain
    chunks: list[bytes] = []
    size = 0
    pieces = request.stream()
    while True:
        try:
            async with asyncio.timeout_at(min(loop.time() + PIECE_S, last_chance)):
                chunk = await anext(pieces)
        except StopAsyncIteration:
            break
        except TimeoutError:
            raise TooSlow(f"the body did not come in time: {size} bytes so far") from None
        size += len(chunk)
        if size <= limit:
            held.add(len(chunk))
            chunks.append(chunk)
        else:
            chunks.clear()
            held.drop()
            if size > last:
                break
    if size > limit:
        raise TooLarge(f"the body has more than {limit} bytes, which is the limit")
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _answer(message: Any, content_type: str, *, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A protobuf message in the content type of the request (JSON where that was none of ours)."""
    if content_type.partition(";")[0].strip().lower() == otlp.PROTOBUF:
        return Response(message.SerializeToString(), status_code=status, media_type=otlp.PROTOBUF, headers=headers)
    text = json_format.MessageToJson(message, indent=None)
    return Response(text, status_code=status, media_type=JSON, headers=headers)


def _refusal(refusal: Refusal, content_type: str) -> Response:
    headers = {}
    if refusal.retry_after_s is not None:
        headers["Retry-After"] = str(refusal.retry_after_s)
    if refusal.challenge:
        headers["WWW-Authenticate"] = refusal.challenge
    if refusal.reason in _UNREAD:
        headers["Connection"] = "close"  # the rest of the body may still be on its way
    message = rpc_status.status(refusal.rpc_code, refusal.message, retry_after_s=refusal.retry_after_s)
    return _answer(message, content_type, status=refusal.http_status, headers=headers)
