"""The `openai` client, 1.x to 3.x: the prompt as the program that makes it sees it.

`create` and `parse` of chat completions, completions, responses and embeddings become a CLIENT span with the stage
`client`. Its clock starts before anything of the request is done. Each chunk with content is marked before the caller
has it; the span ends with the last byte, when the stream is closed, or with the error. What the program gets is what
it would get without: the same objects of the same types, as lazy as before. With `with_raw_response` and
`with_streaming_response` tokens are marked as their bytes are read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from contextvars import ContextVar
from importlib.util import find_spec
from pathlib import Path
from time import monotonic_ns
from typing import Any, ClassVar, Final

from opentelemetry.instrumentation.instrumentor import BaseInstrumentor  # type: ignore[attr-defined]
from opentelemetry.trace import SpanKind
from opentelemetry.util.types import AttributeValue

from promptpath import semconv
from promptpath.instrumentation import recorder
from promptpath.instrumentation.live import LiveSpan
from promptpath.instrumentation.safety import guard, note_failure
from promptpath.instrumentation.shims import body, errors, foreign, genai, state
from promptpath.instrumentation.shims.answer import WatchedAnswer
from promptpath.instrumentation.shims.client import openai_streams
from promptpath.instrumentation.wrapping import unwrap_all, wrap
from promptpath.semconv import Abort, Stage

SCOPE: Final = "promptpath.openai"

_Methods = tuple[tuple[str, str, tuple[str, ...], str], ...]

_CHAT: Final = "openai.resources.chat.completions"
_BETA: Final = "openai.resources.beta.chat.completions"
#: Module, class, methods, `gen_ai.operation.name`. Classes named `Async...` are awaited.
_METHODS: Final[_Methods] = (
    (f"{_CHAT}.completions", "Completions", ("create", "parse"), "chat"),
    ("openai.resources.completions", "Completions", ("create",), "text_completion"),
    ("openai.resources.responses.responses", "Responses", ("create", "parse"), "chat"),
    ("openai.resources.embeddings", "Embeddings", ("create",), "embeddings"),
)

#: Set while a call of ours runs, so that a method that calls another of these makes no second span.
_inside: Final[ContextVar[bool]] = ContextVar("promptpath-openai", default=False)


class OpenAiInstrumentor(BaseInstrumentor):  # type: ignore[misc]
    """Puts the shim on the `openai` package."""

    library: ClassVar[tuple[str, ...]] = ("openai",)

    def instrumentation_dependencies(self) -> Collection[str]:
        return ("openai >= 1.0",)

    def _instrument(self, **kwargs: Any) -> None:
        for module, owner, methods, operation in _methods():
            for method in methods:
                wrap(module, f"{owner}.{method}", _Method(operation).call)
                wrap(module, f"Async{owner}.{method}", _Method(operation).call_async)

    def _uninstrument(self, **kwargs: Any) -> None:
        unwrap_all()


def _methods() -> _Methods:
    """What there is to be wrapped in the release that is installed, told by its files: nothing is imported for it."""
    found = find_spec("openai")
    methods = _METHODS
    for folder in (found.submodule_search_locations or ()) if found is not None else ():
        resources = Path(folder) / "resources"
        if not (resources / "chat" / "completions").is_dir():  # a module, up to 1.60
            methods = ((_CHAT, "Completions", ("create",), "chat"), *methods[1:])
        if (resources / "beta" / "chat" / "completions.py").is_file():  # where `parse` began, in 1.x
            methods = (*methods, (_BETA, "Completions", ("parse",), "chat"))
    return methods


class _Method:
    """What is done around one API method."""

    def __init__(self, operation: str) -> None:
        self._operation = operation

    def call(self, wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        start_ns = monotonic_ns()
        span = self._begin(instance, kwargs, start_ns)
        if span is None:
            return wrapped(*args, **kwargs)
        inside, token = _inside.set(True), recorder.attach(span)
        try:
            result = wrapped(*args, **kwargs)
        except BaseException as error:
            _raised(span, error)
            raise
        finally:
            recorder.detach(token)
            _inside.reset(inside)
        _answered(span, result, kwargs)
        return result

    async def call_async(
        self, wrapped: Callable[..., Awaitable[Any]], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        start_ns = monotonic_ns()
        span = self._begin(instance, kwargs, start_ns)
        if span is None:
            return await wrapped(*args, **kwargs)
        inside, token = _inside.set(True), recorder.attach(span)
        try:
            result = await wrapped(*args, **kwargs)
        except BaseException as error:
            _raised(span, error)
            raise
        finally:
            recorder.detach(token)
            _inside.reset(inside)
        _answered(span, result, kwargs)
        return result

    def _begin(self, instance: Any, kwargs: dict[str, Any], start_ns: int) -> LiveSpan | None:
        if _inside.get():
            return None
        with guard("openai.begin"):
            attributes: dict[str, AttributeValue] = {
                semconv.GEN_AI_OPERATION_NAME: self._operation,
                semconv.GEN_AI_PROVIDER_NAME: "openai",
                **genai.request_attributes(kwargs),
            }
            if self._operation != "embeddings":
                attributes.setdefault(semconv.GEN_AI_REQUEST_STREAM, False)
            _add_server(attributes, instance)
            model = attributes.get(semconv.GEN_AI_REQUEST_MODEL)
            covered = foreign.covering_span(SpanKind.CLIENT, ("gen_ai.", "llm.")) is not None
            span = recorder.start(
                f"{self._operation} {model}" if model else self._operation,
                scope=SCOPE,
                stage=Stage.CLIENT,
                kind=SpanKind.INTERNAL if covered else SpanKind.CLIENT,
                attributes=attributes,
                start_mono_ns=start_ns,
            )
            state.of(span).reads_answer = True
            return span
        return None


def _add_server(attributes: dict[str, AttributeValue], instance: Any) -> None:
    client = instance._client
    url = client.base_url
    attributes[semconv.SERVER_ADDRESS] = url.host
    attributes[semconv.SERVER_PORT] = url.port or (443 if url.scheme == "https" else 80)
    if "Azure" in type(client).__name__:
        attributes[semconv.GEN_AI_PROVIDER_NAME] = "azure.ai.openai"


def _raised(span: LiveSpan, error: BaseException) -> None:
    """There is no answer. The exception itself is the caller's."""
    with guard("openai.raised"):
        if isinstance(error, asyncio.CancelledError | KeyboardInterrupt | GeneratorExit):
            span.set(semconv.ABORT, Abort.CLIENT.value)
        else:
            span.fail(errors.error_type(error))
            if errors.is_timeout(error):
                span.set(semconv.ABORT, Abort.TIMEOUT.value)
            status = getattr(error, "status_code", None)
            if isinstance(status, int):
                span.set(semconv.HTTP_RESPONSE_STATUS_CODE, status)
        span.end()


