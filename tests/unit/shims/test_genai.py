"""Attributes out of JSON bodies."""

from __future__ import annotations

import json
from typing import Any

import pytest

from promptpath.instrumentation.shims import genai, paths


def test_request() -> None:
    body = {
        "model": "m",
        "stream": True,
        "max_tokens": 5,
        "max_completion_tokens": 7,
        "temperature": 0,
        "top_p": 0.5,
        "n": 2,
        "messages": [{"role": "user", "content": "secret"}],
    }
    wanted = {
        "gen_ai.request.model": "m",
        "gen_ai.request.stream": True,
        "gen_ai.request.max_tokens": 7,
        "gen_ai.request.temperature": 0.0,
        "gen_ai.request.top_p": 0.5,
        "gen_ai.request.choice.count": 2,
    }
    assert genai.request_attributes(body) == wanted
    assert genai.request_attributes_of_bytes(json.dumps(body).encode()) == wanted


@pytest.mark.parametrize("raw", [b"", b"[]", b"{", b"\xff", b'"x"', b'{"model": 5, "stream": "yes", "n": true}'])
def test_a_body_that_says_nothing(raw: bytes) -> None:
    assert genai.request_attributes_of_bytes(raw) == {}


def test_a_long_body_is_searched() -> None:
    body = {"messages": [{"role": "user", "content": '"model": "no" ' * 30_000}], "model": "m", "stream": False}
    raw = json.dumps(body).encode()
    assert len(raw) > genai.MAX_PARSED_BYTES
    assert genai.request_attributes_of_bytes(raw) == {"gen_ai.request.model": "m", "gen_ai.request.stream": False}


@pytest.mark.parametrize(
    ("usage", "wanted"),
    [
        ({"prompt_tokens": 1, "completion_tokens": 2}, (1, 2, None, None)),
        ({"input_tokens": 1, "output_tokens": 2}, (1, 2, None, None)),
        (
            {
                "prompt_tokens": 9,
                "completion_tokens": 8,
                "prompt_tokens_details": {"cached_tokens": 4},
                "completion_tokens_details": {"reasoning_tokens": 3},
            },
            (9, 8, 4, 3),
        ),
        ({"input_tokens": 1, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 2}, (8, None, 5, None)),
        ({"prompt_tokens": None, "completion_tokens": -1, "total_tokens": True}, (None, None, None, None)),
    ],
)
def test_usage(usage: dict[str, Any], wanted: tuple[int | None, ...]) -> None:
    names = ("input_tokens", "output_tokens", "cache_read.input_tokens", "reasoning.output_tokens")
    expected = {f"gen_ai.usage.{name}": value for name, value in zip(names, wanted, strict=True) if value is not None}
    assert genai.usage_attributes(usage) == expected


def test_answer() -> None:
    body = {
        "id": "c",
        "model": "m",
        "choices": [{"finish_reason": "stop", "message": {"content": "secret"}}, {"finish_reason": "length"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2},
    }
    assert genai.response_attributes(body) == {
        "gen_ai.response.id": "c",
        "gen_ai.response.model": "m",
        "gen_ai.response.finish_reasons": ("stop", "length"),
        "gen_ai.usage.input_tokens": 1,
        "gen_ai.usage.output_tokens": 2,
    }


@pytest.mark.parametrize(
    ("path", "end", "operation"),
    [
        ("/v1/chat/completions", "/v1/chat/completions", "chat"),
        ("/openai/v1/chat/completions/", "/v1/chat/completions", "chat"),
        ("/v1/completions", "/v1/completions", "text_completion"),
        ("/v1/responses", "/v1/responses", "chat"),
        ("/v1/messages", "/v1/messages", "chat"),
        ("/v1/embeddings", "/v1/embeddings", "embeddings"),
        ("/generate", "/generate", "text_completion"),
        ("/api/chat", "/api/chat", "chat"),
        ("/v2/models/llama/infer", "/v2/models/llama/infer", None),
        ("/v1beta/models/g:generateContent", "/models/g:generateContent", "generate_content"),
        ("/v1beta/models/g:streamGenerateContent", "/models/g:streamGenerateContent", "generate_content"),
        ("/v1beta/models/g:countTokens", None, None),
        ("/v1/chat/completions/c1", None, None),
        ("/v1/models", None, None),
        ("/regenerate", None, None),
        ("/v2/models/a/b/infer", None, None),
        ("", None, None),
    ],
)
def test_inference_paths(path: str, end: str | None, operation: str | None) -> None:
    assert (paths.inference_path(path), paths.operation(path)) == (end, operation)
