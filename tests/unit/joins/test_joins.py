"""One prompt in several traces: which trees are joined, which are not, and what the row says of it."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import permutations
from typing import Any

import pyarrow as pa
import pytest

from promptpath.collector.assemble import SPAN_SCHEMA, AssembleConfig, ClockPool, assemble

Row = dict[str, Any]
Make = Callable[..., Row]
Run = Callable[..., list[Row]]
Said = Callable[[Row], tuple[str, str, list[str]]]
S = 1_000_000_000
MS = 1_000_000


def trace(number: int) -> str:
    return f"{number:032x}"


def test_litellm_and_vllm_without_a_traceparent(
    make: Make, prompt: Callable[..., Row], joined: Said, parts: Any
) -> None:
    """The answer's id at the gateway is the engine's request id: one prompt, the engine in the gateway's call."""
    row = prompt(
        make("a", "", 0, 100 * MS, "gateway", service="litellm"),
        make("b", "a", 10 * MS, 90 * MS, "call", service="litellm", response_id="chatcmpl-9f3", first_token_ns=50 * MS),
        make("c", "", 15 * MS, 85 * MS, "server", service="vllm", trace_id=trace(2), request_id="chatcmpl-9f3",
             first_token_ns=40 * MS, part_stages=["queue", "prefill"], part_starts_ns=[0, 10 * MS],
             part_durations_ns=[10 * MS, 30 * MS]),
    )  # fmt: skip
    assert joined(row) == ("a", "response_id", ["2"])
    assert (row["hops"], row["completeness"], row["attempts"]) == (["litellm", "vllm"], 1.0, 1)
    assert (row["ttft_ns"], row["ttft_engine_ns"]) == (60 * MS, 40 * MS)
    assert parts(row) == {"gateway": 10 * MS, "network": 10 * MS, "queue": 10 * MS, "prefill": 30 * MS}


@pytest.mark.parametrize(
    ("outer", "inner"),
    [
        ("foo", "chatcmpl-foo"),
        ("foo", "cmpl-foo-0"),
        ("foo", "chatcmpl-foo-1a2b3c4d"),
        ("foo", "cmpl-foo-0-1a2b3c4d"),
        ("foo", "1_chatcmpl-foo"),
        ("chatcmpl-foo", "foo"),
        ("0b9a2f2e-8c5d-4f7c-9f5e-2b1a7c3d4e5f", "chatcmpl-0b9a2f2e-8c5d-4f7c-9f5e-2b1a7c3d4e5f"),
        ("resp_67ab", "67ab"),
    ],
)
def test_spellings_of_one_id(make: Make, prompts: Run, joined: Said, outer: str, inner: str) -> None:
    rows = prompts(
        make("a", "", 0, 100, "gateway", service="gw", correlation_id=outer),
        make("b", "", 10, 90, "server", service="engine", trace_id=trace(2), request_id=inner),
    )
    assert [joined(row) for row in rows] == [("a", "request_id", ["2"])]


@pytest.mark.parametrize(
    ("outer", "inner"),
    [
        ("req-1", "req-2"),
        ("req-1", "chatcmpl-req-2"),
        ("a-1a2b3c4d", "a-1a2b3c4e"),
        ("", ""),
        ("none", "none"),
        ("0", "0"),
    ],
)
def test_other_ids(make: Make, prompts: Run, outer: str, inner: str) -> None:
    rows = prompts(
        make("a", "", 0, 100, "gateway", service="gw", correlation_id=outer),
        make("b", "", 10, 90, "server", service="engine", trace_id=trace(2), request_id=inner),
    )
    assert [(row["prompt_id"], row["joined_by"], row["joined_traces"]) for row in rows] == [
        ("a", "", []),
        ("b", "", []),
    ]


def test_client_gateway_and_engine_each_in_a_trace(make: Make, prompt: Callable[..., Row], joined: Said) -> None:
    """All three carry one id: each goes to the next, not all to the outermost."""
    row = prompt(
        make("a", "", 0, 100, "client", service="app", response_id="chatcmpl-x"),
        make("b", "", 5, 95, "gateway", service="gw", trace_id=trace(2)),
        make("c", "b", 10, 90, "call", service="gw", trace_id=trace(2), response_id="chatcmpl-x"),
        make("d", "", 15, 85, "server", service="engine", trace_id=trace(3), request_id="x"),
    )
    assert joined(row) == ("a", "response_id", ["2", "3"])
    assert (row["hops"], row["completeness"]) == (["app", "gw", "engine"], 1.0)


