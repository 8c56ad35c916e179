"""Hugging Face `tokenizers`: turning text into ids, as a stage of the prompt or request in which it is done.

Outside of a prompt or request nothing is recorded; inside, the first few calls become `tokenize` spans. Turning ids
back into text is added up, and the first text after an engine's first token is noted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from time import monotonic_ns
from typing import Any, ClassVar, Final

from opentelemetry.instrumentation.instrumentor import BaseInstrumentor  # type: ignore[attr-defined]

from promptpath.instrumentation import recorder
from promptpath.instrumentation.safety import note_failure
from promptpath.instrumentation.shims import state
from promptpath.instrumentation.wrapping import unwrap_all, wrap
from promptpath.semconv import Stage

SCOPE: Final = "promptpath.tokenizers"

#: Spans of tokenization for one prompt; a program that counts tokens message by message makes no more.
MAX_SPANS: Final = 16

_ENCODING: Final = ("encode", "encode_batch", "encode_batch_fast")
_DECODING: Final = ("decode", "decode_batch")


class TokenizersInstrumentor(BaseInstrumentor):  # type: ignore[misc]
    """Puts the shim on `tokenizers.Tokenizer`."""

    library: ClassVar[tuple[str, ...]] = ("tokenizers",)

    def instrumentation_dependencies(self) -> Collection[str]:
        return ("tokenizers >= 0.15",)

    def _instrument(self, **kwargs: Any) -> None:
        for method in _ENCODING:
            wrap("tokenizers", f"Tokenizer.{method}", _encode)
        for method in _DECODING:
            wrap("tokenizers", f"Tokenizer.{method}", _decode)

    def _uninstrument(self, **kwargs: Any) -> None:
        unwrap_all()


def _encode(wrapped: Callable[..., Any], _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    start_ns = monotonic_ns()
    result = wrapped(*args, **kwargs)
    end_ns = monotonic_ns()
    try:
        span = recorder.tokens_span()
        if span is not None:
            notes = state.of(span)
            notes.end_parse(start_ns)
            notes.tokenized += 1
            if notes.tokenized <= MAX_SPANS:
                notes.stage("tokenize", Stage.TOKENIZE, SCOPE, start_ns, end_ns)
    except Exception as error:
        note_failure("tokenizers.encode", error)
    return result


def _decode(wrapped: Callable[..., Any], _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    start_ns = monotonic_ns()
    text = wrapped(*args, **kwargs)
    end_ns = monotonic_ns()
    try:
        notes = state.of_request()
        if notes is not None:
            notes.decoded(text, start_ns, end_ns)
    except Exception as error:
        note_failure("tokenizers.decode", error)
    return text
