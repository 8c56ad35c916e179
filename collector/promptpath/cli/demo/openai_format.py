"""The shapes of OpenAI's chat completions API, as far as the demo's servers speak it."""

from __future__ import annotations

import json
import time
import uuid
from typing import Any, Literal

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

CHAT_PATH = "/v1/chat/completions"
DONE = b"data: [DONE]\n\n"


class TextPart(BaseModel):
    """One part of a message's content; only text is understood."""

    type: Literal["text"]
    text: str


class Message(BaseModel):
    """One turn of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str | list[TextPart]

    def text(self) -> str:
        """Its content as one string."""
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)


class StreamOptions(BaseModel):
    """What a stream brings besides its tokens."""

    include_usage: bool = False


class ChatRequest(BaseModel):
    """The body of a chat completion; what is not named here is ignored."""

    model: str
    messages: list[Message] = Field(min_length=1)
    stream: bool = False
    stream_options: StreamOptions | None = None
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    temperature: float = Field(default=0.0, ge=0.0, le=2.0)
    top_p: float | None = Field(default=None, gt=0.0, le=1.0)
    seed: int | None = None
    stop: str | list[str] | None = None
    n: Literal[1] = 1

    def stops(self) -> list[str]:
        """The stop strings, as a list."""
        return [self.stop] if isinstance(self.stop, str) else list(self.stop or [])


def error_body(message: str, kind: str, code: str | None = None) -> dict[str, Any]:
    """The body of an error, as OpenAI's clients read it."""
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def error(
    status: int, message: str, kind: str, code: str | None = None, retry_after_s: float | None = None
) -> HTTPException:
    """An exception that is answered with that status and `error_body`."""
    headers = {"Retry-After": f"{retry_after_s:.0f}"} if retry_after_s is not None else None
    return HTTPException(status, detail=error_body(message, kind, code), headers=headers)


def install_error_handlers(app: FastAPI) -> None:
    """Makes `app` answer every error in OpenAI's form."""

    @app.exception_handler(HTTPException)
    async def http_error(_request: Request, exc: HTTPException) -> JSONResponse:
        body = exc.detail if isinstance(exc.detail, dict) else error_body(str(exc.detail), "invalid_request_error")
        return JSONResponse(body, status_code=exc.status_code, headers=exc.headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(_request: Request, exc: RequestValidationError) -> JSONResponse:
        first = exc.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if part != "body") or "body"
        return JSONResponse(error_body(f"{where}: {first['msg']}", "invalid_request_error"), status_code=400)


class Completion:
    """Builds the chunks, or the one body, of an answer."""

    def __init__(self, model: str) -> None:
        self.id = f"chatcmpl-{uuid.uuid4().hex}"
        self._model = model
        self._created = int(time.time())

    def chunk(self, delta: dict[str, str], finish_reason: str | None = None) -> bytes:
        """One server-sent event with a delta."""
        choices = [{"index": 0, "delta": delta, "finish_reason": finish_reason}]
        return self._event({"choices": choices})

    def usage_chunk(self, prompt_tokens: int, completion_tokens: int) -> bytes:
        """The event after the last delta, where `stream_options.include_usage` asks for it."""
        return self._event({"choices": [], "usage": _usage(prompt_tokens, completion_tokens)})

    def error_event(self, message: str) -> bytes:
        """An event that ends a stream which cannot go on."""
        return b"data: " + json.dumps(error_body(message, "server_error")).encode() + b"\n\n"

    def body(self, text: str, finish_reason: str, prompt_tokens: int, completion_tokens: int) -> dict[str, Any]:
        """The answer that is not streamed."""
        message = {"role": "assistant", "content": text}
        return {
            "id": self.id,
            "object": "chat.completion",
            "created": self._created,
            "model": self._model,
            "choices": [{"index": 0, "message": message, "finish_reason": finish_reason, "logprobs": None}],
            "usage": _usage(prompt_tokens, completion_tokens),
        }

    def _event(self, rest: dict[str, Any]) -> bytes:
        head = {"id": self.id, "object": "chat.completion.chunk", "created": self._created, "model": self._model}
        return b"data: " + json.dumps(head | rest, separators=(",", ":"), ensure_ascii=False).encode() + b"\n\n"


def _usage(prompt_tokens: int, completion_tokens: int) -> dict[str, int]:
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }
