"""ClickHouse's HTTP interface over the embedded engine, read-only and bounded, for any ClickHouse client.

Every request is one query on a handle of its own: there are no sessions, and `session_id` is accepted and ignored.
Authentication is ignored as well: who may connect is decided by the address that it listens on.
"""

from __future__ import annotations

import asyncio
import gzip
import importlib
import json
import logging
import re
import uuid
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from fastapi import FastAPI, Request, Response
from starlette.datastructures import FormData, UploadFile
from starlette.requests import ClientDisconnect

from promptpath.collector import otlp, sql_guard
from promptpath.collector.otlp.encoding import zstd_module
from promptpath.collector.selfmetrics import SelfMetrics
from promptpath.collector.sql_engine import Result, SqlEngine
from promptpath.collector.sql_errors import (
    AUTHENTICATION_FAILED,
    BAD_ARGUMENTS,
    NOT_IMPLEMENTED,
    QUERY_IS_TOO_LARGE,
    TOO_MANY_SIMULTANEOUS_QUERIES,
    UNKNOWN_EXCEPTION,
    SqlError,
)

_log = logging.getLogger(__name__)

#: Parameters of the URL that are no settings. What of them is not read here has no meaning without a session.
_NOT_SETTINGS: Final = frozenset(
    {
        "add_http_cors_header",
        "buffer_size",
        "cancel_http_readonly_queries_on_client_close",
        "client_protocol_version",
        "close_session",
        "compress",
        "database",
        "decompress",
        "default_format",
        "enable_http_compression",
        "http_headers_progress_interval_ms",
        "http_make_head_request",
        "http_response_buffer_size",
        "http_zlib_compression_level",
        "password",
        "query",
        "query_id",
        "quota_key",
        "role",
        "send_progress_in_http_headers",
        "session_check",
        "session_id",
        "session_timeout",
        "stacktrace",
        "user",
        "wait_end_of_query",
    }
)
_CONTENT_TYPES: Final = {
    "JSON": "application/json; charset=UTF-8",
    "JSONCompact": "application/json; charset=UTF-8",
    "JSONEachRow": "application/x-ndjson; charset=UTF-8",
    "CSV": "text/csv; charset=UTF-8; header=absent",
    "CSVWithNames": "text/csv; charset=UTF-8; header=present",
    "TabSeparated": "text/tab-separated-values; charset=UTF-8",
    "TSV": "text/tab-separated-values; charset=UTF-8",
    "TabSeparatedWithNames": "text/tab-separated-values; charset=UTF-8",
    "XML": "application/xml; charset=UTF-8",
    "Prometheus": "text/plain; version=0.0.4; charset=UTF-8",
}
_OTHER_TYPE: Final = "application/octet-stream"
_TEXT: Final = "text/plain; charset=UTF-8"
_MAX_BODY_BYTES: Final = 8 << 20
_QUERY_ID: Final = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]{0,198}[\x21-\x7e])?")
#: Queries at once, and those that may wait for a place.
_WORKERS: Final = 4
_MAX_WAITING: Final = 64


def build_app(engine: SqlEngine, metrics: SelfMetrics, *, allowed_hosts: frozenset[str] | None = None) -> FastAPI:
    """The application.

    Args:
        allowed_hosts: names that a `Host` header may carry; None for any. Where only this machine may connect, a web
            page that points a name of its own at 127.0.0.1 must not read the store through the user's browser.
    """
    app = FastAPI(title="Promptpath SQL endpoint", docs_url=None, redoc_url=None, openapi_url=None)
    endpoint = _Endpoint(engine, metrics, allowed_hosts)
    for path in ("/ping", "/replicas_status"):
        app.add_api_route(path, _ping, methods=["GET", "HEAD"], response_model=None)
    app.add_api_route("/", endpoint.query, methods=["GET", "POST"], response_model=None)
    app.state.close = endpoint.close
    return app


