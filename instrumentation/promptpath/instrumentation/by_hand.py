"""`prompt` and `stage`: instrumenting a stack of one's own. Context managers, sync and async, and decorators."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextvars import Token
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from opentelemetry import baggage, propagate
from opentelemetry import context as context_api
from opentelemetry.context import Context
from opentelemetry.trace import SpanKind, format_span_id

from promptpath import semconv
from promptpath.instrumentation import recorder
from promptpath.instrumentation.decorating import decorated
from promptpath.instrumentation.live import LiveSpan
from promptpath.instrumentation.safety import guard, guarded, note_failure

_F = TypeVar("_F", bound=Callable[..., Any])

SCOPE: Final = "promptpath.manual"

#: Keyword arguments of `prompt` that stand for an attribute; any other is taken as an attribute's name as it is.
_KEYWORDS: Final = {
    "agent": semconv.GEN_AI_AGENT_NAME,
    "attempt": semconv.ATTEMPT,
    "choices": semconv.GEN_AI_REQUEST_CHOICE_COUNT,
    "conversation_id": semconv.GEN_AI_CONVERSATION_ID,
    "max_tokens": semconv.GEN_AI_REQUEST_MAX_TOKENS,
    "provider": semconv.GEN_AI_PROVIDER_NAME,
    "temperature": semconv.GEN_AI_REQUEST_TEMPERATURE,
    "tenant": semconv.TENANT,
    "top_p": semconv.GEN_AI_REQUEST_TOP_P,
    "workflow": semconv.GEN_AI_WORKFLOW_NAME,
}
_SERVING: Final = frozenset(
    {semconv.Stage.SERVER, semconv.Stage.GATEWAY, semconv.Stage.ROUTER, semconv.Stage.EDGE, semconv.Stage.INGRESS}
)
#: The stages that are recorded; two are only ever derived.
_STAGES: Final = {
    stage.value: stage for stage in semconv.Stage if stage not in (semconv.Stage.TRANSIT, semconv.Stage.UNATTRIBUTED)
}


def _attributes(given: Mapping[str, Any]) -> dict[str, Any]:
    return {_KEYWORDS.get(name, name): value for name, value in given.items() if value is not None}


def _cancelled(error: BaseException) -> bool:
    return isinstance(error, (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt))


class _Managed(ABC):
    """A span around a block or a call: the parts that `prompt` and `stage` share."""

    def __init__(self) -> None:
        self._span: LiveSpan | None = None
        self._token: Token[Context] | None = None

    @property
    def span(self) -> LiveSpan | None:
        """The live span, between entry and exit."""
        return self._span

    @abstractmethod
    def _start(self) -> LiveSpan: ...

    @abstractmethod
    def _close(self, span: LiveSpan, error: BaseException | None) -> None: ...

    @abstractmethod
    def _copy(self) -> _Managed: ...

    def open(self) -> Context:
        """Start the span; returns the context to work in. For those who cannot use `with`; `close` ends it."""
        with guard("by_hand.open"):
            self._span = span = self._start()
            return span.context
        return context_api.get_current()

    def close(self, error: BaseException | None = None) -> None:
        """End the span, with what went wrong, if anything did."""
        with guard("by_hand.close"):
            span, self._span = self._span, None
            if span is not None:
                self._close(span, error)
                span.end()

    def headers(self) -> dict[str, str]:
        """The headers (`traceparent`, ...) that carry the trace to whoever is called from here."""
        carrier: dict[str, str] = {}
        with guard("by_hand.headers"):
            propagate.inject(carrier, self._span.context if self._span is not None else None)
        return carrier

    def __enter__(self) -> Self:
        self._token = context_api.attach(self.open())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._token is not None:
            recorder.detach(self._token)
            self._token = None
        self.close(error)

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)

    def __call__(self, function: _F) -> _F:
        """As a decorator: a span around each call of a function, coroutine, generator or async generator."""
        return decorated(function, self._copy)

    @guarded("by_hand.set")
    def set(self, key: str, value: Any) -> None:
        """Set an attribute on the span."""
        if self._span is not None:
            self._span.set(key, value)

    @guarded("by_hand.fail")
    def fail(self, error_type: str, message: str = "") -> None:
        """The work failed, without an exception that leaves the block. The message must hold no content."""
        if self._span is not None:
            self._span.fail(error_type, message)


class prompt(_Managed):  # noqa: N801
    """A prompt as the one who makes it sees it: start before the request is sent, end after the last byte.

    Args:
        operation: `gen_ai.operation.name`: chat, text_completion, generate_content, embeddings.
        model: the model asked for.
        streaming: whether the answer streams.
        propagate_id: also send the prompt's id downstream as baggage (`promptpath.prompt.id`), for hops that drop the
            trace context. Off by default, as baggage reaches whoever is called.
        attributes: more attributes by name; `tenant`, `conversation_id`, `max_tokens`, `temperature`, `top_p`,
            `provider`, `agent`, `workflow`, `choices` and `attempt` stand for their conventional names.

    An exception that leaves the block makes it an error; a cancellation before `finish` is an abort by the client.
    """

    def __init__(
        self,
        operation: str = "chat",
        *,
        model: str | None = None,
        streaming: bool | None = None,
        propagate_id: bool = False,
        **attributes: Any,
    ) -> None:
        super().__init__()
        self._operation = operation
        self._model = model
        self._streaming = streaming
        self._propagate_id = propagate_id
        self._given = attributes
        self._is_finished = False

    def _copy(self) -> prompt:
        return prompt(
            self._operation,
            model=self._model,
            streaming=self._streaming,
            propagate_id=self._propagate_id,
            **self._given,
        )

    def _start(self) -> LiveSpan:
        self._is_finished = False
        attributes: dict[str, Any] = {semconv.GEN_AI_OPERATION_NAME: self._operation}
        if self._model is not None:
            attributes[semconv.GEN_AI_REQUEST_MODEL] = self._model
        if self._streaming is not None:
            attributes[semconv.GEN_AI_REQUEST_STREAM] = self._streaming
        span = recorder.start(
            f"{self._operation} {self._model}" if self._model else self._operation,
            scope=SCOPE,
            stage=semconv.Stage.CLIENT,
            kind=SpanKind.CLIENT,
            attributes={**attributes, **_attributes(self._given)},
        )
        if self._propagate_id and span.recording and baggage.get_baggage(semconv.PROMPT_ID) is None:
            prompt_id = format_span_id(span.get_span_context().span_id)
            span.set(semconv.PROMPT_ID, prompt_id)
            span.add_baggage(semconv.PROMPT_ID, prompt_id)
        return span

    def _close(self, span: LiveSpan, error: BaseException | None) -> None:
        if error is None:
            return
        if not _cancelled(error):
            span.fail(type(error).__qualname__)
        elif not self._is_finished:
            span.set(semconv.ABORT, semconv.Abort.CLIENT)

    @guarded("by_hand.mark")
    def mark(self, tokens: int = 1) -> None:
        """Tokens with content have arrived now."""
        if self._span is not None:
            self._span.mark(tokens)

    @guarded("by_hand.usage")
    def usage(
        self,
        input: int | None = None,  # noqa: A002
        output: int | None = None,
        *,
        cached: int | None = None,
        reasoning: int | None = None,
    ) -> None:
        """Tokens used, as the answer reports them: of the prompt, of the answer, read from a cache, of reasoning."""
        span = self._span
        if span is None:
            return
        counts = {
            semconv.GEN_AI_USAGE_INPUT_TOKENS: input,
            semconv.GEN_AI_USAGE_OUTPUT_TOKENS: output,
            semconv.GEN_AI_USAGE_CACHE_READ_INPUT_TOKENS: cached,
            semconv.GEN_AI_USAGE_REASONING_OUTPUT_TOKENS: reasoning,
        }
        span.update({key: int(count) for key, count in counts.items() if count is not None})

    @guarded("by_hand.finish")
    def finish(self, *reasons: str, model: str | None = None, response_id: str | None = None) -> None:
        """The answer is complete: why each choice ended, which model answered, the answer's id."""
        self._is_finished = True
        span = self._span
        if span is None:
            return
        if reasons:
            span.set(semconv.GEN_AI_RESPONSE_FINISH_REASONS, list(reasons))
        if model is not None:
            span.set(semconv.GEN_AI_RESPONSE_MODEL, model)
        if response_id is not None:
            span.set(semconv.GEN_AI_RESPONSE_ID, response_id)


