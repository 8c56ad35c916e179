"""What the simulator's truth brought to light."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Row = dict[str, Any]
Make = Callable[..., Row]
Prompt = Callable[..., Row]
Parts = Callable[[Row], Row]
Run = Callable[..., list[Row]]
MS = 1_000_000


def test_a_proxy_that_sees_no_tokens_is_placed_by_the_hop_below_it(make: Make, prompt: Prompt, parts: Parts) -> None:
    """The client's link stalls after the first token: the proxy's end says nothing of when that was passed on."""
    at = 3_000_000_000
    row = prompt(
        make("a", "", 0, 900, "client", service="app", host="1", first_token_ns=100),
        make("b", "a", at, at + 400, "edge", service="edge", host="2"),
        make("c", "b", at + 5, at + 395, "call", service="edge", host="2"),
        make("d", "c", 10, 390, "gateway", service="gate", host="3", first_token_ns=50),
        make("e", "d", 20, 50, "queue", service="gate", host="3"),
    )
    # The gateway's token is there 60 ns after the proxy was asked: spare are 100 - 60 before and after.
    assert parts(row) == {"network": 100 - 5 - 50, "gateway": 5 + 20, "queue": 30}


def test_embeddings_never_stream(make: Make, prompt: Prompt) -> None:
    row = prompt(
        make("a", "", 0, 100, "client", operation="embeddings"),
        make("b", "a", 10, 90, "server", service="engine", operation="embeddings"),
        make("c", "b", 20, 80, "prefill", service="engine"),
    )
    assert (row["streaming"], row["ttft_ns"], row["ttft_prefill_ns"]) == (False, None, None)
    assert row["ttft_source"] == ""


def test_tpot_of_several_choices_is_that_of_the_first(make: Make, prompt: Prompt) -> None:
    gaps = [10_000, 20_000, 20_000]
    client: Row = {"gaps_us": gaps, "output_tokens": 9, "streaming": True}
    one = prompt(make("a", "", 0, 100 * MS, "client", **client))
    three = prompt(make("a", "", 0, 100 * MS, "client", choices=3, **client))
    assert (one["tpot_ns"], three["tpot_ns"]) == (5 * MS, 20 * MS)
    assert three["output_tokens"] == 9


def test_a_prefill_that_was_given_up_made_no_token(make: Make, prompt: Prompt) -> None:
    def row(**prefill: Any) -> Row:
        return prompt(
            make("a", "", 0, 100, "client", service="app", abort="client", streaming=True),
            make("b", "a", 10, 90, "server", service="engine", abort="client"),
            make("c", "b", 20, 80, "prefill", service="engine", **prefill),
        )

    assert (row()["ttft_ns"], row()["ttft_source"]) == (80, "engine")
    for prefill in ({"abort": "client"}, {"failed": True}):
        assert (row(**prefill)["ttft_ns"], row(**prefill)["ttft_source"]) == (None, "")


def test_what_a_prefill_worker_says_of_its_answer_is_not_the_prompts(make: Make, prompt: Prompt) -> None:
    """It was asked for one token, for the sake of its cache; the answer broke off later."""
    one: Row = {"output_tokens": 1, "finish_reason": "length"}
    row = prompt(
        make("a", "", 0, 200, "router", service="router", failed=True, error_type="internal_error"),
        make("b", "a", 10, 50, "call", service="router", **one),
        make("c", "b", 15, 45, "server", service="prefill", **one),
        make("d", "c", 20, 40, "prefill", service="prefill"),
        make("e", "a", 60, 190, "call", service="router", failed=True, error_type="internal_error"),
        make("f", "e", 65, 185, "server", service="decode", output_tokens=7),
        make("g", "f", 70, 80, "kv_transfer", service="decode"),
        make("h", "f", 80, 180, "decode", service="decode"),
    )
    assert (row["output_tokens"], row["finish_reason"], row["attempts"], row["status"]) == (7, "", 1, "error")


def test_a_hop_whose_call_was_lost_is_of_the_only_prompt_there_is(make: Make, prompt: Prompt) -> None:
    """The gateway's call to the router never came, and no id tells whose answer the router gave."""
    row = prompt(
        make("a", "", 0, 100, "gateway", service="gate", failed=True, http_status=503),
        make("b", "gone", 20, 80, "router", service="router", failed=True, http_status=503),
        make("c", "b", 30, 70, "call", service="router", failed=True, http_status=503),
    )
    assert (row["prompt_id"], row["hops"]) == ("a", ["gate", "router"])


