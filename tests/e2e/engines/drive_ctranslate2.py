"""Drives CTranslate2 with a tiny model, in an environment that has it: `drive_ctranslate2.py MODEL_DIRECTORY`."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import threading
import time
from typing import Any

from seen import request, run, scenario, spans

# isort: split
import ctranslate2
from ctranslate2.converters import TransformersConverter
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags
from transformers import AutoTokenizer

from promptpath.instrumentation import recorder, registry, wrapping
from promptpath.instrumentation.shims import state
from promptpath.instrumentation.shims.engine.ctranslate2 import CTranslate2Instrumentor
from promptpath.instrumentation.shims.engine.ctranslate2 import generator as shim

DIRECTORY = sys.argv[1]
CONVERTED = tempfile.mkdtemp() + "/tiny"
TransformersConverter(DIRECTORY).convert(CONVERTED)
tokenizer = AutoTokenizer.from_pretrained(DIRECTORY)
spans()


def tokens(text: str) -> list[str]:
    return list(tokenizer.convert_ids_to_tokens(tokenizer.encode(text)))


PROMPT, SHORT = tokens("what does a router do"), tokens("a gateway")
generator = ctranslate2.Generator(CONVERTED, device="cpu", intra_threads=1)


class Told:
    """A callback that writes down when it was called, and for what."""

    def __init__(self, stop_at: int = 0, fail_at: int = 0, pause_s: float = 0.0) -> None:
        self.at_ns: list[int] = []
        self.ids: list[int] = []
        self._stop_at = stop_at
        self._fail_at = fail_at
        self._pause_s = pause_s

    def __call__(self, step: Any) -> bool:
        time.sleep(self._pause_s)
        self.at_ns.append(time.monotonic_ns())
        self.ids.append(step.token_id)
        if len(self.ids) == self._fail_at:
            raise ArithmeticError("no more")
        return len(self.ids) == self._stop_at


def ask(*prompts: list[str], **options: Any) -> Any:
    """An answer of eight tokens, from the prompt alone."""
    given = {"max_length": 8, "end_token": [], "include_prompt_in_result": False} | options
    return generator.generate_batch(list(prompts) or [PROMPT], **given)


def stream(**options: Any) -> Any:
    return generator.generate_tokens(PROMPT, **({"max_length": 8, "end_token": []} | options))


def ids(results: Any) -> list[Any]:
    return [result.sequences_ids for result in results]


@scenario
def loads() -> Any:
    return ctranslate2.Generator(CONVERTED, device="cpu", intra_threads=1).model_is_loaded


@scenario
def whole() -> Any:
    start_ns = time.monotonic_ns()
    result = ask()
    return {"tokens": len(result[0].sequences_ids[0]), "start_ns": start_ns, "end_ns": time.monotonic_ns()}


@scenario
def with_a_callback() -> Any:
    told = Told(pause_s=0.003)
    result = ask(callback=told)
    return {"at_ns": told.at_ns, "same": told.ids == result[0].sequences_ids[0]}


@scenario
def streamed() -> Any:
    arrived = []
    for step in stream():
        arrived.append(time.monotonic_ns())
        assert step.token
    return {"arrived": arrived}


@scenario
def streamed_within_a_request() -> Any:
    span = request()
    with recorder.use(span):
        texts = [tokenizer.decode([step.token_id]) for step in stream(max_length=100)]
    span.end()
    return len(texts)


@scenario
def text_that_comes_late() -> Any:
    """The call is over before anybody makes text of its first token: who closes the request has the stages recorded."""
    span = request()
    notes = state.of(span)
    notes.closes = True
    with recorder.use(span):
        steps = list(stream())
        texts = [tokenizer.decode([step.token_id]) for step in steps]
    notes.close()
    span.end()
    return len(texts)


@scenario
def answered_before_it_is_over() -> Any:
    """Nobody waits for the rest of what is generated."""
    span = request()
    notes = state.of(span)
    notes.closes = True
    with recorder.use(span):
        (result,) = ask(asynchronous=True, max_length=200)
        notes.close()
        span.end()
    return len(result.result().sequences_ids[0])


@scenario
def streamed_to_asyncio() -> Any:
    async def serve() -> int:
        span = request()
        count = 0
        with recorder.use(span):
            async for _ in generator.async_generate_tokens(PROMPT, max_length=8, end_token=[]):
                count += 1
        span.end()
        return count

    return asyncio.run(serve())


@scenario
def asynchronous() -> Any:
    start_ns = time.monotonic_ns()
    (result,) = ask(asynchronous=True, max_length=200)
    handed_ns = time.monotonic_ns()
    while not result.done():
        time.sleep(0.001)
    done_ns = time.monotonic_ns()
    time.sleep(0.05)  # whoever asks late has not made it longer
    return {
        "tokens": len(result.result().sequences_ids[0]),
        "start_ns": start_ns,
        "handed_ns": handed_ns,
        "done_ns": done_ns,
    }


@scenario
def with_its_prompt() -> Any:
    """The prompt's own tokens are computed one by one, and come to the callback too."""
    told = Told()
    result = ask(include_prompt_in_result=True, max_length=14, callback=told)
    return {
        "called": len(told.ids),
        "at_ns": told.at_ns,
        "given": len(result[0].sequences_ids[0]),
        "prompt": len(PROMPT),
    }


