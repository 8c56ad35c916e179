"""The `openai` client's answers: streams of chunks, watched as they are handed on, and whole answers."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Generator, Iterator
from time import monotonic_ns
from typing import Any, Final

from opentelemetry.util.types import AttributeValue

from promptpath import semconv
from promptpath.instrumentation.live import LiveSpan
from promptpath.instrumentation.safety import guard, note_failure
from promptpath.instrumentation.shims import body, errors, genai
from promptpath.instrumentation.shims.answer import count_single_delivery
from promptpath.semconv import Abort

_REASONING: Final = ("reasoning_content", "reasoning")


def is_stream(result: object) -> bool:
    """Whether this is the client's `Stream` or `AsyncStream`."""
    streaming = sys.modules.get("openai._streaming")
    return streaming is not None and isinstance(result, streaming.Stream | streaming.AsyncStream)


def watch(stream: Any, span: LiveSpan, *, choices: int) -> None:
    """Mark on the span what a stream delivers, and end it with the stream. The stream stays the object it is."""
    watcher = _StreamWatcher(span, choices)
    if hasattr(stream, "__anext__"):
        stream._iterator = _AsyncChunks(watcher, stream._iterator)
    else:
        stream._iterator = watcher.pass_on(stream._iterator)
    # The program may close the response instead of the stream; what is below both of them is told.
    body.watch(stream.response, watcher)


class _StreamWatcher:
    """Watches one stream: its chunks as objects, and its response's body for being closed.

    Chunks are looked at as the client gives them, so that a delivery is what the program gets at once.
    """

    __slots__ = ("_choice", "_choices", "_first", "_last", "_reading", "_reasons", "_usage", "span")

    def __init__(self, span: LiveSpan, choices: int) -> None:
        self.span = span
        self._choices = choices
        self._choice: int | None = None
        self._first: Any = None
        self._last: Any = None
        self._usage: Any = None
        self._reasons: list[str] = []
        #: The client itself is at work: a body that is closed now is closed by it, not by the program.
        self._reading = False

    def pass_on(self, chunks: Iterator[Any]) -> Generator[Any, None, None]:
        """The chunks, each looked at before it is handed on."""
        try:
            while True:
                self._reading = True
                try:
                    chunk = next(chunks)
                except StopIteration:
                    break
                finally:
                    self._reading = False
                try:
                    self._look_at(chunk)
                except Exception as error:
                    note_failure("openai.chunk", error)
                yield chunk
            self._end()
        except GeneratorExit:
            self._given_up()
            raise
        except BaseException as error:
            self._broke(error)
            raise
        finally:
            close = getattr(chunks, "close", None)
            if close is not None:
                close()

    async def next_of(self, chunks: AsyncIterator[Any]) -> Any:
        """The next chunk, looked at before it is handed on."""
        self._reading = True
        try:
            chunk = await anext(chunks)
        except StopAsyncIteration:
            self._end()
            raise
        except BaseException as error:
            self._broke(error)
            raise
        finally:
            self._reading = False
        try:
            self._look_at(chunk)
        except Exception as error:
            note_failure("openai.chunk", error)
        return chunk

    def left(self) -> None:
        """The program closes the iterator before its end."""
        if not self.span.ended:
            self._given_up()

    # -- chunks --------------------------------------------------------------------------------------------------------

    def _look_at(self, chunk: Any) -> None:
        choices = getattr(chunk, "choices", None)
        if choices is None:
            self._look_at_event(chunk)
            return
        delivered = 0
        for choice in choices:
            delta = getattr(choice, "delta", None)
            text = choice.text if delta is None else delta.content
            if (text or (delta is not None and _other_content(delta))) and self._is_the_choice(choice):
                delivered = max(delivered, _tokens(choice))
            reason = choice.finish_reason
            if reason is not None:
                self._reasons.append(str(reason))
        if delivered:
            self.span.mark(delivered)
        if self._first is None:
            self._first = chunk
        usage = chunk.usage
        if usage is not None:
            self._usage = usage

    def _look_at_event(self, event: Any) -> None:
        """An event of the responses API."""
        kind = str(getattr(event, "type", ""))
        if kind.endswith(".delta"):
            delta = getattr(event, "delta", None)
            if isinstance(delta, str) and delta:
                self.span.mark()
        elif kind in ("response.completed", "response.incomplete", "response.failed"):
            self._last = event.response
            if kind == "response.failed":
                self.span.fail(str(getattr(getattr(event.response, "error", None), "code", None) or "stream_error"))
            else:
                self._reasons.append("stop" if kind == "response.completed" else "length")
        elif kind == "error":
            self.span.fail(str(getattr(event, "code", None) or "stream_error"))

    def _is_the_choice(self, choice: Any) -> bool:
        """With several choices in one stream, only the one that was delivered first counts."""
        if self._choices < 2:
            return True
        if self._choice is None:
            self._choice = choice.index
        return bool(choice.index == self._choice)

    # -- the end -------------------------------------------------------------------------------------------------------

    def _end(self) -> None:
        span = self.span
        if span.ended:
            return
        end_ns = monotonic_ns()
        with guard("openai.end"):
            found = answer_attributes(self._last if self._last is not None else self._first)
            if self._usage is not None:
                found.update(genai.usage_attributes(_plain(self._usage)))
            if self._reasons:
                found[genai.FINISH_REASONS] = tuple(self._reasons)
            span.update(found)
            count_single_delivery(span, found.get(genai.OUTPUT_TOKENS))
        span.end(end_mono_ns=end_ns)

    def _given_up(self) -> None:
        if not self._reasons:
            self.span.set(semconv.ABORT, Abort.CLIENT.value)
        self._end()

    def _broke(self, error: BaseException) -> None:
        if isinstance(error, asyncio.CancelledError | KeyboardInterrupt):
            self._given_up()
            return
        self.span.fail(errors.error_type(error))
        if errors.is_timeout(error):
            self.span.set(semconv.ABORT, Abort.TIMEOUT.value)
        self._end()

    # -- body.Watcher --------------------------------------------------------------------------------------------------

    def chunk(self, data: bytes) -> None:
        """Bytes are not looked at here."""

    def finished(self) -> None:
        """The chunks say when they are over."""

    def failed(self, error: BaseException) -> None:
        """The client raises it as its own."""

    def closed(self) -> None:
        """The response was closed: by the client at the end, or by the program before."""
        if not self._reading and not self.span.ended:
            self._given_up()


