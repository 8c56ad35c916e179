"""What runs inside the user's processes. By hand, for a stack of one's own:

    from promptpath.instrumentation import prompt, stage, tokens

    with prompt("chat", model="my-model", streaming=True) as p:
        with stage("prefill"):
            ...
        for chunk in tokens(generate()):
            ...
        p.usage(input=42, output=128)
        p.finish("stop")

All three also work with `async with`, `async for` and as decorators; without a collector, and without an SDK, they do
nothing. They never raise and never block.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from promptpath.instrumentation.by_hand import prompt as prompt
    from promptpath.instrumentation.by_hand import stage as stage
    from promptpath.instrumentation.delivered import tokens as tokens

__all__ = ["prompt", "stage", "tokens"]

_PLACES = {"prompt": "by_hand", "stage": "by_hand", "tokens": "delivered"}


def __getattr__(name: str) -> Any:
    # Late, so that the light parts of this package (`run`) do not load OpenTelemetry.
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