def test_web_server_span_and_engine_span(make: Make, prompt: Callable[..., Row], joined: Said) -> None:
    """vllm#14330, #39905: the server's framework and its engine trace one request apart."""
    row = prompt(
        make("a", "", 0, 100, "inbound", service="vllm", scope="fastapi", correlation_id="foo"),
        make("b", "", 3, 98, "server", service="vllm", scope="vllm", trace_id=trace(2), request_id="chatcmpl-foo"),
    )
    assert joined(row) == ("a", "request_id", ["2"])
    assert row["attempts"] == 1


def test_a_stage_hop_without_traceparent(make: Make, prompt: Callable[..., Row], joined: Said) -> None:
    """vllm-omni#3995: only the second hop dropped it."""
    row = prompt(
        make("a", "", 0, 100, "client", service="app"),
        make("b", "a", 5, 95, "gateway", service="gw", correlation_id="x-1"),
        make("c", "b", 10, 90, "call", service="gw"),
        make("d", "", 15, 85, "server", service="engine", trace_id=trace(2), correlation_id="x-1"),
        make("e", "d", 20, 40, "prefill", service="engine", trace_id=trace(2)),
    )
    assert joined(row) == ("a", "request_id", ["2"])
    assert (row["completeness"], row["hops"]) == (1.0, ["app", "gw", "engine"])


@pytest.mark.parametrize("with_router", [True, False])
def test_prefill_and_decode_workers(make: Make, prompt: Callable[..., Row], joined: Said, with_router: bool) -> None:
    """ai-dynamo/dynamo#7030, #13345: three roots, one bootstrap room."""
    router = [make("a", "", 0, 1000, "router", service="router", bootstrap_id="77")] if with_router else []
    row = prompt(
        *router,
        make("b", "", 100, 400, "server", service="prefill", trace_id=trace(2), bootstrap_id="77"),
        make("c", "b", 110, 390, "prefill", service="prefill", trace_id=trace(2)),
        make("d", "", 110, 950, "server", service="decode", trace_id=trace(3), bootstrap_id="77"),
        make("e", "d", 420, 940, "decode", service="decode", trace_id=trace(3)),
    )
    if with_router:
        assert joined(row) == ("a", "bootstrap_id", ["2", "3"])
        assert row["hops"] == ["router", "prefill", "decode"]
    else:
        assert joined(row) == ("d", "bootstrap_id", ["2"])  # the one that ends last
    assert row["attempts"] == 1


def test_a_room_is_no_request_id(make: Make, prompts: Run) -> None:
    rows = prompts(
        make("a", "", 0, 100, "gateway", service="gw", correlation_id="77"),
        make("b", "", 10, 90, "server", service="engine", trace_id=trace(2), bootstrap_id="77"),
    )
    assert len(rows) == 2


def test_choices_in_traces_of_their_own(make: Make, prompt: Callable[..., Row], joined: Said) -> None:
    """vLLM, n = 2, no traceparent: two roots of one arrival."""
    row = prompt(
        make("a", "", 0, 1000, "server", service="vllm", request_id="cmpl-r-0", output_tokens=4),
        make("b", "", 0, 900, "server", service="vllm", request_id="cmpl-r-0", output_tokens=3, trace_id=trace(2)),
    )
    assert joined(row) == ("a", "request_id", ["2"])
    assert row["output_tokens"] == 7


def test_one_id_for_many_requests(make: Make, prompts: Run) -> None:
    """A client that sends one X-Request-Id again and again: the requests stay apart, each with its own engine."""
    spans = []
    for number in range(5):
        at = number * 200 * MS
        spans += [
            make(f"a{number}", "", at, at + 100 * MS, "gateway", service="gw", correlation_id="same",
                 trace_id=trace(10 + number)),
            make(f"b{number}", "", at + 10 * MS, at + 90 * MS, "server", service="engine", request_id="chatcmpl-same",
                 trace_id=trace(20 + number)),
        ]  # fmt: skip
    rows = prompts(*spans)
    assert [(row["prompt_id"], row["joined_traces"]) for row in rows] == [
        (f"a{number}", [trace(20 + number)]) for number in range(5)
    ]
    # Engines alone: five prompts of five traces.
    assert len(prompts(*spans[1::2])) == 5


