"""httpx and httpx2 on the wire: connections, context, attempts, and bodies that arrive as they would without us."""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import httpx2
import pytest
import trustme
from opentelemetry import trace
from opentelemetry.instrumentation.httpx import HTTPXClientInstrumentor
from opentelemetry.trace import SpanKind
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from promptpath.instrumentation import recorder
from promptpath.instrumentation.shims.client.httpx import HttpxInstrumentor
from promptpath.semconv import Stage

from .running import Spans, attributes_of, chunk, five_tokens, gaps_us, paced, raw_server, serve

PATH = "/v1/chat/completions"
ASKED = {"model": "tiny", "messages": [{"role": "user", "content": "secret words"}], "stream": True}
BYTES = b"".join(b"data: " + json.dumps(body).encode() + b"\n\n" for body in five_tokens()) + b"data: [DONE]\n\n"

headers: list[dict[str, str]] = []


async def _answer(request: Request) -> Response:
    headers.append(dict(request.headers))
    body = await request.json()
    if body.get("fail"):
        return JSONResponse({"error": {}}, int(body["fail"]))
    if body.get("stream"):
        return StreamingResponse(
            paced([f + b"\n\n" for f in BYTES.split(b"\n\n")[:-1]], 0.002), media_type="text/event-stream"
        )
    return JSONResponse({"id": "c", "model": "tiny-1", "choices": [{"finish_reason": "stop"}]})


async def _other(request: Request) -> Response:
    headers.append(dict(request.headers))
    return Response("ok")


APP = Starlette(routes=[Route(PATH, _answer, methods=["POST"]), Route("/other", _other)])


@pytest.fixture
def url(spans: Spans) -> Iterator[str]:
    headers.clear()
    with serve(APP) as base:
        yield base


class Client:
    """Sync and async clients of both libraries, driven alike."""

    def __init__(self, library: ModuleType, is_async: bool) -> None:
        self.library = library
        self.is_async = is_async

    @contextmanager
    def _as_async(self) -> Iterator[Any]:
        import asyncio

        with asyncio.Runner() as runner:
            yield runner.run

    def post(self, url: str, body: Any, times: int = 1, **options: Any) -> list[bytes]:
        """Posts, reading each answer as a stream; the bytes of the answers."""
        request = {"url": url, "content": json.dumps(body).encode(), **options.pop("request", {})}
        if not self.is_async:
            with self.library.Client(**options) as client:
                return [b"".join(self._read(client, request)) for _ in range(times)]

        async def run() -> list[bytes]:
            answers = []
            async with self.library.AsyncClient(**options) as client:
                for _ in range(times):
                    async with client.stream("POST", **request) as response:
                        answers.append(b"".join([data async for data in response.aiter_raw()]))
            return answers

        with self._as_async() as do:
            return list(do(run()))

    @staticmethod
    def _read(client: Any, request: dict[str, Any]) -> Iterator[bytes]:
        with client.stream("POST", **request) as response:
            yield from response.iter_raw()


@pytest.fixture(
    params=[(httpx, False), (httpx, True), (httpx2, False), (httpx2, True)],
    ids=["httpx", "httpx-async", "httpx2", "httpx2-async"],
)
def client(request: pytest.FixtureRequest) -> Client:
    return Client(*request.param)


CALL = {
    "name": "POST",
    "kind": "CLIENT",
    "scope": "promptpath.httpx",
    "parent": None,
    "attributes": {
        "promptpath.stage": "call",
        "promptpath.attempt": 1,
        "promptpath.first_byte_us": ...,
        "promptpath.tcp.rtt_us": ...,
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
        "network.peer.address": "127.0.0.1",
        "network.peer.port": ...,
        "server.address": "127.0.0.1",
        "server.port": ...,
        "url.path": PATH,
        "url.scheme": "http",
    },
    "deliveries": 5,
    "status": ("UNSET", None),
    "events": [],
}


def _connecting(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "kind": "INTERNAL",
        "scope": "promptpath.httpx",
        "parent": "POST",
        "attributes": {"promptpath.stage": name},
        "deliveries": 0,
        "status": ("UNSET", None),
        "events": [],
    }


def test_a_call_and_its_bytes(client: Client, url: str, spans: Spans) -> None:
    assert client.post(url + PATH, ASKED) == [BYTES]
    assert spans.dicts(3, "promptpath.httpx") == [CALL, _connecting("tcp")]


def test_a_connection_that_is_kept_is_opened_once(client: Client, url: str, spans: Spans) -> None:
    assert client.post(url + PATH, ASKED, times=2) == [BYTES, BYTES]
    assert [span["name"] for span in spans.dicts(5, "promptpath.httpx")] == ["POST", "tcp", "POST"]


