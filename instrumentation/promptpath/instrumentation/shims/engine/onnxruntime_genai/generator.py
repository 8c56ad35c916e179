"""Where the shim is put on ONNX Runtime GenAI's `Generator`.

What is called for every token is replaced by plain functions, which find a generator's turn by the generator's `id`:
the objects of the library take no attributes.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from time import monotonic_ns
from typing import Any, Final

from opentelemetry import context as context_api
from opentelemetry import trace
from opentelemetry.context import Context

from promptpath.instrumentation.safety import guard, note_failure
from promptpath.instrumentation.shims.engine import calls
from promptpath.instrumentation.shims.engine.onnxruntime_genai import models, text
from promptpath.instrumentation.shims.engine.onnxruntime_genai.models import SCOPE
from promptpath.instrumentation.shims.engine.onnxruntime_genai.turn import Turn
from promptpath.instrumentation.wrapping import replace, unwrap_all, wrap


class _Known:
    """What is known of a generator.

    Attributes:
        model: of its model.
        options: its search options; none where the release does not say them.
        made_in: the context in which it was made.
        turn: the one at hand.
    """

    def __init__(self, generator: Any, model: models.Known, options: dict[str, Any]) -> None:
        self.reference = weakref.ref(generator, partial(_gone, id(generator)))
        self.model = model
        self.options = options
        self.made_in = context_api.get_current()
        self.turn: Turn | None = None


#: By the generators' `id`: what is known of each, and what is told the time of each of its tokens.
_generators: Final[dict[int, _Known]] = {}
_tokens: Final[dict[int, Callable[[int], None]]] = {}


def wrap_all() -> None:
    """Put the shim on."""
    wrap("onnxruntime_genai", "Generator.__init__", _made)
    wrap("onnxruntime_genai", "Generator.append_tokens", _append_tokens)
    wrap("onnxruntime_genai", "Generator.set_inputs", _set_inputs)
    wrap("onnxruntime_genai", "Generator.rewind_to", _rewind_to)
    replace("onnxruntime_genai", "Generator.generate_next_token", _generate_next_token)
    replace("onnxruntime_genai", "Generator.is_done", _is_done)


def unwrap() -> None:
    """Take it off."""
    unwrap_all()
    _tokens.clear()
    _generators.clear()


def _plain(method: Any) -> Any:
    """A method of the extension as a function that is called without detours; anything else as it is."""
    return method.__func__ if type(method).__name__ == "instancemethod" else method


# --- generators -------------------------------------------------------------------------------------------------------


def _made(wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    result = wrapped(*args, **kwargs)
    with guard("onnxruntime_genai.generator"):
        model, params = args[:2]
        options = params.get_search_options() if hasattr(params, "get_search_options") else {}
        _generators[id(instance)] = _Known(instance, models.of(model), options)
    return result


def _known(generator: Any) -> _Known:
    known = _generators.get(id(generator))
    if known is None:  # made before the shim was put on
        known = _generators.setdefault(id(generator), _Known(generator, models.Known(), {}))
    return known


def _gone(key: int, reference: weakref.ref[Any]) -> None:
    """The program has let go of a generator."""
    with guard("onnxruntime_genai.gone"):
        known = _generators.get(key)
        if known is None or known.reference is not reference:
            return
        del _generators[key]
        _over(key, known)


# --- the prompt -------------------------------------------------------------------------------------------------------


def _append_tokens(wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return _prompt(instance, lambda: wrapped(*args, **kwargs), args[0] if args else None)


def _set_inputs(wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A prompt with pictures or sound, from a processor."""
    ids = None
    with guard("onnxruntime_genai.set_inputs"):
        if args and "input_ids" in args[0]:
            ids = args[0]["input_ids"]
    return _prompt(instance, lambda: wrapped(*args, **kwargs), ids)


def _prompt(generator: Any, append: Callable[[], Any], ids: Any) -> Any:
    """A prompt, or more of it, is given to a generator, which computes it."""
    start_ns = monotonic_ns()
    turn: Turn | None = None
    with guard("onnxruntime_genai.append_tokens"):
        turn = _begin(generator, start_ns)
    try:
        result = append()
    except BaseException as error:
        if turn is not None:
            _failed(generator, error)
        raise
    if turn is not None:
        with guard("onnxruntime_genai.append_tokens"):
            turn.appended_ns = monotonic_ns()
            _count(generator, turn, ids)
    return result