def test_one_id_at_the_same_time_is_no_telling(make: Make, prompts: Run) -> None:
    spans = [
        make(f"{kind}{number}", "", number * MS + 10 * MS * (kind == "b"), (number + 80) * MS + 20 * MS * (kind == "a"),
             stage, service=service, correlation_id="same", trace_id=trace(number + 10 * (kind == "b") + 1))
        for number in range(2) for kind, stage, service in (("a", "gateway", "gw"), ("b", "server", "engine"))
    ]  # fmt: skip
    assert [row["joined_by"] for row in prompts(*spans)] == ["", "", "", ""]


def test_far_apart_in_time_is_another_request(make: Make, prompts: Run) -> None:
    for far, host, count in ((S, "host", 2), (60 * S, "other", 2), (5 * S, "other", 1)):
        rows = prompts(
            make("a", "", 0, 100 * MS, "gateway", service="gw", correlation_id="foo"),
            make(
                "b", "", far, far + 90 * MS, "server", service="e", host=host, correlation_id="foo", trace_id=trace(2)
            ),
        )
        assert len(rows) == count, (far, host)


def test_attempts_in_traces_of_their_own(make: Make, prompt: Callable[..., Row]) -> None:
    """Two calls of one gateway, each answered in another trace with the same id: each engine is in its own call."""
    row = prompt(
        make("a", "", 0, 1000, "gateway", service="gw", correlation_id="foo"),
        make("b", "a", 100, 300, "call", service="gw", failed=True),
        make("c", "a", 400, 900, "call", service="gw", first_token_ns=300),
        make("d", "", 120, 280, "server", service="e1", trace_id=trace(2), correlation_id="foo", failed=True),
        make("e", "", 420, 880, "server", service="e2", trace_id=trace(3), correlation_id="foo"),
    )
    assert (row["attempts"], row["completeness"], row["retry_ns"]) == (2, 1.0, 300)
    assert (row["status"], row["hops"]) == ("ok", ["gw", "e1", "e2"])


def test_orphans_of_a_trace_with_several_prompts(make: Make, prompts: Run, joined: Said) -> None:
    """By request id; else by the only call that contains them; else attached to none, and no prompt of their own."""
    rows = prompts(
        make("a", "", 0, 1000, agent=True),
        make("b", "a", 0, 400, "client", service="app", response_id="chatcmpl-b"),
        make("c", "a", 100, 400, "client", service="app", response_id="chatcmpl-c"),
        make("d", "a", 500, 900, "client", service="app"),
        make("e", "lost", 150, 350, "server", service="engine", request_id="chatcmpl-c"),
        make("f", "gone", 550, 850, "server", service="engine"),
    )
    assert [joined(row) for row in rows] == [("b", "", []), ("c", "response_id", []), ("d", "time", [])]
    assert [row["hops"] for row in rows] == [["app"], ["app", "engine"], ["app", "engine"]]
    rows = prompts(
        make("a", "", 0, 1000, agent=True),
        make("b", "a", 0, 400, "client", service="app"),
        make("c", "a", 0, 400, "client", service="app"),
        make("e", "lost", 150, 350, "server", service="engine"),
    )
    assert [row["prompt_id"] for row in rows] == ["b", "c"]


def test_the_least_sure_join_is_named(make: Make, prompt: Callable[..., Row], joined: Said) -> None:
    row = prompt(
        make("a", "", 0, 1000, "client", service="app", correlation_id="foo"),
        make("b", "", 10, 900, "gateway", service="gw", correlation_id="foo", trace_id=trace(2)),
        make("c", "b", 20, 800, "call", service="gw", trace_id=trace(2)),
        make("d", "lost", 30, 700, "server", service="engine", trace_id=trace(2)),
    )
    assert joined(row) == ("a", "time", ["2"])


def test_work_after_the_answer_that_links_to_its_request(make: Make, prompt: Callable[..., Row], joined: Said) -> None:
    row = prompt(
        make("a", "", 0, 1000, "gateway", service="litellm"),
        make("b", "", 1100, 1300, "gateway", service="litellm", inference=False, trace_id=trace(2), parent_id="",
             link_traces=[trace(1)], link_spans=["a"]),
    )  # fmt: skip
    assert joined(row) == ("a", "", ["2"])
    assert (row["e2e_ns"], row["attempts"]) == (1000, 0)


