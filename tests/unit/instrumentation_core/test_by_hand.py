"""The manual API: prompts and stages by context manager and decorator, sync and async, with and without an SDK."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from opentelemetry import baggage, propagate
from opentelemetry import context as context_api

from promptpath.instrumentation import prompt, recorder, stage, tokens


def brief(found: list[dict[str, Any]]) -> list[tuple[str, str, int | None, dict[str, Any], str]]:
    return [(s["name"], s["kind"], s["parent"], s["attributes"], s["status"][0]) for s in found]


CHAT = {"gen_ai.operation.name": "chat", "promptpath.stage": "client"}


def test_a_prompt_with_a_stage_and_everything_said_of_it(sdk: Any) -> None:
    with prompt("chat", model="m", streaming=True, tenant="t", max_tokens=9, top_p=None, **{"my.key": 1}) as p:
        with stage("prefill", name="warm", **{"promptpath.batch.size": 3}) as s:
            s.set("k", "v")
        p.mark()
        p.mark(3)
        p.usage(input=5, output=4, cached=2, reasoning=1)
        p.finish("stop", model="m-2", response_id="r")
    found = sdk.dicts()
    assert len(found[1]["attributes"].pop("promptpath.token.gaps_us")) == 2
    assert {span["scope"] for span in found} == {"promptpath.manual"}
    assert brief(found) == [
        ("warm", "INTERNAL", 1, {"promptpath.batch.size": 3, "k": "v", "promptpath.stage": "prefill"}, "UNSET"),
        (
            "chat m",
            "CLIENT",
            None,
            {
                **CHAT,
                "gen_ai.request.model": "m",
                "gen_ai.request.stream": True,
                "promptpath.tenant": "t",
                "gen_ai.request.max_tokens": 9,
                "my.key": 1,
                "gen_ai.usage.input_tokens": 5,
                "gen_ai.usage.output_tokens": 4,
                "gen_ai.usage.cache_read.input_tokens": 2,
                "gen_ai.usage.reasoning.output_tokens": 1,
                "gen_ai.response.finish_reasons": ("stop",),
                "gen_ai.response.model": "m-2",
                "gen_ai.response.id": "r",
                "promptpath.token.counts": (1, 3),
            },
            "UNSET",
        ),
    ]


async def test_async_and_one_object_used_twice(sdk: Any) -> None:
    p = prompt("embeddings", model="e")
    for _ in range(2):
        async with p, stage("tokenize"):
            await asyncio.sleep(0)
    assert [(span["name"], span["parent"]) for span in sdk.dicts()] == [
        ("tokenize", 1),
        ("embeddings e", None),
        ("tokenize", 3),
        ("embeddings e", None),
    ]


def test_an_error_leaves_as_it_came_and_is_recorded_without_its_text(sdk: Any) -> None:
    error = ValueError("what the prompt said")
    with pytest.raises(ValueError, match="what the prompt said") as caught, prompt(), stage("safety"):
        raise error
    assert caught.value is error
    assert brief(sdk.dicts()) == [
        ("safety", "INTERNAL", 1, {"promptpath.stage": "safety", "error.type": "ValueError"}, "ERROR"),
        ("chat", "CLIENT", None, {**CHAT, "error.type": "ValueError"}, "ERROR"),
    ]


@pytest.mark.parametrize("finished", [False, True])
def test_a_cancellation_is_an_abort_unless_the_answer_was_complete(sdk: Any, finished: bool) -> None:
    def ask() -> None:
        with prompt() as p, stage("stream"):
            if finished:
                p.finish("stop")
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        ask()
    found = sdk.dicts()[1]["attributes"]
    assert found.get("promptpath.abort") == (None if finished else "client")


def test_failing_by_word(sdk: Any) -> None:
    with prompt() as p:
        p.fail("429", "rate limited")
    (found,) = sdk.dicts()
    assert (found["attributes"]["error.type"], found["status"]) == ("429", ("ERROR", "rate limited"))


@pytest.mark.parametrize("unknown", ["warp", "transit", "unattributed"])
def test_a_stage_that_is_none_is_a_span_without_one(sdk: Any, unknown: str) -> None:
    with stage(unknown):
        pass
    assert brief(sdk.dicts()) == [(unknown, "INTERNAL", None, {}, "UNSET")]


class TestDecorators:
    async def test_functions(self, sdk: Any) -> None:
        @stage("gateway", name="authenticate")
        def authenticate(key: str) -> str:
            """Doc."""
            return key + str(recorder.current() is not None)

        @prompt("chat", model="m")
        async def ask(key: str) -> str:
            await asyncio.sleep(0)
            return authenticate(key)

        assert (ask.__name__, authenticate.__doc__) == ("ask", "Doc.")
        assert asyncio.iscoroutinefunction(ask)
        assert await asyncio.gather(ask("a"), ask("b")) == ["aTrue", "bTrue"]
        assert authenticate("c") == "cTrue"
        found = sdk.dicts()
        parents = {span["span_id"]: span["parent"] for span in found}
        assert sorted(span["name"] for span in found) == ["authenticate"] * 3 + ["chat m"] * 2
        assert sorted(map(str, parents.values())) == ["1", "2", "None", "None", "None"]

    def test_a_generator_keeps_its_span_open_and_to_itself(self, sdk: Any) -> None:
        seen: list[object] = []

        @prompt("chat")
        def generate() -> Iterator[str]:
            with stage("decode"):
                for word in ("a", "b"):
                    tokens.mark()
                    seen.append(recorder.current())
                    got = yield word
                    seen.append(got)
            return "done"

        generator: Any = generate()
        outside: list[object] = []
        assert next(generator) == "a"
        outside.append(recorder.current())
        assert generator.send("to a") == "b"
        outside.append(recorder.current())
        with pytest.raises(StopIteration) as stop:
            next(generator)
        assert stop.value.value == "done"
        assert outside == [None, None]
        assert seen[1::2] == ["to a", None]
        assert seen[0] is seen[2]
        assert seen[0] is not None
        found = sdk.dicts()
        assert len(found[1]["attributes"].pop("promptpath.token.gaps_us")) == 2
        assert brief(found) == [
            ("decode", "INTERNAL", 1, {"promptpath.stage": "decode"}, "UNSET"),
            ("chat", "CLIENT", None, CHAT, "UNSET"),
        ]

    def test_generators_side_by_side_do_not_nest(self, sdk: Any) -> None:
        @prompt("chat")
        def generate() -> Iterator[int]:
            yield 1
            yield 2

        assert list(zip(generate(), generate(), strict=True)) == [(1, 1), (2, 2)]
        assert [span["parent"] for span in sdk.dicts()] == [None, None]

    def test_a_generator_closed_early_or_thrown_into(self, sdk: Any) -> None:
        closed: list[str] = []

        @prompt("chat")
        def generate() -> Iterator[int]:
            try:
                yield 1
                yield 2
            except KeyError:
                yield 3
            finally:
                closed.append("closed")

        first: Any = generate()
        next(first)
        first.close()
        second: Any = generate()
        next(second)
        assert second.throw(KeyError()) == 3
        with pytest.raises(LookupError):
            second.throw(LookupError())
        assert closed == ["closed", "closed"]
        assert brief(sdk.dicts()) == [
            ("chat", "CLIENT", None, {**CHAT, "promptpath.abort": "client"}, "UNSET"),
            ("chat", "CLIENT", None, {**CHAT, "error.type": "LookupError"}, "ERROR"),
        ]

    async def test_async_generators(self, sdk: Any) -> None:
        closed: list[str] = []

        @prompt("chat")
        async def generate() -> AsyncIterator[str]:
            try:
                for word in ("a", "b", "c"):
                    await asyncio.sleep(0)
                    tokens.mark()
                    yield word
            finally:
                closed.append("closed")

        got = []
        async for word in generate():
            assert recorder.current() is None
            got.append(word)
        early: Any = generate()
        assert await anext(early) == "a"
        await early.aclose()
        assert (got, closed) == (["a", "b", "c"], ["closed", "closed"])
        found = sdk.dicts()
        assert [len(span["attributes"].pop("promptpath.token.gaps_us")) for span in found] == [3, 1]
        assert [span["attributes"] for span in found] == [CHAT, {**CHAT, "promptpath.abort": "client"}]


class TestAcrossHops:
    def test_headers_make_the_caller_the_parent(self, sdk: Any) -> None:
        with prompt("chat") as p:
            headers = p.headers()
        with stage("server", headers={key.title(): value for key, value in headers.items()}) as s:
            assert recorder.request_span() is s.span
            assert s.headers()["traceparent"].startswith("00-000000000000000000000000000000a1-0000000000000002")
        assert [(span["name"], span["kind"], span["parent"]) for span in sdk.dicts()] == [
            ("chat", "CLIENT", None),
            ("server", "SERVER", 1),
        ]

    def test_a_prompt_may_send_its_id_as_baggage(self, sdk: Any) -> None:
        with prompt("chat", propagate_id=True) as p:
            assert baggage.get_baggage("promptpath.prompt.id") == "0000000000000001"
            with prompt("chat"):  # an inner call is of the same prompt
                headers = p.headers()
        assert baggage.get_baggage("promptpath.prompt.id") is None
        assert headers["baggage"] == "promptpath.prompt.id=0000000000000001"
        token = context_api.attach(propagate.extract(headers))
        with stage("server"):
            pass
        recorder.detach(token)
        assert [span["attributes"].get("promptpath.prompt.id") for span in sdk.dicts()] == ["0000000000000001"] * 3


async def test_without_an_sdk_all_of_it_does_nothing(no_sdk: None) -> None:
    @prompt("chat")
    def generate() -> Iterator[str]:
        yield "a"

    with prompt("chat", model="m", propagate_id=True) as p:
        p.mark()
        p.usage(1, 2)
        p.finish("stop")
        assert p.headers() == {}
        async with stage("server", headers={}) as s:
            s.set("a", 1)
            s.fail("x")
        assert list(tokens(generate())) == ["a"]
    p.mark()
    p.set("late", 1)
    p.finish()
    assert p.span is None


def test_wrong_values_never_raise(sdk: Any) -> None:
    with prompt("chat", model=object(), streaming="yes", tenant=[object()]) as p:  # type: ignore[arg-type]
        p.usage(input="many")  # type: ignore[arg-type]
        p.mark("three")  # type: ignore[arg-type]
        p.finish(3)  # type: ignore[arg-type]
    assert len(sdk.dicts()) == 1
