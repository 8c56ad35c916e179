"""The demo's inference server: a real language model behind OpenAI's chat completions API.

`python -m promptpath.cli.demo.engine --port 8001 --name smollm2-135m`
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from promptpath.cli.demo.batching import Arrival, Batcher, EngineFailed, EngineFull, Generation
from promptpath.cli.demo.model import find_gguf
from promptpath.cli.demo.openai_format import CHAT_PATH, DONE, ChatRequest, Completion, error, install_error_handlers
from promptpath.cli.demo.serve import serve
from promptpath.cli.demo.text import IncrementalText, StopAt

_DEFAULT_MAX_TOKENS = 128


def create_app(batcher: Batcher, *, name: str, max_model_len: int) -> FastAPI:
    """The server's application.

    `name` is the model as clients call it; a prompt and its answer together have `max_model_len` tokens at most.
    """

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        batcher.start()
        yield
        batcher.stop()

    app = FastAPI(title=f"inference server {name}", lifespan=lifespan, openapi_url=None)
    install_error_handlers(app)
    app.add_middleware(_Arrivals, batcher=batcher)
    tokenizer = batcher.tokenizer

    @app.get("/health")
    async def health() -> dict[str, int]:
        return {"active": batcher.active}

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [{"id": name, "object": "model", "owned_by": "demo"}]}

    @app.post(CHAT_PATH, response_model=None)
    async def chat_completions(body: ChatRequest, request: Request) -> Response:
        messages = [{"role": message.role, "content": message.text()} for message in body.messages]
        prompt = tokenizer.apply_chat_template(messages, True)
        input_ids = tokenizer.encode(prompt, add_special_tokens=False).input_ids
        max_tokens = body.max_completion_tokens or body.max_tokens or _DEFAULT_MAX_TOKENS
        if input_ids.shape[1] + max_tokens > max_model_len:
            raise error(
                400,
                f"prompt ({input_ids.shape[1]} tokens) and answer ({max_tokens}) exceed the context of {max_model_len}",
                "invalid_request_error",
                "context_length_exceeded",
            )
        config = batcher.config(max_tokens=max_tokens, temperature=body.temperature, top_p=body.top_p, seed=body.seed)
        try:
            generation = batcher.submit(input_ids, config)
        except EngineFull as full:
            raise error(503, f"{name} is busy: {full}", "server_error", "engine_full", retry_after_s=1) from None
        request.scope["arrival"].over()
        answer = _Answer(generation, IncrementalText(tokenizer.decode, batcher.bytes_of), StopAt(body.stops()))
        completion = Completion(name)
        if body.stream:
            usage = body.stream_options is not None and body.stream_options.include_usage
            return _Stream(_events(answer, completion, usage), answer)
        return await _whole(answer, completion, request)

    return app


class _Arrivals:
    """Has the batch wait a moment for a request that has arrived and is not queued yet."""

    def __init__(self, app: ASGIApp, batcher: Batcher) -> None:
        self._app = app
        self._batcher = batcher

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        arrival = scope["arrival"] = Arrival(self._batcher.pace)
        try:
            await self._app(scope, receive, send)
        finally:
            arrival.over()


class _Answer:
    """Iterates pieces of text, and knows at the end how it ended. Closes the generation however it is left."""

    def __init__(self, generation: Generation, text: IncrementalText, stop: StopAt) -> None:
        self._generation = generation
        self._text = text
        self._stop = stop
        self.prompt_tokens = generation.prompt_tokens
        self.completion_tokens = 0
        self.finish_reason = "stop"

    async def pieces(self) -> AsyncIterator[str]:
        try:
            async for tokens in self._generation:
                self.completion_tokens += len(tokens.ids)
                piece = self._stop.push(self._text.push(tokens.ids))
                if tokens.finish_reason is not None:
                    self.finish_reason = tokens.finish_reason
                    piece += self._stop.push(self._text.finish()) + self._stop.finish()
                if piece:
                    yield piece
                if self._stop.stopped:
                    self.finish_reason = "stop"
                    if tokens.finish_reason is None:
                        self._generation.stop()
                    return
        finally:
            self._generation.close()

    def close(self) -> None:
        self._generation.close()


async def _events(answer: _Answer, completion: Completion, usage: bool) -> AsyncIterator[bytes]:
    yield completion.chunk({"role": "assistant", "content": ""})
    try:
        async for piece in answer.pieces():
            yield completion.chunk({"content": piece})
    except EngineFailed as failure:
        yield completion.error_event(str(failure))
        return
    yield completion.chunk({}, answer.finish_reason)
    if usage:
        yield completion.usage_chunk(answer.prompt_tokens, answer.completion_tokens)
    yield DONE


class _Stream(StreamingResponse):
    """Server-sent events that free the model's place even if the client is gone before the first of them."""

    def __init__(self, events: AsyncIterator[bytes], answer: _Answer) -> None:
        super().__init__(events, media_type="text/event-stream", headers={"Cache-Control": "no-cache"})
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._answer.close()


async def _whole(answer: _Answer, completion: Completion, request: Request) -> Response:
    async def collect() -> str:
        return "".join([piece async for piece in answer.pieces()])

    async def hang_up() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    collecting, hanging = asyncio.create_task(collect()), asyncio.create_task(hang_up())
    try:
        await asyncio.wait({collecting, hanging}, return_when=asyncio.FIRST_COMPLETED)
        if not collecting.done():
            return Response(status_code=499)  # nobody is there to read it
        text = collecting.result()
    except EngineFailed as failure:
        raise error(500, str(failure), "server_error") from None
    finally:
        collecting.cancel()
        hanging.cancel()
        answer.close()
    return JSONResponse(completion.body(text, answer.finish_reason, answer.prompt_tokens, answer.completion_tokens))


def main() -> None:
    """Loads the model, then serves until SIGINT or SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m promptpath.cli.demo.engine", description=__doc__.splitlines()[0])
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--name", default="smollm2-135m", help="the model's name in the API")
    parser.add_argument("--max-num-seqs", type=int, default=8, help="requests in one batch")
    parser.add_argument("--max-waiting", type=int, default=64, help="requests that may wait; beyond, 503")
    parser.add_argument("--max-model-len", type=int, default=2048, help="tokens of prompt and answer together")
    parser.add_argument("--max-batched-tokens", type=int, default=64, help="tokens of one step")
    parser.add_argument("--kv-blocks", type=int, default=512, help="KV cache, in blocks of 32 tokens")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of the model")
    args = parser.parse_args()
    batcher = Batcher(
        find_gguf(),
        max_num_seqs=args.max_num_seqs,
        max_waiting=args.max_waiting,
        kv_blocks=args.kv_blocks,
        max_batched_tokens=args.max_batched_tokens,
        threads=args.threads,
    )
    batcher.warm_up()
    serve(create_app(batcher, name=args.name, max_model_len=args.max_model_len), host=args.host, port=args.port)


if __name__ == "__main__":
    main()