def test_an_engine_that_links_instead_of_having_a_parent(make: Make, prompt: Callable[..., Row], joined: Said) -> None:
    row = prompt(
        make("a", "", 0, 1000, "router", service="router"),
        make("b", "a", 10, 990, "call", service="router"),
        make("c", "", 20, 900, "server", service="sglang", trace_id=trace(2), link_traces=[trace(1)], link_spans=["b"]),
        make("d", "c", 30, 100, "prefill", service="sglang", trace_id=trace(2)),
    )
    assert joined(row) == ("a", "", ["2"])
    assert (row["completeness"], row["hops"]) == (1.0, ["router", "sglang"])


@pytest.mark.parametrize(
    "links",
    [
        {"link_traces": ["f" * 32], "link_spans": ["a"]},  # not there
        {"link_traces": [trace(1), trace(1)], "link_spans": ["a", "b"]},  # a batch of several
        {"link_traces": [trace(2)], "link_spans": ["d"]},  # into its own tree
    ],
)
def test_links_that_say_nothing(make: Make, prompts: Run, links: Row) -> None:
    rows = prompts(
        make("a", "", 0, 1000, "gateway", service="gw"),
        make("b", "a", 0, 1000, "call", service="gw"),
        make("c", "", 20, 900, "server", service="sglang", trace_id=trace(2), **links),
        make("d", "c", 20, 900, "queue", service="sglang", trace_id=trace(2)),
    )
    assert [(row["prompt_id"], row["joined_traces"]) for row in rows] == [("a", []), ("c", [])]


def test_a_later_turn_that_links_to_the_one_before(make: Make, prompts: Run) -> None:
    """Agent runs of one conversation linked together stay prompts of their own."""
    rows = prompts(
        make("a", "", 0, 1000, "client", service="app"),
        make(
            "b", "", 2000, 4000, agent=True, service="app", trace_id=trace(2), link_traces=[trace(1)], link_spans=["a"]
        ),
        make("c", "b", 2100, 3000, "client", service="app", trace_id=trace(2)),
    )
    assert [row["prompt_id"] for row in rows] == ["a", "c"]


def test_links_in_a_circle(make: Make, prompts: Run) -> None:
    rows = prompts(
        make("a", "", 0, 1000, "server", service="x", link_traces=[trace(2)], link_spans=["b"]),
        make("b", "", 0, 900, "server", service="y", trace_id=trace(2), link_traces=[trace(1)], link_spans=["a"]),
    )
    assert len(rows) == 1


def test_siblings_where_parent_and_child_are_meant(make: Make, prompt: Callable[..., Row]) -> None:
    """vllm#43005: the gateway hands the client's own header on."""
    row = prompt(
        make("r", "", 0, 1000, "client", service="app"),
        make("a", "r", 10, 990, "gateway", service="litellm", scope="litellm"),
        make("b", "a", 100, 900, "call", service="litellm", scope="litellm"),
        make("c", "r", 120, 880, "server", service="vllm", scope="vllm"),
    )
    assert (row["hops"], row["completeness"], row["attempts"]) == (["app", "litellm", "vllm"], 1.0, 1)


def test_two_server_spans_of_one_request_beside_each_other(make: Make, prompt: Callable[..., Row]) -> None:
    """LiteLLM v1 beside FastAPI, both without a parent or both with the caller's: the longer holds the other."""
    row = prompt(
        make("a", "remote", 0, 1000, "inbound", service="litellm", scope="fastapi"),
        make("b", "remote", 5, 950, "gateway", service="litellm", scope="litellm"),
        make("c", "b", 100, 900, "call", service="litellm", scope="litellm"),
    )
    assert (row["prompt_id"], row["hops"], row["attempts"]) == ("a", ["litellm"], 1)


def test_decode_nested_under_prefill(make: Make, prompt: Callable[..., Row], pieces: Any) -> None:
    """llm-d#469: a child may outlive its parent; each keeps its own time."""
    row = prompt(
        make("a", "", 0, 3200, "server", service="llm-d", first_token_ns=55),
        make("b", "a", 0, 50, "prefill", service="llm-d"),
        make("c", "b", 50, 3142, "decode", service="llm-d"),
    )
    assert row["ttft_prefill_ns"] == 50
    assert ("decode", "c", 55, 3087) in pieces(row)


