"""An inference server: reads, tokenizes, hands to its engine, and streams what that makes."""

from __future__ import annotations

from typing import Final

import numpy as np

from promptpath import semconv
from promptpath.collector.simulate.call import Answer, State, answer_attributes, prefill_attributes
from promptpath.collector.simulate.deliveries import Deliveries, stalled
from promptpath.collector.simulate.engine import Sequence
from promptpath.collector.simulate.hop import ASGI, describe, open_span, refuse
from promptpath.collector.simulate.kernel import NEVER, Process, Signal
from promptpath.collector.simulate.prompt import Prompt
from promptpath.collector.simulate.spans import Span
from promptpath.collector.simulate.stack import Node
from promptpath.collector.simulate.world import World
from promptpath.semconv import Abort, Part, Stage

_TOKENIZERS: Final = "promptpath.tokenizers"
_ENGINE: Final = "promptpath.engine"


def serve(
    world: World, prompt: Prompt, node: Node, parent: bytes, cancel_ns: int, *, role: str = "whole", how: str = ""
) -> Process[Answer]:
    """Serve a prompt. role: `whole`, `prefill` or `decode`; how: it fails, as `unavailable` or `slow`."""
    span = open_span(world, prompt, node, parent, Stage.SERVER)
    prompt.reached = prompt.model
    if how == "unavailable" or world.engines[node.number].full:
        yield world.now
        return refuse(world, prompt, span, 503, world.now + world.times.draw("between", world.now, prompt.model))
    at = _read(world, prompt, span, role)
    yield at
    if prompt.fate.refusal == "too_long":
        return refuse(world, prompt, span, 400, at + world.times.draw("between", at, prompt.model))
    if how == "slow":
        return (yield from _hang(world, prompt, span, cancel_ns))
    if world.now >= cancel_ns:
        span.note(semconv.ABORT, Abort.CLIENT.value)
        span.end_ns = world.now
        return Answer(State.GIVEN_UP, 0, 0, world.now)
    crash = NEVER
    breaks = prompt.fate.breaks
    if breaks and role != "prefill" and prompt.chat:
        crash = world.now + world.times.draw("crash", world.now, prompt.model)
    sequence = _sequence(world, prompt, role)
    # An answer's headers leave when the request is accepted, or with its first token.
    headers = (
        world.now + 40_000 if prompt.streaming and role != "prefill" and (breaks or world.rng.random() < 0.6) else 0
    )
    yield world.engines[node.number].submit(sequence, min(cancel_ns, crash))
    for other in sequence.siblings:
        yield other.over
    return _answer(world, prompt, span, sequence, cancel_ns, crash, headers, role)


def _read(world: World, prompt: Prompt, span: Span, role: str) -> int:
    """From the request's arrival to its being queued; returns when that is."""
    times, model, ledger = world.times, prompt.model, prompt.ledger
    begin = world.now
    parsed = begin + times.draw("parse", begin, model)
    world.stage(prompt, span, ASGI, "parse", Stage.PARSE, begin, parsed)
    ledger.spend(Part.TOKENIZE, parsed)
    at = parsed
    if role != "decode":
        at += times.draw("between", at, model)
        ledger.spend(Part.UNATTRIBUTED, at)
        done = at + times.draw("tokenize", at, model)
        done += times.draw("tokenize_1k", at, model, prompt.input_tokens / 1000)
        world.stage(prompt, span, _TOKENIZERS, "tokenize", Stage.TOKENIZE, at, done)
        ledger.spend(Part.TOKENIZE, done)
        at = done
    at += times.draw("between", at, model)
    ledger.spend(Part.UNATTRIBUTED, at)
    return at


def _hang(world: World, prompt: Prompt, span: Span, cancel_ns: int) -> Process[Answer]:
    """The server does not get on, until whoever asked goes away."""
    begin = world.now
    yield max(cancel_ns, begin)
    if world.rng.random() < 0.5:
        queue = world.stage(prompt, span, _ENGINE, "queue", Stage.QUEUE, begin, world.now)
        queue.note(semconv.ABORT, Abort.CLIENT.value)
    span.note(semconv.ABORT, Abort.CLIENT.value)
    span.end_ns = world.now
    return Answer(State.GIVEN_UP, 0, 0, world.now)


