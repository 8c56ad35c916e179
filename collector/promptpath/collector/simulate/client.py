"""Where prompts come from: programs that make calls, agents that make several."""

from __future__ import annotations

from functools import partial
from typing import Final

from promptpath import semconv
from promptpath.collector.simulate.call import Answer, Caller, State, answer_attributes, call
from promptpath.collector.simulate.deliveries import one_by_one
from promptpath.collector.simulate.kernel import NEVER, Process
from promptpath.collector.simulate.ledger import Ledger
from promptpath.collector.simulate.prompt import Prompt, Workload
from promptpath.collector.simulate.relays import attempts, edge, gateway
from promptpath.collector.simulate.server import serve as engine
from promptpath.collector.simulate.spans import CLIENT, INTERNAL, Span, staged
from promptpath.collector.simulate.stack import Node
from promptpath.collector.simulate.world import World
from promptpath.semconv import Abort, Part, Stage, Status

_OPENAI: Final = "promptpath.openai"
_AGENT: Final = "promptpath.manual"
_ERRORS: Final = {
    400: "BadRequestError",
    401: "AuthenticationError",
    403: "PermissionDeniedError",
    429: "RateLimitError",
}
_TOOLS: Final = ("search", "calculator", "read_file", "sql")


def unseen(world: World, prompt: Prompt) -> Process[None]:
    """A prompt of a client that nobody watches: its root is the gateway's span."""
    prompt.ledger = Ledger(world.now)
    cancel = NEVER
    if prompt.fate.gives_up:
        cancel = world.now + world.times.draw("patience", world.now, prompt.model)
    answer = yield from gateway(world, prompt, world.pick(world.stack.gateways), b"", cancel)
    prompt.ended_ns = answer.end_ns
    prompt.status = _status(prompt, answer)


def ask(world: World, prompt: Prompt, node: Node) -> Process[None]:
    """A prompt, from before it is sent to the last byte read."""
    begin = world.now
    prompt.ledger = Ledger(begin)
    prompt.begun_ns, prompt.root = begin, node
    span = _open(world, prompt, node, begin)
    prompt.span_id = span.id
    prompt.pass_by(node)
    cancel = limit = NEVER
    if prompt.fate.gives_up:
        patience = begin + world.times.draw("patience", begin, prompt.model)
        cancel, limit = (patience, NEVER) if prompt.fate.gives_up == "client" else (NEVER, patience)
    at = begin + world.times.draw("prepare", begin, prompt.model)
    prompt.ledger.spend(Part.NETWORK, at)
    yield at
    caller = partial(Caller, span, "client", cancel, limit_ns=limit, says=False)
    if prompt.topology == "direct":
        answer = yield from attempts(world, prompt, caller, engine)
    else:
        answer = yield from _through_gateway(world, prompt, caller)
    _close(world, prompt, span, answer, min(cancel, limit))


def _through_gateway(world: World, prompt: Prompt, caller: partial[Caller]) -> Process[Answer]:
    """Call the edge or a gateway; once more if that says to come back later, as clients do."""
    mark = prompt.ledger.attempt()
    attempt = 1
    while True:
        if prompt.topology == "edge":
            answer = yield from call(world, prompt, caller(attempt=attempt), world.pick(world.stack.edges), edge)
        else:
            node = world.pick(world.stack.gateways)
            answer = yield from call(world, prompt, caller(attempt=attempt), node, gateway)
        if answer.http != 429 or answer.state is not State.REFUSED or attempt > 1 or world.rng.random() < 0.5:
            return answer
        again = max(answer.end_ns + world.times.draw("client_back_off", world.now, prompt.model), world.now)
        yield again
        prompt.ledger.lose(mark, answer.end_ns, again)
        attempt += 1


def _open(world: World, prompt: Prompt, node: Node, begin: int) -> Span:
    name = f"{prompt.operation} {prompt.model}"
    span = Span(node, begin, _OPENAI, name, CLIENT, prompt.trace, world.span_id(), prompt.parent, begin)
    prompt.spans.append(span)
    span.attributes += (
        (semconv.GEN_AI_OPERATION_NAME, prompt.operation),
        (semconv.GEN_AI_PROVIDER_NAME, "openai"),
        (semconv.GEN_AI_REQUEST_MODEL, prompt.request_model),
        staged(Stage.CLIENT),
    )
    if prompt.chat:
        span.note(semconv.GEN_AI_REQUEST_STREAM, prompt.streaming)
        span.note(semconv.GEN_AI_REQUEST_MAX_TOKENS, 512)
    if len(prompt.outputs) > 1:
        span.note(semconv.GEN_AI_REQUEST_CHOICE_COUNT, len(prompt.outputs))
    return span