def _answered(span: LiveSpan, result: Any, kwargs: dict[str, Any]) -> None:
    """The method returned: a stream, a raw response, or the whole answer."""
    end_ns = monotonic_ns()
    if not span.recording:
        return
    try:
        if openai_streams.is_stream(result):
            openai_streams.watch(result, span, choices=genai.choices(kwargs))
        elif (response := getattr(result, "http_response", None)) is not None and hasattr(response, "is_closed"):
            _raw(span, response, end_ns, kwargs)
        else:
            span.update(openai_streams.answer_attributes(result))
            span.end(end_mono_ns=end_ns)
    except Exception as error:
        note_failure("openai.answered", error)
        span.end(end_mono_ns=end_ns)


def _raw(span: LiveSpan, response: Any, end_ns: int, kwargs: dict[str, Any]) -> None:
    """A raw response: read already, or to be read by the program."""
    span.set(semconv.HTTP_RESPONSE_STATUS_CODE, response.status_code)
    if not response.is_closed:
        body.watch(response, WatchedAnswer(span, response, choices=genai.choices(kwargs)))
        return
    content: bytes = response.content
    if len(content) <= genai.MAX_PARSED_BYTES:
        span.update(genai.response_attributes(genai.json_object(content) or {}))
    span.end(end_mono_ns=end_ns)