def _sequence(world: World, prompt: Prompt, role: str) -> Sequence:
    outputs = prompt.outputs if role != "prefill" else ()
    sequence = Sequence(
        model=prompt.model,
        prompt_tokens=prompt.input_tokens,
        target=outputs[0] if outputs else 0,
        over=Signal(),
        prefix=prompt.prefix if role != "decode" else -1,
        prefix_tokens=prompt.prefix_tokens,
    )
    if role == "decode":
        begin, thousands = world.now, prompt.input_tokens / 1000
        sequence.transfer_ns = world.times.draw("kv_set_up", begin, prompt.model)
        sequence.transfer_ns += world.times.draw("kv_transfer_1k", begin, prompt.model, thousands)
    for target in outputs[1:]:
        sequence.siblings.append(Sequence(prompt.model, prompt.input_tokens, target, Signal()))
    return sequence


def _answer(
    world: World,
    prompt: Prompt,
    span: Span,
    sequence: Sequence,
    cancel_ns: int,
    crash_ns: int,
    headers_ns: int,
    role: str,
) -> Answer:
    """What becomes of a sequence that is over: its stages, the stream, the end of the server's span."""
    times, model, ledger = world.times, prompt.model, prompt.ledger
    complete = sequence.complete and all(other.complete for other in sequence.siblings)
    crashed = not complete and crash_ns < cancel_ns
    if role != "decode":
        prompt.engine = span.node
    if sequence.first_ns and role == "prefill":
        prompt.prefilled_ns = sequence.first_ns - span.start_ns
    elif sequence.first_ns:
        prompt.engine_ns = prompt.prefilled_ns if role == "decode" else sequence.first_ns - span.start_ns
    ended = max([sequence.ended_ns, *(other.ended_ns for other in sequence.siblings)])
    abort = "" if complete else (Abort.SERVER if crashed else Abort.CLIENT).value
    error = ""
    if crashed and (prompt.fate.breaks == "error" or not headers_ns):
        abort, error = "", "internal_error"
    _stages(world, prompt, span, sequence, ended, abort, error, role)
    made = Deliveries(np.array(sequence.times, dtype=np.int64), np.array(sequence.counts, dtype=np.int64))
    if role != "prefill" and sequence.target:
        prompt.generated = sequence.made + sum(other.made for other in sequence.siblings)
        prompt.engine_seen = made if len(made) else None
    found: Deliveries | None = None
    end = ended + times.draw("between", ended, model)
    if role == "prefill" and sequence.first_ns:
        ledger.spend(Part.UNATTRIBUTED, end)
    if prompt.streaming and role != "prefill" and sequence.first_ns:
        ledger.seen("engine")
        found, last = _stream(world, prompt, span, sequence, made, cancel_ns)
        end = max(end, last + 15_000)
    elif complete and sequence.target:
        end += times.draw("detokenize", ended, model)
        first = sequence.first_ns
        world.stage(prompt, span, _ENGINE, "detokenize", Stage.DETOKENIZE, first, first + 300_000)
    if crashed:
        return _crashed(world, prompt, span, found, end, headers_ns)
    if end > cancel_ns or not complete:
        span.note(semconv.ABORT, Abort.CLIENT.value)
        _note_made(prompt, span, role)
        span.end_ns = max(min(end, cancel_ns), span.start_ns)
        if headers_ns and headers_ns <= cancel_ns:
            describe(prompt, span, 200, headers_ns)
        elif found is not None and len(found):
            headers_ns = found.first_ns
            describe(prompt, span, 200, headers_ns)
        return Answer(State.GIVEN_UP, 200 if headers_ns else 0, headers_ns, span.end_ns, found)
    headers_ns = headers_ns or (found.first_ns if found is not None and len(found) else end)
    describe(prompt, span, 200, headers_ns)
    span.attributes += prefill_attributes(prompt) if role == "prefill" else answer_attributes(prompt)
    span.end_ns = end
    return Answer(State.COMPLETE, 200, headers_ns, end, found)


def _crashed(world: World, prompt: Prompt, span: Span, found: Deliveries | None, end: int, headers_ns: int) -> Answer:
    """The engine ended the answer early."""
    if found is not None and len(found):
        headers_ns = headers_ns or found.first_ns
    _note_made(prompt, span, "whole")
    if not headers_ns:
        return refuse(world, prompt, span, 500, end)
    describe(prompt, span, 200, headers_ns)
    span.end_ns = end
    if prompt.fate.breaks == "error":
        span.error = "internal_error"
        return Answer(State.ERROR_FRAME, 200, headers_ns, end, found)
    span.note(semconv.ABORT, Abort.SERVER.value)
    return Answer(State.CUT, 200, headers_ns, end, found)


