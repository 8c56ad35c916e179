"""Drives transformers with a tiny model, in an environment that has it: `drive_transformers.py MODEL_DIRECTORY`."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from typing import Any

from seen import request, run, scenario, spans

# isort: split
import torch
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, TraceFlags
from transformers import (
    AsyncTextIteratorStreamer,
    AutoModelForCausalLM,
    AutoTokenizer,
    LogitsProcessor,
    LogitsProcessorList,
    T5Config,
    T5ForConditionalGeneration,
    TextIteratorStreamer,
    TextStreamer,
)
from transformers.generation.utils import GenerationMixin

from promptpath.instrumentation import recorder, registry, safety, wrapping
from promptpath.instrumentation.shims.engine.transformers import TransformersInstrumentor

torch.set_num_threads(1)
DIRECTORY = sys.argv[1]
TEXT = "what does a router do"

tokenizer = AutoTokenizer.from_pretrained(DIRECTORY)
tokenizer.padding_side = "left"
model = AutoModelForCausalLM.from_pretrained(DIRECTORY)
assistant = AutoModelForCausalLM.from_pretrained(DIRECTORY)
# A random model's most likely token may be the end: tests say themselves when that comes.
for one in (model, assistant):
    one.generation_config.eos_token_id = None
    one.generation_config.pad_token_id = 1
model.generate(**tokenizer(TEXT, return_tensors="pt"), max_new_tokens=4)
spans()


class Steps(LogitsProcessor):
    """Writes down when each step has its logits, just before its token is chosen; and takes its time. ends: at which
    step a row gets `token`."""

    def __init__(
        self, pause_s: float = 0.0, fail_at: int = 0, ends: dict[int, int] | None = None, token: int = 1
    ) -> None:
        self.at_ns: list[int] = []
        self._pause_s = pause_s
        self._fail_at = fail_at
        self._ends = ends or {}
        self._token = token

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        time.sleep(self._pause_s)
        self.at_ns.append(time.monotonic_ns())
        if len(self.at_ns) == self._fail_at:
            raise ArithmeticError("no logits today")
        for row, step in self._ends.items():
            if len(self.at_ns) == step:
                scores[row, self._token] = 1e9
        return scores


def ask(*texts: str, **more: Any) -> dict[str, Any]:
    """Arguments of `generate`."""
    prompts = tokenizer(list(texts or (TEXT,)), return_tensors="pt", padding=True)
    prompts.pop("token_type_ids", None)
    return {**prompts, "max_new_tokens": 8, "do_sample": False} | more


def watched(**options: Any) -> tuple[Steps, Any]:
    steps = Steps(**options)
    return steps, LogitsProcessorList([steps])


def same_without(call: Any) -> bool:
    """Whether a call gives the same without the shim. What it did with it has been recorded before."""
    ours = call()
    found = spans()
    TransformersInstrumentor().uninstrument()
    theirs = call()
    TransformersInstrumentor().instrument(skip_dep_check=True)
    assert spans() == []
    assert found
    return bool(torch.equal(getattr(ours, "sequences", ours), getattr(theirs, "sequences", theirs)))


@scenario
def greedy() -> Any:
    steps, processors = watched(pause_s=0.005)
    start_ns = time.monotonic_ns()
    result = model.generate(**ask(logits_processor=processors))
    end_ns = time.monotonic_ns()
    return {"at_ns": steps.at_ns, "start_ns": start_ns, "end_ns": end_ns, "shape": list(result.shape)}


@scenario
def same_results() -> Any:
    def sampled() -> Any:
        torch.manual_seed(3)
        return model.generate(**ask(do_sample=True, temperature=0.7, top_p=0.9))

    def streamed() -> Any:
        return model.generate(**ask(streamer=TextIteratorStreamer(tokenizer)))

    return {
        "greedy": same_without(lambda: model.generate(**ask())),
        "sampled": same_without(sampled),
        "beams": same_without(lambda: model.generate(**ask(num_beams=3))),
        "batch": same_without(lambda: model.generate(**ask(TEXT, "a gateway"))),
        "assisted": same_without(lambda: model.generate(**ask(assistant_model=assistant))),
        "streamed": same_without(streamed),
        "dict": same_without(lambda: model.generate(**ask(return_dict_in_generate=True, output_scores=True))),
    }


@scenario
def sampling() -> Any:
    model.generate(**ask(do_sample=True, temperature=0.7, top_p=0.9, num_return_sequences=2))


@scenario
def beams() -> Any:
    model.generate(**ask(num_beams=3))


@scenario
def batch() -> Any:
    """Two prompts of different lengths; the first one's answer ends early."""
    _, processors = watched(ends={0: 3})
    given = ask(TEXT, "a gateway", logits_processor=processors, eos_token_id=1, max_new_tokens=6)
    model.generate(**given)
    return {"input": int(given["attention_mask"].sum()), "filled": given["input_ids"].numel()}