def test_a_call_of_the_process_that_asks_is_a_prompt_whose_root_was_lost(make: Make, prompts: Run) -> None:
    rows = prompts(
        make("a", "", 0, 1000, agent=True, service="app"),
        make("b", "a", 0, 400, "client", service="app"),
        make("c", "gone", 500, 900, "call", service="app"),
        make("d", "c", 510, 890, "server", service="engine"),
        make("e", "lost", 10, 380, "server", service="engine"),
    )
    assert [(row["prompt_id"], row["hops"]) for row in rows] == [("b", ["app", "engine"]), ("c", ["app", "engine"])]


def test_what_is_left_of_a_prompt_is_one_where_the_others_lack_nothing(make: Make, prompts: Run) -> None:
    """An agent's call whose root never came. As long as another prompt may lack a hop it could be that one's."""
    spans = [
        make("a", "", 0, 1000, agent=True, service="app"),
        make("b", "a", 0, 300, "client", service="app"),
        make("c", "b", 10, 290, "gateway", service="gate"),
        make("d", "c", 20, 280, "server", service="engine"),
        make("e", "a", 300, 600, "client", service="app"),
        make("f", "e", 310, 590, "server", service="engine"),
        make("g", "gone", 620, 900, "gateway", service="gate"),
        make("h", "g", 630, 890, "server", service="engine"),
    ]
    assert [(row["prompt_id"], row["hops"]) for row in prompts(*spans)] == [
        ("b", ["app", "gate", "engine"]),
        ("e", ["app", "engine"]),
        ("g", ["gate", "engine"]),
    ]
    assert [row["prompt_id"] for row in prompts(*spans[:5], *spans[6:])] == ["b", "e"]
    failed = make("d", "c", 20, 280, "server", service="engine", failed=True)
    assert [row["prompt_id"] for row in prompts(*spans[:3], failed, *spans[4:])] == ["b", "e"]


def test_a_call_without_a_connection_holds_no_orphan(make: Make, prompts: Run) -> None:
    """The only call without an answer could not connect: what came from elsewhere is not in it."""
    rows = prompts(
        make("a", "", 0, 1000, agent=True, service="app"),
        make("b", "a", 0, 400, "client", service="app"),
        make("c", "b", 100, 110, "call", service="app", failed=True, error_type="ConnectError"),
        make("d", "c", 101, 110, "tcp", service="app", failed=True),
        make("e", "b", 150, 400, "call", service="app"),
        make("f", "e", 160, 390, "server", service="engine"),
        make("g", "a", 500, 900, "client", service="app"),
        make("h", "g", 510, 890, "server", service="engine"),
        make("i", "gone", 520, 525, "gateway", service="gate"),
    )
    assert [row["hops"] for row in rows] == [["app", "engine"], ["app", "engine"]]


# --- attempts beside the one that answered ---


def _hedged(make: Make, *, loser: tuple[int, int], winner: tuple[int, int]) -> list[Row]:
    """A router that asked two engines; the first token came 140 ns after the winner was asked, and was there at 160."""
    begun, ended = winner
    return [
        make("a", "", 0, 400, "router", service="route", host="1", first_token_ns=160),
        make("b", "a", begun, ended, "call", service="route", host="1", first_token_ns=150 - begun),
        make("c", "b", begun + 4, ended - 4, "server", service="engine", host="2", first_token_ns=142 - begun),
        make("d", "c", begun + 4, 146, "prefill", service="engine", host="2"),
        make("e", "a", *loser, "call", service="route", host="1", abort="client"),
        make("f", "e", loser[0] + 2, loser[1] - 2, "server", service="other", host="3", abort="client"),
        make("g", "f", loser[0] + 2, loser[1] - 2, "queue", service="other", host="3"),
    ]