class _AsyncChunks:
    """A stream's chunks, watched. No generator: the event loop closes generators that a program leaves, all at once,
    and one around the client's own would be closing it while it is being closed already.
    """

    __slots__ = ("_chunks", "_watcher")

    def __init__(self, watcher: _StreamWatcher, chunks: AsyncIterator[Any]) -> None:
        self._watcher = watcher
        self._chunks = chunks

    def __aiter__(self) -> _AsyncChunks:
        return self

    async def __anext__(self) -> Any:
        return await self._watcher.next_of(self._chunks)

    async def aclose(self) -> None:
        self._watcher.left()
        close = getattr(self._chunks, "aclose", None)
        if close is not None:
            await close()


def _other_content(delta: Any) -> bool:
    """Whether a delta without text delivers something else that was generated."""
    if getattr(delta, "tool_calls", None) or getattr(delta, "refusal", None) or getattr(delta, "function_call", None):
        return True
    extra = getattr(delta, "__pydantic_extra__", None)
    return isinstance(extra, dict) and any(extra.get(key) for key in _REASONING)


def _tokens(choice: Any) -> int:
    """Tokens of a choice's delivery: as many as there are log probabilities, where they were asked for; else one."""
    logprobs = choice.logprobs
    content = getattr(logprobs, "content", None) if logprobs is not None else None
    return len(content) if content else 1


def answer_attributes(answer: Any) -> dict[str, AttributeValue]:
    """Model, id, finish reasons and usage in an object of the client's: a whole answer, a first chunk, or None."""
    found: dict[str, AttributeValue] = {}
    for name, key in (("model", semconv.GEN_AI_RESPONSE_MODEL), ("id", semconv.GEN_AI_RESPONSE_ID)):
        value = getattr(answer, name, None)
        if isinstance(value, str) and value:
            found[key] = value
    reasons = [
        str(choice.finish_reason)
        for choice in getattr(answer, "choices", None) or ()
        if getattr(choice, "finish_reason", None) is not None
    ]
    status = getattr(answer, "status", None)
    if not reasons and status in ("completed", "incomplete"):
        reasons = ["stop" if status == "completed" else "length"]
    if reasons:
        found[genai.FINISH_REASONS] = tuple(reasons)
    usage = getattr(answer, "usage", None)
    if usage is not None:
        found.update(genai.usage_attributes(_plain(usage)))
    return found


def _plain(usage: Any) -> dict[str, Any]:
    plain = usage.model_dump() if hasattr(usage, "model_dump") else usage
    return plain if isinstance(plain, dict) else {}
