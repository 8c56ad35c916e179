"""What is mended where spans do not say it themselves: roots of one request, hops whose call is lost, times that cannot
be. Times in ns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from promptpath.cli.benches.assemble import load_reference
from promptpath.collector.assemble.join_times import ONE_HOST_NS

Row = dict[str, Any]
Make = Callable[..., Row]
Prompt = Callable[..., Row]
Prompts = Callable[..., list[Row]]
Parts = Callable[[Row], Row]

reference = load_reference()
assert reference is not None


def _chain(make: Make, *, inner_scope: str = "litellm", inner_service: str = "gate", end: int = 95) -> list[Row]:
    return [
        make("a", "", 0, 100, "gateway", service="gate", scope="opentelemetry.instrumentation.fastapi"),
        make("b", "", 5, end, "gateway", service=inner_service, scope=inner_scope, first_token_ns=40),
        make("c", "b", 10, 90, "call", service="gate"),
        make("d", "c", 15, 85, "server", service="engine", first_token_ns=25),
    ]


def test_two_server_roots_of_one_request_are_one_prompt(make: Make, prompt: Prompt, parts: Parts) -> None:
    row = prompt(*_chain(make))
    assert (row["prompt_id"], row["hops"], row["attempts"], row["completeness"]) == ("a", ["gate", "engine"], 1, 1.0)
    assert row["ttft_ns"] == 45
    assert parts(row) == {"gateway": 10, "network": 10, "unattributed": 25}


@pytest.mark.parametrize(
    "other",
    [
        {"inner_scope": "opentelemetry.instrumentation.fastapi"},
        {"inner_service": "other"},
        {"end": 100 + ONE_HOST_NS + 1},
    ],
    ids=["one scope", "two processes", "not within"],
)
def test_other_roots_of_a_trace_stay_prompts_of_their_own(make: Make, prompts: Prompts, other: Row) -> None:
    assert [row["prompt_id"] for row in prompts(*_chain(make, **other))] == ["a", "b"]


def _retried(make: Make, parent: str) -> list[Row]:
    return [
        make("a", "", 0, 200, "client", service="app", first_token_ns=150),
        make("b", "a", 5, 195, "gateway", service="gate", first_token_ns=140),
        make("c", parent, 10, 50, "server", service="one", failed=True),
        make("d", "b", 60, 190, "call", service="gate", first_token_ns=70),
        make("e", "d", 65, 185, "server", service="two", first_token_ns=60),
    ]


def test_a_failed_attempt_whose_call_is_lost_is_the_retrying_hop_s(make: Make, prompt: Prompt, parts: Parts) -> None:
    """As if the hop's child: only that it was placed says otherwise."""
    spans = _retried(make, "lost")
    row = prompt(*spans)
    assert (row["attempts"], row["retry_ns"], row["joined_by"]) == (2, 50, "time")
    assert parts(row)["router"] == 50
    told = prompt(*_retried(make, "b"))
    moved = {"joined_by", "ttft_network_ns", "ttft_gateway_ns"} | {name for name in row if name.startswith("segments")}
    assert {name: row[name] for name in row if name not in moved} == {n: told[n] for n in told if n not in moved}
    (same,) = reference(spans)
    assert (same["attempts"], same["retry_ns"], same["ttft_router_ns"]) == (2, 50, 50)


@pytest.mark.parametrize("start", [-9_000, 900_000])
@pytest.mark.parametrize("stage", ["prefill", "decode"])
def test_a_stage_of_another_time_than_its_request_tells_no_first_token(
    make: Make, prompt: Prompt, parts: Parts, stage: str, start: int
) -> None:
    def spans(**seen: int) -> list[Row]:
        return [
            make("a", "", 0, 200, "client", service="app", **seen),
            make("b", "a", 10, 190, "server", service="engine"),
            make("c", "b", 20, 30, "queue", service="engine"),
            make("d", "b", start, start + 100, stage, service="engine"),
        ]

    unseen = prompt(*spans())
    assert (unseen["ttft_ns"], unseen["ttft_source"], unseen["ttft_engine_ns"]) == (None, "", None)
    assert unseen["e2e_ns"] == 200
    seen = prompt(*spans(first_token_ns=150))
    assert (seen["ttft_ns"], seen["ttft_source"], seen["ttft_engine_ns"]) == (150, "client", None)
    assert parts(seen) == {"network": 10, "queue": 10, "unattributed": 130}
    for row, given in ((unseen, spans()), (seen, spans(first_token_ns=150))):
        (same,) = reference(given)
        assert {name: same[name] for name in same if name.startswith(("ttft", "e2e"))} == {
            name: row[name] for name in row if name.startswith(("ttft", "e2e"))
        }