async def _ping() -> Response:
    return Response("Ok.\n", media_type=_TEXT)


class _Endpoint:
    def __init__(self, engine: SqlEngine, metrics: SelfMetrics, allowed_hosts: frozenset[str] | None) -> None:
        self._engine = engine
        self._metrics = metrics
        self._allowed_hosts = allowed_hosts
        self._executor = ThreadPoolExecutor(_WORKERS, thread_name_prefix="sql")
        self._running = 0

    def close(self) -> None:
        """Waits for the queries under way."""
        self._executor.shutdown(wait=True, cancel_futures=True)

    async def query(self, request: Request) -> Response:
        query_id = request.query_params.get("query_id", "")
        if not _QUERY_ID.fullmatch(query_id):  # it goes into a header
            query_id = str(uuid.uuid4())
        headers = {
            "X-ClickHouse-Query-Id": query_id,
            "X-ClickHouse-Timezone": self._engine.timezone,
            "X-ClickHouse-Server-Display-Name": "promptpath",
        }
        try:
            self._check_host(request)
            work = await _work(request)
            if work is None:
                return await _ping()
            result = await self._run(work)
            body, encoding = await asyncio.get_running_loop().run_in_executor(
                self._executor, _compress, result.data, _encoding_for(request)
            )
        except ClientDisconnect:
            return Response(status_code=400)
        except SqlError as error:
            self._metrics.add("sql_queries_total", 1, error.name.lower())
            return self._failure(error, headers)
        except Exception as error:
            _log.exception("SQL endpoint")
            self._metrics.add("sql_queries_total", 1, "internal_error")
            return self._failure(SqlError(UNKNOWN_EXCEPTION, f"{type(error).__name__}: {error}"), headers)
        self._metrics.add("sql_queries_total", 1, "ok")
        headers |= {"X-ClickHouse-Format": result.format, "X-ClickHouse-Summary": _summary(result)}
        if encoding:
            headers["Content-Encoding"] = encoding
        return Response(body, headers=headers, media_type=_CONTENT_TYPES.get(result.format, _OTHER_TYPE))

    async def _run(self, work: dict[str, Any]) -> Result:
        if self._running >= _WORKERS + _MAX_WAITING:
            raise SqlError(TOO_MANY_SIMULTANEOUS_QUERIES, f"Too many simultaneous queries. Maximum: {self._running}")
        self._running += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._executor, lambda: self._engine.run(**work))
        finally:
            self._running -= 1

    def _check_host(self, request: Request) -> None:
        host = request.url.hostname or ""
        if self._allowed_hosts is not None and host.lower() not in self._allowed_hosts:
            raise SqlError(AUTHENTICATION_FAILED, f"this endpoint is not served under the name {host!r}")

    def _failure(self, error: SqlError, headers: dict[str, str]) -> Response:
        return Response(
            f"{error} (version {self._engine.version})\n",
            status_code=error.http_status,
            media_type=_TEXT,
            headers={**headers, "X-ClickHouse-Exception-Code": str(error.code)},
        )


async def _work(request: Request) -> dict[str, Any] | None:
    """The arguments of `SqlEngine.run`; None where there is no query at all."""
    url = dict(request.query_params)
    if url.get("compress") == "1" or url.get("decompress") == "1":
        raise SqlError(NOT_IMPLEMENTED, "compress and decompress are not served: use Accept-Encoding, Content-Encoding")
    if request.headers.get("content-type", "").startswith("multipart/form-data"):
        url |= await _form(request)
        text = ""
    else:
        text = await _text(request, url.get("query", ""))
    query = "\n".join(part for part in (url.get("query", ""), text) if part)
    if not query:
        if request.method == "GET":
            return None
        raise SqlError(BAD_ARGUMENTS, "Empty query")
    return {
        "query": query,
        "database": url.get("database") or request.headers.get("x-clickhouse-database", ""),
        "default_format": url.get("default_format") or request.headers.get("x-clickhouse-format") or "TabSeparated",
        "settings": {
            name: value for name, value in url.items() if name not in _NOT_SETTINGS and not name.startswith("param_")
        },
        "params": {name[6:]: value for name, value in url.items() if name.startswith("param_")},
    }


