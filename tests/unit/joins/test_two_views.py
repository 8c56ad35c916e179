"""Two instrumentations of one process that each made a root of one request: one prompt, the outer one's."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

Row = dict[str, Any]
Make = Callable[..., Row]
Run = Callable[..., list[Row]]
Said = Callable[[Row], tuple[str, str, list[str]]]
MS = 1_000_000


def trace(number: int) -> str:
    return f"{number:032x}"


def views(make: Make, number: int, at: int, took: int, of: tuple[int, int], **outer: Any) -> list[Row]:
    """FastAPI's span, and LiteLLM's of the same request with its call; ms. of: the trace of each."""
    return [
        make(f"a{number}", "", at * MS, (at + took) * MS, "inbound", service="proxy", scope="fastapi",
             trace_id=trace(of[0]), **outer),
        make(f"b{number}", "", (at + 1) * MS, (at + took - 1) * MS, "gateway", service="proxy", scope="litellm",
             trace_id=trace(of[1])),
        make(f"c{number}", f"b{number}", (at + 5) * MS, (at + took - 5) * MS, "call", service="proxy",
             scope="litellm", trace_id=trace(of[1])),
    ]  # fmt: skip


@pytest.mark.parametrize("of", [(1, 1), (1, 2), (2, 1)])
def test_the_outer_one_is_the_root(make: Make, prompts: Run, pieces: Any, joined: Said, of: tuple[int, int]) -> None:
    (row,) = prompts(*views(make, 0, 0, 100, of))
    # Roots of one trace are siblings: nothing had to be joined.
    assert joined(row) == (("a0", "", []) if of[0] == of[1] else ("a0", "time", [str(of[1])]))
    assert (row["hops"], row["attempts"], row["completeness"]) == (["proxy"], 1, 0.0)
    assert pieces(row) == [
        ("gateway", "a0", 0, 1 * MS),
        ("gateway", "b0", 1 * MS, 4 * MS),
        ("unattributed", "c0", 5 * MS, 90 * MS),
        ("gateway", "b0", 95 * MS, 4 * MS),
        ("gateway", "a0", 99 * MS, 1 * MS),
    ]


@pytest.mark.parametrize("column", ["request_id", "correlation_id"])
@pytest.mark.parametrize("of", [(1, 2), (2, 1)])
def test_an_id_that_both_have_says_so(make: Make, prompts: Run, joined: Said, of: tuple[int, int], column: str) -> None:
    """Also where LiteLLM ends its span when its caller was answered already."""
    outer, inner, call = views(make, 0, 0, 100, of, **{column: "foo"})
    late = inner | {column: "foo", "duration_ns": 120 * MS}
    for one in (inner | {column: "foo"}, late):
        (row,) = prompts(outer, one, call)
        assert joined(row) == ("a0", "request_id", [str(of[1])])


def test_an_engine_that_was_called_goes_under_the_call(make: Make, prompts: Run, joined: Said) -> None:
    (row,) = prompts(
        *views(make, 0, 0, 100, (1, 2), correlation_id="foo"),
        make("d", "", 10 * MS, 80 * MS, "server", service="engine", scope="vllm", trace_id=trace(3), request_id="foo"),
    )
    assert joined(row) == ("a0", "time", ["2", "3"])
    assert (row["hops"], row["attempts"], row["completeness"]) == (["proxy", "engine"], 1, 1.0)


def test_an_engine_in_the_process_of_its_http_server(make: Make, prompts: Run, joined: Said) -> None:
    (row,) = prompts(
        make("a", "", 0, 100 * MS, "inbound", service="vllm", scope="fastapi"),
        make("b", "", 2 * MS, 98 * MS, "server", service="vllm", scope="vllm", trace_id=trace(2), output_tokens=5),
    )
    assert (*joined(row), row["attempts"], row["output_tokens"]) == ("a", "time", ["2"], 1, 5)


def test_requests_at_once_where_only_one_can_be_meant(make: Make, prompts: Run, joined: Said) -> None:
    """The first LiteLLM span began before the second request came, so the second one is the second request's."""
    spans = [*views(make, 1, 0, 100, (1, 2)), *views(make, 2, 20, 60, (3, 4))]
    for _ in range(5):
        random.Random(1).shuffle(spans)
        assert [joined(row) for row in prompts(*spans)] == [("a1", "time", ["2"]), ("a2", "time", ["4"])]


def test_requests_at_once_of_which_either_can_be_meant_stay_apart(make: Make, prompts: Run) -> None:
    one, other = views(make, 1, 0, 100, (1, 2)), views(make, 2, 1, 98, (3, 4))
    late = [span | {"start_ns": span["start_ns"] + 5 * MS, "duration_ns": span["duration_ns"] - 10 * MS}
            for span in (*one[1:], *other[1:])]  # fmt: skip
    assert sorted(row["prompt_id"] for row in prompts(one[0], other[0], *late)) == ["a1", "a2", "b1", "b2"]
    # An id of one of them tells of both.
    named = [one[0] | {"correlation_id": "x"}, late[0] | {"correlation_id": "x"}]
    rows = prompts(*named, other[0], *late[1:])
    assert [(row["prompt_id"], row["joined_by"]) for row in rows] == [("a1", "request_id"), ("a2", "time")]


@pytest.mark.parametrize(
    "change",
    [
        {"process": "another"},
        {"host": "another", "process": "proxy@host"},
        {"scope": "fastapi"},
        {"duration_ns": 200 * MS},
        {"kind": "INTERNAL", "stage": "call"},
        {"parent_id": "gone"},
        {"correlation_id": "another"},
    ],
)
def test_what_is_no_second_view_of_the_request(make: Make, prompts: Run, change: Row) -> None:
    outer, inner, call = views(make, 0, 0, 100, (1, 2), correlation_id="foo")
    rows = prompts(outer, inner | change, call | {key: change[key] for key in change if key in ("host", "process")})
    assert [row["prompt_id"] for row in rows] == ["a0", "b0"]


def test_a_request_that_has_its_second_view_takes_no_other(make: Make, prompts: Run) -> None:
    outer, inner, call = views(make, 1, 0, 100, (1, 1))
    stray = views(make, 2, 20, 60, (2, 2))[1:]
    rows = prompts(outer, inner | {"parent_id": "a1"}, call, *stray)
    assert [(row["prompt_id"], row["joined_by"]) for row in rows] == [("a1", ""), ("b2", "")]


def test_many_requests_one_after_another(make: Make, prompts: Run, joined: Said) -> None:
    spans = [one for number in range(300) for one in views(make, number, 50 * number, 70, (number + 1, number + 1001))]
    rows = prompts(*spans)
    assert [row["prompt_id"] for row in rows] == [f"a{number}" for number in range(300)]
    assert {row["joined_by"] for row in rows} == {"time"}