def test_name_resolution_is_told_apart(client: Client, url: str, spans: Spans) -> None:
    client.post(url.replace("127.0.0.1", "localhost") + PATH, ASKED)
    found = spans.dicts(4, "promptpath.httpx")
    named = {**CALL, "attributes": {**CALL["attributes"], "server.address": "localhost"}}  # type: ignore[dict-item]
    assert found == [named, _connecting("dns"), _connecting("tcp")]
    call, dns, tcp = (spans.named(name) for name in ("POST", "dns", "tcp"))
    times = [call.start_time, dns.start_time, dns.end_time, tcp.start_time, tcp.end_time]
    assert times == sorted(times)  # type: ignore[type-var]
    assert dns.end_time == tcp.start_time


def test_tls(client: Client, spans: Spans, tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost", "127.0.0.1")
    certificate.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "server.pem"))
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    with serve(APP, ssl_certfile=str(tmp_path / "server.pem")) as base:
        assert client.post(base + PATH, ASKED, verify=trusting) == [BYTES]
    found = spans.dicts(4, "promptpath.httpx")
    assert found == [
        {**CALL, "attributes": {**CALL["attributes"], "url.scheme": "https"}},  # type: ignore[dict-item]
        _connecting("tcp"),
        _connecting("tls"),
    ]


def test_nobody_listens(client: Client, spans: Spans) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(client.library.ConnectError):
        client.post(f"http://127.0.0.1:{port}{PATH}", ASKED)
    call, tcp = spans.dicts(2)
    assert (call["attributes"]["error.type"], call["status"]) == ("ConnectError", ("ERROR", None))
    assert (tcp["name"], tcp["attributes"]["error.type"]) == ("tcp", "ConnectError")
    assert "promptpath.abort" not in call["attributes"]


