"""Drives ONNX Runtime GenAI with a tiny model: `drive_onnxruntime_genai.py MODEL_DIRECTORY`, where it is installed."""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
import tempfile
import threading
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from seen import request, run, scenario, spans

# isort: split
import numpy as np
import onnxruntime_genai as og
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

from promptpath.instrumentation import recorder, registry, wrapping
from promptpath.instrumentation.shims import state
from promptpath.instrumentation.shims.engine.onnxruntime_genai import OnnxRuntimeGenAiInstrumentor, generator, text


def converted(directory: str) -> str:
    """The model as the library's own builder makes it, kept beside the one it is made of."""
    made = Path(f"{directory}-onnx") / "tiny"
    if not (made / "genai_config.json").exists():
        (package,) = find_spec("onnxruntime_genai").submodule_search_locations
        script = Path(package) / "models" / "builder.py"
        with tempfile.TemporaryDirectory() as cache:
            options = ["-i", directory, "-o", str(made), "-p", "fp32", "-e", "cpu", "-c", cache]
            subprocess.run([sys.executable, str(script), *options], check=True, stdout=sys.stderr)
    return str(made)


DIRECTORY = converted(sys.argv[1])
model = og.Model(DIRECTORY)
tokenizer = og.Tokenizer(model)
PROMPT, SHORT = (tokenizer.encode(text) for text in ("what does a router do", "a gateway"))
END = json.loads((Path(DIRECTORY) / "genai_config.json").read_bytes())["model"]["eos_token_id"]


class Asked:
    """A generator of answers of eight tokens, that writes down when it was driven.

    pause_s: between tokens. ends: at which token the answer ends.
    """

    def __init__(self, pause_s: float = 0.0, ends: int = 0, length: int = len(PROMPT) + 8, **options: Any) -> None:
        params = og.GeneratorParams(model)
        # No token ends an answer before its time, whatever the random model likes best.
        params.set_search_options(max_length=length, **({"min_length": length} if not ends else {}), **options)
        self.generator = og.Generator(model, params)
        self.before_ns: list[int] = []
        self.after_ns: list[int] = []
        self.ids: list[Any] = []
        self._pause_s = pause_s
        self._ends = ends

    def ask(self, prompt: Any = PROMPT, tokens: int = 0) -> Asked:
        """An answer, whole or of the first so many tokens."""
        self.append(prompt)
        while not self.generator.is_done():
            self.step()
            if len(self.ids) == tokens:
                break
        return self

    def append(self, prompt: Any) -> None:
        self.generator.append_tokens(prompt)

    def step(self) -> None:
        self.before_ns.append(time.monotonic_ns())
        if self._ends:
            logits = np.zeros_like(self.generator.get_logits())
            logits[..., END if len(self.ids) + 1 == self._ends else 5] = 1
            self.generator.set_logits(logits)
        self.generator.generate_next_token()
        self.after_ns.append(time.monotonic_ns())
        self.ids.append(self.generator.get_next_tokens().tolist())
        time.sleep(self._pause_s)


Asked().ask()
gc.collect()


@scenario
def loads() -> Any:
    og.Model(og.Config(DIRECTORY))


@scenario
def alone() -> Any:
    start_ns = time.monotonic_ns()
    asked = Asked(pause_s=0.005).ask()
    return {
        "start_ns": start_ns,
        "end_ns": time.monotonic_ns(),
        "before_ns": asked.before_ns,
        "after_ns": asked.after_ns,
    }


@scenario
def within_a_request() -> Any:
    """As a server does it: template, ids, tokens, and text of each."""
    span = request()
    with recorder.use(span):
        messages = json.dumps([{"role": "user", "content": "what does a router do"}])
        prompt = tokenizer.encode(tokenizer.apply_chat_template(messages, add_generation_prompt=True))
        stream = tokenizer.create_stream()
        asked = Asked(length=len(prompt) + 40)
        texts = []
        asked.append(prompt)
        while not asked.generator.is_done():
            asked.step()
            texts.append((stream.decode(asked.ids[-1][0]), time.monotonic_ns()))
        del asked
    span.end()
    return {"prompt": len(prompt), "first_text_ns": next(at_ns for text, at_ns in texts if text)}


@scenario
def in_a_thread_of_its_own() -> Any:
    """The thread that generates knows nothing of the request in which the generator was made."""
    span = request()
    with recorder.use(span):
        asked = Asked()
    thread = threading.Thread(target=asked.ask)
    thread.start()
    thread.join()
    span.end()