def _close(world: World, prompt: Prompt, span: Span, answer: Answer, gives_up: int) -> None:
    """The program has the answer, or what there is of it."""
    delay = world.times.draw("hand_out", world.now, prompt.model)
    state, found, end = answer.state, answer.found, answer.end_ns + delay
    if found is not None and len(found):
        if not prompt.raw:
            found = one_by_one(found, 4_000)
        found = world.relay.pass_on(found, delay, 4_000)
        end = max(end, found.last_ns + 5_000)
    if end > gives_up and state is not State.TIMED_OUT:
        state = State.GIVEN_UP if prompt.fate.gives_up == "client" else State.TIMED_OUT
    if state is State.GIVEN_UP or (state is State.TIMED_OUT and gives_up < NEVER):
        end = max(gives_up, span.start_ns)
        found = found.until(gives_up) if found is not None else None
    if found is not None and len(found):
        prompt.ledger.spend(Part.NETWORK, found.first_ns)
        prompt.ledger.seen("client")
        prompt.saw("client", found)
        span.found = found
    span.end_ns = prompt.ended_ns = end
    if state is State.COMPLETE:
        span.attributes += answer_attributes(prompt)
    elif state is State.REFUSED:
        span.error = _ERRORS.get(answer.http, "InternalServerError")
        span.note(semconv.HTTP_RESPONSE_STATUS_CODE, answer.http)
    elif state is State.NONE:
        span.error = "APIConnectionError"
    elif state is State.TIMED_OUT:
        span.error = "APITimeoutError"
        span.note(semconv.ABORT, Abort.TIMEOUT.value)
    elif state is State.GIVEN_UP:
        span.note(semconv.ABORT, Abort.CLIENT.value)
    elif state is State.BROKEN:
        span.error = "RemoteProtocolError"
    elif state is State.ERROR_FRAME:
        span.error = "APIError"
    answer.state = state
    prompt.status = _status(prompt, answer)


def _status(prompt: Prompt, answer: Answer) -> Status:
    """How the prompt ended, as whoever is at its root knows it."""
    state = answer.state
    if state is State.COMPLETE:
        return Status.BLOCKED if prompt.finish == "content_filter" else Status.OK
    if state is State.REFUSED:
        return {
            400: Status.REJECTED,
            401: Status.REJECTED,
            403: Status.REJECTED,
            429: Status.RATE_LIMITED,
            504: Status.TIMEOUT,
        }.get(answer.http, Status.ERROR)
    return {
        State.CUT: Status.SERVER_ABORT,
        State.BROKEN: Status.TIMEOUT,
        State.TIMED_OUT: Status.TIMEOUT,
        State.GIVEN_UP: Status.CLIENT_ABORT,
    }.get(state, Status.ERROR)


def agent(world: World, workload: Workload, first: int, count: int) -> Process[tuple[list[Prompt], Span, list[Span]]]:
    """An agent's run of `count` calls, numbered from `first`: rounds of calls, one or several at once, and tools.

    Returns the prompts, the run's own span and those of its tools.
    """
    node = world.pick(world.stack.agents)
    begin = world.now
    run = Span(node, begin, _AGENT, "invoke_agent researcher", INTERNAL, world.trace_id(), world.span_id(), b"", begin)
    conversation = f"conv-{first:09d}"
    run.attributes += (
        (semconv.GEN_AI_OPERATION_NAME, "invoke_agent"),
        (semconv.GEN_AI_AGENT_NAME, "researcher"),
        (semconv.GEN_AI_CONVERSATION_ID, conversation),
    )
    prompts: list[Prompt] = []
    tools: list[Span] = []
    while len(prompts) < count:
        at_once = 1 if world.rng.random() < 0.7 else world.rng.randint(2, 3)
        started = []
        for _ in range(min(at_once, count - len(prompts))):
            prompt = workload.draw(first + len(prompts), "agent", run.trace, run.id)
            prompt.workflow_id, prompt.conversation_id, prompt.agent_name = run.id, conversation, "researcher"
            prompts.append(prompt)
            started.append((prompt, world.kernel.start(ask(world, prompt, node))))
        for prompt, over in started:
            yield over
            yield prompt.ended_ns
        if len(prompts) < count and world.rng.random() < 0.7:
            yield from _tool(world, node, run, tools)
        yield world.now + world.times.draw("think", world.now, "")
    run.end_ns = world.now
    return prompts, run, tools


def _tool(world: World, node: Node, run: Span, tools: list[Span]) -> Process[None]:
    """The agent uses a tool."""
    name = world.rng.choice(_TOOLS)
    begin = world.now
    end = begin + world.times.draw("tool", begin, "")
    span = Span(
        node, run.since_ns, _AGENT, f"execute_tool {name}", INTERNAL, run.trace, world.span_id(), run.id, begin, end
    )
    span.attributes += ((semconv.GEN_AI_OPERATION_NAME, "execute_tool"), ("gen_ai.tool.name", name))
    tools.append(span)
    yield end