def test_the_order_of_traces_does_not_matter(make: Make, prompts: Run) -> None:
    spans = [
        make("a", "", 0, 100, "client", service="app", response_id="chatcmpl-x"),
        make("b", "", 5, 95, "gateway", service="gw", trace_id=trace(2)),
        make("c", "b", 10, 90, "call", service="gw", trace_id=trace(2), response_id="chatcmpl-x"),
        make("d", "", 15, 85, "server", service="engine", trace_id=trace(3), request_id="x"),
    ]
    wanted = prompts(*spans)
    for order in permutations(spans):
        assert prompts(*order) == wanted
    for names in permutations(range(1, 4)):
        renamed = [one | {"trace_id": trace(names[int(one["trace_id"], 16) - 1])} for one in spans]
        (row,) = prompts(*renamed)
        assert row | {"trace_id": "", "joined_traces": []} == wanted[0] | {"trace_id": "", "joined_traces": []}


def test_many_at_once_are_what_each_is_alone(make: Make, prompts: Run) -> None:
    rng = random.Random(3)
    alone: list[Row] = []
    together: list[Row] = []
    for number in range(40):
        at, key = rng.randint(0, 50) * MS, f"chatcmpl-{number:x}a"
        spans = [
            make(f"a{number}", "", at, at + 100 * MS, "gateway", service="gw", trace_id=trace(3 * number + 1)),
            make(f"b{number}", f"a{number}", at, at + 99 * MS, "call", service="gw", response_id=key,
                 trace_id=trace(3 * number + 1)),
            make(f"c{number}", "", at + MS, at + 90 * MS, "server", service=f"e{number % 3}", request_id=key,
                 trace_id=trace(3 * number + 2), host=f"h{number % 2}"),
            make(f"d{number}", f"c{number}", at + 2 * MS, at + 30 * MS, "prefill", service=f"e{number % 3}",
                 trace_id=trace(3 * number + 2), host=f"h{number % 2}"),
        ]  # fmt: skip
        alone += prompts(*spans)
        together += spans
    rng.shuffle(together)
    assert len(alone) == 40
    assert prompts(*together) == alone


def test_a_lost_root_and_a_lost_call_further_in(make: Make, prompt: Callable[..., Row]) -> None:
    """What is left of one prompt are two pieces: one is the client's call, the other a server that nobody called."""
    row = prompt(
        make("b", "lost-root", 1, 99, "call", service="app"),
        make("c", "b", 5, 95, "gateway", service="gate", host="h2"),
        make("d", "lost-call", 20, 80, "server", service="engine", host="h3"),
    )
    assert (row["prompt_id"], row["hops"]) == ("b", ["app", "gate", "engine"])


def test_an_id_used_again_seconds_later_where_the_clocks_are_known(make: Make) -> None:
    """Two clocks may differ by 15 s, but these are known to differ by 5 s within a few ms."""
    ms = 1_000_000
    pool = ClockPool()

    def rows(*spans: Row) -> list[Row]:
        table = assemble(pa.Table.from_pylist(list(spans), schema=SPAN_SCHEMA), AssembleConfig(assembled_at_ns=1), pool)
        found: list[Row] = table.select(["prompt_id", "joined_by"]).to_pylist()
        return found

    def call(number: int, at: int) -> Row:
        return make(f"c{number}", "", at * ms, (at + 100) * ms, "call", service="app", host="h1", response_id="r",
                    trace_id=trace(number))  # fmt: skip

    def server(number: int, at: int, parent: str = "") -> Row:
        return make(f"s{number}", parent, at * ms, (at + 90) * ms, "server", service="vllm", host="h2",
                    request_id="r", trace_id=trace(number if parent else number + 50))  # fmt: skip

    assert rows(call(1, 0), server(2, 8_000)) == [{"prompt_id": "c1", "joined_by": "response_id"}]
    rows(call(3, 0), server(3, 5_005, "c3"))
    assert rows(call(4, 0), server(5, 8_000)) == [
        {"prompt_id": "c4", "joined_by": ""},
        {"prompt_id": "s5", "joined_by": ""},
    ]
    assert rows(call(6, 0), server(7, 5_005)) == [{"prompt_id": "c6", "joined_by": "response_id"}]
