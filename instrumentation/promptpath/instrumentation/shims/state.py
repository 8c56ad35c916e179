"""What shims tell each other about one request or prompt, kept on its span.

The ASGI shim opens it, the engine shim says when the first token was computed and its text was ready, tokenizers add
what decoding cost, HTTP clients count attempts, and the ASGI shim closes it when the answer is sent.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import Final

from opentelemetry.util.types import AttributeValue

from promptpath.instrumentation import recorder
from promptpath.instrumentation.live import LiveSpan
from promptpath.instrumentation.safety import guard

_ATTRIBUTE: Final = "_promptpath_state"


class RequestState:
    """The shims' notes on one span.

    Attributes:
        attempts: calls made so far for it.
        parse: the span of its body being read and understood, while that lasts.
        first_token_mono_ns: when the engine had computed its first token [ns]; 0 if it has not.
        first_text_mono_ns: when that token's text was ready [ns]; 0 if it is not.
        decode_ns: what turning ids into text has cost so far [ns].
        reads_answer: the shim of this span reads the answer itself; those below need not.
        tokenized: spans of tokenization so far.
        disconnected: the client has gone.
        body_read: its body has been read to the end.
        handler_entered: the endpoint that answers it has been entered.
        closes: `close` is called at the end of the answer; stages are recorded then, at no cost to the request.
        at_end: called once when the answer has been sent, or given up.
    """

    __slots__ = (
        "_span",
        "_stages",
        "at_end",
        "attempts",
        "body_read",
        "closes",
        "decode_ns",
        "disconnected",
        "first_text_mono_ns",
        "first_token_mono_ns",
        "handler_entered",
        "parse",
        "reads_answer",
        "tokenized",
    )

    def __init__(self, span: LiveSpan) -> None:
        self._span = weakref.ref(span)  # the span holds its notes
        self._stages: list[tuple[str, str, str, int, int, Mapping[str, AttributeValue] | None]] = []
        self.attempts = 0
        self.parse: LiveSpan | None = None
        self.first_token_mono_ns = 0
        self.first_text_mono_ns = 0
        self.decode_ns = 0
        self.tokenized = 0
        self.reads_answer = False
        self.disconnected = False
        self.body_read = False
        self.closes = False
        self.handler_entered = False
        self.at_end: list[Callable[[], None]] = []

    def end_parse(self, end_mono_ns: int | None = None) -> None:
        """The body is understood: what follows is no longer parsing."""
        parse = self.parse
        if parse is not None:
            self.parse = None
            parse.end(end_mono_ns=end_mono_ns)

    def enter_handler(self) -> None:
        """The endpoint is entered; parsing is over, unless the endpoint reads the body itself."""
        self.handler_entered = True
        if self.body_read:
            self.end_parse()

    def decoded(self, text: object, start_mono_ns: int, end_mono_ns: int) -> None:
        """Ids were turned into text. The first that gives text after the first token is that token's."""
        self.decode_ns += end_mono_ns - start_mono_ns
        if not self.first_text_mono_ns and self.first_token_mono_ns and text:
            self.first_text_mono_ns = end_mono_ns

    def stage(
        self,
        name: str,
        stage: str,
        scope: str,
        start_mono_ns: int,
        end_mono_ns: int,
        attributes: Mapping[str, AttributeValue] | None = None,
    ) -> None:
        """A stage is over. It is recorded below the span: at the end of the answer if that will be said, else now."""
        self._stages.append((name, stage, scope, start_mono_ns, end_mono_ns, attributes))
        if not self.closes:
            self._record()

    def _record(self) -> None:
        stages, self._stages = self._stages, []
        span = self._span()
        if span is None:
            return
        for name, stage, scope, start_ns, end_ns, attributes in stages:
            recorder.record(
                name,
                scope=scope,
                stage=stage,
                start_mono_ns=start_ns,
                end_mono_ns=end_ns,
                parent=span,
                attributes=attributes,
            )

    def close(self) -> None:
        """Run what waits for the end of the answer, and record the stages."""
        self.end_parse()
        waiting, self.at_end = self.at_end, []
        for call in waiting:
            with guard("shims.state.close"):
                call()
        self.closes = False
        self._record()


def of(span: LiveSpan) -> RequestState:
    """The notes on a span, begun if there are none."""
    state = getattr(span, _ATTRIBUTE, None)
    if not isinstance(state, RequestState):
        state = RequestState(span)
        setattr(span, _ATTRIBUTE, state)
    return state


def of_request() -> RequestState | None:
    """The notes on the request that the calling code works for; None if it works for none."""
    span = recorder.request_span()
    return of(span) if span is not None else None
