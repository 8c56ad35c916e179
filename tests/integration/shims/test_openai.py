"""The `openai` client against a real server: its span says what the program measures, and what it gets is unchanged."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import time
import traceback
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import httpx2
import openai
import pytest
from opentelemetry import baggage, trace
from opentelemetry import context as context_api
from opentelemetry.instrumentation.utils import suppress_instrumentation
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from promptpath.instrumentation import safety
from promptpath.instrumentation.shims import answer, genai, paths
from promptpath.instrumentation.shims.client import openai_streams
from promptpath.instrumentation.shims.client.openai import OpenAiInstrumentor

from .running import (
    USAGE,
    Spans,
    asleep,
    attributes_of,
    chunk,
    five_tokens,
    gaps_us,
    paced,
    raw_server,
    scope_of,
    serve,
)

MESSAGES: Any = [{"role": "user", "content": "Why is the sky blue?"}]
COMPLETION = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1700000000,
    "model": "tiny-1",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "The sky is blue."}, "finish_reason": "stop"}],
    "usage": USAGE,
}


class Model:
    """An OpenAI-like server that answers what it is told to."""

    def __init__(self) -> None:
        self.chunks: list[Any] = five_tokens()
        self.gap_s = 0.004
        self.status = 200
        self.wait_s = 0.0
        self.failures = 0
        self.headers: list[dict[str, str]] = []
        routes = ["chat/completions", "completions", "responses", "embeddings"]
        self.app = Starlette(routes=[Route(f"/v1/{name}", self.answer, methods=["POST"]) for name in routes])
        self.body: Any = COMPLETION

    async def answer(self, request: Request) -> Response:
        self.headers.append(dict(request.headers))
        body = await request.json()
        await asleep(self.wait_s)
        if self.failures:
            self.failures -= 1
            return JSONResponse({"error": {"message": "no"}}, 503)
        if self.status != 200:
            return JSONResponse({"error": {"message": "no", "type": "x"}}, self.status)
        if not body.get("stream"):
            return JSONResponse(self.body)
        frames = [
            chunk_ if isinstance(chunk_, bytes) else b"data: " + json.dumps(chunk_).encode() for chunk_ in self.chunks
        ]
        frames = [frame + b"\n\n" for frame in [*frames, b"data: [DONE]"]]
        return StreamingResponse(paced(frames, self.gap_s), media_type="text/event-stream")


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def url(model: Model, spans: Spans) -> Iterator[str]:
    with serve(model.app) as base:
        yield base + "/v1"


@pytest.fixture
def client(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=url, api_key="k", max_retries=0) as made:
        yield made


CLIENT_SPAN = {
    "name": "chat tiny",
    "kind": "CLIENT",
    "scope": "promptpath.openai",
    "parent": None,
    "attributes": {
        "promptpath.stage": "client",
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "tiny",
        "gen_ai.request.stream": True,
        "gen_ai.response.model": "tiny-1",
        "gen_ai.response.id": "chatcmpl-1",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 7,
        "gen_ai.usage.output_tokens": 5,
        "server.address": "127.0.0.1",
        "server.port": ...,
    },
    "deliveries": 5,
    "status": ("UNSET", None),
    "events": [],
}
CALL_SPAN = {
    "name": "POST",
    "kind": "CLIENT",
    "scope": "promptpath.httpx",
    "parent": "chat tiny",
    "attributes": {
        "promptpath.stage": "call",
        "promptpath.attempt": 1,
        "promptpath.first_byte_us": ...,
        "promptpath.tcp.rtt_us": ...,
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "tiny",
        "gen_ai.request.stream": True,
        "http.request.method": "POST",
        "http.response.status_code": 200,
        "network.peer.address": "127.0.0.1",
        "network.peer.port": ...,
        "server.address": "127.0.0.1",
        "server.port": ...,
        "url.path": "/v1/chat/completions",
        "url.scheme": "http",
    },
    "deliveries": 5,
    "status": ("UNSET", None),
    "events": [],
}
TCP_SPAN = {
    "name": "tcp",
    "kind": "INTERNAL",
    "scope": "promptpath.httpx",
    "parent": "POST",
    "attributes": {"promptpath.stage": "tcp"},
    "deliveries": 0,
    "status": ("UNSET", None),
    "events": [],
}
SERVER_SPAN = {
    "name": "POST /v1/chat/completions",
    "kind": "SERVER",
    "scope": "promptpath.asgi",
    "parent": "POST",
    "attributes": {
        "promptpath.stage": "gateway",
        "promptpath.first_byte_us": ...,
        "client.address": "127.0.0.1",
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "tiny",
        "gen_ai.request.stream": True,
        "gen_ai.response.model": "tiny-1",
        "gen_ai.response.id": "chatcmpl-1",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 7,
        "gen_ai.usage.output_tokens": 5,
        "http.request.method": "POST",
        "http.response.status_code": 200,
        "http.route": "/v1/chat/completions",
        "server.address": "127.0.0.1",
        "server.port": ...,
        "url.path": "/v1/chat/completions",
        "url.scheme": "http",
    },
    "deliveries": 5,
    "status": ("UNSET", None),
    "events": [],
}


def test_a_streamed_prompt(client: openai.OpenAI, spans: Spans) -> None:
    stream = client.chat.completions.create(model="tiny", messages=MESSAGES, stream=True)
    assert type(stream) is openai.Stream
    texts = [c.choices[0].delta.content for c in stream if c.choices]
    assert texts == ["", "The", " sky", " is", " blue", ".", None]
    assert spans.dicts(4) == [CLIENT_SPAN, CALL_SPAN, TCP_SPAN, SERVER_SPAN]


async def test_a_streamed_prompt_async(url: str, spans: Spans) -> None:
    async with openai.AsyncOpenAI(base_url=url, api_key="k") as client:
        stream = await client.chat.completions.create(model="tiny", messages=MESSAGES, stream=True)
        assert type(stream) is openai.AsyncStream
        texts = [c.choices[0].delta.content async for c in stream if c.choices]
    assert texts == ["", "The", " sky", " is", " blue", ".", None]
    assert spans.dicts(4) == [CLIENT_SPAN, CALL_SPAN, TCP_SPAN, SERVER_SPAN]


def _agrees(ours_us: int, seen_ns: int) -> bool:
    """As the project promises: within 1 ms or 1 %."""
    difference_ns = abs(ours_us * 1000 - seen_ns)
    return difference_ns < 1_000_000 or difference_ns < seen_ns / 100


def test_ttft_and_gaps_are_what_the_program_sees(client: openai.OpenAI, model: Model, spans: Spans) -> None:
    model.wait_s = 0.02
    wanted: list[list[int]] = []
    create = client.chat.completions.create  # its modules are imported here, not within the measured time
    for _ in range(5):
        begin = time.monotonic_ns()
        stream = create(model="tiny", messages=MESSAGES, stream=True)
        times = [time.monotonic_ns() for c in stream if c.choices and c.choices[0].delta.content]
        wanted.append([b - a for a, b in pairwise([begin, *times])])
    found = [gaps_us(span) for span in spans.wait(20) if span.name == "chat tiny"]
    for ours, seen in zip(found, wanted, strict=True):
        assert len(ours) == len(seen) == 5
        assert all(_agrees(a, b) for a, b in zip(ours, seen, strict=True)), (ours, seen)


async def test_ttft_and_gaps_are_what_the_program_sees_async(url: str, model: Model, spans: Spans) -> None:
    async with openai.AsyncOpenAI(base_url=url, api_key="k") as client:
        create = client.chat.completions.create
        begin = time.monotonic_ns()
        stream = await create(model="tiny", messages=MESSAGES, stream=True)
        times = [time.monotonic_ns() async for c in stream if c.choices and c.choices[0].delta.content]
    spans.wait(4)
    ours = gaps_us(spans.named("chat tiny"))
    seen = [b - a for a, b in pairwise([begin, *times])]
    assert all(_agrees(a, b) for a, b in zip(ours, seen, strict=True)), (ours, seen)


def test_five_tokens_have_four_gaps(client: openai.OpenAI, spans: Spans) -> None:
    list(client.chat.completions.create(model="tiny", messages=MESSAGES, stream=True))
    spans.wait(4)
    first, *gaps = gaps_us(spans.named("chat tiny"))
    assert first > 0
    assert len(gaps) == 4


def test_the_clock_starts_before_the_headers(spans: Spans) -> None:
    def slow(connection: socket.socket, _: bytes) -> None:
        time.sleep(0.12)
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
        for body in five_tokens():
            connection.sendall(b"data: " + json.dumps(body).encode() + b"\n\n")
        connection.sendall(b"data: [DONE]\n\n")

    with raw_server(slow) as (base, _), openai.OpenAI(base_url=base + "/v1", api_key="k") as client:
        create = client.chat.completions.create  # its modules are imported here, not within the measured time
        begin = time.monotonic_ns()
        stream = create(model="tiny", messages=MESSAGES, stream=True)
        seen_ns = next(time.monotonic_ns() - begin for c in stream if c.choices and c.choices[0].delta.content)
        stream.close()
    spans.wait(3)
    ours = gaps_us(spans.named("chat tiny"))[0]
    assert ours > 120_000
    assert _agrees(ours, seen_ns)
    call = spans.named("POST")
    assert attributes_of(call)["promptpath.first_byte_us"] > 120_000
    assert gaps_us(call)[0] > 120_000


def test_a_chunk_of_four_tokens_is_one_delivery_of_four(client: openai.OpenAI, model: Model, spans: Spans) -> None:
    model.chunks = [
        chunk({"role": "assistant", "content": ""}),
        chunk({"content": "The sky is blue"}),
        chunk({}, finish="stop"),
        chunk(None, usage={"prompt_tokens": 7, "completion_tokens": 4, "total_tokens": 11}),
    ]
    list(client.chat.completions.create(model="tiny", messages=MESSAGES, stream=True))
    spans.wait(4)
    for name in ("chat tiny", "POST", "POST /v1/chat/completions"):
        span = spans.named(name)
        assert len(gaps_us(span)) == 1
        assert attributes_of(span)["promptpath.token.counts"] == (4,)


def test_log_probabilities_tell_how_many_tokens_a_chunk_holds(
    client: openai.OpenAI, model: Model, spans: Spans
) -> None:
    token = {"token": "a", "logprob": -0.1, "bytes": None, "top_logprobs": []}
    two = chunk({"content": "The sky"})
    two["choices"][0]["logprobs"] = {"content": [token, token], "refusal": None}
    model.chunks = [two, chunk({"content": " is"}), chunk({}, finish="stop")]
    list(client.chat.completions.create(model="tiny", messages=MESSAGES, stream=True, logprobs=True))
    spans.wait(4)
    assert attributes_of(spans.named("chat tiny"))["promptpath.token.counts"] == (2, 1)


def test_a_metadata_frame_first_is_no_token(client: openai.OpenAI, model: Model, spans: Spans) -> None:
    model.chunks = [{"object": "metadata", "id": "m", "choices": [], "created": 1, "model": "x"}, *five_tokens()]
    model.gap_s = 0.03
    list(client.chat.completions.create(model="tiny", messages=MESSAGES, stream=True))
    spans.wait(4)
    assert len(gaps_us(spans.named("chat tiny"))) == 5
    assert gaps_us(spans.named("chat tiny"))[0] > 60_000


def test_tool_calls_and_reasoning_are_content(client: openai.OpenAI, model: Model, spans: Spans) -> None:
    call = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    model.chunks = [
        chunk({"role": "assistant", "content": None}),
        chunk({"reasoning_content": "hm"}),
        chunk({"content": None, "tool_calls": [call]}),
        chunk({}, finish="tool_calls"),
    ]
    list(client.chat.completions.create(model="tiny", messages=MESSAGES, stream=True))
    spans.wait(4)
    assert [len(gaps_us(spans.named(name))) for name in ("chat tiny", "POST", "POST /v1/chat/completions")] == [2, 2, 2]


def test_of_several_choices_the_one_delivered_first_counts(client: openai.OpenAI, model: Model, spans: Spans) -> None:
    model.chunks = [chunk({"content": "x"}, index=index) for index in (1, 0, 1, 1, 0)] + [
        chunk({}, finish="stop", index=1)
    ]
    list(client.chat.completions.create(model="tiny", messages=MESSAGES, stream=True, n=2))
    spans.wait(4)
    for name in ("chat tiny", "POST", "POST /v1/chat/completions"):
        assert len(gaps_us(spans.named(name))) == 3
        assert attributes_of(spans.named(name))["gen_ai.request.choice.count"] == 2


def test_without_streaming_there_is_no_first_token(client: openai.OpenAI, spans: Spans) -> None:
    completion = client.chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=9, temperature=0)
    assert completion.choices[0].message.content == "The sky is blue."
    extra = {"gen_ai.request.max_tokens": 9, "gen_ai.request.temperature": 0.0, "gen_ai.request.stream": False}
    wanted = {**CLIENT_SPAN, "deliveries": 0, "attributes": {**CLIENT_SPAN["attributes"], **extra}}  # type: ignore[dict-item]
    found = spans.dicts(4)
    assert found[0] == wanted
    assert [span["deliveries"] for span in found] == [0, 0, 0, 0]
    assert found[3]["attributes"]["gen_ai.usage.output_tokens"] == 5


def test_an_http_error_with_a_retry(url: str, model: Model, spans: Spans) -> None:
    model.status = 500
    with openai.OpenAI(base_url=url, api_key="k", max_retries=1) as client, pytest.raises(openai.InternalServerError):
        client.chat.completions.create(model="tiny", messages=MESSAGES, stream=True)
    found = [span for span in spans.dicts(5) if span["scope"] != "promptpath.asgi" and span["name"] != "tcp"]
    assert [
        (s["name"], s["attributes"].get("promptpath.attempt"), s["attributes"]["error.type"], s["status"][0])
        for s in found
    ] == [
        ("chat tiny", None, "500", "ERROR"),
        ("POST", 1, "500", "ERROR"),
        ("POST", 2, "500", "ERROR"),
    ]
    assert all("promptpath.abort" not in span["attributes"] for span in found)


def test_a_retry_that_succeeds(url: str, model: Model, spans: Spans) -> None:
    model.failures = 1
    with openai.OpenAI(base_url=url, api_key="k", max_retries=2) as client:
        list(client.chat.completions.create(model="tiny", messages=MESSAGES, stream=True))
    found = [s for s in spans.dicts(6, "promptpath.httpx") if s["name"] == "POST"]
    assert [
        (s["attributes"]["promptpath.attempt"], s["attributes"].get("error.type"), s["deliveries"]) for s in found
    ] == [
        (1, "503", 0),
        (2, None, 5),
    ]
    assert spans.named("chat tiny").status.status_code.name == "UNSET"


@pytest.mark.parametrize("how", ["stream", "with", "response", "garbage"])
def test_closing_early_is_an_abort_by_the_client(client: openai.OpenAI, model: Model, spans: Spans, how: str) -> None:
    model.chunks = [chunk({"content": "x"}) for _ in range(200)]
    stream = client.chat.completions.create(model="tiny", messages=MESSAGES, stream=True)
    if how == "with":
        with stream:
            next(stream)
    else:
        next(stream)
        if how == "stream":
            stream.close()
        elif how == "response":
            stream.response.close()
        else:
            del stream
            gc.collect()
    spans.wait(4)
    for name in ("chat tiny", "POST", "POST /v1/chat/completions"):
        span = spans.named(name)
        assert attributes_of(span)["promptpath.abort"] == "client", name
        assert span.status.status_code.name == "UNSET"
    assert len(gaps_us(spans.named("chat tiny"))) == 1


async def test_closing_early_async(url: str, model: Model, spans: Spans) -> None:
    model.chunks = [chunk({"content": "x"}) for _ in range(200)]
    async with openai.AsyncOpenAI(base_url=url, api_key="k") as client:
        stream = await client.chat.completions.create(model="tiny", messages=MESSAGES, stream=True)
        async for _ in stream:
            break
        await stream.close()
    spans.wait(4)
    assert attributes_of(spans.named("chat tiny"))["promptpath.abort"] == "client"


async def test_a_stream_that_is_left_behind_makes_no_noise_of_ours(url: str, model: Model, spans: Spans) -> None:
    """The event loop closes all generators of it at once: one of ours in between would be in the way."""
    model.chunks = [chunk({"content": "x"}) for _ in range(200)]
    noise: list[str] = []

    def hear(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        noise.append("".join(traceback.format_exception(context["exception"])))

    asyncio.get_running_loop().set_exception_handler(hear)
    async with openai.AsyncOpenAI(base_url=url, api_key="k") as client:
        stream = await client.chat.completions.create(model="tiny", messages=MESSAGES, stream=True)
        async for _ in stream:
            break
        del stream
        for _ in range(3):
            gc.collect()
            await asyncio.sleep(0.02)
    spans.wait(4)
    assert attributes_of(spans.named("chat tiny"))["promptpath.abort"] == "client"
    assert not [text for text in noise if "/promptpath/instrumentation/" in text]


async def test_a_cancelled_task(url: str, model: Model, spans: Spans) -> None:
    model.chunks = [chunk({"content": "x"}) for _ in range(200)]
    got = asyncio.Event()

    async def run() -> None:
        async with openai.AsyncOpenAI(base_url=url, api_key="k") as client:
            async for _ in await client.chat.completions.create(model="tiny", messages=MESSAGES, stream=True):
                got.set()

    task = asyncio.create_task(run())
    await got.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    spans.wait(4)
    for name in ("chat tiny", "POST"):
        assert attributes_of(spans.named(name))["promptpath.abort"] == "client"
        assert "error.type" not in attributes_of(spans.named(name))


def test_closing_after_the_end_of_the_answer_is_no_abort(client: openai.OpenAI, spans: Spans) -> None:
    stream = client.chat.completions.create(model="tiny", messages=MESSAGES, stream=True)
    for c in stream:
        if c.choices and c.choices[0].finish_reason:
            break
    stream.close()
    spans.wait(4)
    for name in ("chat tiny", "POST", "POST /v1/chat/completions"):
        assert "promptpath.abort" not in attributes_of(spans.named(name)), name


def test_a_timeout(client: openai.OpenAI, model: Model, spans: Spans) -> None:
    model.wait_s = 5
    with pytest.raises(openai.APITimeoutError):
        client.chat.completions.create(
            model="tiny", messages=MESSAGES, stream=True, timeout=openai.Timeout(30.0, read=0.05)
        )
    spans.wait(3)
    names = {"chat tiny": "APITimeoutError", "POST": "ReadTimeout"}
    for name, kind in names.items():
        assert attributes_of(spans.named(name))["promptpath.abort"] == "timeout"
        assert attributes_of(spans.named(name))["error.type"] == kind


def test_an_answer_that_breaks_off(spans: Spans) -> None:
    def broken(connection: socket.socket, _: bytes) -> None:
        frame = b"data: " + json.dumps(chunk({"content": "x"})).encode() + b"\n\n"
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        connection.sendall(head + b"%x\r\n%s\r\n" % (len(frame), frame))

    with raw_server(broken) as (base, _), openai.OpenAI(base_url=base + "/v1", api_key="k") as client:
        stream = client.chat.completions.create(model="tiny", messages=MESSAGES, stream=True)
        next(stream)
        with pytest.raises(openai.APIConnectionError) as raised:
            next(stream)
    assert isinstance(raised.value.__cause__, httpx2.RemoteProtocolError)
    spans.wait(3)
    assert attributes_of(spans.named("chat tiny"))["error.type"] == "APIConnectionError"
    assert attributes_of(spans.named("POST"))["error.type"] == "RemoteProtocolError"


def test_an_error_in_the_stream(client: openai.OpenAI, model: Model, spans: Spans) -> None:
    model.chunks = [chunk({"content": "x"}), {"error": {"message": "engine died", "type": "server_error"}}]
    with pytest.raises(openai.APIError):
        list(client.chat.completions.create(model="tiny", messages=MESSAGES, stream=True))
    spans.wait(4)
    kinds = {
        name: attributes_of(spans.named(name)).get("error.type")
        for name in ("chat tiny", "POST", "POST /v1/chat/completions")
    }
    assert kinds == {"chat tiny": "APIError", "POST": "server_error", "POST /v1/chat/completions": "server_error"}


def test_the_stream_helper(client: openai.OpenAI, spans: Spans) -> None:
    with client.chat.completions.stream(model="tiny", messages=MESSAGES) as stream:
        for _ in stream:
            pass
        assert stream.get_final_completion().choices[0].message.content == "The sky is blue."
    assert spans.dicts(4) == [CLIENT_SPAN, CALL_SPAN, TCP_SPAN, SERVER_SPAN]


async def test_the_stream_helper_async(url: str, spans: Spans) -> None:
    async with (
        openai.AsyncOpenAI(base_url=url, api_key="k") as client,
        client.chat.completions.stream(model="tiny", messages=MESSAGES) as stream,
    ):
        async for _ in stream:
            pass
    assert spans.dicts(4) == [CLIENT_SPAN, CALL_SPAN, TCP_SPAN, SERVER_SPAN]


def test_parse_makes_one_span(client: openai.OpenAI, spans: Spans) -> None:
    parsed = client.chat.completions.parse(model="tiny", messages=MESSAGES)
    assert parsed.choices[0].message.content == "The sky is blue."
    assert [span["name"] for span in spans.dicts(4, "promptpath.openai")] == ["chat tiny"]


def test_a_raw_response_that_streams(client: openai.OpenAI, spans: Spans) -> None:
    raw = client.chat.completions.with_raw_response.create(model="tiny", messages=MESSAGES, stream=True)
    assert raw.headers["content-type"].startswith("text/event-stream")
    assert len(list(raw.parse())) == 8
    assert spans.dicts(4)[0] == {
        **CLIENT_SPAN,
        "attributes": {**CLIENT_SPAN["attributes"], "http.response.status_code": 200},
    }  # type: ignore[dict-item]


def test_a_raw_response_that_does_not_stream(client: openai.OpenAI, spans: Spans) -> None:
    raw = client.chat.completions.with_raw_response.create(model="tiny", messages=MESSAGES)
    assert raw.parse().choices[0].message.content == "The sky is blue."
    found = spans.dicts(4)[0]
    assert (found["deliveries"], found["attributes"]["gen_ai.usage.output_tokens"]) == (0, 5)


def test_a_streaming_response_read_line_by_line(client: openai.OpenAI, spans: Spans) -> None:
    with client.chat.completions.with_streaming_response.create(
        model="tiny", messages=MESSAGES, stream=True
    ) as response:
        lines = [line for line in response.iter_lines() if line]
    assert len(lines) == 9
    found = spans.dicts(4)
    assert found[0]["deliveries"] == 5
    assert found[0]["attributes"]["gen_ai.usage.output_tokens"] == 5
    assert "promptpath.abort" not in found[0]["attributes"]


async def test_a_streaming_response_async(url: str, spans: Spans) -> None:
    async with openai.AsyncOpenAI(base_url=url, api_key="k") as client:
        create = client.chat.completions.with_streaming_response.create
        async with create(model="tiny", messages=MESSAGES) as response:
            assert (await response.json())["id"] == "chatcmpl-1"
    found = spans.dicts(4)[0]
    assert (found["deliveries"], found["attributes"]["gen_ai.usage.output_tokens"]) == (0, 5)


def test_other_apis(client: openai.OpenAI, model: Model, spans: Spans) -> None:
    model.body = {
        "object": "list",
        "data": [{"object": "embedding", "index": 0, "embedding": [0.5]}],
        "model": "e",
        "usage": {"prompt_tokens": 2, "total_tokens": 2},
    }
    client.embeddings.create(model="e", input="text", encoding_format="float")
    model.chunks = [
        {
            "id": "c",
            "object": "text_completion",
            "created": 1,
            "model": "t",
            "choices": [{"index": 0, "text": text, "finish_reason": None, "logprobs": None}],
        }
        for text in ("a", "", "b")
    ]
    list(client.completions.create(model="t", prompt="text", stream=True))
    response = {
        "id": "r",
        "object": "response",
        "created_at": 1,
        "model": "o",
        "output": [],
        "status": "completed",
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": 2,
            "output_tokens": 3,
            "total_tokens": 5,
            "input_tokens_details": {"cached_tokens": 1, "cache_write_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 1},
        },
    }
    delta = {
        "type": "response.output_text.delta",
        "item_id": "i",
        "output_index": 0,
        "content_index": 0,
        "logprobs": [],
        "sequence_number": 1,
    }
    events = [
        {"type": "response.created", "response": response, "sequence_number": 0},
        {**delta, "delta": "a"},
        {**delta, "delta": "b"},
        {"type": "response.completed", "response": response, "sequence_number": 2},
    ]
    model.chunks = [f"event: {event['type']}\ndata: {json.dumps(event)}".encode() for event in events]
    list(client.responses.create(model="o", input="text", stream=True))
    found = {span["name"]: span for span in spans.dicts(11, "promptpath.openai")}
    assert {
        name: (span["attributes"]["gen_ai.operation.name"], span["deliveries"]) for name, span in found.items()
    } == {
        "embeddings e": ("embeddings", 0),
        "text_completion t": ("text_completion", 2),
        "chat o": ("chat", 2),
    }
    attributes = found["chat o"]["attributes"]
    assert attributes["gen_ai.response.finish_reasons"] == ("stop",)
    assert attributes["gen_ai.usage.reasoning.output_tokens"] == 1
    assert found["embeddings e"]["attributes"]["gen_ai.usage.input_tokens"] == 2


# --- trace context ----------------------------------------------------------------------------------------------------


def test_the_context_is_sent(client: openai.OpenAI, model: Model, spans: Spans) -> None:
    token = context_api.attach(baggage.set_baggage("user.tier", "gold"))
    try:
        list(client.chat.completions.create(model="tiny", messages=MESSAGES, stream=True))
    finally:
        context_api.detach(token)
    spans.wait(4)
    call = spans.named("POST").context
    assert call is not None
    assert model.headers[0]["traceparent"].startswith(f"00-{call.trace_id:032x}-{call.span_id:016x}-")
    assert model.headers[0]["baggage"] == "user.tier=gold"


def test_the_users_own_header_is_untouched(client: openai.OpenAI, model: Model, spans: Spans) -> None:
    own = "00-11111111111111111111111111111111-2222222222222222-01"
    stream = client.chat.completions.create(
        model="tiny", messages=MESSAGES, stream=True, extra_headers={"traceparent": own, "baggage": "a=b"}
    )
    list(stream)
    assert (model.headers[0]["traceparent"], model.headers[0]["baggage"]) == (own, "a=b")


def test_an_unsampled_prompt_stays_unsampled(monkeypatch: pytest.MonkeyPatch, model: Model) -> None:
    spans = Spans(monkeypatch, sampler=ALWAYS_OFF)
    with serve(model.app) as base, openai.OpenAI(base_url=base + "/v1", api_key="k") as client:
        assert len(list(client.chat.completions.create(model="tiny", messages=MESSAGES, stream=True))) == 8
    assert spans.all() == []
    assert model.headers[0]["traceparent"].rpartition("-")[2] in ("00", "02")


def test_suppressed_instrumentation(client: openai.OpenAI, model: Model, spans: Spans) -> None:
    with suppress_instrumentation():
        list(client.chat.completions.create(model="tiny", messages=MESSAGES, stream=True))
    spans.wait(1)  # the server's
    assert {scope_of(span) for span in spans.all()} == {"promptpath.asgi"}
    assert "traceparent" not in model.headers[0]


def test_without_an_sdk_all_is_as_ever(monkeypatch: pytest.MonkeyPatch, model: Model) -> None:
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    with serve(model.app) as base, openai.OpenAI(base_url=base + "/v1", api_key="k") as client:
        assert len(list(client.chat.completions.create(model="tiny", messages=MESSAGES, stream=True))) == 8


def test_anothers_span_that_covers_the_prompt(client: openai.OpenAI, spans: Spans) -> None:
    tracer = trace.get_tracer("opentelemetry.instrumentation.openai_v2")
    with tracer.start_as_current_span("chat tiny!", kind=SpanKind.CLIENT, attributes={"gen_ai.operation.name": "chat"}):
        list(client.chat.completions.create(model="tiny", messages=MESSAGES, stream=True))
    found = spans.dicts(5, "promptpath.openai")
    assert found == [{**CLIENT_SPAN, "kind": "INTERNAL", "parent": "chat tiny!"}]


# --- manners ----------------------------------------------------------------------------------------------------------


def test_the_same_chunks_and_as_lazy_as_without(url: str, model: Model, spans: Spans) -> None:
    model.gap_s = 0.03
    with openai.OpenAI(base_url=url, api_key="k") as client:
        begin = time.monotonic()
        stream = client.chat.completions.create(model="tiny", messages=MESSAGES, stream=True)
        returned_s = time.monotonic() - begin
        ours = [c.model_dump() for c in stream]
        OpenAiInstrumentor().uninstrument()
        theirs = [c.model_dump() for c in client.chat.completions.create(model="tiny", messages=MESSAGES, stream=True)]
    assert ours == theirs
    assert returned_s < 0.2


def test_a_failure_of_ours_changes_nothing(
    client: openai.OpenAI, spans: Spans, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("ours")

    def texts() -> list[Any]:
        stream = client.chat.completions.create(model="tiny", messages=MESSAGES, stream=True)
        return [c.choices[0].delta.content for c in stream if c.choices]

    wanted = texts()
    monkeypatch.setattr(safety, "_failures", {})
    with monkeypatch.context() as patched:
        patched.setattr(openai_streams._StreamWatcher, "_look_at", broken)
        patched.setattr(openai_streams, "answer_attributes", broken)
        patched.setattr(answer.WatchedAnswer, "chunk", broken)
        assert texts() == wanted
    assert set(safety.failures()) == {"openai.chunk", "openai.end", "body.chunk"}
    with monkeypatch.context() as patched:
        patched.setattr(genai, "request_attributes", broken)
        patched.setattr(paths, "inference_path", broken)
        assert texts() == wanted
    assert {"openai.begin", "httpx.begin", "asgi.is_inference"} <= set(safety.failures())
    monkeypatch.undo()


def test_uninstrument_takes_everything_off() -> None:
    from openai.resources.chat.completions.completions import AsyncCompletions, Completions

    def methods() -> list[Any]:
        return [Completions.__dict__["create"], AsyncCompletions.__dict__["create"], Completions.__dict__["parse"]]

    on = methods()
    OpenAiInstrumentor().uninstrument()
    off = methods()
    assert all(a is not b for a, b in zip(on, off, strict=True))
    assert not any(hasattr(method, "_self_wrapper") for method in off)
    OpenAiInstrumentor().instrument(skip_dep_check=True)
    assert all(hasattr(method, "_self_wrapper") for method in methods())


def test_wrong_arguments_raise_what_they_always_raised(client: openai.OpenAI, spans: Spans) -> None:
    with pytest.raises(TypeError, match="Missing required arguments"):
        client.chat.completions.create(model="tiny")  # type: ignore[call-overload]
    assert attributes_of(spans.wait(1)[0])["error.type"] == "TypeError"


async def test_twenty_prompts_at_once_keep_their_tokens_apart(url: str, model: Model, spans: Spans) -> None:
    async def one(client: openai.AsyncOpenAI) -> None:
        async for _ in await client.chat.completions.create(model="tiny", messages=MESSAGES, stream=True):
            pass

    async with openai.AsyncOpenAI(base_url=url, api_key="k") as client:
        await asyncio.gather(*(one(client) for _ in range(20)))
    found = [span for span in spans.wait(80) if span.name in ("chat tiny", "POST", "POST /v1/chat/completions")]
    assert len(found) == 60
    assert {len(gaps_us(span)) for span in found} == {5}
    assert len({span.context.trace_id for span in found if span.context}) == 20
