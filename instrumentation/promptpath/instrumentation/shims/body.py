"""The body of an answer as it comes in, for httpx and httpx2: watched, never changed.

Both libraries want a body to be an instance of their own stream classes, so there is a pair of wrappers for each of
them.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from functools import lru_cache
from typing import Any, Protocol

from promptpath.instrumentation.safety import guard, note_failure


class Watcher(Protocol):
    """Is told what happens to a body. It must be quick; what it raises is passed by."""

    def chunk(self, data: bytes) -> None:
        """Bytes have come in; the reader does not have them yet."""

    def finished(self) -> None:
        """The last byte has been read."""

    def failed(self, error: BaseException) -> None:
        """Reading raised."""

    def closed(self) -> None:
        """The body was closed. Comes last, once or more."""


def watch(response: Any, watcher: Watcher) -> None:
    """Have a response's body watched.

    Args:
        response: an `httpx.Response` or `httpx2.Response` whose body has not been read.
        watcher: what is told.
    """
    library = type(response).__module__.partition(".")[0]
    stream = response.stream
    sync_class, async_class = _classes(library)
    response.stream = async_class(stream, watcher) if hasattr(stream, "__aiter__") else sync_class(stream, watcher)


class _WatchedChunks:
    """The chunks of an asynchronous body. No generator: the event loop closes those that a program leaves at once with
    those around them and inside, and one more layer would be closed while it closes the next.
    """

    __slots__ = ("_chunks", "_watcher")

    def __init__(self, chunks: AsyncIterator[bytes], watcher: Watcher) -> None:
        self._chunks = chunks
        self._watcher = watcher

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        watcher = self._watcher
        try:
            data = await anext(self._chunks)
        except StopAsyncIteration:
            with guard("body.finished"):
                watcher.finished()
            raise
        except GeneratorExit:
            raise
        except BaseException as error:
            with guard("body.failed"):
                watcher.failed(error)
            raise
        try:
            watcher.chunk(data)
        except Exception as error:
            note_failure("body.chunk", error)
        return data

    async def aclose(self) -> None:
        close = getattr(self._chunks, "aclose", None)
        if close is not None:
            await close()


@lru_cache(maxsize=8)
def _classes(library: str) -> tuple[type[Any], type[Any]]:
    module = sys.modules[library]

    class WatchedBody(module.SyncByteStream):  # type: ignore[misc,name-defined]
        """A body that tells a watcher what is read."""

        def __init__(self, inner: Any, watcher: Watcher) -> None:
            self._inner = inner
            self._watcher = watcher

        def __iter__(self) -> Iterator[bytes]:
            watcher = self._watcher
            try:
                for data in self._inner:
                    try:
                        watcher.chunk(data)
                    except Exception as error:
                        note_failure("body.chunk", error)
                    yield data
            except GeneratorExit:
                raise
            except BaseException as error:
                with guard("body.failed"):
                    watcher.failed(error)
                raise
            with guard("body.finished"):
                watcher.finished()

        def close(self) -> None:
            try:
                self._inner.close()
            finally:
                with guard("body.closed"):
                    self._watcher.closed()

    class WatchedAsyncBody(module.AsyncByteStream):  # type: ignore[misc,name-defined]
        """A body that tells a watcher what is read."""

        def __init__(self, inner: Any, watcher: Watcher) -> None:
            self._inner = inner
            self._watcher = watcher

        def __aiter__(self) -> AsyncIterator[bytes]:
            return _WatchedChunks(self._inner.__aiter__(), self._watcher)

        async def aclose(self) -> None:
            try:
                await self._inner.aclose()
            finally:
                with guard("body.closed"):
                    self._watcher.closed()

    return WatchedBody, WatchedAsyncBody
