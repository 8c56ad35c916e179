"""The answer to one call, watched on the wire: deliveries, what the answer says of itself, and how it ended."""

from __future__ import annotations

import asyncio
from time import monotonic_ns
from typing import Any

from promptpath import semconv
from promptpath.instrumentation.live import LiveSpan
from promptpath.instrumentation.shims import errors, genai
from promptpath.instrumentation.shims.sse import SseScanner
from promptpath.semconv import Abort


class WatchedAnswer:
    """A `body.Watcher` that marks deliveries on a span and ends it with the body.

    Args:
        span: the span of the call.
        response: an httpx or httpx2 response whose body has not been read.
        choices: how many answers were asked for.
        says: whether what the answer says of itself (model, usage) is to be set on the span.
    """

    __slots__ = ("_kept", "_kept_bytes", "_refused", "_says", "_scanner", "span")

    def __init__(self, span: LiveSpan, response: Any, *, choices: int = 1, says: bool = True) -> None:
        self.span = span
        self._says = says
        headers = response.headers
        kind = headers.get("content-type", "").lower()
        self._refused = response.status_code >= 400
        plain = headers.get("content-encoding", "identity").lower() == "identity" and not self._refused
        self._scanner = SseScanner(choices) if plain and kind.startswith("text/event-stream") else None
        self._kept: list[bytes] | None = [] if plain and says and kind.startswith("application/json") else None
        self._kept_bytes = 0

    def chunk(self, data: bytes) -> None:
        """Mark what the bytes deliver."""
        scanner = self._scanner
        if scanner is not None:
            delivered = scanner.feed(data)
            if delivered:
                self.span.mark(delivered)
        elif self._kept is not None:
            self._kept_bytes += len(data)
            if self._kept_bytes > genai.MAX_PARSED_BYTES:
                self._kept = None
            else:
                self._kept.append(data)

    def finished(self) -> None:
        """The last byte is here."""
        self._end(monotonic_ns())

    def failed(self, error: BaseException) -> None:
        """The answer broke off."""
        if self.span.ended:
            return
        if isinstance(error, asyncio.CancelledError | KeyboardInterrupt):
            self._given_up()
        else:
            self.span.fail(errors.error_type(error))
            if errors.is_timeout(error):
                self.span.set(semconv.ABORT, Abort.TIMEOUT.value)
        self._end(monotonic_ns())

    def closed(self) -> None:
        """The reader has closed it: early, if the span has not ended yet."""
        if not self.span.ended:
            self._given_up()
            self._end(monotonic_ns())

    def _given_up(self) -> None:
        # Nobody misses the rest of a refusal, nor what follows a complete answer.
        if not self._refused and (self._scanner is None or not self._scanner.finished):
            self.span.set(semconv.ABORT, Abort.CLIENT.value)

    def _end(self, end_ns: int) -> None:
        span = self.span
        if span.ended:
            return
        scanner = self._scanner
        if scanner is not None:
            found = scanner.attributes()
            if self._says:
                span.update(found)
            count_single_delivery(span, found.get(genai.OUTPUT_TOKENS))
            kind = scanner.error_type()
            if kind is not None:
                span.fail(kind)
        elif self._kept:
            span.update(genai.response_attributes(genai.json_object(b"".join(self._kept)) or {}))
        span.end(end_mono_ns=end_ns)


def count_single_delivery(span: LiveSpan, output_tokens: object) -> None:
    """An answer that came in one delivery: how many tokens that was, the usage says."""
    if len(span.deliveries_mono_ns) == 1 and isinstance(output_tokens, int) and output_tokens > 1:
        span.delivery_counts = [output_tokens]
