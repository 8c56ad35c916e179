"""ASGI servers under uvicorn: requests served, who hung up, what failed, and other instrumentations beside ours."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from opentelemetry.instrumentation.asgi import OpenTelemetryMiddleware
from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor
from opentelemetry.instrumentation.utils import suppress_instrumentation
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route

from promptpath.instrumentation import bootstrap, recorder, safety
from promptpath.instrumentation.shims import state
from promptpath.instrumentation.shims.client.httpx import HttpxInstrumentor
from promptpath.instrumentation.shims.gateway.asgi import AsgiInstrumentor, AsgiMiddleware
from promptpath.instrumentation.shims.gateway.exchange import Exchange
from promptpath.instrumentation.shims.sse import SseScanner

from .running import USAGE, Spans, asleep, attributes_of, chunk, five_tokens, gaps_us, paced, serve

PATH = "/v1/chat/completions"
ASKED = {"model": "tiny", "messages": [{"role": "user", "content": "secret"}], "stream": True}
FRAMES = [b"data: " + json.dumps(body).encode() + b"\n\n" for body in five_tokens()] + [b"data: [DONE]\n\n"]
REMOTE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def post() -> Iterator[Any]:
    HttpxInstrumentor().uninstrument()
    with httpx.Client() as client:
        yield lambda url, body=ASKED, **headers: client.post(url, json=body, headers=headers)
    HttpxInstrumentor().instrument(skip_dep_check=True)


async def _stream(request: Request) -> Response:
    await request.json()
    return StreamingResponse(paced(FRAMES, 0.002), media_type="text/event-stream")


SERVER = {
    "name": f"POST {PATH}",
    "kind": "SERVER",
    "scope": "promptpath.asgi",
    "parent": None,
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
        "http.route": PATH,
        "server.address": "127.0.0.1",
        "server.port": ...,
        "url.path": PATH,
        "url.scheme": "http",
    },
    "deliveries": 5,
    "status": ("UNSET", None),
    "events": [],
}


def server_span(**attributes: Any) -> dict[str, Any]:
    return {**SERVER, "attributes": {**SERVER["attributes"], **attributes}}  # type: ignore[dict-item]


@pytest.fixture
def app() -> Starlette:
    return Starlette(routes=[Route(PATH, _stream, methods=["POST"]), Route("/v1/models", _models)])


async def _models(_: Request) -> Response:
    return JSONResponse({"data": []})


# --- context ----------------------------------------------------------------------------------------------------------


def test_without_a_trace_header(app: Starlette, spans: Spans, post: Any) -> None:
    with serve(app) as url:
        assert post(url + PATH).content == b"".join(FRAMES)
    assert spans.dicts(1) == [SERVER]


def test_the_context_in_the_request_becomes_the_parent(app: Starlette, spans: Spans, post: Any) -> None:
    with serve(app) as url:
        post(url + PATH, traceparent=REMOTE, tracestate="a=b")
    (span,) = spans.wait(1)
    context = span.get_span_context()
    assert span.parent is not None
    assert f"{context.trace_id:032x}-{span.parent.span_id:016x}" == REMOTE[3:-3]
    assert span.parent.is_remote
    assert dict(context.trace_state) == {"a": "b"}


@pytest.mark.parametrize(
    "header", ["", "garbage", "00-0-0-01", "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"]
)
def test_a_broken_trace_header_does_no_harm(app: Starlette, spans: Spans, post: Any, header: str) -> None:
    with serve(app) as url:
        assert post(url + PATH, traceparent=header).status_code == 200
    assert spans.dicts(1) == [SERVER]


def test_unsampled_stays_unsampled(spans: Spans, post: Any) -> None:
    carried: dict[str, str] = {}

    async def answer(request: Request) -> Response:
        from opentelemetry import propagate

        propagate.inject(carried)
        return StreamingResponse(paced(FRAMES, 0), media_type="text/event-stream")

    with serve(Starlette(routes=[Route(PATH, answer, methods=["POST"])])) as url:
        unsampled = REMOTE[:-2] + "00"
        assert post(url + PATH, traceparent=unsampled).content == b"".join(FRAMES)
    assert spans.all() == []
    assert carried["traceparent"] == unsampled


def test_other_paths_and_methods_have_no_span(app: Starlette, spans: Spans, post: Any) -> None:
    with serve(app) as url:
        assert post(url + "/v1/models").status_code == 405
        assert httpx.get(url + "/v1/models").json() == {"data": []}
        assert httpx.get(url + PATH).status_code == 405
    assert spans.all() == []


def test_a_request_id_is_kept(app: Starlette, spans: Spans, post: Any) -> None:
    with serve(app) as url:
        post(url + PATH, **{"x-request-id": "req-1"})
    assert spans.dicts(1) == [server_span(**{"http.request.header.x-request-id": ("req-1",)})]


# --- roles ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["gateway", "router", "server", "edge", " Server "])
def test_the_role_comes_from_the_environment(
    app: Starlette, spans: Spans, post: Any, monkeypatch: pytest.MonkeyPatch, role: str
) -> None:
    monkeypatch.setenv("PROMPTPATH_ROLE", role)
    with serve(app) as url:
        post(url + PATH)
    spans.wait(1)
    assert attributes_of(spans.named(f"POST {PATH}"))["promptpath.stage"] == role.strip().lower()


def test_a_server_has_parse_and_stream(spans: Spans, post: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROMPTPATH_ROLE", "server")

    async def tokens() -> AsyncIterator[bytes]:
        notes = state.of_request()
        assert notes is not None
        yield FRAMES[0]
        await asleep(0.02)
        notes.first_token_mono_ns = recorder.monotonic_ns()
        notes.decoded("The", notes.first_token_mono_ns, recorder.monotonic_ns())
        for frame in FRAMES[1:]:
            yield frame

    async def answer(request: Request) -> Response:
        await request.json()
        return StreamingResponse(tokens(), media_type="text/event-stream")

    with serve(Starlette(routes=[Route(PATH, answer, methods=["POST"])])) as url:
        post(url + PATH)
    server, parse, stream = spans.dicts(3)
    assert server == server_span(**{"promptpath.stage": "server"})
    stage = {**SERVER, "kind": "INTERNAL", "parent": f"POST {PATH}", "deliveries": 0}
    assert parse == {**stage, "name": "parse", "attributes": {"promptpath.stage": "parse"}}
    assert stream == {
        **stage,
        "name": "stream",
        "attributes": {"promptpath.stage": "stream", "promptpath.stream.total_us": ...},
    }
    whole, parsing, streaming = spans.all()
    assert parsing.start_time == whole.start_time
    assert whole.start_time is not None
    assert streaming.end_time is not None
    # The stream of the first token ends with its delivery.
    assert abs(streaming.end_time - whole.start_time - gaps_us(whole)[0] * 1000) < 1000


# --- answers ----------------------------------------------------------------------------------------------------------


def test_an_answer_in_one_piece(spans: Spans, post: Any) -> None:
    body = {"id": "c", "model": "tiny-1", "choices": [{"finish_reason": "length"}], "usage": USAGE}

    async def answer(_: Request) -> Response:
        return JSONResponse(body)

    with serve(Starlette(routes=[Route(PATH, answer, methods=["POST"])])) as url:
        assert post(url + PATH, {"model": "tiny"}).json() == body
    # The body of the request is never read by this endpoint, so nothing is known of it.
    wanted = server_span(**{"gen_ai.response.id": "c", "gen_ai.response.finish_reasons": ("length",)})
    wanted["deliveries"] = 0
    del wanted["attributes"]["gen_ai.request.model"], wanted["attributes"]["gen_ai.request.stream"]
    assert spans.dicts(1) == [wanted]


@pytest.mark.parametrize(("status", "error"), [(400, None), (401, None), (429, None), (500, "500"), (503, "503")])
def test_statuses(spans: Spans, post: Any, status: int, error: str | None) -> None:
    async def answer(request: Request) -> Response:
        await request.body()
        return JSONResponse({"error": {}}, status)

    with serve(Starlette(routes=[Route(PATH, answer, methods=["POST"])])) as url:
        assert post(url + PATH).status_code == status
    (span,) = spans.dicts(1)
    assert span["attributes"]["http.response.status_code"] == status
    assert span["attributes"].get("error.type") == error
    assert span["status"][0] == ("ERROR" if error else "UNSET")


def test_an_application_that_raises(spans: Spans, post: Any, capfd: pytest.CaptureFixture[str]) -> None:
    async def answer(_: Request) -> Response:
        raise LookupError("nothing here")

    with serve(Starlette(routes=[Route(PATH, answer, methods=["POST"])])) as url:
        assert post(url + PATH).status_code == 500
    (span,) = spans.dicts(1)
    assert (span["attributes"]["error.type"], span["attributes"]["http.response.status_code"]) == ("LookupError", 500)
    # The server was given the exception itself.
    assert capfd.readouterr().err.rstrip().endswith("LookupError: nothing here")


def test_an_application_that_raises_in_mid_stream(spans: Spans, post: Any) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield FRAMES[1]
        raise LookupError("engine died")

    async def answer(request: Request) -> Response:
        await request.body()  # a connection closed with bytes unread would be reset, not ended
        return StreamingResponse(broken(), media_type="text/event-stream")

    with (
        serve(Starlette(routes=[Route(PATH, answer, methods=["POST"])])) as url,
        pytest.raises(httpx.RemoteProtocolError),
    ):
        post(url + PATH)
    (span,) = spans.dicts(1)
    assert span["attributes"]["error.type"] == "LookupError"
    assert span["deliveries"] == 1
    assert "promptpath.abort" not in span["attributes"]


def test_pieces_of_frames(spans: Spans, post: Any) -> None:
    whole = b"".join(FRAMES)

    async def answer(_: Request) -> Response:
        return StreamingResponse(
            paced([whole[i : i + 50] for i in range(0, len(whole), 50)], 0), media_type="text/event-stream"
        )

    with serve(Starlette(routes=[Route(PATH, answer, methods=["POST"])])) as url:
        assert post(url + PATH).content == whole
    (span,) = spans.dicts(1)
    assert span["deliveries"] == 5


def test_a_compressed_answer_passes_as_it_is(spans: Spans, post: Any) -> None:
    async def answer(request: Request) -> Response:
        await request.body()
        return JSONResponse({"id": "c", "model": "x" * 2000})

    app = Starlette(routes=[Route(PATH, answer, methods=["POST"])], middleware=[Middleware(GZipMiddleware)])
    with serve(app) as url:
        assert post(url + PATH).json()["model"] == "x" * 2000
    (span,) = spans.dicts(1)
    assert "gen_ai.response.model" not in span["attributes"]


# --- hanging up -------------------------------------------------------------------------------------------------------


def _hang_up(url: str, after: bytes, *, reset: bool = True) -> None:
    """Post, read until these bytes have come, and go."""
    import struct

    host, port = url.removeprefix("http://").split(":")
    body = json.dumps(ASKED).encode()
    with socket.create_connection((host, int(port))) as connection:
        head = (
            f"POST {PATH} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        connection.sendall(head.encode() + body)
        got = b""
        while after not in got:
            got += connection.recv(65536)
        if reset:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@pytest.mark.parametrize("reset", [True, False], ids=["reset", "close"])
def test_a_client_that_hangs_up(spans: Spans, reset: bool) -> None:
    async def answer(request: Request) -> Response:
        await request.json()
        frames = [b"data: " + json.dumps(chunk({"content": "x"})).encode() + b"\n\n"] * 500
        return StreamingResponse(paced(frames, 0.005), media_type="text/event-stream")

    with serve(Starlette(routes=[Route(PATH, answer, methods=["POST"])])) as url:
        _hang_up(url, b"data:", reset=reset)
        (span,) = spans.dicts(1)
    assert span["attributes"]["promptpath.abort"] == "client"
    assert span["attributes"]["http.response.status_code"] == 200
    assert 1 <= span["deliveries"] < 500
    assert span["status"] == ("UNSET", None)


def test_hanging_up_after_a_complete_answer_is_no_abort(spans: Spans) -> None:
    async def answer(request: Request) -> Response:
        await request.json()

        async def frames() -> AsyncIterator[bytes]:
            for frame in FRAMES:
                yield frame
            await asleep(30)

        return StreamingResponse(frames(), media_type="text/event-stream")

    with serve(Starlette(routes=[Route(PATH, answer, methods=["POST"])])) as url:
        _hang_up(url, b"[DONE]")
        assert spans.dicts(1) == [SERVER]


def test_a_server_that_gives_up_in_mid_answer(spans: Spans, post: Any) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        await send({"type": "http.response.body", "body": FRAMES[1], "more_body": True})

    with serve(AsgiMiddleware(app)) as url, pytest.raises(httpx.RemoteProtocolError):
        post(url + PATH)
    (span,) = spans.dicts(1)
    assert span["attributes"]["promptpath.abort"] == "server"


# --- other applications and instrumentations --------------------------------------------------------------------------


async def _bare(scope: Any, receive: Any, send: Any) -> None:
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
    for frame in FRAMES:
        await send({"type": "http.response.body", "body": memoryview(frame), "more_body": True})
    await send({"type": "http.response.body"})


def test_any_asgi_application(spans: Spans, post: Any) -> None:
    with serve(AsgiMiddleware(_bare, role="router")) as url:
        assert post(url + PATH).content == b"".join(FRAMES)
    wanted = server_span(**{"promptpath.stage": "router"})
    del wanted["attributes"]["http.route"]
    assert spans.dicts(1) == [wanted]


def test_any_asgi_application_under_uvicorn(spans: Spans, post: Any) -> None:
    with serve(_bare) as url:
        assert post(url + PATH).content == b"".join(FRAMES)
        wanted = server_span()
        del wanted["attributes"]["http.route"]
        assert spans.dicts(1) == [wanted]
        AsgiInstrumentor().uninstrument()
        assert post(url + PATH).content == b"".join(FRAMES)
        assert len(spans.all()) == 1


def test_a_failure_of_ours_changes_nothing(spans: Spans, post: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("ours")

    monkeypatch.setattr(safety, "_failures", {})
    for place in ("feed", "attributes", "error_type"):
        monkeypatch.setattr(SseScanner, place, broken)
    with serve(AsgiMiddleware(_bare)) as url:
        assert post(url + PATH).content == b"".join(FRAMES)
        assert set(safety.failures()) == {"asgi.send", "asgi.end"}
        monkeypatch.setattr(Exchange, "__init__", broken)
        assert post(url + PATH).content == b"".join(FRAMES)
    assert safety.failures()["asgi.begin"] == 1
    monkeypatch.undo()


def test_an_anthropic_stream(spans: Spans, post: Any) -> None:
    """Its TTFT is not its duration."""
    events = [
        {"type": "message_start", "message": {"id": "m", "model": "claude", "usage": {"input_tokens": 3}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "ping"},
        *({"type": "content_block_delta", "delta": {"type": "text_delta", "text": word}} for word in ("The", " sky")),
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}},
        {"type": "message_stop"},
    ]
    frames = [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events]

    async def answer(request: Request) -> Response:
        await request.json()
        return StreamingResponse(paced(frames, 0.02), media_type="text/event-stream")

    with serve(Starlette(routes=[Route("/v1/messages", answer, methods=["POST"])])) as url:
        post(url + "/v1/messages")
    (span,) = spans.wait(1)
    first, gap = gaps_us(span)
    duration_us = ((span.end_time or 0) - (span.start_time or 0)) / 1000
    assert first + gap < duration_us - 20_000
    attributes = attributes_of(span)
    assert attributes["gen_ai.response.finish_reasons"] == ("end_turn",)
    assert (attributes["gen_ai.usage.input_tokens"], attributes["gen_ai.usage.output_tokens"]) == (3, 2)


def test_mounted_applications_have_one_span(app: Starlette, spans: Spans, post: Any) -> None:
    outer = Starlette(routes=[Mount("/tenant", app=app)])
    with serve(AsgiMiddleware(outer)) as url:
        assert post(url + "/tenant" + PATH).status_code == 200
    (span,) = spans.dicts(1)
    assert (span["name"], span["deliveries"]) == (f"POST /tenant{PATH}", 5)


def _fastapi() -> FastAPI:
    made = FastAPI()

    @made.post(PATH)
    async def chat(request: Request) -> Response:
        return await _stream(request)

    return made


def test_fastapis_own_tracing_steps_back_where_nobody_asked_for_it(spans: Spans, post: Any) -> None:
    with serve(_fastapi()) as url:
        post(url + PATH)
    assert spans.dicts(1) == [SERVER]


def test_fastapis_own_span_stays_where_the_program_set_the_provider(
    spans: Spans, post: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bootstrap, "_own", None)
    with serve(_fastapi()) as url:
        post(url + PATH)
    found = [s for s in spans.dicts(4) if not s["name"].startswith("fastapi.")]
    theirs, ours = found
    assert (theirs["scope"], theirs["kind"], theirs["attributes"]["promptpath.stage"]) == (
        "fastapi",
        "SERVER",
        "gateway",
    )
    assert ours == {**SERVER, "kind": "INTERNAL", "parent": f"POST {PATH}"}


@pytest.mark.parametrize("how", ["instrument_app", "add_middleware", "around"])
def test_beside_opentelemetrys_instrumentation(spans: Spans, post: Any, how: str) -> None:
    made: Any = _fastapi()
    if how == "instrument_app":
        FastAPIInstrumentor.instrument_app(made, exclude_spans=["receive", "send"])
    elif how == "add_middleware":
        made.add_middleware(OpenTelemetryMiddleware, exclude_spans=["receive", "send"])
    else:
        made = OpenTelemetryMiddleware(made, exclude_spans=["receive", "send"])
    with serve(made) as url:
        post(url + PATH)
        post(url + PATH)
    found = spans.dicts(4)
    servers = [s for s in found if s["kind"] == "SERVER"]
    ours = [s for s in found if s["scope"] == "promptpath.asgi"]
    assert len(servers) == len(ours) == 2
    assert {s["scope"].partition(".")[0] for s in servers} == {"opentelemetry"}
    assert {s["attributes"]["promptpath.stage"] for s in servers} == {"gateway"}
    assert ours == [{**SERVER, "kind": "INTERNAL", "parent": servers[0]["name"]}] * 2


def test_suppressed_instrumentation(spans: Spans, post: Any) -> None:
    class Suppressing:
        app = AsgiMiddleware(_bare)

        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            with suppress_instrumentation():
                await self.app(scope, receive, send)

    with serve(Suppressing()) as url:
        assert post(url + PATH).content == b"".join(FRAMES)
    assert spans.all() == []


def test_uninstrument_takes_everything_off(app: Starlette, spans: Spans, post: Any) -> None:
    made = _fastapi()
    made.add_middleware(OpenTelemetryMiddleware)
    with serve(made) as url:
        post(url + PATH)
        before = len(spans.wait(2))
        AsgiInstrumentor().uninstrument()
        post(url + PATH)
        assert {
            span.instrumentation_scope.name for span in spans.wait(before + 1)[before:] if span.instrumentation_scope
        } == {"opentelemetry.instrumentation.asgi"}
    assert not hasattr(Starlette.__dict__["__call__"], "_self_wrapper")


def test_requests_at_once_keep_their_tokens_apart(app: Starlette, spans: Spans, post: Any) -> None:
    with serve(app) as url:
        threads = [threading.Thread(target=post, args=(url + PATH,)) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert spans.dicts(16) == [SERVER] * 16
