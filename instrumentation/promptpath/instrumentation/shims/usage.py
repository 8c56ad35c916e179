"""Tokens used, on a request's span: what several calls of an engine used for one request is added up."""

from __future__ import annotations

from typing import Final

from promptpath import semconv
from promptpath.instrumentation.live import LiveSpan

_ATTRIBUTE: Final = "_promptpath_usage"


def add(span: LiveSpan, input_tokens: int | None, output_tokens: int | None) -> None:
    """An engine was called for a request. What anybody else has said of the request's tokens stays.

    Args:
        span: the request's.
        input_tokens, output_tokens: of this call; None if not known.
    """
    ours: dict[str, int] | None = getattr(span, _ATTRIBUTE, None)
    if ours is None:
        ours = {}
        setattr(span, _ATTRIBUTE, ours)
    counts = (
        (semconv.GEN_AI_USAGE_INPUT_TOKENS, input_tokens),
        (semconv.GEN_AI_USAGE_OUTPUT_TOKENS, output_tokens),
    )
    for name, count in counts:
        if count is None or span.attributes.get(name) != ours.get(name):
            continue
        ours[name] = ours.get(name, 0) + count
        span.set(name, ours[name])
