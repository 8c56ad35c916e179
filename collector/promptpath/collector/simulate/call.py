"""A call from one process to another: connecting, sending, and the answer's way back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from promptpath import semconv
from promptpath.collector.simulate.deliveries import Deliveries, merged, stalled
from promptpath.collector.simulate.kernel import Process
from promptpath.collector.simulate.prompt import Prompt
from promptpath.collector.simulate.spans import CLIENT, Span, staged
from promptpath.collector.simulate.stack import Link, Node, Value
from promptpath.collector.simulate.world import World
from promptpath.semconv import Abort, Part, Stage

HTTPX: Final = "promptpath.httpx"
#: A connection is found open so often.
_KEPT: Final = 0.85


class State(Enum):
    """How an answer ended, as its caller knows it."""

    COMPLETE = 1
    CUT = 2
    """It just ended, without a finish reason."""
    ERROR_FRAME = 3
    """The stream said that there was an error."""
    BROKEN = 4
    """The connection broke."""
    REFUSED = 5
    """An HTTP status of 400 or more."""
    NONE = 6
    """No answer: there was no connection."""
    GIVEN_UP = 7
    """The caller, or somebody above, did not wait for it."""
    TIMED_OUT = 8
    """The caller's own time limit was over."""


@dataclass(eq=False, slots=True)
class Answer:
    """An answer at the socket of whoever gives it, or of whoever takes it; instants in true time [ns].

    http: status code, 0 for none. headers_ns: of the headers. found: deliveries of a stream. end_ns: of the last byte.
    own: entries of the ledger that are the call's own time.
    """

    state: State
    http: int
    headers_ns: int
    end_ns: int
    found: Deliveries | None = None
    own: list[list[str | int]] = field(default_factory=list)


Serve = Callable[..., Process[Answer]]
"""A process that serves: (world, prompt, process, the call's span id, when the caller goes away) -> its answer."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls.

    span: the hop's span; source: what the hop is called where it sees a token first; cancel_ns: when whoever asked goes
    away; limit_ns: when the caller's own patience ends; sees: whether the call's span has token gaps; attempt: from 1;
    continues: whether time goes on to the first token when this call is over, though it brought none.
    """

    span: Span
    source: str
    cancel_ns: int
    limit_ns: int
    attempt: int = 1
    sees: bool = True
    says: bool = True
    continues: bool = False
    refused: bool = False


def call(world: World, prompt: Prompt, caller: Caller, callee: Node, serve: Serve) -> Process[Answer]:
    """Call a process and wait for its answer. The answer's instants are the caller's."""
    node = caller.span.node
    link = world.stack.link(node.host, callee.host)
    start = world.now
    span = _begin(world, prompt, caller, callee, link, start)
    ledger = prompt.ledger
    ready = start + world.times.draw("pool", start, prompt.model)
    own = [ledger.spend(Part.NETWORK, ready)]
    ready = _connect(world, prompt, caller, callee, span, link, ready)
    if caller.refused:
        yield ready
        span.end_ns, span.error = ready, "ConnectError"
        return Answer(State.NONE, 0, 0, ready)
    gives_up = min(caller.cancel_ns, caller.limit_ns)
    if ready >= gives_up:
        yield ready
        span.end_ns = ready
        state = State.TIMED_OUT if caller.limit_ns <= caller.cancel_ns else State.GIVEN_UP
        _describe(world, prompt, caller, span, link, state, 0, 0)
        # For all that the caller knows it called a deployment.
        prompt.calls = prompt.calls or 1
        return Answer(state, 0, 0, ready)
    arrives = ready + _transit(world, prompt, link.out_ns, link.jitter_ns, ready)
    own.append(ledger.spend(Part.NETWORK, arrives))
    yield arrives
    leaves = gives_up + link.out_ns + int(world.rng.random() * link.jitter_ns)
    answer = yield from serve(world, prompt, callee, span.id, leaves)
    came = _come_back(world, prompt, caller, span, link, answer, gives_up)
    came.own = own
    if came.found is not None and len(came.found):
        came.own.append(ledger.spend(Part.NETWORK, came.found.first_ns))
        if caller.sees:
            ledger.seen(caller.source)
            prompt.saw(caller.source, came.found)
    elif caller.continues and came.state is State.COMPLETE:
        came.own.append(ledger.spend(Part.NETWORK, came.end_ns))
    return came


