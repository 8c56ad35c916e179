"""Engines that a program calls itself: the request that a call belongs to, or becomes, and what its model is called."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from itertools import count
from typing import Final

from opentelemetry.context import Context
from opentelemetry.trace import SpanKind

from promptpath import semconv
from promptpath.instrumentation import recorder
from promptpath.instrumentation.live import REQUEST_KEY, LiveSpan
from promptpath.instrumentation.shims import state
from promptpath.semconv import Stage

#: Where the hub's cache keeps a model.
_CACHED: Final = re.compile(r"models--([^/\\]+?)--([^/\\]+)")


class AtTheEnd:
    """Work for when a call is over and its request's answer is sent, whichever comes last; at once where none is sent.

    By then the text of the first token is known, which others may make of it.

    Args:
        notes: on the request.
    """

    def __init__(self, notes: state.RequestState) -> None:
        self._work: Callable[[], None] | None = None
        # Counted so that of two threads just one finds itself the last.
        self._ends = count(1)
        self._awaited = 1
        if notes.closes:
            self._awaited = 2
            notes.at_end.append(self._one_more)

    def call_is_over(self, work: Callable[[], None]) -> None:
        """The call is over: do this, or have it done."""
        self._work = work
        self._one_more()

    def _one_more(self) -> None:
        if next(self._ends) == self._awaited and self._work is not None:
            self._work()


def server_span(scope: str, model: str, base: Context, *, streams: bool, start_ns: int) -> tuple[LiveSpan, bool]:
    """The server span of the request that an engine is called for.

    Args:
        scope: the engine shim's instrumentation scope.
        model: what the model is called.
        base: the context of the call.
        streams: whether tokens are handed on one by one.
        start_ns: when the call began, monotonic [ns].

    Returns:
        The span, and whether it was made for this call: it is where no server has one.
    """
    span = base.get(REQUEST_KEY)
    if isinstance(span, LiveSpan) and not span.ended and span.stage == Stage.SERVER:
        return span, False
    made = recorder.start(
        f"text_completion {model}",
        scope=scope,
        stage=Stage.SERVER,
        kind=SpanKind.SERVER,
        attributes={
            semconv.GEN_AI_OPERATION_NAME: "text_completion",
            semconv.GEN_AI_REQUEST_MODEL: model,
            semconv.GEN_AI_REQUEST_STREAM: streams,
        },
        parent=base,
        start_mono_ns=start_ns,
    )
    return made, True


def whole_call(scope: str, span: LiveSpan, name: str, start_ns: int, end_ns: int, error: str | None) -> None:
    """A call within a request whose stages were not seen: that it was made, and how long it took.

    Args:
        scope: the engine shim's instrumentation scope.
        span: the request's server span.
        name: of what was called.
        start_ns, end_ns: monotonic [ns].
        error: `error.type` if it failed.
    """
    recorder.record(
        name, scope=scope, stage=None, start_mono_ns=start_ns, end_mono_ns=end_ns, parent=span, status_error=error
    )


def loaded(scope: str, model: str, start_ns: int, end_ns: int) -> None:
    """A model has been loaded.

    Args:
        scope: the engine shim's instrumentation scope.
        model: what it is called.
        start_ns, end_ns: monotonic [ns].
    """
    recorder.record(
        f"load {model}",
        scope=scope,
        stage=Stage.LOAD,
        start_mono_ns=start_ns,
        end_mono_ns=end_ns,
        attributes={semconv.GEN_AI_REQUEST_MODEL: model},
    )


def model_of(name: str) -> str:
    """What a model is called, by its name or where it lies: as the hub calls it, or as its directory is called."""
    cached = _CACHED.search(name)
    if cached is not None:
        return f"{cached[1]}/{cached[2]}"
    is_path = os.path.isabs(name) or name.startswith((".", "~")) or "\\" in name or name.count("/") > 1
    return re.split(r"[/\\]", name.rstrip("/\\"))[-1] if is_path else name