async def _form(request: Request) -> dict[str, str]:
    form: FormData = await request.form(max_part_size=_MAX_BODY_BYTES)
    try:
        fields: dict[str, str] = {}
        for name, value in form.items():
            if isinstance(value, UploadFile):
                raise SqlError(NOT_IMPLEMENTED, "external tables are not served")
            fields[name] = value
        return fields
    finally:
        await form.close()


async def _text(request: Request, query: str) -> str:
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > _MAX_BODY_BYTES:
            # Most likely data of an INSERT: say that rather than how long it is.
            sql_guard.check_statement(query or b"".join(chunks)[:1000].decode("utf-8", "replace"))
            raise SqlError(QUERY_IS_TOO_LARGE, f"the query has more than {_MAX_BODY_BYTES} bytes")
        chunks.append(chunk)
    body = _decompress(b"".join(chunks), request.headers.get("content-encoding", ""))
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        sql_guard.check_statement(query or body[:1000].decode("utf-8", "replace"))
        raise SqlError(BAD_ARGUMENTS, f"the query is not UTF-8 at byte {error.start}") from None


def _decompress(body: bytes, encoding: str) -> bytes:
    if encoding == "lz4":
        try:
            decompressor = _lz4().LZ4FrameDecompressor()
            plain: bytes = decompressor.decompress(body, max_length=_MAX_BODY_BYTES + 1)
        except RuntimeError as error:
            raise SqlError(BAD_ARGUMENTS, f"the body is not valid lz4: {error}") from None
        if len(plain) > _MAX_BODY_BYTES:
            raise SqlError(QUERY_IS_TOO_LARGE, f"the query has more than {_MAX_BODY_BYTES} bytes")
        return plain
    try:
        return otlp.decompress(body, encoding, max_bytes=_MAX_BODY_BYTES)
    except otlp.TooLarge as error:
        raise SqlError(QUERY_IS_TOO_LARGE, str(error)) from None
    except otlp.OtlpError as error:
        raise SqlError(BAD_ARGUMENTS, str(error)) from None


def _encoding_for(request: Request) -> str:
    """The encoding of the answer: none unless both the parameter and the header ask for one, as on a server."""
    if request.query_params.get("enable_http_compression") not in ("1", "true"):
        return ""
    accepted = {part.partition(";")[0].strip() for part in request.headers.get("accept-encoding", "").split(",")}
    return next((name for name in _COMPRESSORS if name in accepted), "")


def _compress(data: bytes, encoding: str) -> tuple[bytes, str]:
    if not data or not encoding:
        return data, ""
    return _COMPRESSORS[encoding](data), encoding


def _lz4() -> Any:
    return importlib.import_module("lz4.frame")


def _zstd_compress(data: bytes) -> bytes:
    module = zstd_module()
    assert module is not None
    compressed: bytes = module.compress(data, 1)
    return compressed


#: Cheapest first: the answer seldom leaves the machine.
_COMPRESSORS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "lz4": lambda data: bytes(_lz4().compress(data)),
    **({"zstd": _zstd_compress} if zstd_module() is not None else {}),
    "gzip": lambda data: gzip.compress(data, 1),
    "deflate": lambda data: zlib.compress(data, 1),
}


def _summary(result: Result) -> str:
    return json.dumps(
        {
            "read_rows": str(result.rows_read),
            "read_bytes": str(result.bytes_read),
            "written_rows": "0",
            "written_bytes": "0",
            "total_rows_to_read": "0",
            "elapsed_ns": str(int(result.elapsed_s * 1e9)),
        }
    )
