"""What this process is to the requests that it serves: gateway, router, inference server, edge."""

from __future__ import annotations

import os
from typing import Final

from promptpath.semconv import Stage

ENVIRONMENT: Final = "PROMPTPATH_ROLE"

_ROLES: Final = {stage.value: stage for stage in (Stage.GATEWAY, Stage.ROUTER, Stage.SERVER, Stage.EDGE)}
_engines: set[str] = set()


def role() -> Stage:
    """The stage of the requests that this process serves.

    `PROMPTPATH_ROLE` says it; else a process with an inference engine in it is a server, any other a gateway.
    """
    stated = _ROLES.get(os.environ.get(ENVIRONMENT, "").strip().lower())
    if stated is not None:
        return stated
    return Stage.SERVER if _engines else Stage.GATEWAY


def engine_is_here(name: str) -> None:
    """Said by an engine shim when it is put on."""
    _engines.add(name)


def engine_is_gone(name: str) -> None:
    """Said by an engine shim when it is taken off."""
    _engines.discard(name)