def _note_made(prompt: Prompt, span: Span, role: str) -> None:
    """The engine shim says what was made where the answer does not."""
    if role != "prefill":
        prompt.counted = True
        span.note(semconv.GEN_AI_USAGE_INPUT_TOKENS, prompt.input_tokens)
        if prompt.generated:
            span.note(semconv.GEN_AI_USAGE_OUTPUT_TOKENS, prompt.generated)


def _stages(
    world: World, prompt: Prompt, span: Span, sequence: Sequence, ended: int, abort: str, error: str, role: str
) -> None:
    """The engine's stages, and their place in the ledger."""
    ledger = prompt.ledger

    def stage(kind: Stage, begin: int, end: int, is_last: bool) -> Span:
        made = world.stage(prompt, span, _ENGINE, kind.value, kind, begin, max(begin, end))
        if is_last and abort:
            made.note(semconv.ABORT, abort)
        if is_last:
            made.error = error
        return made

    scheduled = sequence.scheduled_ns
    queue = stage(Stage.QUEUE, sequence.queued_ns, scheduled or ended, not scheduled)
    queue.note(semconv.QUEUE_POSITION, sequence.ahead)
    if not scheduled:
        return
    ledger.spend(Part.QUEUE, scheduled)
    kind = Stage.KV_TRANSFER if role == "decode" else Stage.PREFILL
    prefill = stage(kind, scheduled, sequence.first_ns or ended, not sequence.first_ns)
    if role != "decode":
        prefill.note(semconv.PREFILL_CHUNKS, tuple(sequence.chunks))
        if sequence.cached:
            prefill.note(semconv.PREFIX_CACHE_HIT_TOKENS, sequence.cached)
            prompt.cached_tokens = sequence.cached
    if not sequence.first_ns:
        return
    ledger.spend(Part.PREFILL, sequence.first_ns)
    if not sequence.target:
        return
    decode = stage(Stage.DECODE, sequence.first_ns, sequence.last_ns, True)
    preemptions = sequence.preemptions + sum(other.preemptions for other in sequence.siblings)
    decode.attributes += ((semconv.BATCH_SIZE, sequence.batch), (semconv.PREEMPTIONS, preemptions))
    prompt.preemptions = (prompt.preemptions or 0) + preemptions
    if sequence.preempted_us:
        decode.note(semconv.PREEMPTED_US, tuple(sequence.preempted_us))
    if sequence.proposed:
        decode.attributes += ((semconv.SPEC_PROPOSED, sequence.proposed), (semconv.SPEC_ACCEPTED, sequence.accepted))
    decode.found = Deliveries(np.array(sequence.times, dtype=np.int64), np.array(sequence.counts, dtype=np.int64))


def _stream(
    world: World, prompt: Prompt, span: Span, sequence: Sequence, made: Deliveries, cancel_ns: int
) -> tuple[Deliveries | None, int]:
    """Tokens as they leave the server's socket, until whoever asked goes away; and when the last would have left."""
    times, model, ledger = world.times, prompt.model, prompt.ledger
    first = sequence.first_ns
    ready = first + times.draw("detokenize", first, model)
    sent = ready + times.draw("stream", ready, model)
    world.stage(prompt, span, _ENGINE, "detokenize", Stage.DETOKENIZE, first, ready).note(
        semconv.DETOKENIZE_TOTAL_US, 90 * len(made)
    )
    found = world.relay.pass_on(made, 250_000, 60_000, sent - first)
    if prompt.fate.stall == 0:
        found = stalled(found, world.rng.random(), int(world.rng.uniform(80e6, 400e6)))
    last = found.last_ns
    found = found.until(cancel_ns)
    if not len(found):
        return None, last
    world.stage(prompt, span, ASGI, "stream", Stage.STREAM, ready, sent).note(semconv.STREAM_TOTAL_US, 25 * len(found))
    ledger.spend(Part.POST, ready)
    ledger.spend(Part.STREAM, sent)
    span.found = found
    prompt.saw("engine", found)
    return found, last
