"""`tokens`: which chunks are deliveries, and that the stream itself passes untouched."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from types import SimpleNamespace as Ns
from typing import Any

import pytest

from promptpath.instrumentation import prompt, safety, stage, tokens
from promptpath.instrumentation.delivered import content_tokens


@pytest.mark.parametrize(
    ("chunk", "expected"),
    [
        ("text", 1),
        ("", 0),
        (b"", 0),
        (b"x", 1),
        (None, 0),
        (0, 1),  # a token's id
        (True, 0),
        ([5, 6, 7], 3),
        ([], 0),
        (object(), 1),
        ({"choices": [{"delta": {"role": "assistant"}}]}, 0),
        ({"choices": [{"delta": {"role": "assistant", "content": ""}}]}, 0),
        ({"choices": [{"delta": {"content": "four tokens of text"}}]}, 1),
        ({"choices": [{"delta": {"reasoning_content": "hm"}}]}, 1),
        ({"choices": [{"text": "a"}]}, 1),
        ({"choices": [{"delta": {}}, {"delta": {"tool_calls": [1]}}]}, 1),
        ({"choices": [], "usage": {"completion_tokens": 4}}, 0),
        (Ns(choices=[Ns(delta=Ns(content=None, role="assistant"))]), 0),
        (Ns(choices=[Ns(delta=Ns(content="a"))]), 1),
    ],
)
def test_content(chunk: Any, expected: int) -> None:
    assert content_tokens(chunk) == expected


def marks(sdk: Any) -> dict[str, tuple[int, Any]]:
    return {
        span["name"]: (
            len(span["attributes"].get("promptpath.token.gaps_us", ())),
            span["attributes"].get("promptpath.token.counts"),
        )
        for span in sdk.dicts()
    }


def test_each_chunk_with_content_is_marked_before_it_is_handed_on(sdk: Any) -> None:
    with prompt("chat") as p:
        seen = []
        for chunk in tokens(iter(["", "a", "b", ""])):
            assert p.span is not None
            seen.append((chunk, len(p.span.deliveries_mono_ns)))
    assert seen == [("", 0), ("a", 1), ("b", 2), ("", 2)]
    assert marks(sdk) == {"chat": (2, None)}


def test_the_innermost_prompt_or_request_is_marked(sdk: Any) -> None:
    with prompt("outer"), stage("server"), stage("decode"):
        list(tokens(["a"]))
        tokens.mark(4)
    assert marks(sdk) == {"decode": (0, None), "server": (2, (1, 4)), "outer": (0, None)}


async def test_async_streams(sdk: Any) -> None:
    async def stream() -> AsyncIterator[list[int]]:
        yield [1, 2]
        yield [3]

    async with prompt("chat"):
        assert [chunk async for chunk in tokens(stream())] == [[1, 2], [3]]
    assert marks(sdk) == {"chat": (2, (2, 1))}


def test_counting_by_a_function_of_ones_own(sdk: Any) -> None:
    with prompt("chat"):
        assert list(tokens(["a b c", "-"], count=lambda chunk: len(chunk.split()) if chunk != "-" else 0)) == [
            "a b c",
            "-",
        ]
    assert marks(sdk) == {"chat": (1, (3,))}


def test_a_failing_count_harms_nobody(sdk: Any) -> None:
    before = safety.failures().get("tokens.mark", 0)
    with prompt("chat"):
        assert list(tokens([1, 2], count=lambda _: 1 // 0)) == [1, 2]
    assert safety.failures()["tokens.mark"] == before + 2
    assert marks(sdk) == {"chat": (0, None)}


def test_everything_else_of_the_stream_stays_reachable() -> None:
    closed = []

    class Stream:
        response = "response"

        def __iter__(self) -> Iterator[str]:
            yield "a"

        def close(self) -> None:
            closed.append(True)

    marked: Any = tokens(Stream())
    assert marked.response == "response"
    assert next(marked) == "a"
    marked.close()
    assert closed == [True]
    with pytest.raises(AttributeError):
        _ = marked.nothing


def test_errors_of_the_stream_pass(sdk: Any) -> None:
    def stream() -> Iterator[str]:
        yield "a"
        raise ConnectionError("reset")

    with prompt("chat"):
        marked = tokens(stream())
        assert next(marked) == "a"
        with pytest.raises(ConnectionError, match="reset"):
            next(marked)
    with pytest.raises(TypeError):
        tokens(3)  # type: ignore[call-overload]


def test_a_generator_whose_body_opens_the_prompt(sdk: Any) -> None:
    def whole() -> Iterator[str]:
        with prompt("chat"):
            yield "a"
            yield "b"

    marked = tokens(whole())
    assert list(marked) == ["a", "b"]
    assert marks(sdk) == {"chat": (2, None)}
