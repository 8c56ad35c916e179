"""An HTTP connection that does not wait for ever: uvicorn's protocol with a time limit on the head of a request.

uvicorn itself only limits how long a connection idles after an answer. One that sends nothing, or a header a minute,
would stay for ever.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

#: Seconds from a connection, or the first byte of a later request, to the end of its head.
HEAD_S: Final = 10.0


class LimitedProtocol(HttpToolsProtocol):
    """Closes connections whose next head takes longer than `HEAD_S`."""

    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unwatch()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        self._watch()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._unwatch()
        super().on_headers_complete()

    def _watch(self) -> None:
        self._unwatch()
        self._head_timer = self.loop.call_later(HEAD_S, self._too_slow)

    def _unwatch(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _too_slow(self) -> None:
        # Answers to requests before it on this connection may still be under way: these end by themselves.
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()
        else:
            self._watch()