@scenario
def stopped() -> Any:
    _, processors = watched(ends={0: 5})
    model.generate(**ask(logits_processor=processors, eos_token_id=1))


@scenario
def stopped_by_a_string() -> Any:
    # An ordinary token, whatever the random model likes best.
    token = next(token for token in tokenizer(TEXT)["input_ids"] if token not in tokenizer.all_special_ids)
    _, processors = watched(ends={0: 4}, token=token)
    word = tokenizer.decode([token]).strip()
    result = model.generate(**ask(stop_strings=[word], tokenizer=tokenizer, logits_processor=processors))
    return {"tokens": int(result.shape[1] - ask()["input_ids"].shape[1])}


@scenario
def streamed_to_a_thread() -> Any:
    """As servers do it: the request's thread reads what another one generates, which knows nothing of the request."""
    span = request()
    with recorder.use(span):
        streamer = TextIteratorStreamer(tokenizer, skip_prompt=True)
        steps, processors = watched(pause_s=0.005)
        thread = threading.Thread(target=model.generate, kwargs=ask(streamer=streamer, logits_processor=processors))
        thread.start()
        arrived = [time.monotonic_ns() for _ in streamer]
        thread.join()
    span.end()
    return {"at_ns": steps.at_ns, "arrived": arrived}


@scenario
def streamed_alone() -> Any:
    streamer = TextIteratorStreamer(tokenizer, skip_prompt=True)
    steps, processors = watched(pause_s=0.005)
    model.generate(None, None, processors, None, None, None, None, streamer, **ask())
    return {"at_ns": steps.at_ns, "text": bool("".join(streamer))}


@scenario
def assisted() -> Any:
    model.generate(**ask(assistant_model=assistant))


@scenario
def assisted_and_streamed() -> Any:
    given: list[int] = []

    class Counting(TextStreamer):
        def put(self, value: Any) -> None:
            given.append(value.numel())

        def end(self) -> None: ...

    model.generate(**ask(assistant_model=assistant, streamer=Counting(tokenizer)))
    return {"given": given[1:]}


@scenario
def encoder_and_decoder() -> Any:
    torch.manual_seed(0)
    config = T5Config(vocab_size=len(tokenizer), d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4)
    config.decoder_start_token_id = 0
    other = T5ForConditionalGeneration(config)
    other.generation_config.eos_token_id = None
    given = ask()
    other.generate(**given)
    return {"input": given["input_ids"].numel()}


@scenario
def embedded() -> Any:
    """The prompt comes as vectors, not as ids."""
    given = ask()
    vectors = model.get_input_embeddings()(given.pop("input_ids"))
    model.generate(inputs_embeds=vectors, **given)
    return {"input": int(vectors.shape[1])}


@scenario
def within_a_request() -> Any:
    span = request()
    with recorder.use(span):
        given = ask()
        model.generate(**given)
        model.generate(**given)
    span.end()
    return {"input": given["input_ids"].numel()}


@scenario
def within_asyncio() -> Any:
    async def serve() -> int:
        span = request()
        with recorder.use(span):
            streamer = AsyncTextIteratorStreamer(tokenizer, skip_prompt=True)
            work = asyncio.create_task(asyncio.to_thread(model.generate, **ask(streamer=streamer)))
            texts = [text async for text in streamer]
            await work
        span.end()
        return len(texts)

    return asyncio.run(serve())


