"""What of a stream's bytes is content, for each API's shape, however the bytes are cut."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptpath.instrumentation.shims.sse import MAX_FRAME_BYTES, SseScanner


def frame(body: Any, event: str = "", *, end: str = "\n", compact: bool = True) -> bytes:
    data = body if isinstance(body, str) else json.dumps(body, separators=(",", ":") if compact else None)
    head = f"event: {event}{end}" if event else ""
    return f"{head}data: {data}{end}{end}".encode()


def chat(delta: dict[str, Any], finish: str | None = None, index: int = 0, **more: Any) -> dict[str, Any]:
    choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish}
    return {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "tiny", "choices": [choice], **more}


USAGE = {"prompt_tokens": 3, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 2}}

DELIVERS = {
    "text": frame(chat({"content": "Hi"})),
    "text, spaced JSON": frame(chat({"content": "Hi"}), compact=False),
    "text, CRLF": frame(chat({"content": "Hi"}), end="\r\n"),
    "text, CR": frame(chat({"content": "Hi"}), end="\r"),
    "role and text": frame(chat({"role": "assistant", "content": "Hi"})),
    "a quote": frame(chat({"content": '"'})),
    "a newline": frame(chat({"content": "\n"})),
    "text that looks like the end": frame(chat({"content": '[DONE] "finish_reason":"stop"'})),
    "reasoning": frame(chat({"reasoning_content": "hm"})),
    "reasoning, otherwise spelt": frame(chat({"content": "", "reasoning": "hm"})),
    "tool call": frame(chat({"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": ""}}]})),
    "refusal": frame(chat({"refusal": "no"})),
    "last token with the reason": frame(chat({"content": "."}, "stop")),
    "completion": frame({"choices": [{"text": "Hi", "index": 0, "finish_reason": None}]}),
    "Anthropic text": frame(
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}},
        "content_block_delta",
    ),
    "Anthropic thinking": frame({"type": "content_block_delta", "delta": {"type": "thinking_delta", "thinking": "h"}}),
    "Anthropic tool": frame(
        {"type": "content_block_delta", "delta": {"type": "input_json_delta", "partial_json": "{"}}
    ),
    "responses text": frame({"type": "response.output_text.delta", "delta": "Hi"}, "response.output_text.delta"),
    "responses arguments": frame({"type": "response.function_call_arguments.delta", "delta": "{"}),
    "TGI": frame({"index": 1, "token": {"id": 5, "text": " Hi", "logprob": -1.0, "special": False}}),
}
DELIVERS_NOT = {
    "role only": frame(chat({"role": "assistant", "content": ""})),
    "role, null": frame(chat({"role": "assistant", "content": None})),
    "role without content": frame(chat({"role": "assistant"})),
    "the end": frame(chat({}, "stop")),
    "usage": frame({"id": "c1", "object": "chat.completion.chunk", "choices": [], "usage": USAGE}),
    "Azure's filter results": frame({"choices": [], "prompt_filter_results": [{"prompt_index": 0}]}),
    "metadata": frame({"type": "metadata", "provider": "x", "request_id": "r"}),
    "done": frame("[DONE]"),
    "comment": b": keep-alive\n\n",
    "retry": b"retry: 3000\n\n",
    "error": frame({"error": {"message": "content", "type": "server_error"}}),
    "Anthropic start": frame({"type": "message_start", "message": {"model": "m", "usage": {"input_tokens": 3}}}),
    "Anthropic block": frame({"type": "content_block_start", "content_block": {"type": "text", "text": ""}}),
    "Anthropic ping": frame({"type": "ping"}, "ping"),
    "Anthropic end": frame(
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}}
    ),
    "responses created": frame({"type": "response.created", "response": {"id": "r", "instructions": "say hi"}}),
    "responses text done": frame({"type": "response.output_text.done", "text": "Hi there"}),
    "responses completed": frame({"type": "response.completed", "response": {"output": [{"text": "Hi there"}]}}),
    "empty delta": frame({"type": "response.output_text.delta", "delta": ""}),
}


@pytest.mark.parametrize("name", DELIVERS)
def test_content_is_a_delivery(name: str) -> None:
    assert SseScanner().feed(DELIVERS[name]) == 1


@pytest.mark.parametrize("name", DELIVERS_NOT)
def test_other_frames_are_none(name: str) -> None:
    assert SseScanner().feed(DELIVERS_NOT[name]) == 0


@pytest.mark.parametrize("name", DELIVERS_NOT)
def test_other_frames_are_none_after_content_of_the_same_stream(name: str) -> None:
    scanner = SseScanner()
    assert [scanner.feed(DELIVERS["text"]) for _ in range(3)] == [1, 1, 1]
    assert scanner.feed(DELIVERS_NOT[name]) == 0
    assert scanner.feed(DELIVERS["text"]) == 1


def test_a_metadata_frame_before_the_first_delta_is_no_token() -> None:
    scanner = SseScanner()
    assert [scanner.feed(DELIVERS_NOT["metadata"]), scanner.feed(DELIVERS["text"])] == [0, 1]


FRAMES = list(DELIVERS.values()) + list(DELIVERS_NOT.values())
WANTED = {bytes(f): 1 for f in DELIVERS.values()} | {bytes(f): 0 for f in DELIVERS_NOT.values()}


@given(st.lists(st.sampled_from(FRAMES), max_size=12), st.data())
def test_the_count_does_not_depend_on_how_the_bytes_are_cut(frames: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(frames)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=20)))
    scanner = SseScanner()
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert sum(scanner.feed(piece) for piece in pieces) == sum(WANTED[f] for f in frames)


@given(st.lists(st.text(max_size=8), min_size=1, max_size=20), st.booleans())
def test_every_text_that_is_not_empty_is_a_delivery(texts: list[str], compact: bool) -> None:
    scanner = SseScanner()
    seen = [scanner.feed(frame(chat({"content": text}), compact=compact)) for text in texts]
    assert seen == [1 if text else 0 for text in texts]


def test_frames_that_come_together_are_one_chunk_with_several_deliveries() -> None:
    assert SseScanner().feed(DELIVERS["text"] * 4) == 4


def test_what_a_chat_stream_says_of_itself() -> None:
    scanner = SseScanner()
    for body in (chat({"role": "assistant"}), chat({"content": "a"}), chat({}, "length")):
        scanner.feed(frame(body))
    assert not SseScanner().finished
    assert scanner.finished
    scanner.feed(frame({"choices": [], "model": "tiny", "usage": USAGE}))
    assert scanner.attributes() == {
        "gen_ai.response.model": "tiny",
        "gen_ai.response.id": "c1",
        "gen_ai.response.finish_reasons": ("length",),
        "gen_ai.usage.input_tokens": 3,
        "gen_ai.usage.output_tokens": 4,
        "gen_ai.usage.cache_read.input_tokens": 2,
    }


def test_what_an_anthropic_stream_says_of_itself() -> None:
    scanner = SseScanner()
    usage = {"input_tokens": 3, "cache_read_input_tokens": 10, "cache_creation_input_tokens": 1, "output_tokens": 1}
    scanner.feed(frame({"type": "message_start", "message": {"id": "m1", "model": "claude", "usage": usage}}))
    scanner.feed(DELIVERS["Anthropic text"])
    scanner.feed(frame({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 9}}))
    scanner.feed(frame({"type": "message_stop"}))
    assert scanner.finished
    assert scanner.attributes() == {
        "gen_ai.response.model": "claude",
        "gen_ai.response.id": "m1",
        "gen_ai.response.finish_reasons": ("end_turn",),
        "gen_ai.usage.input_tokens": 14,
        "gen_ai.usage.output_tokens": 9,
        "gen_ai.usage.cache_read.input_tokens": 10,
    }


def test_what_a_responses_stream_says_of_itself() -> None:
    scanner = SseScanner()
    answer = {"id": "r1", "model": "o", "usage": {"input_tokens": 2, "output_tokens": 3}}
    scanner.feed(frame({"type": "response.created", "response": {"id": "r1", "model": "o"}}))
    scanner.feed(DELIVERS["responses text"])
    scanner.feed(frame({"type": "response.completed", "response": answer}))
    assert scanner.finished
    assert scanner.attributes() == {
        "gen_ai.response.model": "o",
        "gen_ai.response.id": "r1",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 2,
        "gen_ai.usage.output_tokens": 3,
    }


@pytest.mark.parametrize(
    ("body", "event", "kind"),
    [
        ({"error": {"message": "m", "type": "server_error", "code": None}}, "", "server_error"),
        ({"error": {"message": "m", "code": 503}}, "", "503"),
        ({"type": "error", "error": {"type": "overloaded_error"}}, "error", "overloaded_error"),
        (
            {"type": "response.failed", "response": {"error": {"code": "rate_limit_exceeded"}}},
            "",
            "rate_limit_exceeded",
        ),
        ({"message": "m"}, "error", "stream_error"),
    ],
)
def test_an_error_frame(body: Any, event: str, kind: str) -> None:
    scanner = SseScanner()
    assert scanner.feed(frame(body, event)) == 0
    assert scanner.error_type() == kind


def test_no_error() -> None:
    scanner = SseScanner()
    scanner.feed(frame(chat({"content": 'data: {"error": 1}'})))
    assert scanner.error_type() is None


def test_of_several_choices_the_one_delivered_first_counts() -> None:
    scanner = SseScanner(choices=2)
    order = [1, 0, 1, 0, 0, 1]
    seen = [scanner.feed(frame(chat({"content": "x"}, index=index))) for index in order]
    assert seen == [1, 0, 1, 0, 0, 1]


def test_a_frame_without_end_takes_no_memory() -> None:
    scanner = SseScanner()
    for _ in range(40):
        assert scanner.feed(b"data: " + b"x" * 100_000) == 0
    assert len(scanner._tail) < MAX_FRAME_BYTES + 200_000
    assert scanner.feed(b"\n\n") == 0
    assert scanner.feed(DELIVERS["text"]) == 1


def test_bytes_that_are_no_events_do_no_harm() -> None:
    scanner = SseScanner()
    assert scanner.feed(b"\0") == 0
    assert scanner.feed(b"\xff\xfe\n\ndata: {broken\n\n") == 0
    assert scanner.attributes() == {}
