"""httpx and httpx2 (and with them openai, anthropic and others): calls from one hop to the next, on the wire.

A POST to an inference path becomes a CLIENT span with the stage `call`: opened before a connection is looked for,
ended with the answer's last byte. `dns`, `tcp` and `tls` lie below it where a connection is opened. Tokens are marked
as the bytes that hold them come in. Each attempt is a call of its own. The trace context is sent along, with any
other request too; a `traceparent` that is there already is never replaced. Where another instrumentation covers the
call and has set it, its span becomes the `call` and ours, without a stage, lies inside it and holds the token gaps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from importlib.util import find_spec
from time import monotonic_ns
from typing import Any, ClassVar, Final

from opentelemetry import context as context_api
from opentelemetry import propagate
from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY
from opentelemetry.instrumentation.instrumentor import BaseInstrumentor  # type: ignore[attr-defined]
from opentelemetry.trace import Span, SpanKind
from opentelemetry.util.types import AttributeValue

from promptpath import semconv
from promptpath.instrumentation import recorder
from promptpath.instrumentation.live import LiveSpan
from promptpath.instrumentation.safety import guard
from promptpath.instrumentation.shims import body, errors, foreign, genai, paths, state, tcp
from promptpath.instrumentation.shims.answer import WatchedAnswer
from promptpath.instrumentation.shims.client.connecting import SCOPE, Connecting, watch_resolvers
from promptpath.instrumentation.shims.router import attempts
from promptpath.instrumentation.wrapping import unwrap_all, wrap
from promptpath.semconv import Abort, Stage

#: What we put into a request's headers is remembered in its extensions: a request sent again gets a context of its own.
_SENT: Final = "promptpath.traceparent"
_TRACEPARENT: Final = "traceparent"
_MODEL: Final = semconv.GEN_AI_REQUEST_MODEL


class HttpxInstrumentor(BaseInstrumentor):  # type: ignore[misc]
    """Puts the shim on httpx's and httpx2's transports."""

    library: ClassVar[tuple[str, ...]] = ("httpx", "httpx2")

    def instrumentation_dependencies(self) -> Collection[str]:
        # Either is enough, which the base class cannot say: asked for is what there is.
        there = [text for text in ("httpx >= 0.23", "httpx2 >= 2.0") if find_spec(text.split()[0]) is not None]
        return there or ("httpx >= 0.23",)

    def _instrument(self, **kwargs: Any) -> None:
        for library in ("httpx", "httpx2"):
            wrap(f"{library}._transports.default", "HTTPTransport.handle_request", _handle)
            wrap(f"{library}._transports.default", "AsyncHTTPTransport.handle_async_request", _handle_async)
        watch_resolvers(__name__)

    def _uninstrument(self, **kwargs: Any) -> None:
        unwrap_all()


def _handle(wrapped: Callable[..., Any], _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    call = _begin(args, kwargs, is_async=False)
    if call is None:
        return wrapped(*args, **kwargs)
    try:
        response = wrapped(*args, **kwargs)
    except BaseException as error:
        call.raised(error)
        raise
    finally:
        call.sent()
    call.answered(response)
    return response


def _handle_async(wrapped: Callable[..., Any], _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Awaitable[Any]:
    return _run_async(wrapped, args, kwargs)


async def _run_async(wrapped: Callable[..., Awaitable[Any]], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    call = _begin(args, kwargs, is_async=True)
    if call is None:
        return await wrapped(*args, **kwargs)
    try:
        response = await wrapped(*args, **kwargs)
    except BaseException as error:
        call.raised(error)
        raise
    finally:
        call.sent()
    call.answered(response)
    return response


def _begin(args: tuple[Any, ...], kwargs: dict[str, Any], *, is_async: bool) -> _Call | None:
    """Begin a call, or only send the context along (None) if the request is no inference call."""
    start_ns = monotonic_ns()
    with guard("httpx.begin"):
        if context_api.get_value(_SUPPRESS_INSTRUMENTATION_KEY):
            return None
        request = args[0] if args else kwargs["request"]
        path: str = request.url.path
        if request.method == "POST" and paths.inference_path(path) is not None:
            return _Call(request, path, start_ns, is_async=is_async)
        _send_context(request, None)
    return None


def _send_context(request: Any, span: LiveSpan | None) -> None:
    """Put the context into a request's headers, unless there is one that is not ours."""
    present = request.headers.get(_TRACEPARENT)
    if present is not None and present != request.extensions.get(_SENT):
        return
    carrier: dict[str, str] = {}
    propagate.inject(carrier, context=span.context if span is not None else None)
    for name, value in carrier.items():
        if name.lower() == _TRACEPARENT:
            request.extensions[_SENT] = value
        elif name.lower() == "baggage" and name in request.headers:
            continue
        request.headers[name] = value


