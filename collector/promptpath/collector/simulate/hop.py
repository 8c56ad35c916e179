"""What every hop that serves a request does: its span, and how that ends."""

from __future__ import annotations

from typing import Final

from promptpath import semconv
from promptpath.collector.simulate.call import Answer, State, answer_attributes
from promptpath.collector.simulate.deliveries import held_back
from promptpath.collector.simulate.prompt import Prompt
from promptpath.collector.simulate.spans import SERVER, Span, staged
from promptpath.collector.simulate.stack import Node
from promptpath.collector.simulate.world import World
from promptpath.semconv import Abort, Part, Stage

ASGI: Final = "promptpath.asgi"
FASTAPI: Final = "promptpath.fastapi"
_TENANTS: Final = ("acme", "globex", "initech", "umbrella")


def open_span(world: World, prompt: Prompt, node: Node, parent: bytes, stage: Stage) -> Span:
    """The SERVER span of a request that comes in now."""
    now = world.now
    span = Span(node, now, ASGI, f"POST {prompt.path}", SERVER, prompt.trace, world.span_id(), parent, now)
    prompt.spans.append(span)
    prompt.pass_by(node)
    span.attributes += (
        (semconv.HTTP_REQUEST_METHOD, "POST"),
        (semconv.URL_PATH, prompt.path),
        (semconv.URL_SCHEME, "http"),
        (semconv.HTTP_ROUTE, prompt.path),
        (semconv.GEN_AI_OPERATION_NAME, prompt.operation),
        (semconv.GEN_AI_REQUEST_MODEL, prompt.model if stage is Stage.SERVER else prompt.request_model),
        staged(stage),
    )
    if prompt.chat:
        span.note(semconv.GEN_AI_REQUEST_STREAM, prompt.streaming)
    if len(prompt.outputs) > 1:
        span.note(semconv.GEN_AI_REQUEST_CHOICE_COUNT, len(prompt.outputs))
    if stage is Stage.GATEWAY:
        span.note(semconv.TENANT, _TENANTS[prompt.number % len(_TENANTS)])
    return span


def refuse(world: World, prompt: Prompt, span: Span, http: int, after_ns: int) -> Answer:
    """The hop answers with an error, at an instant from now on."""
    end = max(after_ns, world.now)
    describe(prompt, span, http, end)
    span.end_ns = end + 20_000
    return Answer(State.REFUSED, http, end, span.end_ns)


def describe(prompt: Prompt, span: Span, http: int, headers_ns: int) -> None:
    """Note the status of an answer whose headers have left."""
    span.note(semconv.HTTP_RESPONSE_STATUS_CODE, http)
    span.note(semconv.FIRST_BYTE_US, (headers_ns - span.start_ns) // 1000)
    if http >= 500:
        span.error = str(http)


def relay(
    world: World,
    prompt: Prompt,
    span: Span,
    answer: Answer,
    cancel_ns: int,
    *,
    source: str,
    part: Part,
    step: str,
    release_ns: int = 0,
    sees: bool = True,
) -> Answer:
    """Pass an answer on through a hop; the answer at the hop's own socket.

    answer: at the hop's call. source, part: what the hop is called, and whose its time is with the first token. step:
    how long each delivery takes it. release_ns: nothing is passed on before.
    """
    delay = world.times.draw(step, world.now, prompt.model)
    found = answer.found
    end = answer.end_ns + delay
    if end <= cancel_ns:
        if answer.state is State.TIMED_OUT and not answer.headers_ns:
            return refuse(world, prompt, span, 504, end)
        if answer.state is State.NONE:
            return refuse(world, prompt, span, 502, end)
        if answer.state is State.REFUSED:
            return refuse(world, prompt, span, answer.http, end)
    headers = answer.headers_ns + delay if answer.headers_ns else 0
    if found is not None and len(found):
        found = world.relay.pass_on(found, delay, 8_000)
        if release_ns:
            found = held_back(found, release_ns, 12_000)
        end = max(end, found.last_ns + 10_000)
        headers = min(headers, found.first_ns)
    state = answer.state
    if state is State.TIMED_OUT:
        state = State.BROKEN
        span.error = "ReadTimeout"
    elif state is State.ERROR_FRAME:
        span.error = "internal_error"
    elif state is State.BROKEN:
        span.error = "RemoteProtocolError"
    if end > cancel_ns or state is State.GIVEN_UP:
        state, end = State.GIVEN_UP, max(min(end, cancel_ns), span.start_ns)
        found = found.until(cancel_ns) if found is not None else None
        headers = headers if headers <= cancel_ns else 0
        span.error = ""
        span.note(semconv.ABORT, Abort.CLIENT.value)
    elif state is State.CUT:
        span.note(semconv.ABORT, Abort.SERVER.value)
    elif state is State.COMPLETE and sees:
        span.attributes += answer_attributes(prompt)
    http = answer.http if headers else 0
    if http:
        describe(prompt, span, http, headers)
    span.end_ns = max(end, span.start_ns)
    if found is not None and len(found):
        prompt.ledger.spend(part, found.first_ns)
        if sees:
            prompt.ledger.seen(source)
            prompt.saw(source, found)
            span.found = found
    return Answer(state, http, headers, span.end_ns, found)