@scenario
def never_past_its_prompt() -> Any:
    told = Told()
    ask(include_prompt_in_result=True, max_length=4, callback=told)
    return len(told.ids)


@scenario
def batch() -> Any:
    """Three prompts of two lengths; the shorter one's tokens come first."""
    told = Told()
    result = ask(PROMPT, SHORT, PROMPT, callback=told)
    return {"answers": [len(answer[0]) for answer in ids(result)], "called": len(told.ids)}


@scenario
def batch_with_prompts() -> Any:
    result = ask(PROMPT, SHORT, include_prompt_in_result=True, max_length=12)
    return {"answers": [len(answer[0]) for answer in ids(result)], "prompts": [len(PROMPT), len(SHORT)]}


@scenario
def in_small_batches() -> Any:
    ask(SHORT, PROMPT, PROMPT, max_batch_size=1)


@scenario
def several_answers() -> Any:
    ask(num_hypotheses=2, sampling_topk=10)


@scenario
def after_a_static_prompt() -> Any:
    ask(static_prompt=SHORT)


@scenario
def stopped() -> Any:
    """By a token that ends answers, which is called back for and not in the result."""
    first = ids(ask(max_length=1))[0][0][0]
    spans()
    return ids(ask(end_token=[first]))[0][0]


@scenario
def stopped_at_the_limit() -> Any:
    first = ids(ask(max_length=1))[0][0][0]
    spans()
    return ids(ask(end_token=[first], max_length=1, return_end_token=True))[0][0] == [first]


@scenario
def stopped_by_the_program() -> Any:
    return len(ids(ask(callback=Told(stop_at=3)))[0][0])


@scenario
def closed_early() -> Any:
    steps = stream(max_length=400)
    for _ in range(3):
        next(steps)
    steps.close()


@scenario
def beams() -> Any:
    return len(ids(ask(beam_size=3))[0][0])


@scenario
def asynchronous_beams() -> Any:
    results = ask(PROMPT, SHORT, beam_size=3, asynchronous=True, include_prompt_in_result=True, max_length=12)
    return [len(result.result().sequences_ids[0]) for result in results]


@scenario
def beams_within_a_request() -> Any:
    span = request()
    with recorder.use(span):
        ask(beam_size=3)
    span.end()


@scenario
def alternatives() -> Any:
    return len(ids(ask(return_alternatives=True, num_hypotheses=3))[0])


@scenario
def same_results() -> Any:
    def told(**options: Any) -> Any:
        seen = Told()
        return [ids(ask(callback=seen, **options)), seen.ids]

    calls = {
        "greedy": lambda: ids(ask()),
        "prompt": lambda: ids(ask(include_prompt_in_result=True)),
        "batch": lambda: ids(ask(PROMPT, SHORT)),
        "beams": lambda: ids(ask(beam_size=3, num_hypotheses=2)),
        "alternatives": lambda: ids(ask(return_alternatives=True, num_hypotheses=3)),
        "asynchronous": lambda: ids([one.result() for one in ask(PROMPT, SHORT, asynchronous=True)]),
        "streamed": lambda: [step.token_id for step in stream()],
        "callback": told,
        "stopped": lambda: ids(ask(callback=Told(stop_at=2))),
        "iterable": lambda: ids(generator.generate_iterable(iter([PROMPT, SHORT]), max_batch_size=1, max_length=9)),
    }
    ours = {name: call() for name, call in calls.items()}
    assert spans()
    CTranslate2Instrumentor().uninstrument()
    theirs = {name: call() for name, call in calls.items()}
    CTranslate2Instrumentor().instrument(skip_dep_check=True)
    assert spans() == []
    return {name: ours[name] == theirs[name] for name in calls}