def test_a_name_that_does_not_resolve(client: Client, spans: Spans, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(client.library.ConnectError):
        client.post(f"http://nowhere.invalid{PATH}", ASKED)
    call, dns = spans.dicts(2)
    assert call["attributes"]["error.type"] == "ConnectError"
    assert (dns["name"], dns["attributes"]["error.type"]) == ("dns", "ConnectError")


def test_the_users_trace_hook_is_called_as_ever(client: Client, url: str, spans: Spans) -> None:
    seen: list[str] = []

    def trace_hook(name: str, info: Any) -> None:
        seen.append(name)

    async def trace_hook_async(name: str, info: Any) -> None:
        seen.append(name)

    hook = trace_hook_async if client.is_async else trace_hook
    client.post(url + PATH, ASKED, request={"extensions": {"trace": hook}})
    with_us = list(seen)
    seen.clear()
    HttpxInstrumentor().uninstrument()
    client.post(url + PATH, ASKED, request={"extensions": {"trace": hook}})
    assert with_us == seen
    assert "connection.connect_tcp.complete" in seen


def test_other_requests_carry_the_context_and_have_no_span(url: str, spans: Spans) -> None:
    with trace.get_tracer("user").start_as_current_span("mine") as mine:
        httpx.get(url + "/other")
        httpx2.get(url + "/other")
    context = mine.get_span_context()
    wanted = f"00-{context.trace_id:032x}-{context.span_id:016x}-"
    assert [sent["traceparent"].startswith(wanted) for sent in headers] == [True, True]
    assert [span["name"] for span in spans.dicts(1)] == ["mine"]


def test_a_request_sent_twice_carries_each_time_its_own_context(url: str, spans: Spans) -> None:
    with httpx.Client() as client:
        request = client.build_request("POST", url + PATH, json=ASKED)
        for _ in range(2):
            client.send(request)
    calls = [span.context for span in spans.wait(5) if span.name == "POST"]
    assert [sent["traceparent"].split("-")[2] for sent in headers] == [f"{c.span_id:016x}" for c in calls if c]


def test_an_answer_that_is_left_early(client: Client, url: str, spans: Spans) -> None:
    if client.is_async:  # the openai tests do it
        return
    with client.library.Client() as made, made.stream("POST", url + PATH, json=ASKED) as response:
        next(response.iter_raw())
    spans.wait(3)
    assert attributes_of(spans.named("POST"))["promptpath.abort"] == "client"


def test_an_error_answer_that_is_not_read_is_no_abort(client: Client, url: str, spans: Spans) -> None:
    if client.is_async:  # the same code
        return
    with client.library.Client() as made, made.stream("POST", url + PATH, json={**ASKED, "fail": 503}) as response:
        assert response.status_code == 503
    attributes = spans.dicts(3, "promptpath.httpx")[0]["attributes"]
    assert attributes["error.type"] == "503"
    assert "promptpath.abort" not in attributes


def test_a_read_timeout(client: Client, spans: Spans) -> None:
    def silent(connection: socket.socket, _: bytes) -> None:
        connection.recv(1)

    with raw_server(silent) as (base, _), pytest.raises(client.library.ReadTimeout):
        client.post(base + PATH, ASKED, timeout=client.library.Timeout(30.0, read=0.05))
    attributes = spans.dicts(2)[0]["attributes"]
    assert (attributes["error.type"], attributes["promptpath.abort"]) == ("ReadTimeout", "timeout")


def test_frames_cut_anywhere_by_the_network(client: Client, spans: Spans) -> None:
    def dribble(connection: socket.socket, _: bytes) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
        for start in range(0, len(BYTES), 37):
            connection.sendall(BYTES[start : start + 37])

    with raw_server(dribble) as (base, _):
        assert client.post(base + PATH, ASKED) == [BYTES]
    call = spans.dicts(2)[0]
    counts = attributes_of(spans.named("POST")).get("promptpath.token.counts", (1,) * call["deliveries"])
    assert sum(counts) == 5


def test_a_compressed_stream_is_left_alone(client: Client, spans: Spans) -> None:
    import gzip

    packed = gzip.compress(BYTES)

    def answer(connection: socket.socket, _: bytes) -> None:
        head = (
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-encoding: gzip\r\nconnection: close\r\n\r\n"
        )
        connection.sendall(head + packed)

    with raw_server(answer) as (base, _):
        assert client.post(base + PATH, ASKED) == [packed]
    assert spans.dicts(2)[0]["deliveries"] == 0


def test_attempts_are_counted_within_the_request(client: Client, url: str, spans: Spans) -> None:
    request = recorder.start("POST /v1/chat/completions", scope="t", stage=Stage.ROUTER, kind=SpanKind.SERVER)
    with recorder.use(request):
        client.post(url + PATH, {**ASKED, "fail": 503})
        client.post(url + PATH, ASKED)
    request.end()
    calls = [span for span in spans.dicts(7) if span["name"] == "POST"]
    assert [(c["attributes"]["promptpath.attempt"], c["attributes"].get("error.type")) for c in calls] == [
        (1, "503"),
        (2, None),
    ]
    (router,) = [span for span in spans.all() if attributes_of(span).get("promptpath.stage") == "router"]
    assert attributes_of(router)["gen_ai.response.model"] == "tiny"


def test_beside_opentelemetrys_own_instrumentation(url: str, spans: Spans) -> None:
    """Theirs goes around ours: its span becomes the call, the server lies below it, and the token gaps lie in ours."""
    theirs = HTTPXClientInstrumentor()
    methods = [(httpx.HTTPTransport, "handle_request"), (httpx.AsyncHTTPTransport, "handle_async_request")]
    ours = [owner.__dict__[name] for owner, name in methods]
    theirs.instrument()
    try:
        with httpx.Client() as client, client.stream("POST", url + PATH, json=ASKED) as response:
            assert b"".join(response.iter_raw()) == BYTES
    finally:
        theirs.uninstrument()
        # It leaves a bound copy of what it found.
        for (owner, name), method in zip(methods, ours, strict=True):
            setattr(owner, name, method)
    found = spans.dicts(4)
    shape = [
        (
            s["scope"].rpartition(".")[2],
            s["name"],
            s["kind"],
            s["parent"],
            s["attributes"].get("promptpath.stage"),
            s["deliveries"],
        )
        for s in found
    ]
    assert shape == [
        ("httpx", "POST", "CLIENT", None, "call", 0),
        ("httpx", "POST", "INTERNAL", "POST", None, 5),
        ("httpx", "tcp", "INTERNAL", "POST", "tcp", 0),
        ("asgi", "POST /v1/chat/completions", "SERVER", "POST", "gateway", 5),
    ]
    outer, inner, _, server = spans.all()
    assert server.parent is not None
    assert server.parent.span_id == outer.get_span_context().span_id
    assert gaps_us(inner)


def test_uninstrument_takes_everything_off() -> None:
    def patched() -> list[bool]:
        places = [socket.getaddrinfo]
        for library in (httpx, httpx2):
            places += [
                library.HTTPTransport.__dict__["handle_request"],
                library.AsyncHTTPTransport.__dict__["handle_async_request"],
            ]
        return [hasattr(place, "_self_wrapper") for place in places]

    assert patched() == [True] * 5
    HttpxInstrumentor().uninstrument()
    assert patched() == [False] * 5


def test_no_content_is_recorded(client: Client, url: str, spans: Spans) -> None:
    client.post(url + PATH, {**ASKED, "n": 1})
    text = repr([(span.name, attributes_of(span)) for span in spans.wait(3)])
    assert "secret" not in text
    assert "blue" not in text


def test_one_chunk_with_several_tokens_says_so(client: Client, spans: Spans) -> None:
    frames = b"".join(b"data: " + json.dumps(chunk({"content": "x"})).encode() + b"\n\n" for _ in range(3))

    def at_once(connection: socket.socket, _: bytes) -> None:
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
        connection.sendall(head + frames)

    with raw_server(at_once) as (base, _):
        client.post(base + PATH, ASKED)
    assert spans.dicts(2)[0]["attributes"]["promptpath.token.counts"] == (3,)