class stage(_Managed):  # noqa: N801
    """A stage of a prompt's way (`promptpath.semconv.Stage`), around a block or a function.

    Args:
        stage: the stage; an unknown one is recorded as a span without a stage.
        name: the span's name; the stage's by default.
        headers: of the request that is served here (stages `server`, `gateway`, `router`): the caller becomes parent.
        attributes: attributes by name.
    """

    def __init__(
        self,
        stage: str,
        /,
        *,
        name: str | None = None,
        headers: Mapping[str, str] | None = None,
        **attributes: Any,
    ) -> None:
        super().__init__()
        self._headers = headers
        self._stage = str(stage)
        self._name = name
        self._given = attributes

    def _copy(self) -> stage:
        return stage(self._stage, name=self._name, **self._given)

    def _start(self) -> LiveSpan:
        known = _STAGES.get(self._stage)
        if known is None:
            note_failure("by_hand.stage", ValueError(f"{self._stage!r} is no stage that is recorded"))
        return recorder.start(
            self._name or self._stage,
            scope=SCOPE,
            stage=known,
            kind=SpanKind.SERVER if self._serves(known) else SpanKind.INTERNAL,
            attributes=_attributes(self._given),
            parent=self._parent(),
        )

    def _serves(self, known: semconv.Stage | None) -> bool:
        return known is semconv.Stage.SERVER or (self._headers is not None and known in _SERVING)

    def _parent(self) -> Context | None:
        if self._headers is None:
            return None
        lower = {name.lower(): value for name, value in self._headers.items()}
        return propagate.extract(lower)

    def _close(self, span: LiveSpan, error: BaseException | None) -> None:
        if error is not None and not _cancelled(error):
            span.fail(type(error).__qualname__)
