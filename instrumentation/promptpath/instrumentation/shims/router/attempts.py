"""Counting the calls that are made for one prompt."""

from __future__ import annotations

from typing import Final

from promptpath import semconv
from promptpath.instrumentation import recorder
from promptpath.instrumentation.live import LiveSpan
from promptpath.instrumentation.shims import state

#: Whose answer is what an upstream answered; an inference server answers by itself.
_ROUTING: Final = frozenset({"gateway", "router", "edge"})


def owner() -> LiveSpan | None:
    """The span that calls of inference made now are attempts of: the request served, else the prompt being sent."""
    return recorder.request_span() or recorder.tokens_span()


def count(span: LiveSpan | None) -> int:
    """The number of one more attempt, from 1."""
    if span is None:
        return 1
    notes = state.of(span)
    notes.attempts += 1
    return notes.attempts


def answered(span: LiveSpan | None, model: str | None) -> None:
    """An attempt answered: its model is the one that was chosen, unless the answer itself says which."""
    if span is not None and model and span.stage in _ROUTING and not span.ended:
        span.attributes.setdefault(semconv.GEN_AI_RESPONSE_MODEL, model)
