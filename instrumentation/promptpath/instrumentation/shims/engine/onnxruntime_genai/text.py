"""Text to ids and back: the chat template, tokenization, and when the text of a first token is ready."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic_ns
from typing import Any, Final

from promptpath.instrumentation.safety import guard, note_failure
from promptpath.instrumentation.shims import state
from promptpath.instrumentation.shims.engine.onnxruntime_genai.models import SCOPE
from promptpath.instrumentation.shims.tokenizer.tokenizers import MAX_SPANS
from promptpath.instrumentation.wrapping import replace, unwrap_all, wrap
from promptpath.semconv import Stage

#: Requests whose first token has no text yet, oldest first, and the thread that computed the token.
_waiting: Final[dict[state.RequestState, int]] = {}

_ENCODING: Final = ("Tokenizer.encode", "Tokenizer.encode_batch", "MultiModalProcessor.__call__")
_DECODING: Final = (
    "TokenizerStream.decode",
    "Tokenizer.decode",
    "Tokenizer.decode_batch",
    "MultiModalProcessor.decode",
)


def wrap_all() -> None:
    """Put the shim on."""
    wrap("onnxruntime_genai", "Tokenizer.apply_chat_template", _apply_chat_template)
    for method in _ENCODING:
        wrap("onnxruntime_genai", method, _encode)
    for method in _DECODING:
        replace("onnxruntime_genai", method, _decoding)


def unwrap() -> None:
    """Take it off."""
    unwrap_all()
    _waiting.clear()


def wait_for(notes: state.RequestState) -> None:
    """A request's first token has just been computed, in this thread."""
    if not notes.first_text_mono_ns:
        _waiting[notes] = threading.get_ident()


def wait_no_more(notes: state.RequestState) -> None:
    """Text that is made from now on is not of interest."""
    _waiting.pop(notes, None)


def _apply_chat_template(wrapped: Callable[..., Any], _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    start_ns = monotonic_ns()
    result = wrapped(*args, **kwargs)
    end_ns = monotonic_ns()
    with guard("onnxruntime_genai.chat_template"):
        notes = state.of_request()
        if notes is not None:
            notes.end_parse(start_ns)
            notes.stage("chat_template", Stage.PARSE, SCOPE, start_ns, end_ns)
    return result


def _encode(wrapped: Callable[..., Any], _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    start_ns = monotonic_ns()
    result = wrapped(*args, **kwargs)
    end_ns = monotonic_ns()
    with guard("onnxruntime_genai.tokenize"):
        notes = state.of_request()
        if notes is not None:
            notes.end_parse(start_ns)
            notes.tokenized += 1
            if notes.tokenized <= MAX_SPANS:
                notes.stage("tokenize", Stage.TOKENIZE, SCOPE, start_ns, end_ns)
    return result


def _decoding(original: Callable[..., Any]) -> Callable[..., Any]:
    def decode(*args: Any, **kwargs: Any) -> Any:
        text = original(*args, **kwargs)
        if _waiting:
            try:
                _decoded(text, monotonic_ns())
            except Exception as error:
                note_failure("onnxruntime_genai.decode", error)
        return text

    return decode


def _decoded(text: object, end_ns: int) -> None:
    """Text was made of ids: of the request at hand, else of what this thread computed last, else of the oldest."""
    if not text:
        return  # the ids of a letter are not all there yet
    notes = state.of_request()
    if notes is None:
        thread = threading.get_ident()
        waiting = list(_waiting.items())
        notes = next((notes for notes, computed_by in reversed(waiting) if computed_by == thread), waiting[0][0])
    if _waiting.pop(notes, None) is not None and not notes.first_text_mono_ns:
        notes.first_text_mono_ns = end_ns
