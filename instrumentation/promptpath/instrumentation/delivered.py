"""`tokens`: marking the tokens of a stream that passes by, on the innermost prompt or request."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from typing import Any, Final, Generic, Self, TypeVar, overload

from promptpath.instrumentation import recorder
from promptpath.instrumentation.live import LiveSpan
from promptpath.instrumentation.safety import guarded, note_failure

_T = TypeVar("_T")

#: Where the chunks of OpenAI-like streams hold content.
_CONTENT_FIELDS: Final = ("content", "tool_calls", "reasoning_content", "reasoning", "refusal", "text")


def _field(chunk: Any, name: str) -> Any:
    return chunk.get(name) if isinstance(chunk, dict) else getattr(chunk, name, None)


def content_tokens(chunk: Any) -> int:
    """How many deliveries' worth of content a chunk has: 0 if it is empty (a role, usage, nothing), else at least 1.

    Text, bytes and unknown objects count as one; a sequence of token ids as its length; a chunk of an OpenAI-like
    stream as one if any of its choices has content.
    """
    if chunk is None or isinstance(chunk, bool):
        return 0
    if isinstance(chunk, (str, bytes, bytearray)):
        return 1 if chunk else 0
    if isinstance(chunk, int):
        return 1
    if isinstance(chunk, (list, tuple)):
        return len(chunk)
    choices = _field(chunk, "choices")
    if choices is None:
        return 1
    for choice in choices:
        delta = _field(choice, "delta") or choice
        if any(_field(delta, name) for name in _CONTENT_FIELDS):
            return 1
    return 0


class _Marking(Generic[_T]):
    """What both kinds of marked streams share: the span, the count, and everything else of the stream as it is."""

    def __init__(self, stream: Any, count: Callable[[_T], int] | None) -> None:
        self._stream = stream
        self._count = count or content_tokens
        self._span: LiveSpan | None = recorder.tokens_span()

    def _mark(self, chunk: _T) -> None:
        try:
            count = self._count(chunk)
            if not count:
                return
            span = self._span
            if span is None:
                # A generator's body may have opened the prompt since.
                self._span = span = recorder.tokens_span()
            if span is not None:
                span.mark(count)
        except Exception as error:
            note_failure("tokens.mark", error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _Marked(_Marking[_T], Iterator[_T]):
    """An iterator that marks each chunk before it hands it on."""

    def __init__(self, stream: Iterable[_T], count: Callable[[_T], int] | None) -> None:
        super().__init__(stream, count)
        self._iterator = iter(stream)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> _T:
        chunk = next(self._iterator)
        self._mark(chunk)
        return chunk


class _AsyncMarked(_Marking[_T], AsyncIterator[_T]):
    """An async iterator that marks each chunk before it hands it on."""

    def __init__(self, stream: AsyncIterable[_T], count: Callable[[_T], int] | None) -> None:
        super().__init__(stream, count)
        self._iterator = aiter(stream)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> _T:
        chunk = await anext(self._iterator)
        self._mark(chunk)
        return chunk


class _Tokens:
    """See `tokens`."""

    @overload
    def __call__(self, stream: Iterable[_T], *, count: Callable[[_T], int] | None = None) -> Iterator[_T]: ...

    @overload
    def __call__(self, stream: AsyncIterable[_T], *, count: Callable[[_T], int] | None = None) -> AsyncIterator[_T]: ...

    def __call__(self, stream: Any, *, count: Callable[[Any], int] | None = None) -> Any:
        """Pass a stream through, marking each chunk with content just before it is handed on.

        Args:
            stream: what is iterated, by `for` or `async for`; its other attributes stay reachable.
            count: tokens of a chunk, 0 for one without content; `content_tokens` by default.

        Raises:
            TypeError: as `iter` does, if it cannot be iterated.
        """
        if hasattr(stream, "__aiter__") and not hasattr(stream, "__next__"):
            return _AsyncMarked(stream, count)
        return _Marked(stream, count)

    @staticmethod
    @guarded("tokens.mark")
    def mark(tokens: int = 1) -> None:
        """Tokens are delivered now, on the innermost prompt or request; without one, nothing."""
        span = recorder.tokens_span()
        if span is not None:
            span.mark(tokens)


#: Marks the tokens of a stream: `for chunk in tokens(stream)`, `async for chunk in tokens(stream)`, `tokens.mark(n)`.
tokens: Final = _Tokens()
