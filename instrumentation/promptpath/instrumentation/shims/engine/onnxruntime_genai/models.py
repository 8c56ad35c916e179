"""Models that are loaded: how long it took, what they are called, and which tokens end their answers."""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic_ns
from typing import Any, Final

from promptpath.instrumentation.safety import guard
from promptpath.instrumentation.shims.engine import calls
from promptpath.instrumentation.wrapping import unwrap_all, wrap

SCOPE: Final = "promptpath.onnxruntime_genai"


@dataclass(frozen=True)
class Known:
    """What is known of a model.

    Attributes:
        name: what it is called.
        ends: ids of the tokens that end an answer; empty if not known.
        filler: id of the token that fills up prompts of a batch; None if not known.
    """

    name: str = "onnxruntime-genai"
    ends: frozenset[int] = frozenset()
    filler: int | None = None


_UNKNOWN: Final = Known()
_models: Final[weakref.WeakKeyDictionary[Any, Known]] = weakref.WeakKeyDictionary()
#: Where the model of a `Config` lies.
_paths: Final[weakref.WeakKeyDictionary[Any, str]] = weakref.WeakKeyDictionary()


def wrap_all() -> None:
    """Put the shim on."""
    wrap("onnxruntime_genai", "Config.__init__", _configured)
    wrap("onnxruntime_genai", "Model.__init__", _loaded)


def unwrap() -> None:
    """Take it off."""
    unwrap_all()


def of(model: Any) -> Known:
    """What is known of a model."""
    return _models.get(model, _UNKNOWN)


def _configured(wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    result = wrapped(*args, **kwargs)
    with guard("onnxruntime_genai.config"):
        if args:
            _paths[instance] = str(args[0])
    return result


def _loaded(wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    start_ns = monotonic_ns()
    result = wrapped(*args, **kwargs)
    end_ns = monotonic_ns()
    with guard("onnxruntime_genai.model"):
        source = args[0] if args else None
        path = source if isinstance(source, str) else _paths.get(source, "")
        _models[instance] = known = _read(path) if path else _UNKNOWN
        calls.loaded(SCOPE, known.name, start_ns, end_ns)
    return result


def _read(path: str) -> Known:
    """What a model's directory says of it."""
    name = calls.model_of(path)
    try:
        model = json.loads((Path(path) / "genai_config.json").read_bytes())["model"]
        ends, filler = model.get("eos_token_id"), model.get("pad_token_id")
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return Known(name)
    ids = [ends] if isinstance(ends, int) else ends if isinstance(ends, list) else []
    return Known(name, frozenset(ids), filler if isinstance(filler, int) else None)