def _raised(call: Any) -> str:
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return ""


@scenario
def wrong_arguments() -> Any:
    return _raised(lambda: generator.generate_batch("x" * 3, max_length="long"))


@scenario
def refused() -> Any:
    return _raised(lambda: ask(min_length=9, max_length=3))


@scenario
def a_callback_that_is_refused() -> Any:
    return _raised(lambda: ask(beam_size=2, callback=Told()))


@scenario
def a_callback_that_fails() -> Any:
    return _raised(lambda: ask(callback=Told(fail_at=3)))


@scenario
def a_callback_that_fails_asynchronously() -> Any:
    (result,) = ask(callback=Told(fail_at=3), asynchronous=True)
    return _raised(result.result)


@scenario
def refused_asynchronously() -> Any:
    """An error before any token."""
    (result,) = ask(min_length=9, max_length=3, asynchronous=True)
    return _raised(result.result)


@scenario
def waiting_for_a_worker() -> Any:
    """Three requests at once and one worker: they are served one after the other."""
    in_order = threading.Event()
    ends: dict[int, int] = {}

    def work(number: int) -> None:
        span = recorder.start(f"POST {number}", scope="t", stage="server", kind=trace.SpanKind.SERVER)
        with recorder.use(span):
            (result,) = ask(max_length=60, asynchronous=True)
            result.result()
        ends[number] = time.monotonic_ns()
        span.end()

    threads = [threading.Thread(target=work, args=(number,)) for number in (1, 2, 3)]
    for thread in threads:
        thread.start()
        in_order.wait(0.003)
    for thread in threads:
        thread.join()
    return ends


@scenario
def unsampled() -> Any:
    unwanted = SpanContext(1, 2, is_remote=True, trace_flags=TraceFlags(0))
    with trace.use_span(NonRecordingSpan(unwanted)):
        return len(list(stream()))


@scenario
def let_go() -> Any:
    """Results of asynchronous calls that nobody takes."""
    ask(beam_size=2, asynchronous=True)
    ask(asynchronous=True)
    while generator.num_queued_batches or not spans():
        time.sleep(0.01)
    time.sleep(0.2)
    ask()
    return {"pool": len(shim._known[generator].pool._jobs), "results": len(shim._results)}


@scenario
def taken_off() -> Any:
    classes = {"Generator": ("generate_batch", "__init__"), "AsyncGenerationResult": ("result",)}

    def patched() -> list[bool]:
        return [
            hasattr(getattr(ctranslate2, owner).__dict__[name], "_self_wrapper")
            for owner, names in classes.items()
            for name in names
        ]

    on = patched()
    CTranslate2Instrumentor().uninstrument()
    off = patched()
    ask()
    nothing = spans() == []
    CTranslate2Instrumentor().instrument(skip_dep_check=True)
    ask()  # by a generator that was made before
    return {"on": on, "off": off, "nothing": nothing}


@scenario
def without_a_hook() -> Any:
    CTranslate2Instrumentor().uninstrument()
    real = ctranslate2.AsyncGenerationResult.result
    del ctranslate2.AsyncGenerationResult.result
    CTranslate2Instrumentor().instrument(skip_dep_check=True)
    ctranslate2.AsyncGenerationResult.result = real
    try:
        (result,) = ask(asynchronous=True)
        count = len(result.result().sequences_ids[0])
    finally:
        CTranslate2Instrumentor().uninstrument()
        CTranslate2Instrumentor().instrument(skip_dep_check=True)
    return {"tokens": count, "skipped": wrapping.skipped()}


@scenario
def cost() -> Any:
    """What a token costs in Python [ns]: our callback, called as the generator calls it."""
    from promptpath.instrumentation.shims.engine.ctranslate2.generation import Generation
    from promptpath.instrumentation.shims.engine.ctranslate2.pool import Pool

    steps: list[Any] = []
    ask(callback=lambda step: bool(steps.append(step)))
    spans()
    call = Generation(time.monotonic_ns(), request(), [PROMPT], {}, frozenset(), Pool(1), owns=True)
    callback = call.callback(None, ends_here=False)
    step, times = steps[0], []
    for _ in range(5):
        start_ns = time.thread_time_ns()
        for _ in range(20_000):
            callback(step)
        times.append((time.thread_time_ns() - start_ns) / 20_000)
    return {"ns": min(times), "seen": len(call.sequences[0, 0]) == 100_000}


@scenario
def state_of_the_shim() -> Any:
    return registry.status()["promptpath_ctranslate2"].state


run()