def test_a_hedge_that_was_given_up_owns_nothing_and_ends_nothing(make: Make, prompt: Prompt, parts: Parts) -> None:
    row = prompt(*_hedged(make, loser=(60, 156), winner=(10, 390)))
    assert parts(row) == {"router": 10 + 10, "network": 4 + 4, "prefill": 132}
    assert (row["status"], row["attempts"], row["retry_ns"]) == ("ok", 2, 0)


def test_an_attempt_given_up_for_a_hedge_is_lost_until_the_hedge_began(
    make: Make, prompt: Prompt, parts: Parts
) -> None:
    row = prompt(*_hedged(make, loser=(10, 156), winner=(60, 390)))
    assert parts(row) == {"router": 60 + 10, "network": 4 + 4, "prefill": 82}
    assert (row["status"], row["attempts"], row["retry_ns"]) == ("ok", 2, 50)


def test_an_answer_that_was_continued_elsewhere_is_ok(make: Make, prompt: Prompt, parts: Parts) -> None:
    broken: Row = {"failed": True, "error_type": "ConnectionError", "abort": "server", "http_status": 502}
    row = prompt(
        make("a", "", 0, 900, "gateway", service="gate", first_token_ns=100),
        make("b", "a", 10, 150, "call", service="gate", first_token_ns=90, **broken),
        make("c", "b", 15, 140, "server", service="engine", first_token_ns=80, **broken),
        make("d", "a", 200, 890, "call", service="gate", first_token_ns=20),
        make("e", "d", 210, 880, "server", service="other", first_token_ns=5),
    )
    assert parts(row) == {"gateway": 10, "network": 10, "unattributed": 80}
    assert (row["status"], row["error_type"], row["attempts"], row["retry_ns"]) == ("ok", "", 2, 0)


def test_two_servers_that_one_call_reached_after_each_other_are_two_attempts(
    make: Make, prompt: Prompt, parts: Parts
) -> None:
    """A library tries again under the one span that it has, and sends the same trace header."""
    row = prompt(
        make("a", "", 0, 900, "client", service="app", first_token_ns=500),
        make("b", "a", 10, 100, "server", service="engine", failed=True, http_status=500),
        make("c", "a", 300, 890, "server", service="engine", first_token_ns=190),
    )
    assert parts(row) == {"network": 10 + 10, "router": 90 + 200, "unattributed": 190}
    assert (row["status"], row["attempts"], row["retry_ns"]) == ("ok", 2, 290)


def _guarded(make: Make, **guard: Any) -> list[Row]:
    """A gateway asks a model whether a prompt may pass, then sends it on by way of a router."""
    return [
        make("a", "", 0, 500, "gateway", service="gate", first_token_ns=300, request_model="m"),
        make("b", "a", 10, 110, "safety", service="gate"),
        make("c", "b", 15, 105, "call", service="gate", request_model="guard", **guard),
        make("d", "c", 20, 100, "server", service="guard", model="guard-1", output_tokens=1, **guard),
        make("e", "d", 25, 60, "prefill", service="guard"),
        make("f", "a", 115, 485, "call", service="gate", first_token_ns=180),
        make("g", "f", 118, 482, "router", service="route", first_token_ns=175),
        make("h", "g", 120, 480, "call", service="route", first_token_ns=170),
        make("i", "h", 130, 470, "server", service="engine", model="m-1", first_token_ns=150),
        make("j", "i", 140, 270, "prefill", service="engine"),
    ]


def test_what_a_guardrail_asks_of_a_model_is_the_guardrails(make: Make, prompt: Prompt, parts: Parts) -> None:
    row = prompt(*_guarded(make, finish_reason="length"))
    times = {"gateway": 10 + 5 + 5, "post": 100, "network": 3 + 10 + 10 + 2, "router": 2 + 3}
    assert parts(row) == times | {"prefill": 130, "unattributed": 20}
    assert (row["model"], row["output_tokens"], row["finish_reason"]) == ("m-1", None, "")
    assert (row["attempts"], row["ttft_engine_ns"], row["completeness"]) == (1, 150, 1)


