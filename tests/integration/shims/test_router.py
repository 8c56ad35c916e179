"""Client, gateway, router, two servers: one trace, each hop's role, and a failed attempt told from the other."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import ExitStack
from itertools import pairwise
from typing import Any

import httpx
import openai
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from promptpath.instrumentation.shims.gateway.asgi import AsgiInstrumentor, AsgiMiddleware

from .running import Spans, attributes_of, five_tokens, gaps_us, paced, serve

PATH = "/v1/chat/completions"


def _passing_on(targets: list[tuple[str, str | None]]) -> Starlette:
    """Passes requests on to the first of some (URL, model) that does not fail."""

    async def answer(request: Request) -> Response:
        body = await request.json()
        client = httpx.AsyncClient()
        for url, model in targets:
            asked = {**body, "model": model or body["model"]}
            upstream = await client.send(client.build_request("POST", url + PATH, json=asked), stream=True)
            if upstream.status_code < 500:
                break
            await upstream.aclose()

        async def passed_on() -> AsyncIterator[bytes]:
            async for data in upstream.aiter_raw():
                yield data
            await client.aclose()

        return StreamingResponse(passed_on(), upstream.status_code, media_type=upstream.headers["content-type"])

    return Starlette(routes=[Route(PATH, answer, methods=["POST"])])


def _server(status: int) -> Starlette:
    async def answer(request: Request) -> Response:
        await request.json()
        if status != 200:
            return JSONResponse({"error": {}}, status)
        frames = [b"data: " + json.dumps(body).encode() + b"\n\n" for body in five_tokens()]
        return StreamingResponse(paced([*frames, b"data: [DONE]\n\n"], 0.003), media_type="text/event-stream")

    return Starlette(routes=[Route(PATH, answer, methods=["POST"])])


def test_one_trace_from_client_to_engine(spans: Spans, monkeypatch: pytest.MonkeyPatch) -> None:
    # Roles are a process's; here all are in one, so each application is wrapped by hand.
    AsgiInstrumentor().uninstrument()
    with ExitStack() as stack:
        broken = stack.enter_context(serve(AsgiMiddleware(_server(503), "server")))
        good = stack.enter_context(serve(AsgiMiddleware(_server(200), "server")))
        router = stack.enter_context(
            serve(AsgiMiddleware(_passing_on([(broken, "tiny-a"), (good, "tiny-b")]), "router"))
        )
        gateway = stack.enter_context(serve(AsgiMiddleware(_passing_on([(router, None)]), "gateway")))
        client = stack.enter_context(openai.OpenAI(base_url=gateway + "/v1", api_key="k"))
        list(client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": "x"}], stream=True))
        found = spans.wait(15)
    AsgiInstrumentor().instrument(skip_dep_check=True)

    assert len({span.get_span_context().trace_id for span in found}) == 1
    by_id = {span.get_span_context().span_id: span for span in found}

    def describe(span: Any) -> tuple[Any, ...]:
        a = attributes_of(span)
        depth = 0
        above = span
        while above.parent is not None:
            above, depth = by_id[above.parent.span_id], depth + 1
        return (
            depth,
            a["promptpath.stage"],
            a.get("gen_ai.request.model"),
            a.get("gen_ai.response.model"),
            a.get("promptpath.attempt"),
            a.get("error.type"),
            len(gaps_us(span)),
        )

    hops = [span for span in found if attributes_of(span)["promptpath.stage"] not in ("tcp", "parse")]
    assert [describe(span) for span in hops] == [
        (0, "client", "tiny", "tiny-1", None, None, 5),
        (1, "call", "tiny", None, 1, None, 5),
        (2, "gateway", "tiny", "tiny-1", None, None, 5),
        (3, "call", "tiny", "tiny-1", 1, None, 5),
        (4, "router", "tiny", "tiny-1", None, None, 5),
        (5, "call", "tiny-a", None, 1, "503", 0),
        (6, "server", "tiny-a", None, None, "503", 0),
        (5, "call", "tiny-b", "tiny-1", 2, None, 5),
        (6, "server", "tiny-b", "tiny-1", None, None, 5),
    ]
    # Each hop saw the first token later than the one below it, and none before it was there.
    firsts = [(span.start_time or 0) + gaps_us(span)[0] * 1000 for span in reversed(hops) if gaps_us(span)]
    assert all(b - a > -2_000_000 for a, b in pairwise(firsts))
