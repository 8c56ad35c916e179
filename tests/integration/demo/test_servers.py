"""The demo's gateway and router before real servers: what they refuse, whom they ask next, what they pass on."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import httpx
import pytest
import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse

from promptpath.cli.demo import gateway, router
from promptpath.cli.demo.openai_format import CHAT_PATH, DONE, Completion
from promptpath.cli.ports import free_port

BODY = {"model": "m", "messages": [{"role": "user", "content": "hello"}], "stream": True}


@contextmanager
def serving(app: FastAPI) -> Iterator[str]:
    """Runs an application under uvicorn in a thread; gives its base URL."""
    port = free_port()
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_level="error"))
    thread = threading.Thread(target=server.run)
    thread.start()
    eventually(lambda: server.started)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(10)
        assert not thread.is_alive()


def eventually(true: Callable[[], bool], within_s: float = 10) -> None:
    deadline = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


@dataclass
class Upstream:
    """A server that answers as it is told, and notes what it was asked and whether it was hung up on."""

    answer: Callable[[Upstream], Response]
    bodies: list[dict[str, object]] = field(default_factory=list)
    cancelled: int = 0
    go_on: threading.Event = field(default_factory=threading.Event)

    def app(self) -> FastAPI:
        app = FastAPI()

        @app.post(CHAT_PATH, response_model=None)
        async def chat(request: Request) -> Response:
            self.bodies.append(await request.json())
            return self.answer(self)

        return app

    async def patience(self) -> None:
        """Waits until the test says go on."""
        while not self.go_on.is_set():
            await asyncio.sleep(0.01)


def stream(*events: bytes | BaseException | Callable[[], Awaitable[None]]) -> StreamingResponse:
    async def pieces() -> AsyncIterator[bytes]:
        for event in events:
            if isinstance(event, BaseException):
                raise event
            if isinstance(event, bytes):
                yield event
            else:
                await event()

    return StreamingResponse(pieces(), media_type="text/event-stream")


ROLE = Completion("m").chunk({"role": "assistant", "content": ""})
FIRST = Completion("m").chunk({"content": "one"})
SECOND = Completion("m").chunk({"content": " two"})
ERROR = Completion("m").error_event("out of memory")


def answering(upstream: Upstream) -> Response:
    return stream(ROLE, FIRST, SECOND, DONE)


def busy(upstream: Upstream) -> Response:
    return JSONResponse({"error": {"message": "busy"}}, status_code=503, headers={"Retry-After": "1"})


def broken_before(upstream: Upstream) -> Response:
    return stream(ROLE, RuntimeError("gone"))


def error_before(upstream: Upstream) -> Response:
    return stream(ROLE, ERROR)


def broken_after(upstream: Upstream) -> Response:
    return stream(ROLE, FIRST, RuntimeError("gone"))


@contextmanager
def routed(*answers: Callable[[Upstream], Response] | None) -> Iterator[tuple[str, list[Upstream]]]:
    """A router before upstreams of those answers (None: nobody listens)."""
    upstreams: list[Upstream] = []
    urls: list[str] = []
    with contexts() as enter:
        for answer in answers:
            if answer is None:
                urls.append(f"http://127.0.0.1:{free_port()}")
            else:
                upstreams.append(Upstream(answer))
                urls.append(enter(serving(upstreams[-1].app())))
        deployments = [router.Deployment(f"m-{at}", url) for at, url in enumerate(urls)]
        yield enter(serving(router.create_app({"m": deployments}))), upstreams


@contextmanager
def contexts() -> Iterator[Callable[..., str]]:
    from contextlib import ExitStack

    with ExitStack() as stack:
        yield stack.enter_context


@pytest.mark.parametrize("first", [busy, broken_before, error_before, None])
def test_the_next_is_asked_when_one_fails_before_its_first_token(
    first: Callable[[Upstream], Response] | None,
) -> None:
    with routed(first, answering) as (url, upstreams):
        answer = httpx.post(url + CHAT_PATH, json=BODY)
    assert (answer.status_code, answer.content) == (200, ROLE + FIRST + SECOND + DONE)
    assert [upstream.bodies[0]["model"] for upstream in upstreams] == (["m-0", "m-1"] if first else ["m-1"])


def test_after_the_first_token_nobody_else_is_asked() -> None:
    with routed(broken_after, answering) as (url, upstreams):
        got = b""

        def read() -> None:
            nonlocal got
            with httpx.stream("POST", url + CHAT_PATH, json=BODY) as answer:
                for piece in answer.iter_raw():
                    got += piece

        with pytest.raises(httpx.RemoteProtocolError):
            read()
    assert got == ROLE + FIRST
    assert upstreams[1].bodies == []


def test_the_last_failure_is_passed_on_as_it_came() -> None:
    with routed(None, busy) as (url, _):
        answer = httpx.post(url + CHAT_PATH, json=BODY)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert answer.json() == {"error": {"message": "busy"}}


def test_nobody_there() -> None:
    with routed(None, None) as (url, _):
        answer = httpx.post(url + CHAT_PATH, json=BODY)
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_unreachable")


def test_tokens_pass_at_once() -> None:
    def slow(upstream: Upstream) -> Response:
        return stream(ROLE, FIRST, upstream.patience, SECOND, DONE)

    with (
        routed(slow, answering) as (url, upstreams),
        httpx.stream("POST", url + CHAT_PATH, json=BODY, timeout=10) as answer,
    ):
        pieces = answer.iter_raw()
        got = b""
        while FIRST not in got:  # before the upstream goes on
            got += next(pieces)
        upstreams[0].go_on.set()
        assert got + b"".join(pieces) == ROLE + FIRST + SECOND + DONE


def test_a_hang_up_is_passed_on() -> None:
    def watched(upstream: Upstream) -> Response:
        async def until_gone() -> None:
            try:
                await upstream.patience()
            except asyncio.CancelledError:
                upstream.cancelled += 1
                raise

        return stream(ROLE, FIRST, until_gone)

    with routed(watched, answering) as (url, upstreams):
        with httpx.stream("POST", url + CHAT_PATH, json=BODY) as answer:
            next(answer.iter_raw())
        eventually(lambda: upstreams[0].cancelled == 1)
    assert upstreams[1].bodies == []


def test_a_model_that_is_not_known() -> None:
    with routed(answering) as (url, _):
        assert httpx.post(url + CHAT_PATH, json=BODY | {"model": "x"}).status_code == 404
        assert httpx.post(url + CHAT_PATH, content=b"{").status_code == 400


def test_what_the_gateway_refuses() -> None:
    keys = {"k": gateway.Tenant("t", gateway.TokenBucket(per_s=1e-6, burst=3))}
    upstream = Upstream(answering)
    with serving(upstream.app()) as url, serving(gateway.create_app(url, keys, max_prompt_chars=10)) as api:

        def ask(key: str | None, body: object = BODY) -> httpx.Response:
            headers = {"Authorization": f"Bearer {key}"} if key else {}
            return httpx.post(api + CHAT_PATH, content=json.dumps(body), headers=headers)

        long = BODY | {"messages": [{"role": "user", "content": "x" * 11}]}
        answers = [ask(None), ask("zz"), ask("k"), ask("k", long), ask("k", ["?"]), ask("k")]
    told = [(answer.status_code, answer.json()["error"]["code"]) for answer in answers if answer.status_code != 200]
    assert [answer.status_code for answer in answers] == [401, 401, 200, 413, 400, 429]
    assert told == [
        (401, "invalid_api_key"),
        (401, "invalid_api_key"),
        (413, "prompt_too_long"),
        (400, None),
        (429, "rate_limit_exceeded"),
    ]
    assert int(answers[-1].headers["retry-after"]) > 1
    assert answers[2].content == ROLE + FIRST + SECOND + DONE
    assert len(upstream.bodies) == 1