@scenario
def text_made_by_asyncio() -> Any:
    """Tokens go from a thread to an event loop, which makes text of them without knowing of the request."""

    async def serve() -> float:
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[int] = asyncio.Queue()
        span = request()

        def work() -> None:
            with recorder.use(span):
                asked = Asked(pause_s=0.01, length=len(PROMPT) + 20, do_sample=True, random_seed=1)
                asked.append(PROMPT)
                while not asked.generator.is_done():
                    asked.step()
                    loop.call_soon_threadsafe(queue.put_nowait, asked.ids[-1][0])
                loop.call_soon_threadsafe(queue.put_nowait, -1)

        thread = threading.Thread(target=work)
        thread.start()
        stream = tokenizer.create_stream()
        first_ns = 0
        while (token := await queue.get()) >= 0:
            if stream.decode(token) and not first_ns:
                first_ns = time.monotonic_ns()
        thread.join()
        span.end()
        return first_ns

    return asyncio.run(serve())


@scenario
def stopped() -> Any:
    return len(Asked(ends=5).ask().ids)


@scenario
def stopped_at_the_limit() -> Any:
    return len(Asked(ends=8).ask().ids)


@scenario
def let_go_of() -> Any:
    """The program has enough after three tokens."""
    Asked().ask(tokens=3)
    gc.collect()


@scenario
def given_up() -> Any:
    """The client has gone, and the server with it."""
    span = request()
    notes = state.of(span)
    notes.closes = True
    with recorder.use(span):
        asked = Asked().ask(tokens=3)
        notes.disconnected = True
        notes.close()
        span.end()
        asked.step()  # nobody told the thread that generates
    del asked


@scenario
def two_turns() -> Any:
    """A conversation: the second prompt is appended to what was said."""
    asked = Asked(length=60).ask(tokens=4)
    asked.append(SHORT)
    for _ in range(3):
        asked.step()
    del asked
    return len(SHORT)


@scenario
def a_prompt_in_two_parts() -> Any:
    asked = Asked(length=len(PROMPT) + len(SHORT) + 8)
    asked.append(PROMPT)
    asked.ask(SHORT)


@scenario
def wound_back() -> Any:
    asked = Asked(length=len(PROMPT) + 8).ask()
    asked.generator.rewind_to(0)
    asked.ask()


@scenario
def sampled() -> Any:
    Asked(do_sample=True, temperature=0.5, top_p=0.9, top_k=20).ask()


@scenario
def beams() -> Any:
    Asked(num_beams=3).ask()


@scenario
def several_answers() -> Any:
    Asked(num_beams=3, num_return_sequences=2).ask()


@scenario
def batch() -> Any:
    """Two prompts of different lengths."""
    prompts = tokenizer.encode_batch(["what does a router do", "a gateway"])
    asked = Asked(batch_size=2, length=int(prompts.shape()[1]) + 8).ask(prompts)
    return {"filled": int(np.prod(prompts.shape())), "tokens": len(PROMPT) + len(SHORT), "rows": len(asked.ids[0])}


@scenario
def batch_that_ends() -> Any:
    """One answer ends after three tokens and is filled up, the other after six."""
    prompts = tokenizer.encode_batch(["what does a router do", "a gateway"])
    asked = Asked(batch_size=2, ends=99, length=int(prompts.shape()[1]) + 8)
    asked.append(prompts)
    for step in range(1, 7):
        logits = np.zeros_like(asked.generator.get_logits())
        logits[..., 5] = 1
        for row, end in enumerate((3, 6)):
            logits[row, :, END] = 2 * (step == end)
        asked.generator.set_logits(logits)
        asked.generator.generate_next_token()
    return asked.generator.is_done()


