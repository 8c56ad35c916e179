"""A request to the SQL endpoint, read as ClickHouse's HTTP interface reads it."""

from __future__ import annotations

import importlib
import re
import uuid
from dataclasses import dataclass
from typing import Any, Final

from fastapi import Request
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException

from promptpath.collector import otlp, sql_guard
from promptpath.collector.sql_engine import Question
from promptpath.collector.sql_errors import (
    BAD_ARGUMENTS,
    NOT_IMPLEMENTED,
    QUERY_IS_TOO_LARGE,
    REQUIRED_PASSWORD,
    SqlError,
)

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
_MAX_BODY_BYTES: Final = 8 << 20
_MAX_FIELDS: Final = 1000
_QUERY_ID: Final = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]{0,198}[\x21-\x7e])?")
#: What answers can be compressed by, as HTTP names it and as the engine does; the cheapest first.
_ENCODINGS: Final = ("lz4", "zstd", "gzip", "deflate", "br")


@dataclass(frozen=True)
class Asked:
    """What a request asks: the question, and whether the answer must be whole before its first byte is sent."""

    question: Question
    wait_end_of_query: bool


def query_id_of(request: Request) -> str:
    """The caller's id of the query, or one of our own: it goes into a header."""
    found = request.query_params.get("query_id", "")
    return found if _QUERY_ID.fullmatch(found) else str(uuid.uuid4())


def credentials(request: Request) -> str:
    """A value for `Authorization`, however the caller gave its token: that header, ClickHouse's own, or the URL.

    Raises:
        SqlError: there are none.
    """
    given = request.headers.get("authorization", "")
    if given:
        return given
    token = request.headers.get("x-clickhouse-key") or request.query_params.get("password", "")
    if not token:
        raise SqlError(
            REQUIRED_PASSWORD, "Authentication is required: send a token as password, or Authorization: Bearer TOKEN"
        )
    return f"Bearer {token}"


async def read(request: Request, tenant: str | None) -> Asked | None:
    """The question; None where there is none at all.

    Raises:
        SqlError: it cannot be read.
    """
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
    if "\0" in query or any("\0" in name + value for name, value in url.items()):
        raise SqlError(BAD_ARGUMENTS, "a zero byte in the query or a parameter")
    question = Question(
        query=query,
        database=url.get("database") or request.headers.get("x-clickhouse-database", ""),
        default_format=url.get("default_format") or request.headers.get("x-clickhouse-format") or "TabSeparated",
        settings={
            name: value for name, value in url.items() if name not in _NOT_SETTINGS and not name.startswith("param_")
        },
        params={name[6:]: value for name, value in url.items() if name.startswith("param_")},
        tenant=tenant,
        compression=_encoding_for(request),
    )
    return Asked(question, wait_end_of_query=url.get("wait_end_of_query") in ("1", "true"))


async def _form(request: Request) -> dict[str, str]:
    fields: dict[str, str] = {}
    try:
        form: FormData = await request.form(max_files=1, max_fields=_MAX_FIELDS, max_part_size=_MAX_BODY_BYTES)
    except HTTPException as error:
        raise SqlError(BAD_ARGUMENTS, f"the form cannot be read: {error.detail}") from None
    try:
        for name, value in form.items():
            if isinstance(value, UploadFile):
                raise SqlError(NOT_IMPLEMENTED, "external tables are not served")
            fields[name] = value
    finally:
        await form.close()
    return fields


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
        except (RuntimeError, EOFError) as error:
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


def _lz4() -> Any:
    return importlib.import_module("lz4.frame")


def _encoding_for(request: Request) -> str:
    """The encoding of the answer: none unless both the parameter and the header ask for one, as on a server."""
    if request.query_params.get("enable_http_compression") not in ("1", "true"):
        return ""
    accepted = {
        name.strip().lower()
        for part in request.headers.get("accept-encoding", "").split(",")
        for name, _, weight in [part.partition(";")]
        if weight.replace(" ", "") not in ("q=0", "q=0.0")
    }
    return next((name for name in _ENCODINGS if name in accepted), "")