class _Call:
    """One inference call on the wire."""

    __slots__ = ("_attributes", "_choices", "_owner", "_request", "_says", "_users_trace", "covering", "span")

    def __init__(self, request: Any, path: str, start_ns: int, *, is_async: bool) -> None:
        self._request = request
        self._owner = attempts.owner()
        self._choices = 1
        attributes = self._of_request(path)
        foreign_span = foreign.covering_span(SpanKind.CLIENT, ("http.", "url."))
        # Only a span whose context the request carries is the callee's parent.
        covered = foreign_span is not None and _carries(request, foreign_span)
        self.covering: Span | None = foreign_span if covered else None
        if self.covering is not None:
            self.covering.set_attribute(semconv.STAGE, Stage.CALL.value)
            self.covering.set_attribute(semconv.ATTEMPT, attributes[semconv.ATTEMPT])
        self.span = recorder.start(
            "POST",
            scope=SCOPE,
            stage=None if covered else Stage.CALL,
            kind=SpanKind.INTERNAL if covered else SpanKind.CLIENT,
            attributes=attributes,
            start_mono_ns=start_ns,
        )
        _send_context(request, self.span)
        extensions = request.extensions
        self._users_trace = extensions.get("trace")
        if self.span.recording:
            connecting = Connecting(self.span)
            extensions["trace"] = (
                connecting.chained_async(self._users_trace) if is_async else connecting.chained(self._users_trace)
            )

    def _of_request(self, path: str) -> dict[str, AttributeValue]:
        request = self._request
        url = request.url
        attributes: dict[str, AttributeValue] = {
            semconv.HTTP_REQUEST_METHOD: "POST",
            semconv.URL_PATH: path,
            semconv.URL_SCHEME: url.scheme,
            semconv.SERVER_ADDRESS: url.host,
            semconv.SERVER_PORT: url.port or (443 if url.scheme == "https" else 80),
            semconv.ATTEMPT: attempts.count(self._owner),
        }
        operation = paths.operation(path)
        if operation is not None:
            attributes[semconv.GEN_AI_OPERATION_NAME] = operation
        # The shim of an LLM client right above has read the request already.
        above = recorder.current()
        self._says = above is None or not state.of(above).reads_answer
        if self._says:
            content = getattr(request, "_content", None)
            if isinstance(content, bytes):
                attributes.update(genai.request_attributes_of_bytes(content))
        elif above is not None:
            for key in (_MODEL, semconv.GEN_AI_REQUEST_STREAM, semconv.GEN_AI_REQUEST_CHOICE_COUNT):
                if key in above.attributes:
                    attributes[key] = above.attributes[key]
        choices = attributes.get(semconv.GEN_AI_REQUEST_CHOICE_COUNT)
        if isinstance(choices, int):
            self._choices = choices
        self._attributes = attributes
        return attributes

    def sent(self) -> None:
        """The headers of the answer are here, or none will come: the user's trace hook is back in its place."""
        with guard("httpx.sent"):
            if self._users_trace is not None:
                self._request.extensions["trace"] = self._users_trace
            elif self.span.recording:
                self._request.extensions.pop("trace", None)

    def raised(self, error: BaseException) -> None:
        """There is no answer."""
        with guard("httpx.raised"):
            if isinstance(error, asyncio.CancelledError | KeyboardInterrupt | GeneratorExit):
                self.span.set(semconv.ABORT, Abort.CLIENT.value)
            else:
                self.span.fail(errors.error_type(error))
                if errors.is_timeout(error):
                    self.span.set(semconv.ABORT, Abort.TIMEOUT.value)
            self.span.end()

    def answered(self, response: Any) -> None:
        """The headers of the answer are here; its body is watched from now on."""
        span = self.span
        if not span.recording:
            return
        with guard("httpx.answered"):
            now_ns = monotonic_ns()
            status: int = response.status_code
            span.set(semconv.HTTP_RESPONSE_STATUS_CODE, status)
            span.set(semconv.FIRST_BYTE_US, (now_ns - span.start_mono_ns) // 1000)
            if status >= 400:
                span.fail(str(status))
            else:
                model = self._attributes.get(_MODEL)
                attempts.answered(self._owner, model if isinstance(model, str) else None)
            stream = response.extensions.get("network_stream")
            if stream is not None:
                span.update(tcp.attributes(stream))
            body.watch(response, WatchedAnswer(span, response, choices=self._choices, says=self._says))


def _carries(request: Any, span: Span) -> bool:
    """Whether a request's `traceparent` names this span."""
    parts = request.headers.get(_TRACEPARENT, "").split("-")
    return len(parts) >= 4 and parts[2] == format(span.get_span_context().span_id, "016x")