def _begin(world: World, prompt: Prompt, caller: Caller, callee: Node, link: Link, start: int) -> Span:
    above = caller.span
    node = above.node
    span = Span(node, above.since_ns, HTTPX, "POST", CLIENT, above.trace, world.span_id(), above.id, start)
    prompt.spans.append(span)
    span.attributes += (
        (semconv.HTTP_REQUEST_METHOD, "POST"),
        (semconv.URL_PATH, prompt.path),
        (semconv.URL_SCHEME, "http" if node.host is callee.host else "https"),
        (semconv.SERVER_ADDRESS, "127.0.0.1" if node.host is callee.host else f"{callee.host.name}.example"),
        (semconv.SERVER_PORT, callee.port),
        (semconv.ATTEMPT, caller.attempt),
        (semconv.GEN_AI_OPERATION_NAME, prompt.operation),
        (semconv.GEN_AI_REQUEST_MODEL, prompt.model if caller.source == "router" else prompt.request_model),
        staged(Stage.CALL),
    )
    if prompt.chat:
        span.note(semconv.GEN_AI_REQUEST_STREAM, prompt.streaming)
    if len(prompt.outputs) > 1:
        span.note(semconv.GEN_AI_REQUEST_CHOICE_COUNT, len(prompt.outputs))
    return span


def _connect(world: World, prompt: Prompt, caller: Caller, callee: Node, span: Span, link: Link, start: int) -> int:
    """Open a connection, if none is kept open; returns when it is there, or known not to be."""
    node = span.node
    known = callee.number in node.connections
    if known and not caller.refused and world.rng.random() < _KEPT:
        return start
    node.connections.add(callee.number)
    rtt = link.out_ns + link.back_ns
    at = start
    steps: list[tuple[str, Stage, int]] = []
    if node.host is not callee.host:
        steps.append(("dns", Stage.DNS, world.times.draw("dns", at, prompt.model)))
    factor = world.times.factor("tcp", at, prompt.model)
    steps.append(("tcp", Stage.TCP, int((rtt + world.rng.random() * link.jitter_ns) * factor) + 20_000))
    if node.host is not callee.host and not caller.refused:
        steps.append(("tls", Stage.TLS, rtt + world.times.draw("tls", at, prompt.model)))
    for name, stage, length in steps:
        made = world.stage(prompt, span, HTTPX, name, stage, at, at + length)
        at += length
        if caller.refused and name == "tcp":
            made.error = "ConnectError"
    prompt.ledger.spend(Part.NETWORK, at)
    return at


def _transit(world: World, prompt: Prompt, base_ns: int, jitter_ns: int, now: int) -> int:
    """One way across a link. Now and then a packet is lost and sent again."""
    time = base_ns + world.rng.expovariate(1.0) * jitter_ns
    if world.rng.random() < 0.002:
        time += 200e6
    return int(time * world.times.factor("transit", now, prompt.model))


