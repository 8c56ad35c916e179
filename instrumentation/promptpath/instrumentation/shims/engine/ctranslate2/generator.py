"""Where the shim is put on CTranslate2's `Generator`."""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable
from pathlib import Path
from time import monotonic_ns
from typing import Any, Final

from opentelemetry import context as context_api

from promptpath.instrumentation.safety import guard
from promptpath.instrumentation.shims.engine import calls
from promptpath.instrumentation.shims.engine.ctranslate2.generation import SCOPE, Generation
from promptpath.instrumentation.shims.engine.ctranslate2.pool import Pool
from promptpath.instrumentation.wrapping import unwrap_all, wrap

_EXTENSION: Final = "ctranslate2._ext"


class _Known:
    """What is known of a generator: its model's name, the token that ends its answers, its calls."""

    def __init__(self, generator: Any, path: str = "") -> None:
        self.model = calls.model_of(path) if path else "ctranslate2"
        self.end = _end_token(path)
        self.pool = Pool(int(getattr(generator, "num_generators", 1)))


_known: Final[weakref.WeakKeyDictionary[Any, _Known]] = weakref.WeakKeyDictionary()
#: Of asynchronous calls, by the object that stands for a prompt's result: the call, and which of its prompts.
_results: Final[weakref.WeakKeyDictionary[Any, tuple[Generation, int]]] = weakref.WeakKeyDictionary()


def wrap_all() -> None:
    """Put the shim on."""
    wrap(_EXTENSION, "Generator.__init__", _init)
    wrap(_EXTENSION, "Generator.generate_batch", _generate_batch)
    wrap(_EXTENSION, "AsyncGenerationResult.result", _result)


def unwrap() -> None:
    """Take it off."""
    unwrap_all()
    _results.clear()


def _init(wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    start_ns = monotonic_ns()
    result = wrapped(*args, **kwargs)
    end_ns = monotonic_ns()
    with guard("ctranslate2.init"):
        path = args[0] if args else kwargs.get("model_path", "")
        _known[instance] = known = _Known(instance, str(path))
        calls.loaded(SCOPE, known.model, start_ns, end_ns)
    return result


def _end_token(path: str) -> str | None:
    """The token that ends answers, as the model's directory says it; None if it does not."""
    try:
        config = json.loads((Path(path) / "config.json").read_bytes())
        end = config["eos_token"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return end if isinstance(end, str) else None


def _ends(known: _Known, given: Any) -> frozenset[str | int]:
    """What ends an answer: `end_token` (a token, or a list of tokens or ids), else what the model has."""
    given = given or known.end
    if not given:
        return frozenset()
    return frozenset([given] if isinstance(given, (str, int)) else given)


def _generate_batch(wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    start_ns = monotonic_ns()
    call: Generation | None = None
    with guard("ctranslate2.generate_batch"):
        call = _begin(instance, args, kwargs, start_ns)
    if call is None:
        return wrapped(*args, **kwargs)
    is_asynchronous = bool(kwargs.get("asynchronous"))
    with guard("ctranslate2.generate_batch"):
        if call.watches:
            theirs = kwargs.get("callback")
            kwargs = kwargs | {"callback": call.callback(theirs, ends_here=is_asynchronous)}
        call.queue()
    try:
        result = wrapped(*args, **kwargs)
    except BaseException as error:
        with guard("ctranslate2.generate_batch"):
            call.over(monotonic_ns(), error)
        raise
    with guard("ctranslate2.generate_batch"):
        call.results(result, taken=not is_asynchronous)
        if is_asynchronous:
            for row, one in enumerate(result):
                _results[one] = (call, row)
    return result


def _begin(generator: Any, args: tuple[Any, ...], kwargs: dict[str, Any], start_ns: int) -> Generation | None:
    """The call as one to follow; None if it is not to be recorded."""
    prompts = args[0] if args else kwargs.get("start_tokens")
    if not isinstance(prompts, (list, tuple)) or not prompts:
        return None
    known = _known.get(generator)
    if known is None:  # made before the shim was put on
        known = _known.setdefault(generator, _Known(generator))
    streams = kwargs.get("callback") is not None
    base = context_api.get_current()
    span, owns = calls.server_span(SCOPE, known.model, base, streams=streams, start_ns=start_ns)
    if not span.recording:
        return None
    ends = _ends(known, kwargs.get("end_token"))
    call = Generation(start_ns, span, list(prompts), kwargs, ends, known.pool, owns=owns)
    call.notes.end_parse(start_ns)
    return call


def _result(wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Waiting for an asynchronous result. A call that was not seen to end has ended by now; it may have failed."""
    call, row = _results.pop(instance, (None, 0))
    try:
        result = wrapped(*args, **kwargs)
    except BaseException as error:
        if call is not None:
            with guard("ctranslate2.result"):
                call.over(monotonic_ns(), error)
        raise
    if call is not None:
        with guard("ctranslate2.result"):
            call.taken(row, result)
    return result