@scenario
def four_threads() -> Any:
    threads = [threading.Thread(target=Asked(length=len(PROMPT) + n).ask) for n in (3, 5, 7, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _raised(call: Any) -> str:
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return ""


@scenario
def too_long() -> Any:
    return _raised(lambda: Asked(length=3).ask())


@scenario
def fails_in_decode() -> Any:
    """More is asked for than there may be."""
    asked = Asked(length=len(PROMPT) + 2)
    asked.append(PROMPT)

    def work() -> None:
        for _ in range(3):
            asked.step()

    return _raised(work)


@scenario
def wrong_arguments() -> Any:
    asked = Asked()
    return [
        _raised(lambda: asked.generator.append_tokens("x")),
        _raised(lambda: asked.generator.generate_next_token(1)),
        _raised(lambda: asked.generator.is_done(when="now")),
        _raised(lambda: og.Model("/nowhere")),
    ]


@scenario
def same_results() -> Any:
    prompts = tokenizer.encode_batch(["what does a router do", "a gateway"])
    length = int(prompts.shape()[1]) + 8

    def texts() -> Any:
        stream = tokenizer.create_stream()
        return [stream.decode(ids[0]) for ids in Asked().ask().ids]

    calls = {
        "greedy": lambda: Asked().ask().ids,
        "sampled": lambda: Asked(do_sample=True, temperature=0.7, random_seed=3).ask().ids,
        "beams": lambda: Asked(num_beams=3).ask().generator.get_sequence(0).tolist(),
        "batch": lambda: Asked(batch_size=2, length=length).ask(prompts).ids,
        "texts": texts,
        "text": lambda: tokenizer.decode(PROMPT),
        "ids": lambda: tokenizer.encode("a gateway").tolist(),
        "template": lambda: tokenizer.apply_chat_template('[{"role": "user", "content": "a"}]'),
    }
    ours = {name: call() for name, call in calls.items()}
    gc.collect()
    assert spans()
    OnnxRuntimeGenAiInstrumentor().uninstrument()
    theirs = {name: call() for name, call in calls.items()}
    OnnxRuntimeGenAiInstrumentor().instrument(skip_dep_check=True)
    assert spans() == []
    return {name: ours[name] == theirs[name] for name in calls}


@scenario
def unsampled() -> Any:
    unwanted = SpanContext(1, 2, is_remote=True, trace_flags=TraceFlags(0))
    with trace.use_span(NonRecordingSpan(unwanted)):
        return len(Asked().ask().ids)


@scenario
def nothing_is_kept() -> Any:
    gc.collect()
    return [len(kept) for kept in (generator._generators, generator._tokens, text._waiting)]


_PLACES = {
    og.Generator: ("__init__", "append_tokens", "set_inputs", "rewind_to", "generate_next_token", "is_done"),
    og.Tokenizer: ("apply_chat_template", "encode", "encode_batch", "decode", "decode_batch"),
    og.TokenizerStream: ("decode",),
    og.MultiModalProcessor: ("__call__", "decode"),
    og.Model: ("__init__",),
    og.Config: ("__init__",),
}


@scenario
def taken_off() -> Any:
    def theirs() -> list[bool]:
        return [type(owner.__dict__[name]).__name__ == "instancemethod" for owner in _PLACES for name in _PLACES[owner]]

    on = theirs()
    asked = Asked()
    OnnxRuntimeGenAiInstrumentor().uninstrument()
    off = theirs()
    asked.ask()
    nothing = spans() == []
    asked = Asked()
    OnnxRuntimeGenAiInstrumentor().instrument(skip_dep_check=True)
    asked.ask()  # by a generator that was made before
    return {"on": any(on), "off": all(off), "nothing": nothing}


@scenario
def without_a_hook() -> Any:
    """Another release: what asks for a token is called otherwise."""
    OnnxRuntimeGenAiInstrumentor().uninstrument()
    real = og.Generator.__dict__["generate_next_token"]
    del og.Generator.generate_next_token
    OnnxRuntimeGenAiInstrumentor().instrument(skip_dep_check=True)
    og.Generator.generate_next_token = real
    try:
        count = len(Asked().ask().ids)
        gc.collect()
    finally:
        OnnxRuntimeGenAiInstrumentor().uninstrument()
        OnnxRuntimeGenAiInstrumentor().instrument(skip_dep_check=True)
    return {"tokens": count, "skipped": wrapping.skipped()}


@scenario
def cost() -> Any:
    """What a token costs its thread [ns]: our functions around methods that do nothing, over these alone."""
    calls = 50_000

    class Idle:
        def generate_next_token(self) -> None: ...

        def is_done(self) -> bool:
            return False

    def best(asked: Any) -> float:
        times = []
        for _ in range(7):
            start_ns = time.thread_time_ns()
            for _ in range(calls):
                asked.is_done()
                asked.generate_next_token()
            times.append((time.thread_time_ns() - start_ns) / calls)
        return min(times)

    idle = Idle()
    without = best(idle)
    seen: list[int] = []
    generator._tokens[id(idle)] = seen.append
    Idle.generate_next_token = generator._generate_next_token(Idle.generate_next_token)
    Idle.is_done = generator._is_done(Idle.is_done)
    within = best(idle)
    del generator._tokens[id(idle)]
    return {"ns": within - without, "seen": len(seen) == 7 * calls}


@scenario
def state_of_the_shim() -> Any:
    return registry.status()["promptpath_onnxruntime_genai"].state


run()
