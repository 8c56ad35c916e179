"""ClickHouse's HTTP interface over the embedded engine, read-only and bounded, for any ClickHouse client.

Every request is one query on a handle of its own: there are no sessions, and `session_id` is accepted and ignored.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

from fastapi import FastAPI, Request, Response
from starlette.requests import ClientDisconnect

from promptpath.collector import sql_request
from promptpath.collector.selfmetrics import Sample, SelfMetrics
from promptpath.collector.sql_answer import Broken, Send, answer
from promptpath.collector.sql_auth import Authenticate
from promptpath.collector.sql_engine import Question, Running, SqlEngine, Statistics
from promptpath.collector.sql_errors import (
    AUTHENTICATION_FAILED,
    TOO_MANY_SIMULTANEOUS_QUERIES,
    UNKNOWN_EXCEPTION,
    SqlError,
)

_log = logging.getLogger(__name__)

_TEXT: Final = "text/plain; charset=UTF-8"
#: Queries at once, and those that may wait for a place.
_WORKERS: Final = 8
_MAX_WAITING: Final = 64
#: Outcomes that have a histogram of their own; every error is `error` there.
_KINDS: Final = {"ok": "ok", "hung_up": "hung_up"}


def build_app(
    engine: SqlEngine,
    metrics: SelfMetrics,
    *,
    allowed_hosts: frozenset[str] | None = None,
    authenticate: Authenticate | None = None,
) -> FastAPI:
    """The application.

    Args:
        allowed_hosts: names that a `Host` header may carry; None for any. Where only this machine may connect, a web
            page that points a name of its own at 127.0.0.1 must not read the store through the user's browser.
        authenticate: who may ask, and whose rows they see; None where whoever can connect may see all.
    """
    app = FastAPI(title="Promptpath SQL endpoint", docs_url=None, redoc_url=None, openapi_url=None)
    endpoint = _Endpoint(engine, metrics, allowed_hosts, authenticate)
    for path in ("/ping", "/replicas_status"):
        app.add_api_route(path, _ping, methods=["GET", "HEAD"], response_model=None)
    app.add_api_route("/", endpoint.query, methods=["GET", "POST"], response_model=None)
    app.state.close = endpoint.close
    metrics.add_source(endpoint.samples)
    return app


async def _ping() -> Response:
    return Response("Ok.\n", media_type=_TEXT)


class _Endpoint:
    def __init__(
        self,
        engine: SqlEngine,
        metrics: SelfMetrics,
        allowed_hosts: frozenset[str] | None,
        authenticate: Authenticate | None,
    ) -> None:
        self._engine = engine
        self._metrics = metrics
        self._allowed_hosts = allowed_hosts
        self._authenticate = authenticate
        self._executor = ThreadPoolExecutor(_WORKERS, thread_name_prefix="sql")
        self._running = 0

    def close(self) -> None:
        """Waits for the queries under way."""
        self._executor.shutdown(wait=True, cancel_futures=True)
        self._engine.close()

    async def query(self, request: Request) -> Response:
        headers = {
            "X-ClickHouse-Query-Id": sql_request.query_id_of(request),
            "X-ClickHouse-Timezone": self._engine.timezone,
            "X-ClickHouse-Server-Display-Name": "promptpath",
        }
        began = time.perf_counter()
        try:
            self._check_host(request)
            tenant = self._authenticate(sql_request.credentials(request)) if self._authenticate else None
            asked = await sql_request.read(request, tenant)
        except ClientDisconnect:
            return Response(status_code=400)
        except SqlError as error:
            self._count(error.name.lower(), began)
            return self._failure(error, headers)
        if asked is None:
            return await _ping()
        return _Answer(partial(self._serve, asked, headers, began))

    async def _serve(self, asked: sql_request.Asked, headers: dict[str, str], began: float, send: Send) -> None:
        """Runs a query and answers it, whatever comes of it. Cancelled when the caller hangs up."""
        outcome = "hung_up"
        try:
            async with self._place():
                running = await self._started(asked.question)
                statistics = await answer(
                    running,
                    send,
                    headers,
                    executor=self._executor,
                    whole=asked.wait_end_of_query,
                    version=self._engine.version,
                )
            outcome = "ok"
            self._read(statistics)
        except SqlError as error:
            outcome = error.name.lower()
            await _send_response(self._failure(error, headers), send)
        except Broken as broken:
            cause = broken.__cause__
            outcome = cause.name.lower() if isinstance(cause, SqlError) else "stalled"
            raise
        except Exception as error:
            outcome = "internal_error"
            _log.exception("SQL endpoint")
            with contextlib.suppress(RuntimeError):  # where the answer has begun, the server breaks it off
                failure = SqlError(UNKNOWN_EXCEPTION, f"{type(error).__name__}: {error}")
                await _send_response(self._failure(failure, headers), send)
        finally:
            self._count(outcome, began)

    @contextlib.asynccontextmanager
    async def _place(self) -> Any:
        if self._running >= _WORKERS + _MAX_WAITING:
            raise SqlError(TOO_MANY_SIMULTANEOUS_QUERIES, f"Too many simultaneous queries. Maximum: {self._running}")
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1

    async def _started(self, question: Question) -> Running:
        starting = asyncio.get_running_loop().run_in_executor(self._executor, self._engine.start, question)
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            starting.add_done_callback(_discard)
            raise

    def _check_host(self, request: Request) -> None:
        host = request.url.hostname or ""
        if self._allowed_hosts is not None and host.lower() not in self._allowed_hosts:
            raise SqlError(AUTHENTICATION_FAILED, f"this endpoint is not served under the name {host!r}")

    def _failure(self, error: SqlError, headers: dict[str, str]) -> Response:
        challenge = {"WWW-Authenticate": 'Basic realm="promptpath"'} if error.http_status == 401 else {}
        return Response(
            f"{error} (version {self._engine.version})\n",
            status_code=error.http_status,
            media_type=_TEXT,
            headers={**headers, **challenge, "X-ClickHouse-Exception-Code": str(error.code)},
        )

    def samples(self) -> Iterable[Sample]:
        """Gauges for self-observation."""
        waiting = max(self._running - _WORKERS, 0)
        return [
            ("sql_queries_running", "Queries under way.", "gauge", [({}, self._running - waiting)]),
            ("sql_queries_waiting", "Queries that wait for a place.", "gauge", [({}, waiting)]),
        ]

    def _count(self, outcome: str, began: float) -> None:
        self._metrics.add("sql_queries_total", 1, outcome)
        self._metrics.observe("sql_query_seconds", time.perf_counter() - began, _KINDS.get(outcome, "error"))

    def _read(self, statistics: Statistics) -> None:
        self._metrics.add("sql_read_rows_total", statistics.rows_read)
        self._metrics.add("sql_read_bytes_total", statistics.bytes_read)


class _Answer(Response):
    """Runs `serve` until it ends or the caller hangs up."""

    def __init__(self, serve: Callable[[Send], Any]) -> None:
        super().__init__()
        self._serve = serve

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        serving = asyncio.ensure_future(self._serve(send))
        watching = asyncio.ensure_future(_hung_up(receive))
        try:
            await asyncio.wait({serving, watching}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            watching.cancel()
            if not serving.done():
                serving.cancel()
            await asyncio.wait({serving, watching})
        if not serving.cancelled():
            serving.result()


async def _hung_up(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _send_response(response: Response, send: Send) -> None:
    await send({"type": "http.response.start", "status": response.status_code, "headers": response.raw_headers})
    await send({"type": "http.response.body", "body": response.body})


def _discard(starting: asyncio.Future[Running]) -> None:
    if not starting.cancelled() and starting.exception() is None:
        starting.result().discard()