def test_a_guardrail_whose_model_failed_ends_no_prompt_and_is_no_attempt(
    make: Make, prompt: Prompt, parts: Parts
) -> None:
    row = prompt(*_guarded(make, failed=True, error_type="ConnectError", http_status=503))
    assert parts(row)["post"] == 100
    assert (row["status"], row["error_type"], row["attempts"], row["retry_ns"]) == ("ok", "", 1, 0)


def test_a_guardrail_around_the_prompts_own_call_leaves_it_its_time(make: Make, prompt: Prompt, parts: Parts) -> None:
    row = prompt(
        make("a", "", 0, 500, "gateway", service="gate", first_token_ns=300),
        make("b", "a", 10, 490, "safety", service="gate"),
        make("c", "b", 20, 480, "call", service="gate", first_token_ns=270),
        make("d", "c", 30, 470, "server", service="engine", model="m-1", first_token_ns=250),
        make("e", "d", 30, 270, "prefill", service="engine"),
    )
    assert parts(row) == {"gateway": 10, "post": 10 + 10, "network": 20, "prefill": 240, "unattributed": 10}
    assert (row["model"], row["attempts"], row["ttft_engine_ns"]) == ("m-1", 1, 250)


def test_a_forwarding_counts_until_its_own_first_token(make: Make, prompt: Prompt, parts: Parts) -> None:
    row = prompt(
        make("a", "", 0, 300, "server", service="one", host="1", first_token_ns=100),
        make("b", "a", 10, 280, "hop", service="one", host="1", first_token_ns=75),
        make("c", "b", 20, 270, "server", service="two", host="2", first_token_ns=55),
    )
    assert parts(row) == {"unattributed": 10 + 15 + 55, "network": 20}


# --- what is left where a span was lost ---


def test_the_stages_of_a_server_whose_span_was_lost_are_placed_by_the_first_token(
    make: Make, prompt: Prompt, parts: Parts
) -> None:
    at = 5_000_000_000
    row = prompt(
        make("a", "", 0, 900, "gateway", service="gate", host="1", first_token_ns=330),
        make("b", "a", 10, 890, "call", service="gate", host="1", first_token_ns=310),
        make("c", "gone", at, at + 90, "queue", service="engine", host="2"),
        make("d", "gone", at + 90, at + 280, "prefill", service="engine", host="2"),
        make("e", "gone", at + 280, at + 290, "stream", service="engine", host="2"),
    )
    # The call's token was there 310 after it was made, 290 of which the stages explain.
    assert parts(row) == {"gateway": 20, "network": 20, "queue": 90, "prefill": 190, "stream": 10}


def test_a_server_whose_call_was_lost_was_an_attempt(make: Make, prompt: Prompt) -> None:
    row = prompt(
        make("a", "", 0, 900, "client", service="app", first_token_ns=340),
        make("b", "a", 10, 890, "gateway", service="gate", first_token_ns=320),
        make("c", "gone", 30, 870, "server", service="engine", first_token_ns=280),
    )
    assert (row["attempts"], row["hops"]) == (1, ["app", "gate", "engine"])


def test_a_server_whose_call_was_lost_is_below_the_relay_that_nobody_answered(
    make: Make, prompt: Prompt, parts: Parts
) -> None:
    at = 5_000_000_000
    row = prompt(
        make("a", "", 0, 900, "client", service="app", host="1", first_token_ns=340),
        make("b", "a", 10, 890, "gateway", service="gate", host="2", first_token_ns=320),
        make("c", "b", 10, 60, "safety", service="gate", host="2"),
        make("d", "b", 70, 120, "call", service="gate", host="2", failed=True),
        make("e", "d", 80, 110, "server", service="engine", host="3", failed=True),
        make("f", "gone", at, at + 700, "server", service="engine", host="3", first_token_ns=180),
        make("g", "f", at + 10, at + 170, "prefill", service="engine", host="3"),
    )
    assert parts(row)["prefill"] == 160
    assert (row["attempts"], row["status"], row["ttft_network_ns"]) == (2, "ok", 20)
