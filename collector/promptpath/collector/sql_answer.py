"""The answer to a query as it is made: nothing of it is held but a first piece, and a caller who hangs up ends it.

Headers go out with the first megabytes, or with the end if that comes before: until then an error has a status of its
own. Later it can only be said in the body, as ClickHouse does it, and the connection is broken off.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import secrets
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Executor, Future
from typing import IO, Any, Final

from promptpath.collector.sql_engine import Running, Statistics
from promptpath.collector.sql_errors import SqlError

_FIRST_BYTES: Final = 4 << 20
_CHUNK_BYTES: Final = 1 << 20
#: How much of a whole answer lies in memory before the rest lies on disk.
_SPOOL_BYTES: Final = 16 << 20
#: How long a caller may take nothing of what it asked for.
_STALL_S: Final = 60.0
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

Send = Callable[[Any], Awaitable[None]]


class Broken(Exception):
    """The answer ends in the middle: the server must break the connection off, which it does for an exception."""


class _NotBroken(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        return not (record.exc_info and isinstance(record.exc_info[1], Broken))


logging.getLogger("uvicorn.error").addFilter(_NotBroken())


class HungUp(Exception):
    """The caller is gone."""


async def answer(
    running: Running, send: Send, headers: dict[str, str], *, executor: Executor, whole: bool, version: str
) -> Statistics:
    """Runs a query and sends what it gives, from status to last byte.

    Args:
        whole: send nothing before the query has ended well.

    Raises:
        SqlError: it failed, and nothing was sent. Broken: it failed in the middle.
        asyncio.CancelledError: the query has been stopped.
    """
    execution = executor.submit(running.execute)
    tag = secrets.token_hex(8)
    sender = _Sender(send, running, {**headers, "X-ClickHouse-Exception-Tag": tag})
    try:
        try:
            if whole:
                await _send_whole(running, sender, execution)
            else:
                await _send_along(running, sender, execution)
            statistics = await asyncio.wrap_future(execution)
        except SqlError as error:
            if sender.started:
                if not running.is_compressed:
                    await sender.send(_in_the_body(f"{error} (version {version})\n", tag))
                raise Broken(str(error)) from error
            raise
        if not sender.started:
            await sender.start(statistics, 0)
        await sender.end()
        return statistics
    finally:
        await _stopped(running, execution)


async def _send_along(running: Running, sender: _Sender, execution: Future[Statistics]) -> None:
    first: list[bytes] = []
    size = 0
    async for chunk in _chunks(running):
        if sender.started:
            await sender.send(chunk)
            continue
        first.append(chunk)
        size += len(chunk)
        if size >= _FIRST_BYTES:
            await sender.start(None, None)
            await sender.send(b"".join(first))
            first.clear()
    statistics = await asyncio.wrap_future(execution)  # an error comes out here
    if not sender.started:
        await sender.start(statistics, size)
        await sender.send(b"".join(first))


async def _send_whole(running: Running, sender: _Sender, execution: Future[Statistics]) -> None:
    with tempfile.SpooledTemporaryFile(_SPOOL_BYTES) as spool:
        async for chunk in _chunks(running):
            spool.write(chunk)
        statistics = await asyncio.wrap_future(execution)
        await sender.start(statistics, spool.tell())
        spool.seek(0)
        await _send_file(spool, sender)


async def _send_file(file: IO[bytes], sender: _Sender) -> None:
    while chunk := file.read(_CHUNK_BYTES):
        await sender.send(chunk)


class _Sender:
    def __init__(self, send: Send, running: Running, headers: dict[str, str]) -> None:
        self._send = send
        self._running = running
        self._headers = headers
        self.started = False

    async def start(self, statistics: Statistics | None, size: int | None) -> None:
        """Status and headers; what it cost and how long it is where that is known."""
        found = {
            **self._headers,
            "Content-Type": _CONTENT_TYPES.get(self._running.format, _OTHER_TYPE),
            "X-ClickHouse-Format": self._running.format,
            "X-ClickHouse-Summary": _summary(statistics or Statistics()),
        }
        if self._running.is_compressed and size != 0:
            found["Content-Encoding"] = self._running.compression
        if size is not None:
            found["Content-Length"] = str(size)
        self.started = True
        raw = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in found.items()]
        await self._within({"type": "http.response.start", "status": 200, "headers": raw})

    async def send(self, data: bytes) -> None:
        await self._within({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self) -> None:
        await self._within({"type": "http.response.body", "body": b"", "more_body": False})

    async def _within(self, message: Any) -> None:
        try:
            async with asyncio.timeout(_STALL_S):
                await self._send(message)
        except TimeoutError:
            raise Broken("the caller takes nothing") from None


async def _chunks(running: Running) -> AsyncIterator[bytes]:
    """What comes out of the pipe, until its end."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            chunk = os.read(running.reader, _CHUNK_BYTES)
        except BlockingIOError:
            readable: asyncio.Future[None] = loop.create_future()
            loop.add_reader(running.reader, _set, readable)
            try:
                await readable
            finally:
                loop.remove_reader(running.reader)
            continue
        if not chunk:
            return
        yield chunk


def _set(readable: asyncio.Future[None]) -> None:
    if not readable.done():
        readable.set_result(None)


async def _stopped(running: Running, execution: Future[Statistics]) -> None:
    """Returns when nothing of the query runs any more, however often the caller of this is cancelled."""
    if execution.cancel():
        running.discard()
        return
    if not execution.done():
        stopping = asyncio.ensure_future(asyncio.to_thread(running.cancel))
        while not stopping.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.shield(stopping)
        with contextlib.suppress(Exception):
            execution.exception()
    running.close()


def _in_the_body(text: str, tag: str) -> bytes:
    """ClickHouse's form of an exception within an answer."""
    message = text.encode()
    return b"\r\n__exception__\r\n%s\r\n%s%d %s\r\n__exception__\r\n" % (
        tag.encode(),
        message,
        len(message),
        tag.encode(),
    )


def _summary(statistics: Statistics) -> str:
    return json.dumps(
        {
            "read_rows": str(statistics.rows_read),
            "read_bytes": str(statistics.bytes_read),
            "written_rows": "0",
            "written_bytes": "0",
            "total_rows_to_read": "0",
            "elapsed_ns": str(int(statistics.elapsed_s * 1e9)),
        }
    )
