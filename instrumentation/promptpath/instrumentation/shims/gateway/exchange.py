"""One request served and its answer, as an ASGI application sees them pass."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from time import monotonic_ns
from typing import Any, Final

from opentelemetry import propagate
from opentelemetry.context import Context
from opentelemetry.trace import SpanKind
from opentelemetry.util.types import AttributeValue

from promptpath import semconv
from promptpath.instrumentation import recorder
from promptpath.instrumentation.safety import guard, note_failure
from promptpath.instrumentation.shims import errors, foreign, genai, paths, state
from promptpath.instrumentation.shims.answer import count_single_delivery
from promptpath.instrumentation.shims.gateway.announced import fastapi_says_when
from promptpath.instrumentation.shims.role import role as role_of_process
from promptpath.instrumentation.shims.sse import SseScanner
from promptpath.semconv import Abort, Stage

SCOPE: Final = "promptpath.asgi"

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Exchange:
    """The span of one request, begun with it.

    Args:
        scope: the ASGI scope.
        role: gateway, router, server or edge; the process's role if None.
    """

    __slots__ = (
        "_body",
        "_choices",
        "_complete",
        "_end_ns",
        "_error",
        "_request",
        "_request_bytes",
        "_scanner",
        "_scope",
        "_send_ns",
        "_sent_first_ns",
        "_started",
        "_state",
        "_status",
        "role",
        "span",
    )

    def __init__(self, scope: MutableMapping[str, Any], role: Stage | None) -> None:
        start_ns = monotonic_ns()
        self._scope = scope
        self.role = role or role_of_process()
        path: str = scope["path"]
        covering = foreign.covering_span(SpanKind.SERVER, ())
        covered = covering is not None
        if covering is not None:
            covering.set_attribute(semconv.STAGE, self.role.value)
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        parent: Context | None = None if covered else propagate.extract(headers)
        self.span = recorder.start(
            f"{scope['method']} {path}",
            scope=SCOPE,
            stage=self.role,
            kind=SpanKind.INTERNAL if covered else SpanKind.SERVER,
            attributes=_of_request(scope, path, headers),
            parent=parent,
            start_mono_ns=start_ns,
        )
        self._state = state.of(self.span)
        self._state.closes = self.span.recording
        if self.role is Stage.SERVER and self.span.recording:
            self._state.parse = recorder.start(
                "parse", scope=SCOPE, stage=Stage.PARSE, parent=self.span, start_mono_ns=start_ns
            )
        self._request: list[bytes] | None = []
        self._request_bytes = 0
        self._choices = 1
        self._status = 0
        self._started = False
        self._complete = False
        self._error: BaseException | None = None
        self._scanner: SseScanner | None = None
        self._body: list[bytes] | None = None
        self._sent_first_ns = 0
        self._send_ns = 0
        self._end_ns = 0

    # -- the request ---------------------------------------------------------------------------------------------------

    def receiving(self, receive: Receive) -> Receive:
        """`receive`, with what it gives noted."""

        async def noted() -> Message:
            message = await receive()
            try:
                self._received(message)
            except Exception as error:
                note_failure("asgi.receive", error)
            return message

        return noted

    def _received(self, message: Message) -> None:
        if message["type"] == "http.disconnect":
            if not self._complete:
                self._state.disconnected = True
            return
        if message["type"] != "http.request":
            return
        if not message.get("more_body", False):
            self._state.body_read = True
            if self._state.handler_entered or not fastapi_says_when(self._scope):
                self._state.end_parse()
        kept = self._request
        if kept is None:
            return
        body = message.get("body", b"")
        self._request_bytes += len(body)
        if self._request_bytes > genai.MAX_KEPT_BYTES:
            self._request = None
            return
        kept.append(body)

    def _understand_request(self, *, now: bool) -> None:
        """Read model and parameters from the body. It waits for the end, unless choices may have to be told apart."""
        kept = self._request
        if not kept:
            return
        raw = b"".join(kept)
        if not now and b'"n"' not in raw:
            return
        self._request = None
        found = genai.request_attributes_of_bytes(raw)
        self.span.update(found)
        choices = found.get(semconv.GEN_AI_REQUEST_CHOICE_COUNT, 1)
        self._choices = choices if isinstance(choices, int) else 1

    # -- the answer ----------------------------------------------------------------------------------------------------

    def sending(self, send: Send) -> Send:
        """`send`, with what passes noted once the server has taken it."""
        timed = self.role is Stage.SERVER

        async def noted(message: Message) -> None:
            if timed:
                before_ns = monotonic_ns()
                await send(message)
                self._send_ns += monotonic_ns() - before_ns
            else:
                await send(message)
            try:
                self._sent(message)
            except Exception as error:
                note_failure("asgi.send", error)

        return noted

    def _sent(self, message: Message) -> None:
        if message["type"] == "http.response.body":
            scanner = self._scanner
            body = message.get("body", b"")
            if scanner is not None:
                delivered = scanner.feed(body if isinstance(body, bytes) else bytes(body))
                if delivered:
                    self.span.mark(delivered)
                    if not self._sent_first_ns:
                        self._sent_first_ns = self.span.deliveries_mono_ns[-1]
            elif self._body is not None and body:
                self._body.append(bytes(body))
            if not message.get("more_body", False):
                self._complete = True
                self._end_ns = monotonic_ns()
                # What made a 500 of it is known only when the application has raised it.
                if self._status < 500:
                    self._finish()
        elif message["type"] == "http.response.start":
            self._answer_begins(message)

    def _answer_begins(self, message: Message) -> None:
        now_ns = monotonic_ns()
        if self._started:
            return
        self._started = True
        self._state.end_parse(now_ns)
        self._status = message["status"]
        self.span.set(semconv.HTTP_RESPONSE_STATUS_CODE, self._status)
        self.span.set(semconv.FIRST_BYTE_US, (now_ns - self.span.start_mono_ns) // 1000)
        if self._status >= 500:
            self.span.fail(str(self._status))
        self._understand_request(now=False)
        kind = encoding = ""
        for name, value in message.get("headers", ()):
            if name == b"content-type":
                kind = value.decode("latin-1").lower()
            elif name == b"content-encoding":
                encoding = value.decode("latin-1").lower()
        if encoding in ("", "identity") and self._status < 400:
            if kind.startswith("text/event-stream"):
                self._scanner = SseScanner(self._choices)
            elif kind.startswith("application/json"):
                self._body = []

    # -- the end -------------------------------------------------------------------------------------------------------

    def raised(self, error: BaseException) -> None:
        """The application raised."""
        self._error = error

    def end(self) -> None:
        """The application has returned or raised; the span ends, if it did not with the last byte."""
        if not self.span.recording:
            return
        with guard("asgi.end"):
            if self.span.ended:
                return
            if self._complete:
                if self._error is not None:
                    self.span.fail(errors.error_type(self._error))
            else:
                self._say_why()
            self._finish()

    def _say_why(self) -> None:
        """An answer that is not complete: who ended it."""
        answered = self._scanner is not None and self._scanner.finished
        if self._state.disconnected:
            if not answered:
                self.span.set(semconv.ABORT, Abort.CLIENT.value)
        elif isinstance(self._error, asyncio.CancelledError):
            self.span.set(semconv.ABORT, Abort.SERVER.value)
        elif self._error is not None:
            if isinstance(self._error, OSError) or type(self._error).__name__ == "ClientDisconnect":
                # The server could not send: nobody is there.
                if not answered:
                    self.span.set(semconv.ABORT, Abort.CLIENT.value)
            else:
                self.span.fail(errors.error_type(self._error))
        elif not answered:
            self.span.set(semconv.ABORT, Abort.SERVER.value)

    def _finish(self) -> None:
        end_ns = self._end_ns or monotonic_ns()
        self._understand_request(now=True)
        span = self.span
        scanner = self._scanner
        route = getattr(self._scope.get("route"), "path", None)
        if isinstance(route, str):
            span.set(semconv.HTTP_ROUTE, route)
        if scanner is not None:
            found = scanner.attributes()
            span.update(found)
            kind = scanner.error_type()
            if kind is not None:
                span.fail(kind)
            count_single_delivery(span, found.get(genai.OUTPUT_TOKENS))
        elif self._body is not None:
            raw = b"".join(self._body) if sum(map(len, self._body)) <= genai.MAX_PARSED_BYTES else b""
            span.update(genai.response_attributes(genai.json_object(raw) or {}))
        self._state.close()
        ready_ns = span.first_text_ready_mono_ns or self._state.first_text_mono_ns or self._state.first_token_mono_ns
        if self.role is Stage.SERVER and ready_ns and self._sent_first_ns >= ready_ns:
            self._state.stage(
                "stream",
                Stage.STREAM,
                SCOPE,
                ready_ns,
                self._sent_first_ns,
                {semconv.STREAM_TOTAL_US: self._send_ns // 1000},
            )
        span.end(end_mono_ns=end_ns)


def _of_request(scope: MutableMapping[str, Any], path: str, headers: dict[str, str]) -> dict[str, AttributeValue]:
    attributes: dict[str, AttributeValue] = {
        semconv.HTTP_REQUEST_METHOD: scope["method"],
        semconv.URL_PATH: path,
        semconv.URL_SCHEME: scope.get("scheme", "http"),
    }
    operation = paths.operation(path)
    if operation is not None:
        attributes[semconv.GEN_AI_OPERATION_NAME] = operation
    for key, place in ((semconv.CLIENT_ADDRESS, scope.get("client")), (semconv.SERVER_ADDRESS, scope.get("server"))):
        if place:
            attributes[key] = place[0]
            if key == semconv.SERVER_ADDRESS and place[1] is not None:
                attributes[semconv.SERVER_PORT] = place[1]
    request_id = headers.get("x-request-id")
    if request_id is not None:
        attributes[semconv.HTTP_REQUEST_ID] = (request_id,)
    return attributes
