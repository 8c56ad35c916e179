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
