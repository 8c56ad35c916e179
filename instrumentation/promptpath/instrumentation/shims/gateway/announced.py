"""Whether the FastAPI shim will say when a request's endpoint is entered."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

_shim_is_on = False


def fastapi_shim(on: bool) -> None:
    """Said by the FastAPI shim when it is put on or taken off."""
    global _shim_is_on
    _shim_is_on = on


def fastapi_says_when(scope: Mapping[str, Any]) -> bool:
    """True for a request to a FastAPI application while the shim is on."""
    application: Any = scope.get("app")
    return _shim_is_on and application is not None and _is_fastapi(application.__class__)


@lru_cache(maxsize=64)
def _is_fastapi(kind: Any) -> bool:
    return any(base.__module__.startswith("fastapi.") for base in kind.__mro__)