def _come_back(
    world: World, prompt: Prompt, caller: Caller, span: Span, link: Link, answer: Answer, gives_up: int
) -> Answer:
    """The answer's way to the caller, and the end of the call's span."""
    back = _transit(world, prompt, link.back_ns, link.jitter_ns, answer.headers_ns or world.now)
    found = answer.found
    headers = answer.headers_ns + back if answer.headers_ns else 0
    end = answer.end_ns + back
    if found is not None and len(found):
        fate = prompt.fate
        found = world.relay.pass_on(found, back, link.jitter_ns)
        if caller.source == "client" and fate.stall == 1:
            found = stalled(found, world.rng.random(), int(world.rng.uniform(80e6, 600e6)))
        if fate.lag and caller.source == ("gateway" if prompt.topology == "headless" else "client"):
            # The reader is busy for a moment, then reads all that has come in the meantime.
            begin = int(world.rng.uniform(found.first_ns, found.last_ns + 1))
            found = merged(found, begin, begin + int(world.rng.uniform(5e6, 60e6)))
        end = max(end, found.last_ns + 20_000)
        headers = min(headers, found.first_ns)
    state = answer.state
    if end > gives_up or state is State.GIVEN_UP:
        state = State.TIMED_OUT if caller.limit_ns <= caller.cancel_ns else State.GIVEN_UP
        end = gives_up
        found = found.until(gives_up) if found is not None else None
        headers = headers if headers <= gives_up else 0
    span.end_ns = max(end, span.start_ns)
    http = answer.http if headers else 0
    _describe(world, prompt, caller, span, link, state, http, headers)
    if caller.sees:
        span.found = found
    return Answer(state, http, headers, span.end_ns, found)


def _describe(
    world: World, prompt: Prompt, caller: Caller, span: Span, link: Link, state: State, http: int, headers: int
) -> None:
    if http:
        span.note(semconv.HTTP_RESPONSE_STATUS_CODE, http)
        span.note(semconv.FIRST_BYTE_US, (headers - span.start_ns) // 1000)
        span.note(semconv.TCP_RTT_US, (link.out_ns + link.back_ns) // 1000)
        if world.rng.random() < 0.01:
            span.note(semconv.TCP_RETRANSMITS, 1)
        if http >= 400:
            span.error = str(http)
    if state is State.COMPLETE and caller.says:
        span.attributes += prefill_attributes(prompt) if caller.continues else answer_attributes(prompt)
    elif state is State.ERROR_FRAME:
        span.error = "internal_error"
    elif state is State.BROKEN:
        span.error = "RemoteProtocolError"
    elif state is State.GIVEN_UP:
        if http < 400:
            span.note(semconv.ABORT, Abort.CLIENT.value)
    elif state is State.TIMED_OUT:
        span.error = "ReadTimeout"
        span.note(semconv.ABORT, Abort.TIMEOUT.value)


def answer_attributes(prompt: Prompt) -> list[tuple[str, Value]]:
    """What a complete answer says of itself."""
    prompt.counted = True
    found: list[tuple[str, Value]] = [
        (semconv.GEN_AI_RESPONSE_MODEL, prompt.model),
        (semconv.GEN_AI_RESPONSE_ID, f"chatcmpl-{prompt.number:012d}"),
        (semconv.GEN_AI_USAGE_INPUT_TOKENS, prompt.input_tokens),
    ]
    if prompt.chat or prompt.finish != "stop":
        reasons = (prompt.finish,) * (len(prompt.outputs) or 1)
        found.append((semconv.GEN_AI_RESPONSE_FINISH_REASONS, reasons))
    if prompt.chat:
        found.append((semconv.GEN_AI_USAGE_OUTPUT_TOKENS, sum(prompt.outputs)))
        if prompt.cached_tokens:
            found.append((semconv.GEN_AI_USAGE_CACHE_READ_INPUT_TOKENS, prompt.cached_tokens))
    return found


def prefill_attributes(prompt: Prompt) -> list[tuple[str, Value]]:
    """What a prefill worker's answer says: it was asked for one token."""
    prompt.counted = True
    return [
        (semconv.GEN_AI_RESPONSE_MODEL, prompt.model),
        (semconv.GEN_AI_RESPONSE_ID, f"prefill-{prompt.number:012d}"),
        (semconv.GEN_AI_USAGE_INPUT_TOKENS, prompt.input_tokens),
        (semconv.GEN_AI_USAGE_OUTPUT_TOKENS, 1),
        (semconv.GEN_AI_RESPONSE_FINISH_REASONS, ("length",)),
    ]
