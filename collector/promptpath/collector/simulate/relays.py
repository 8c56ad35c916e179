"""Hops between client and engine: an edge proxy, a gateway, a router."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np

from promptpath import semconv
from promptpath.collector.simulate.call import Answer, Caller, Serve, State, answer_attributes, call
from promptpath.collector.simulate.deliveries import Deliveries
from promptpath.collector.simulate.hop import ASGI, FASTAPI, describe, open_span, refuse, relay
from promptpath.collector.simulate.kernel import NEVER, Process
from promptpath.collector.simulate.prompt import Prompt
from promptpath.collector.simulate.server import serve as engine
from promptpath.collector.simulate.spans import Span
from promptpath.collector.simulate.stack import CHAT_MODELS, Node
from promptpath.collector.simulate.world import World
from promptpath.semconv import Abort, Part, Stage

_ATTEMPTS: Final = 3
_GUARD: Final = "promptpath.guardrail"
_REFUSALS: Final = {"authenticate": 401, "rate_limit": 429, "prompt_policy": 403}


def edge(world: World, prompt: Prompt, node: Node, parent: bytes, cancel_ns: int) -> Process[Answer]:
    """An edge proxy: it sees headers and bytes, no tokens."""
    times, model = world.times, prompt.model
    span = open_span(world, prompt, node, parent, Stage.EDGE)
    begin = world.now + times.draw("edge", world.now, model)
    checked = begin + times.draw("waf", begin, model)
    world.stage(prompt, span, ASGI, "waf", Stage.EDGE, begin, checked)
    prompt.ledger.spend(Part.GATEWAY, checked)
    yield checked
    caller = Caller(span, "gateway", cancel_ns, NEVER, sees=False, says=False)
    answer = yield from call(world, prompt, caller, world.pick(world.stack.gateways), gateway)
    # Without deliveries of its own the proxy's call counts until the token is with the client: its way back is network.
    return relay(world, prompt, span, answer, cancel_ns, source="", part=Part.NETWORK, step="relay", sees=False)


def gateway(world: World, prompt: Prompt, node: Node, parent: bytes, cancel_ns: int) -> Process[Answer]:
    """A gateway: checks who asks and what, then passes the prompt on to a router, or itself to an engine."""
    times, model, fate = world.times, prompt.model, prompt.fate
    span = open_span(world, prompt, node, parent, Stage.GATEWAY)
    if prompt.root is None:
        prompt.root, prompt.span_id, prompt.begun_ns = node, span.id, world.now
    at = world.now + times.draw("read", world.now, model)
    for name, http in _REFUSALS.items():
        done = at + times.draw(name, at, model)
        check = world.stage(prompt, span, FASTAPI, name, Stage.GATEWAY, at, done)
        at = done + 5_000
        if fate.refusal == name:
            fate.refusal = ""
            check.error = "HTTPException"
            prompt.ledger.spend(Part.GATEWAY, at)
            yield at
            return refuse(world, prompt, span, http, at + times.draw("refuse", at, model))
    at += times.draw("gateway", at, model)
    prompt.ledger.spend(Part.GATEWAY, at)
    if fate.guard == "before" or fate.refusal == "guardrail":
        done = at + times.draw("safety", at, model)
        world.stage(prompt, span, _GUARD, "input_guardrail", Stage.SAFETY, at, done)
        prompt.ledger.spend(Part.POST, done)
        at = done
    yield at
    if world.now >= cancel_ns:
        return _gone(world, span)
    if fate.refusal == "guardrail":
        return _blocked(world, prompt, span)
    limit = NEVER
    if fate.gateway_timeout:
        limit = world.now + times.draw("patience", world.now, model)
    guarded_from = world.now
    guard_ends = 0
    if fate.guard == "beside" and not fate.failures:
        step = "safety" if world.rng.random() < 0.5 else "long_safety"
        guard_ends = guarded_from + times.draw(step, guarded_from, model)
    caller = partial(Caller, span, "gateway", cancel_ns)
    if prompt.topology == "edge":
        answer = yield from attempts(world, prompt, partial(caller, limit_ns=limit), engine)
    else:
        router_node = world.pick(world.stack.routers)
        answer = yield from call(world, prompt, caller(limit_ns=limit), router_node, router)
    release = _guard(world, prompt, span, answer, guarded_from, guard_ends, cancel_ns)
    return relay(
        world, prompt, span, answer, cancel_ns, source="gateway", part=Part.GATEWAY, step="relay", release_ns=release
    )


def _guard(world: World, prompt: Prompt, span: Span, answer: Answer, from_ns: int, ends_ns: int, cancel_ns: int) -> int:
    """Record a safety check beside or behind the call; returns when it lets tokens pass, 0 if it holds nothing back."""
    found = answer.found
    fate = prompt.fate
    goes_on = ends_ns
    if ends_ns:
        ends_ns = max(min(ends_ns, cancel_ns), from_ns)
        world.stage(prompt, span, _GUARD, "input_guardrail", Stage.SAFETY, from_ns, ends_ns)
    elif fate.guard == "behind" and found is not None and len(found):
        from_ns = found.first_ns
        goes_on = from_ns + world.times.draw("safety", from_ns, prompt.model)
        ends_ns = max(min(goes_on, cancel_ns), from_ns)
        world.stage(prompt, span, _GUARD, "output_guardrail", Stage.SAFETY, from_ns, ends_ns)
    else:
        return 0
    if found is None or not len(found) or ends_ns <= found.first_ns:
        return 0
    if goes_on <= cancel_ns:
        prompt.ledger.spend(Part.POST, ends_ns)
    if fate.guard == "beside":
        # Of the check and the call, which lie side by side, the one that ends last owns the time of neither's own.
        for entry in answer.own:
            entry[0] = Part.POST.value
    return goes_on


def _gone(world: World, span: Span) -> Answer:
    """Whoever asked has gone before the hop had anything to give."""
    span.note(semconv.ABORT, Abort.CLIENT.value)
    span.end_ns = world.now
    return Answer(State.GIVEN_UP, 0, 0, world.now)


def _blocked(world: World, prompt: Prompt, span: Span) -> Answer:
    """A guardrail has refused the prompt: the gateway answers with a sentence of its own, in one piece."""
    at = world.now + world.times.draw("refuse", world.now, prompt.model)
    prompt.outputs, prompt.finish = (14,) if prompt.chat else (), "content_filter"
    describe(prompt, span, 200, at)
    span.end_ns = at + 30_000
    answer = Answer(State.COMPLETE, 200, at, span.end_ns)
    if prompt.streaming:
        found = Deliveries(np.array([at], dtype=np.int64), np.array([14], dtype=np.int64))
        answer.found = span.found = found
        prompt.ledger.spend(Part.GATEWAY, at)
        prompt.ledger.seen("gateway")
        prompt.saw("gateway", found)
    span.attributes += answer_attributes(prompt)
    return answer


def router(world: World, prompt: Prompt, node: Node, parent: bytes, cancel_ns: int) -> Process[Answer]:
    """A router: chooses a deployment, and another when that fails."""
    times, model = world.times, prompt.model
    span = open_span(world, prompt, node, parent, Stage.ROUTER)
    at = world.now + times.draw("router", world.now, model)
    done = at + times.draw("route", at, model)
    world.stage(prompt, span, FASTAPI, "choose_deployment", Stage.ROUTER, at, done)
    prompt.ledger.spend(Part.ROUTER, done)
    yield done
    if world.now >= cancel_ns:
        return _gone(world, span)
    caller = partial(Caller, span, "router", cancel_ns, limit_ns=NEVER)
    if prompt.topology == "disagg":
        answer = yield from _disaggregated(world, prompt, caller, cancel_ns)
    else:
        answer = yield from attempts(world, prompt, caller, engine)
    return relay(world, prompt, span, answer, cancel_ns, source="router", part=Part.ROUTER, step="router_relay")


def attempts(world: World, prompt: Prompt, caller: partial[Caller], serve: Serve, pool: str = "") -> Process[Answer]:
    """Call deployments until one answers. What failed before its first token, and the wait after it, is lost.

    caller: makes the caller of each attempt. pool: whom to call, if it is not the model's own.
    """
    failures, prompt.fate.failures = prompt.fate.failures, ()
    answer = Answer(State.NONE, 0, 0, world.now)
    for attempt in range(1, _ATTEMPTS + 1):
        how = failures[attempt - 1] if attempt <= len(failures) else ""
        made = caller(attempt=attempt, refused=how == "refused", continues=pool == "prefill")
        if how == "slow":
            made = replace(made, limit_ns=min(made.limit_ns, world.now + int(world.rng.uniform(150e6, 900e6))))
        if attempt > 1 and not pool and prompt.chat and made.source != "client" and world.rng.random() < 0.3:
            # A fallback to the other model.
            prompt.model = CHAT_MODELS[CHAT_MODELS.index(prompt.model) - 1]
        node = world.least_loaded(pool or prompt.model)
        mark = prompt.ledger.attempt()
        prompt.calls += 1
        answer = yield from call(world, prompt, made, node, partial(serve, how=how) if how else serve)
        if not how or attempt == _ATTEMPTS or answer.state is State.GIVEN_UP:
            break
        # The next attempt is made when the failed one is over everywhere.
        again = max(answer.end_ns + world.times.draw("back_off", world.now, prompt.model), world.now)
        if again >= min(made.cancel_ns, caller().limit_ns):
            answer.state, answer.end_ns = State.GIVEN_UP, made.cancel_ns
            break
        yield again
        prompt.ledger.lose(mark, answer.end_ns, again)
        prompt.reached = ""
    return answer


def _disaggregated(world: World, prompt: Prompt, caller: partial[Caller], cancel_ns: int) -> Process[Answer]:
    """A prefill worker computes the cache and the first token, a decode worker takes both over."""
    answer = yield from attempts(world, prompt, caller, partial(engine, role="prefill"), "prefill")
    if answer.state is not State.COMPLETE:
        return answer
    at = answer.end_ns + world.times.draw("router", world.now, prompt.model)
    prompt.ledger.spend(Part.ROUTER, at)
    yield at
    if world.now >= cancel_ns:
        return Answer(State.GIVEN_UP, 0, 0, world.now)
    node = world.least_loaded("decode")
    return (yield from call(world, prompt, caller(attempt=prompt.calls + 1), node, partial(engine, role="decode")))