def _begin(generator: Any, start_ns: int) -> Turn | None:
    """The turn that a prompt begins, or adds to; None if it is not to be recorded."""
    known = _known(generator)
    if known.turn is not None:
        if not known.turn.token_ns and not known.turn.is_over:
            return known.turn
        _over(id(generator), known)
    base = _context(known)
    span, owns = calls.server_span(SCOPE, known.model.name, base, streams=True, start_ns=start_ns)
    if not span.recording:
        return None
    known.turn = turn = Turn(start_ns, span, known.options, owns=owns)
    turn.notes.end_parse(start_ns)
    key = id(generator)

    def first(at_ns: int) -> None:
        _tokens[key] = turn.token_ns.append
        turn.token_ns.append(at_ns)
        with guard("onnxruntime_genai.first_token"):
            if not turn.notes.first_token_mono_ns:
                turn.notes.first_token_mono_ns = at_ns
            text.wait_for(turn.notes)

    _tokens[key] = first
    return turn


def _context(known: _Known) -> Context:
    """The current context; where there is nothing in it, that in which the generator was made."""
    current = context_api.get_current()
    return current if trace.get_current_span(current).get_span_context().is_valid else known.made_in


def _count(generator: Any, turn: Turn, ids: Any) -> None:
    """How much the prompt is, without what fills up the shorter ones of a batch."""
    turn.before = int(generator.token_count())
    if ids is None:
        return
    shape = getattr(ids, "shape", None)
    if callable(shape):  # the library's own tensor
        ids = ids.as_numpy()
    size = int(ids.size) if hasattr(ids, "size") else len(ids)
    filler = _known(generator).model.filler
    filled = 0
    if turn.rows > 1 and filler is not None and hasattr(ids, "size"):
        filled = int((ids == filler).sum())
    turn.appended(size - filled)


def _rewind_to(wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    with guard("onnxruntime_genai.rewind_to"):
        _over(id(instance), _known(instance))
    return wrapped(*args, **kwargs)


# --- tokens -----------------------------------------------------------------------------------------------------------


def _generate_next_token(original: Callable[..., Any]) -> Callable[..., Any]:
    compute = _plain(original)
    find = _tokens.get

    def generate_next_token(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            result = compute(self, *args, **kwargs) if args or kwargs else compute(self)
        except BaseException as error:
            _failed(self, error)
            raise
        told = find(id(self))
        if told is not None:
            told(monotonic_ns())
        return result

    return generate_next_token


def _is_done(original: Callable[..., Any]) -> Callable[..., Any]:
    ask = _plain(original)

    def is_done(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = ask(self, *args, **kwargs) if args or kwargs else ask(self)
        if result and id(self) in _tokens:
            try:
                _done(self)
            except Exception as error:
                note_failure("onnxruntime_genai.is_done", error)
        return result

    return is_done


# --- the end ----------------------------------------------------------------------------------------------------------


def _over(key: int, known: _Known) -> None:
    """The turn at hand is over, without its generator having said so."""
    turn, known.turn = known.turn, None
    _tokens.pop(key, None)
    if turn is not None:
        turn.over()


def _failed(generator: Any, error: BaseException) -> None:
    with guard("onnxruntime_genai.failed"):
        known = _known(generator)
        turn, known.turn = known.turn, None
        _tokens.pop(id(generator), None)
        if turn is not None:
            turn.over(monotonic_ns(), error=error)


def _done(generator: Any) -> None:
    """A generator has said that its answers are complete."""
    end_ns = monotonic_ns()
    known = _known(generator)
    turn, known.turn = known.turn, None
    _tokens.pop(id(generator), None)
    if turn is None:
        return
    answers: list[int] | None = None
    reasons: tuple[str, ...] = ()
    if turn.is_plain:
        # A token that ends an answer is not appended to it.
        reasons = ("length",) if int(generator.token_count()) == turn.limit else ("stop",)
    elif known.model.ends:
        with suppress(RuntimeError):  # sequences are not to be had of every kind of model
            answers, reasons = _read(generator, turn, known.model.ends)
    turn.over(end_ns, answers, reasons)


def _read(generator: Any, turn: Turn, ends: frozenset[int]) -> tuple[list[int], tuple[str, ...]]:
    """How many tokens each answer has, with the one that ended it, and why it ended."""
    answers, reasons = [], []
    for index in range(turn.sequences):
        ids = generator.get_sequence(index)[turn.before :].tolist()
        end = next((place for place, token in enumerate(ids) if token in ends), None)
        if end is None and turn.before + len(ids) < turn.limit:
            end = len(ids)  # the one that ended the last answer is not appended
        answers.append(len(ids) if end is None else end + 1)
        reasons.append("length" if end is None else "stop")
    return answers, tuple(reasons)