@scenario
def four_threads() -> Any:
    """At once on one model: each call's steps are its own."""

    def work(tokens: int) -> None:
        _, processors = watched(pause_s=0.002)
        model.generate(**ask(max_new_tokens=tokens, logits_processor=processors))

    threads = [threading.Thread(target=work, args=(tokens,)) for tokens in (3, 5, 7, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@scenario
def served_by_one_thread() -> Any:
    """The parts of `transformers serve`: two requests at once, and one thread that generates."""
    from transformers import GenerationConfig
    from transformers.cli.serving.utils import GenerateManager

    manager = GenerateManager()
    config = GenerationConfig(max_new_tokens=8, do_sample=False, pad_token_id=1)

    async def stream(number: int) -> int:
        span = recorder.start(f"POST {number}", scope="t", stage="server", kind=SpanKind.SERVER)
        with recorder.use(span):
            queue, _ = manager.generate_streaming(model, tokenizer, prompts(), config, request_id=str(number))
        count = 0
        while await queue.get() is not None:
            count += 1
        span.end()
        return count

    async def whole(number: int) -> int:
        span = recorder.start(f"POST {number}", scope="t", stage="server", kind=SpanKind.SERVER)
        with recorder.use(span):
            _, _, ids = await manager.generate_non_streaming(
                model, tokenizer, prompts(), config, request_id=str(number)
            )
        span.end()
        return len(ids)

    def prompts() -> dict[str, Any]:
        return dict(tokenizer([TEXT], return_tensors="pt", return_token_type_ids=False))

    async def serve() -> list[int]:
        return list(await asyncio.gather(stream(1), whole(2)))

    return asyncio.run(serve())


def _raised(**more: Any) -> str:
    try:
        model.generate(**ask(**more))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


@scenario
def fails_before_it_begins() -> Any:
    return _raised(max_new_tokens=0)


@scenario
def fails_in_prefill() -> Any:
    return _raised(logits_processor=watched(fail_at=1)[1])


@scenario
def fails_in_decode() -> Any:
    return _raised(logits_processor=watched(fail_at=4)[1])


class GenerationCancelled(Exception):
    """As servers raise it in a streamer."""


@scenario
def given_up() -> Any:
    class Leaving(TextStreamer):
        puts = 0

        def put(self, value: Any) -> None:
            self.puts += 1
            if self.puts == 4:
                raise GenerationCancelled

        def end(self) -> None: ...

    return _raised(streamer=Leaving(tokenizer))


@scenario
def unsampled() -> Any:
    unwanted = SpanContext(1, 2, is_remote=True, trace_flags=TraceFlags(0))
    with trace.use_span(NonRecordingSpan(unwanted)):
        result = model.generate(**ask(streamer=TextIteratorStreamer(tokenizer)))
    return list(result.shape)


@scenario
def a_loop_of_ones_own() -> Any:
    def loop(model: Any, input_ids: Any, **_: Any) -> Any:
        return torch.cat([input_ids, input_ids[:, :3]], dim=-1)

    return list(model.generate(**ask(custom_generate=loop)).shape)


@scenario
def taken_off() -> Any:
    """All is as it was; and put on again, all is as before."""
    names = ("generate", "_has_unfinished_sequences", "_sample", "_beam_search", "_assisted_decoding")
    on = [hasattr(GenerationMixin.__dict__[name], "_self_wrapper") for name in names]
    TransformersInstrumentor().uninstrument()
    off = [hasattr(GenerationMixin.__dict__[name], "_self_wrapper") for name in names]
    off.append(hasattr(TextStreamer.__dict__["__init__"], "_self_wrapper"))
    model.generate(**ask())
    nothing = spans() == []
    TransformersInstrumentor().instrument(skip_dep_check=True)
    return {"on": on, "off": off, "nothing": nothing}


@scenario
def without_a_hook() -> Any:
    """Another release: the place where steps are seen is not there."""
    TransformersInstrumentor().uninstrument()
    real = GenerationMixin._has_unfinished_sequences
    del GenerationMixin._has_unfinished_sequences
    TransformersInstrumentor().instrument(skip_dep_check=True)
    GenerationMixin._has_unfinished_sequences = real
    try:
        shape = list(model.generate(**ask()).shape)
        skipped = wrapping.skipped()
    finally:
        TransformersInstrumentor().uninstrument()
        TransformersInstrumentor().instrument(skip_dep_check=True)
    return {"shape": shape, "skipped": skipped}


@scenario
def cost() -> Any:
    """What a step's hook costs its thread [ns], over an empty method; and that it does so inside a call."""
    from promptpath.instrumentation.shims.engine.transformers import generation

    steps = 20_000
    call = generation.Generation(time.monotonic_ns(), request(), {}, owns=True)
    token = generation._current.set(call)
    TransformersInstrumentor().uninstrument()
    real = GenerationMixin._has_unfinished_sequences
    GenerationMixin._has_unfinished_sequences = lambda *_: True

    def best() -> float:
        times = []
        for _ in range(5):
            start_ns = time.thread_time_ns()
            for _ in range(steps):
                model._has_unfinished_sequences(False, False)
            times.append((time.thread_time_ns() - start_ns) / steps)
        return min(times)

    without = best()
    TransformersInstrumentor().instrument(skip_dep_check=True)
    within = best()
    TransformersInstrumentor().uninstrument()
    GenerationMixin._has_unfinished_sequences = real
    TransformersInstrumentor().instrument(skip_dep_check=True)
    generation._current.reset(token)
    return {"ns": within - without, "seen": len(call.step_ns) == 5 * steps}


@scenario
def state_of_the_shim() -> Any:
    return {"state": registry.status()["promptpath_transformers"].state, "failures": safety.failures()}


run()
