"""The definitions of design section 9, one small trace each; times in ns unless said otherwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Row = dict[str, Any]
Make = Callable[..., Row]
Prompt = Callable[..., Row]
Parts = Callable[[Row], Row]
Pieces = Callable[..., list[tuple[Any, ...]]]


# --- 1: until its own first delivery; the deepest; of siblings the one that ends last ---


def test_a_span_counts_until_its_own_first_delivery(make: Make, prompt: Prompt, parts: Parts) -> None:
    row = prompt(
        make("a", "", 0, 100, "client", service="app", first_token_ns=50),
        make("b", "a", 10, 90, "gateway", service="gate", first_token_ns=30),
    )
    assert parts(row) == {"network": 20, "gateway": 30}


def test_without_deliveries_it_counts_to_its_end_but_not_past_the_callers_delivery(
    make: Make, prompt: Prompt, parts: Parts
) -> None:
    row = prompt(
        make("a", "", 0, 100, "client", service="app", first_token_ns=50),
        make("b", "a", 10, 40, "gateway", service="gate"),
        make("c", "b", 15, 90, "router", service="gate"),
    )
    # The child outlives its parent and keeps its time, until the token is with the client.
    assert parts(row) == {"network": 10, "gateway": 5, "router": 35}


def test_nothing_below_a_span_counts_after_that_spans_delivery(make: Make, prompt: Prompt, parts: Parts) -> None:
    row = prompt(
        make("a", "", 0, 100, "client", service="app", first_token_ns=60),
        make("b", "a", 10, 90, "gateway", service="gate", first_token_ns=30),
        make("c", "b", 20, 80, "router", service="gate"),
        make("d", "c", 30, 80, "queue", service="gate"),
    )
    assert parts(row) == {"network": 30, "gateway": 10, "router": 10, "queue": 10}


def test_decode_never_counts_for_the_ttft(make: Make, prompt: Prompt, parts: Parts, pieces: Pieces) -> None:
    row = prompt(
        make("a", "", 0, 100, "server", first_token_ns=50),
        make("b", "a", 0, 30, "prefill"),
        make("c", "a", 30, 95, "decode"),
    )
    assert parts(row) == {"prefill": 30, "unattributed": 20}
    assert pieces(row) == [
        ("prefill", "b", 0, 30),
        ("unattributed", "a", 30, 20),
        ("decode", "c", 50, 45),
        ("unattributed", "a", 95, 5),
    ]
    assert pieces(row, critical=False) == [("server", "a", 0, 30), ("decode", "c", 30, 20), ("server", "a", 50, 45)]


def test_loading_weights_is_no_part_of_a_prompt(make: Make, prompt: Prompt, parts: Parts, pieces: Pieces) -> None:
    row = prompt(make("a", "", 0, 100, "server", first_token_ns=50), make("b", "a", 0, 30, "load"))
    assert parts(row) == {"unattributed": 50}
    assert [span for _, span, *_ in pieces(row) + pieces(row, critical=False)] == ["a", "a"]


def test_of_overlapping_siblings_the_one_that_ends_last_owns(make: Make, prompt: Prompt, parts: Parts) -> None:
    row = prompt(
        make("a", "", 0, 100, "server", first_token_ns=60),
        make("b", "a", 0, 50, "tokenize"),
        make("c", "a", 20, 40, "queue"),
        make("d", "a", 30, 60, "prefill"),
    )
    assert parts(row) == {"tokenize": 30, "prefill": 30}


def test_a_deeper_span_owns_even_if_it_ends_first(make: Make, prompt: Prompt, parts: Parts) -> None:
    row = prompt(
        make("a", "", 0, 100, "server", first_token_ns=60),
        make("b", "a", 0, 60, "tokenize"),
        make("c", "a", 0, 50, "queue"),
        make("d", "c", 10, 20, "prefill"),
    )
    assert parts(row) == {"tokenize": 50, "prefill": 10}


def test_spans_without_a_stage_are_transparent(make: Make, prompt: Prompt, parts: Parts) -> None:
    row = prompt(
        make("a", "", 0, 100, "gateway", first_token_ns=60),
        make("b", "a", 10, 60),
        make("c", "b", 20, 40),
        make("d", "c", 25, 35, "tokenize"),
        make("e", "a", 25, 30, "queue"),
    )
    # Depth counts stages, not spans: d and e are rivals, and d ends last.
    assert parts(row) == {"gateway": 50, "tokenize": 10}


# --- 2: network ---


def test_network_is_what_the_callee_does_not_explain_both_ways(make: Make, prompt: Prompt, parts: Parts) -> None:
    row = prompt(
        make("a", "", 0, 100, "client", service="app", first_token_ns=60),
        make("b", "a", 1, 5, "dns", service="app"),
        make("c", "a", 5, 8, "tcp", service="app"),
        make("d", "a", 8, 12, "tls", service="app"),
        make("e", "a", 15, 90, "server", service="engine", first_token_ns=40),
        make("f", "e", 15, 17, "ingress", service="engine"),
        make("g", "e", 17, 20, "hop", service="engine"),
    )
    assert parts(row) == {"network": 60 - 40 + 5, "unattributed": 35}


def test_a_call_whose_server_left_no_span_is_unattributed(make: Make, prompt: Prompt, parts: Parts) -> None:
    row = prompt(
        make("a", "", 0, 100, "client", service="app", first_token_ns=60),
        make("b", "a", 5, 95, "call", service="app", first_token_ns=50),
        make("c", "b", 5, 15, "tcp", service="app"),
    )
    assert parts(row) == {"network": 10, "unattributed": 50}
    assert row["completeness"] == 0.0


def test_only_the_call_that_was_not_answered_is_unattributed(make: Make, prompt: Prompt, parts: Parts) -> None:
    row = prompt(
        make("a", "", 0, 100, "client", service="app", first_token_ns=60),
        make("b", "a", 5, 95, "gateway", service="gate", first_token_ns=50),
        make("c", "b", 10, 90, "call", service="gate", first_token_ns=40),
    )
    assert parts(row) == {"network": 10, "gateway": 10, "unattributed": 40}
    assert row["completeness"] == 0.5


def test_the_callee_on_another_host_is_placed_inside_its_call(
    make: Make, prompt: Prompt, parts: Parts, pieces: Pieces
) -> None:
    row = prompt(
        make("a", "", 0, 100, "client", service="app", first_token_ns=61),
        make("b", "a", 0, 20, "tcp", service="app"),
        make("e", "a", 900, 930, "server", service="engine", host="far", first_token_ns=20),
        make("f", "e", 905, 910, "queue", service="engine", host="far"),
    )
    assert parts(row) == {"network": 41, "queue": 5, "unattributed": 15}
    # 20 is connecting, 41 - 20 = 21 are to spare: 10 before, 11 after.
    assert [piece for piece in pieces(row) if piece[2] < 61] == [
        ("tcp", "b", 0, 20),
        ("transit", "a", 20, 10),
        ("unattributed", "e", 30, 5),
        ("queue", "f", 35, 5),
        ("unattributed", "e", 40, 10),
        ("transit", "a", 50, 11),
    ]
    assert (row["clock_offset_ns"], row["clock_error_ns"]) == (870, 11)


def test_two_callees_on_one_far_host_keep_their_distance(make: Make, prompt: Prompt, pieces: Pieces) -> None:
    row = prompt(
        make("a", "", 0, 100, "router", service="route", first_token_ns=90),
        make("b", "a", 1000, 1010, "server", service="engine", host="far", failed=True),
        make("c", "a", 1030, 1090, "server", service="engine", host="far", first_token_ns=40),
    )
    assert [piece for piece in pieces(row) if piece[2] < 90] == [
        ("router", "a", 0, 10),
        ("router", "b", 10, 10),
        ("router", "a", 20, 20),
        ("unattributed", "c", 40, 40),
        ("router", "a", 80, 10),
    ]
    assert row["retry_ns"] == 30


def test_a_callee_longer_than_its_call_starts_with_it(make: Make, prompt: Prompt, parts: Parts) -> None:
    row = prompt(
        make("a", "", 0, 50, "client", service="app", first_token_ns=40),
        make("b", "a", 500, 600, "server", service="engine", host="far", first_token_ns=45),
    )
    assert parts(row) == {"unattributed": 40}
    assert row["clock_offset_ns"] == 500


def test_spans_of_one_host_are_never_moved(make: Make, prompt: Prompt, pieces: Pieces) -> None:
    row = prompt(
        make("a", "", 0, 100, "client", service="app", first_token_ns=60),
        make("b", "a", 50, 90, "server", service="engine", first_token_ns=5),
    )
    assert pieces(row)[:3] == [("transit", "a", 0, 50), ("unattributed", "b", 50, 5), ("transit", "a", 55, 5)]
    assert row["clock_offset_ns"] is None


# --- 3, 4: own time ---


@pytest.mark.parametrize(
    ("stage", "part"),
    [("gateway", "gateway"), ("edge", "gateway"), ("router", "router"), ("server", "unattributed")],
)
def test_own_time_of_a_hop_both_ways(make: Make, prompt: Prompt, parts: Parts, stage: str, part: str) -> None:
    row = prompt(
        make("a", "", 0, 100, stage, service="hop", first_token_ns=60),
        make("b", "a", 10, 50, "queue", service="hop"),
    )
    assert parts(row) == {part: 20, "queue": 40}


@pytest.mark.parametrize(
    ("stage", "part"),
    [
        ("dns", "network"), ("tcp", "network"), ("tls", "network"), ("ingress", "network"), ("hop", "network"),
        ("edge", "gateway"), ("gateway", "gateway"), ("router", "router"), ("parse", "tokenize"),
        ("tokenize", "tokenize"), ("queue", "queue"), ("transfer", "prefill"), ("prefill", "prefill"),
        ("kv_transfer", "prefill"), ("detokenize", "post"), ("safety", "post"), ("structure", "post"),
        ("stream", "stream"),
    ],
)  # fmt: skip
def test_which_part_each_stage_is(make: Make, prompt: Prompt, parts: Parts, stage: str, part: str) -> None:
    row = prompt(
        make("a", "", 0, 100, "server", first_token_ns=60),
        make("b", "a", 10, 50, stage, inference=False, kind="INTERNAL"),
    )
    assert parts(row) == {"unattributed": 20, part: 40}


def test_an_unknown_stage_is_as_good_as_none(make: Make, prompt: Prompt, parts: Parts) -> None:
    row = prompt(make("a", "", 0, 100, "server", first_token_ns=60), make("b", "a", 10, 50, "rerank"))
    assert parts(row) == {"unattributed": 60}


# --- 6: failed attempts ---


def test_failed_attempts_and_back_off_belong_to_the_router(make: Make, prompt: Prompt, parts: Parts) -> None:
    row = prompt(
        make("a", "", 0, 1000, "client", service="app", first_token_ns=600),
        make("b", "a", 10, 110, "call", service="app", failed=True),
        make("c", "b", 20, 100, "server", service="engine", failed=True),
        make("d", "c", 30, 90, "queue", service="engine"),
        make("e", "a", 150, 200, "call", service="app", failed=True),
        make("f", "a", 300, 900, "call", service="app", first_token_ns=250),
        make("g", "f", 320, 900, "server", service="engine", first_token_ns=200),
    )
    # 10-110 and 150-200 failed, 110-150 and 200-300 waited.
    assert parts(row) == {"network": 10 + 50 + 50, "router": 290, "unattributed": 200}
    assert row["retry_ns"] == 290
    assert row["attempts"] == 3
    assert row["status"] == "ok"


def test_the_last_attempt_is_no_retry_even_if_it_failed(make: Make, prompt: Prompt, pieces: Pieces) -> None:
    row = prompt(
        make("a", "", 0, 100, "gateway", service="gate", failed=True, http_status=502),
        make("b", "a", 10, 20, "call", service="gate", failed=True, http_status=500),
        make("c", "a", 30, 90, "call", service="gate", failed=True, http_status=500),
    )
    assert row["retry_ns"] == 20
    assert row["attempts"] == 2
    assert pieces(row) == [
        ("gateway", "a", 0, 10),
        ("router", "b", 10, 10),
        ("router", "a", 20, 10),
        ("unattributed", "c", 30, 60),
        ("gateway", "a", 90, 10),
    ]


def test_an_attempt_that_failed_after_its_first_token_is_no_retry(make: Make, prompt: Prompt, parts: Parts) -> None:
    row = prompt(
        make("a", "", 0, 100, "router", service="route", first_token_ns=30),
        make("b", "a", 0, 50, "call", service="route", failed=True, first_token_ns=30),
        make("c", "a", 60, 90, "call", service="route", first_token_ns=20),
    )
    assert parts(row) == {"unattributed": 30}
    assert row["retry_ns"] == 0


def test_retries_inside_a_client_library_are_seen(make: Make, prompt: Prompt, parts: Parts) -> None:
    """A gateway that calls with a client whose one span holds the attempts."""
    row = prompt(
        make("a", "", 0, 100, "gateway", service="gate", first_token_ns=80),
        make("b", "a", 10, 95, "client", service="gate", first_token_ns=65),
        make("c", "b", 10, 30, "call", service="gate", failed=True),
        make("d", "b", 40, 90, "call", service="gate", first_token_ns=30),
    )
    assert parts(row) == {"gateway": 15, "router": 30, "unattributed": 35}
    assert row["attempts"] == 2


# --- 7, 8: where the first token was seen ---


def test_not_streaming_has_no_ttft(make: Make, prompt: Prompt, parts: Parts, pieces: Pieces) -> None:
    row = prompt(
        make("a", "", 0, 100, "client", service="app", streaming=False, first_token_ns=99),
        make("b", "a", 10, 90, "server", service="engine", streaming=True),
        make("c", "b", 20, 60, "prefill", service="engine"),
        make("d", "b", 60, 80, "decode", service="engine"),
    )
    assert (row["ttft_ns"], row["ttft_source"], row["streaming"], parts(row)) == (None, "", False, {})
    assert row["ttft_engine_ns"] == 50
    assert pieces(row) == [
        ("transit", "a", 0, 10),
        ("unattributed", "b", 10, 10),
        ("prefill", "c", 20, 40),
        ("decode", "d", 60, 20),
        ("unattributed", "b", 80, 10),
        ("transit", "a", 90, 10),
    ]


def test_nobody_saw_a_token(make: Make, prompt: Prompt, parts: Parts) -> None:
    row = prompt(make("a", "", 0, 100, "client", streaming=True, first_byte_ns=20))
    assert (row["ttft_ns"], row["ttft_source"], parts(row)) == (None, "", {})
    assert row["first_byte_ns"] == 20


def test_the_outermost_hop_that_saw_a_token_tells(make: Make, prompt: Prompt, parts: Parts) -> None:
    row = prompt(
        make("a", "", 0, 100, "client", service="app", streaming=True),
        make("b", "a", 10, 90, "gateway", service="gate", first_token_ns=40),
        make("c", "b", 20, 80, "server", service="engine", first_token_ns=20),
    )
    assert (row["ttft_ns"], row["ttft_source"]) == (50, "gateway")
    assert parts(row) == {"network": 10, "gateway": 20, "unattributed": 20}


@pytest.mark.parametrize(
    ("stage", "source"),
    [("client", "client"), ("edge", "gateway"), ("gateway", "gateway"), ("router", "router"), ("server", "engine")],
)
def test_who_saw_it_by_the_hop(make: Make, prompt: Prompt, stage: str, source: str) -> None:
    row = prompt(make("a", "", 0, 100, stage, gaps_us=[0, 1]))
    assert (row["ttft_source"], row["gaps_source"]) == (source, source)


def test_a_call_inside_a_gateway_saw_it_as_the_gateway(make: Make, prompt: Prompt) -> None:
    row = prompt(
        make("a", "", 0, 100, "gateway", service="gate"),
        make("b", "a", 10, 90, "call", service="gate", first_token_ns=40),
    )
    assert (row["ttft_ns"], row["ttft_source"], row["streaming"]) == (50, "gateway", True)


def test_only_the_engine_says_and_the_way_back_is_left_out(make: Make, prompt: Prompt, parts: Parts) -> None:
    row = prompt(
        make("a", "", 0, 100, "client", service="app", streaming=True),
        make("b", "a", 10, 90, "server", service="engine"),
        make("c", "b", 20, 60, "prefill", service="engine"),
        make("d", "b", 60, 80, "decode", service="engine"),
    )
    assert (row["ttft_ns"], row["ttft_source"], row["ttft_engine_ns"]) == (60, "engine", 50)
    assert parts(row) == {"network": 10, "prefill": 40, "unattributed": 10}


def test_a_lost_attempt_tells_no_first_token(make: Make, prompt: Prompt) -> None:
    row = prompt(
        make("a", "", 0, 100, "router", service="route", streaming=True),
        make("b", "a", 10, 30, "call", service="route", failed=True),
        make("c", "b", 15, 25, "server", service="engine", first_token_ns=5),
        make("d", "a", 40, 90, "call", service="route"),
        make("e", "d", 45, 90, "server", service="engine", first_token_ns=15),
    )
    assert (row["ttft_ns"], row["ttft_source"], row["attempts"]) == (60, "engine", 2)


def test_ttft_engine_in_the_engines_own_words(make: Make, prompt: Prompt) -> None:
    row = prompt(
        make("a", "", 0, 100, "server", gaps_us=[0], first_token_ns=33),
        make("b", "a", 20, 60, "prefill"),
    )
    assert (row["ttft_ns"], row["ttft_engine_ns"]) == (0, 33)


def test_a_root_that_ends_with_the_headers_lasts_until_the_token(make: Make, prompt: Prompt, parts: Parts) -> None:
    row = prompt(
        make("a", "", 0, 20, "client", service="app"),
        make("b", "a", 5, 90, "server", service="engine", first_token_ns=40),
    )
    assert (row["ttft_ns"], row["e2e_ns"]) == (45, 45)
    assert parts(row) == {"network": 5, "unattributed": 40}


def test_first_byte_is_told_by_the_outermost_and_counted_from_the_root(make: Make, prompt: Prompt) -> None:
    row = prompt(
        make("a", "", 0, 100, "client", service="app", first_token_ns=60),
        make("b", "a", 10, 90, "call", service="app", first_byte_ns=25),
        make("c", "b", 12, 80, "server", service="engine", first_byte_ns=5),
    )
    assert row["first_byte_ns"] == 35


# --- 10: attempts ---


def test_refused_before_any_attempt(make: Make, prompt: Prompt) -> None:
    row = prompt(
        make("a", "", 0, 100, "client", service="app", failed=True, error_type="429"),
        make("b", "a", 10, 90, "call", service="app", failed=True, http_status=429),
        make("c", "b", 20, 80, "gateway", service="gate", failed=True, http_status=429),
        make("d", "c", 25, 30, "gateway", service="gate", kind="INTERNAL", inference=False),
    )
    assert (row["attempts"], row["status"], row["completeness"]) == (0, "rate_limited", 1.0)


def test_a_prefill_and_a_decode_worker_are_one_attempt(make: Make, prompt: Prompt) -> None:
    row = prompt(
        make("a", "", 0, 100, "router", service="route", first_token_ns=60),
        make("b", "a", 10, 50, "call", service="route"),
        make("c", "b", 12, 48, "server", service="prefiller"),
        make("d", "c", 12, 48, "prefill", service="prefiller"),
        make("e", "a", 50, 95, "call", service="route", first_token_ns=8),
        make("f", "e", 52, 90, "server", service="decoder", first_token_ns=5),
        make("g", "f", 52, 90, "decode", service="decoder"),
    )
    assert row["attempts"] == 1


def test_a_prefill_and_a_decode_worker_of_which_only_the_calls_are_seen(make: Make, prompt: Prompt) -> None:
    row = prompt(
        make("a", "", 0, 100, "router", service="route"),
        make("b", "a", 10, 50, "call", service="route", role="prefill"),
        make("c", "a", 50, 95, "call", service="route", role="decode"),
    )
    assert row["attempts"] == 1


def test_a_decode_worker_that_also_prefills_what_was_not_transferred(make: Make, prompt: Prompt) -> None:
    row = prompt(
        make("a", "", 0, 100, "router", service="route"),
        make("b", "a", 10, 48, "server", service="prefiller", output_tokens=1, finish_reason="length"),
        make("c", "b", 12, 48, "prefill", service="prefiller"),
        make("d", "a", 50, 95, "server", service="decoder", output_tokens=20, finish_reason="stop"),
        make("e", "d", 51, 52, "prefill", service="decoder"),
        make("f", "d", 52, 90, "decode", service="decoder"),
    )
    assert (row["attempts"], row["output_tokens"], row["finish_reason"]) == (1, 20, "stop")


def test_given_up_between_the_prefill_and_the_decode_worker(make: Make, prompt: Prompt) -> None:
    """The prefill worker's token is nobody's; with the decode worker's call or without, it was one attempt."""
    spans = [
        make("a", "", 0, 60, "router", service="route", abort="client", streaming=True),
        make("b", "a", 10, 50, "call", service="route"),
        make("c", "b", 12, 48, "server", service="prefiller", output_tokens=1, finish_reason="length"),
        make("d", "c", 12, 48, "prefill", service="prefiller"),
    ]
    cut = [
        make("e", "a", 51, 60, "call", service="route"),
        make("f", "e", 52, 59, "server", service="decoder", abort="client"),
    ]
    for more in ([], [make("e", "a", 51, 60, "call", service="route", abort="client")], cut):
        row = prompt(*spans, *more)
        assert (row["attempts"], row["status"], row["ttft_ns"], row["output_tokens"]) == (1, "client_abort", None, None)
        assert row["ttft_source"] == ""


@pytest.mark.parametrize(
    ("http", "role", "attempts"),
    [
        (200, "forward", 1),
        (None, "forward", 1),
        (499, "forward", 1),
        (502, "forward", 1),
        (504, "forward", 1),
        (429, "forward", 0),
        (401, "forward", 0),
        (503, "forward", 0),
        (429, "forwarded", 1),
        (503, "forwarded", 1),
        (200, "", 0),
    ],
)
def test_a_relay_that_leaves_no_span_for_its_call(
    make: Make, prompt: Prompt, http: int | None, role: str, attempts: int
) -> None:
    failed = http is not None and http >= 400
    relay = make("a", "", 0, 100, "gateway", service="nginx", role=role, http_status=http, failed=failed)
    assert prompt(relay)["attempts"] == attempts
    if not failed:
        # The engine's own span below shows it too: still one.
        assert prompt(relay, make("b", "a", 10, 90, "server", service="engine"))["attempts"] == 1


def test_a_server_reached_without_a_call_span_counts(make: Make, prompt: Prompt) -> None:
    row = prompt(
        make("a", "", 0, 100, "gateway", service="gate"),
        make("b", "a", 10, 90, "server", service="engine"),
        make("c", "b", 15, 85, "server", service="engine"),
    )
    assert row["attempts"] == 1


def test_a_call_seen_twice_in_one_hop_counts_once(make: Make, prompt: Prompt) -> None:
    row = prompt(
        make("a", "", 0, 100, "gateway", service="gate"),
        make("b", "a", 10, 90, "call", service="gate"),
        make("c", "b", 15, 85, "call", service="gate"),
        make("d", "c", 20, 80, "server", service="engine"),
    )
    assert (row["attempts"], row["completeness"]) == (1, 1.0)


# --- 13: models, tokens ---


def test_model_is_what_answered(make: Make, prompt: Prompt) -> None:
    row = prompt(
        make("a", "", 0, 100, "client", service="app", request_model="asked"),
        make("b", "a", 10, 90, "gateway", service="gate", model="answered", request_model="routed"),
    )
    assert (row["request_model"], row["model"]) == ("asked", "answered")


def test_model_without_an_answer_is_what_the_engine_was_asked_for(make: Make, prompt: Prompt) -> None:
    row = prompt(
        make("a", "", 0, 100, "client", service="app", request_model="asked"),
        make("b", "a", 10, 90, "server", service="engine", request_model="routed"),
    )
    assert (row["request_model"], row["model"]) == ("asked", "routed")
    row = prompt(make("a", "", 0, 100, "client", request_model="asked"))
    assert (row["request_model"], row["model"]) == ("asked", "asked")


def test_tokens_of_an_aborted_answer_are_those_delivered(make: Make, prompt: Prompt) -> None:
    row = prompt(make("a", "", 0, 10_000, "client", abort="client", gaps_us=[1, 1, 1], counts=[1, 2, 3]))
    assert (row["status"], row["output_tokens"]) == ("client_abort", 6)
    row = prompt(make("a", "", 0, 10_000, "client", abort="client"))
    assert (row["status"], row["output_tokens"]) == ("client_abort", None)
    row = prompt(make("a", "", 0, 10_000, "client", gaps_us=[1, 1, 1]))
    assert (row["status"], row["output_tokens"]) == ("ok", None)


def test_what_the_engine_made_for_nobody_does_not_count(make: Make, prompt: Prompt) -> None:
    engine = make("b", "a", 1000, 9000, "server", service="engine", gaps_us=[1, 1, 1], output_tokens=9)
    row = prompt(make("a", "", 0, 10_000, "client", service="app", abort="client", gaps_us=[2, 1]), engine)
    assert (row["output_tokens"], row["tpot_ns"]) == (2, 1000)
    silent = make("a", "", 0, 10_000, "client", service="app", abort="client", streaming=False)
    decode = make("c", "b", 1000, 9000, "decode", service="engine", gaps_us=[0, 1])
    engine = make("b", "a", 1000, 9000, "server", service="engine", output_tokens=9)
    assert prompt(silent, engine, decode)["output_tokens"] is None
    alone = make("b", "", 1000, 9000, "server", service="engine", output_tokens=9, abort="client")
    assert prompt(alone)["output_tokens"] == 9


def test_n_choices_sum_their_tokens_and_count_the_prompt_once(make: Make, prompt: Prompt) -> None:
    row = prompt(
        make("a", "", 0, 100, "gateway", service="gate"),
        make("b", "a", 10, 90, "call", service="gate"),
        make("c", "b", 15, 80, "server", service="vllm", request_id="r", input_tokens=7, output_tokens=3),
        make("d", "b", 16, 85, "server", service="vllm", request_id="r", input_tokens=7, output_tokens=4),
        make("e", "b", 16, 85, "server", service="vllm", request_id="other", input_tokens=7, output_tokens=50),
    )
    assert (row["input_tokens"], row["output_tokens"], row["attempts"]) == (7, 7, 1)


# --- 15-17: prompts, hosts, joins ---


def test_agents_hold_prompts_and_are_none(make: Make, prompts: Callable[..., list[Row]]) -> None:
    rows = prompts(
        make("a0", "", 0, 1000, agent=True, agent_name="planner", conversation_id="talk"),
        make("a1", "a0", 0, 900, agent=True, agent_name="writer"),
        make("b", "a1", 10, 100, "client", service="app"),
        make("c", "b", 20, 90, "server", service="engine"),
        make("d", "a0", 200, 300, "client", service="app"),
    )
    assert [(row["prompt_id"], row["workflow_id"], row["agent_name"], row["conversation_id"]) for row in rows] == [
        ("b", "a0", "writer", "talk"),
        ("d", "a0", "planner", "talk"),
    ]


def test_sibling_server_spans_of_one_request_are_nested(make: Make, prompt: Prompt, pieces: Pieces) -> None:
    """Two instrumentations of one server under a parent that is not there; one holds the other."""
    row = prompt(
        make("a", "gone", 0, 100, "inbound", scope="fastapi", service="proxy"),
        make("b", "gone", 10, 90, "gateway", scope="litellm", service="proxy"),
        make("c", "b", 20, 80, "call", service="proxy"),
    )
    assert row["prompt_id"] == "a"
    assert pieces(row) == [
        ("gateway", "a", 0, 10),
        ("gateway", "b", 10, 10),
        ("unattributed", "c", 20, 60),
        ("gateway", "b", 80, 10),
        ("gateway", "a", 90, 10),
    ]


def test_a_sibling_of_another_process_goes_into_the_call_that_holds_it(make: Make, prompt: Prompt) -> None:
    """A proxy that hands its client's trace header on verbatim."""
    row = prompt(
        make("a", "gone", 0, 100, "gateway", scope="litellm", service="proxy"),
        make("b", "a", 10, 40, "call", scope="litellm", service="proxy", failed=True),
        make("c", "a", 50, 95, "call", scope="litellm", service="proxy"),
        make("d", "gone", 55, 90, "server", scope="vllm", service="vllm"),
    )
    assert (row["prompt_id"], row["hops"], row["completeness"]) == ("a", ["proxy", "vllm"], 0.5)


def test_siblings_of_one_scope_are_two_prompts(make: Make, prompts: Callable[..., list[Row]]) -> None:
    rows = prompts(make("a", "gone", 0, 100, "gateway"), make("b", "gone", 10, 90, "gateway"))
    assert [row["prompt_id"] for row in rows] == ["a", "b"]


def test_an_orphan_goes_to_the_only_call_that_contains_it(make: Make, prompt: Prompt, parts: Parts) -> None:
    row = prompt(
        make("a", "", 0, 100, "client", service="app", first_token_ns=80),
        make("b", "a", 10, 95, "call", service="app", first_token_ns=65),
        make("d", "gone", 20, 90, "server", service="engine", first_token_ns=50),
    )
    assert (row["joined_by"], row["completeness"]) == ("time", 1.0)
    assert parts(row) == {"network": 30, "unattributed": 50}


def test_an_orphan_that_two_calls_contain_is_nobodys(make: Make, prompts: Callable[..., list[Row]]) -> None:
    rows = prompts(
        make("a", "", 0, 100, "client", service="app"),
        make("b", "", 0, 100, "client", service="app"),
        make("c", "gone", 20, 90, "server", service="engine"),
        make("d", "gone", 30, 40, "queue", service="engine"),
    )
    assert [row["prompt_id"] for row in rows] == ["a", "b"]
    assert [row["joined_by"] for row in rows] == ["", ""]
    assert all("d" not in row["segments.span_id"] for row in rows)


def test_a_lost_stage_goes_to_the_only_prompt_of_its_trace(make: Make, prompt: Prompt, parts: Parts) -> None:
    row = prompt(
        make("a", "", 0, 100, "server", service="engine", first_token_ns=80),
        make("b", "gone", 10, 30, "queue", service="engine"),
    )
    assert (row["joined_by"], parts(row)) == ("time", {"queue": 20, "unattributed": 60})


def test_loopback_peers_are_one_host(make: Make, prompt: Prompt) -> None:
    row = prompt(
        make("a", "", 0, 100, "gateway", service="gate", host="gate-process"),
        make("b", "a", 10, 90, "call", service="gate", host="gate-process", loopback=True),
        make("c", "b", 20, 80, "server", service="engine", host="engine-process"),
        make("d", "c", 30, 40, "queue", service="engine", host="engine-process"),
    )
    assert (row["hops"], row["hosts"]) == (["gate", "engine"], ["gate-process", "gate-process"])
    assert row["clock_offset_ns"] is None


def test_a_server_span_that_nothing_describes_is_a_gateway_where_a_call_leaves_it(
    make: Make, prompt: Prompt, parts: Parts
) -> None:
    gateway = [
        make("a", "", 0, 100, "inbound", service="x", first_token_ns=60),
        make("b", "a", 10, 90, "call", service="x", first_token_ns=40),
    ]
    assert parts(prompt(*gateway)) == {"gateway": 20, "unattributed": 40}
    assert parts(prompt(gateway[0])) == {"unattributed": 60}
    engine = [gateway[0], make("b", "a", 10, 90, "server", service="x"), make("c", "b", 10, 30, "queue", service="x")]
    assert parts(prompt(*engine)) == {"queue": 20, "unattributed": 40}
    relay = [gateway[0], make("b", "a", 10, 90, "server", service="other", first_token_ns=40)]
    assert parts(prompt(*relay)) == {"gateway": 20, "unattributed": 40}


def test_hops_in_the_order_the_prompt_passed_them(make: Make, prompt: Prompt) -> None:
    row = prompt(
        make("a", "", 0, 100, "client", service="app", host="h1"),
        make("b", "a", 10, 90, "router", service="route", host="h2"),
        make("c", "b", 12, 20, "server", service="engine", host="h3", failed=True),
        make("d", "b", 30, 40, "server", service="engine", host="h4", failed=True),
        make("e", "b", 50, 90, "server", service="engine", host="h3"),
    )
    assert row["hops"] == ["app", "route", "engine", "engine"]
    assert row["hosts"] == ["h1", "h2", "h3", "h4"]
    assert row["attempts"] == 3


def test_cost_as_reported(make: Make, prompt: Prompt) -> None:
    row = prompt(make("a", "", 0, 9, "client"), make("b", "a", 1, 8, "gateway", service="g", cost_usd=0.25))
    assert row["cost_usd"] == 0.25


@pytest.mark.parametrize("value", [2**63 - 1, 2**32, -4])
@pytest.mark.parametrize("column", ["input_tokens", "output_tokens", "preemptions", "tcp_rtt_us", "tcp_retransmits"])
def test_a_count_that_cannot_be_is_not_known_and_costs_nothing_else(
    make: Make, prompt: Prompt, column: str, value: int
) -> None:
    spans = (
        make("a", "", 0, 100, "client", service="app", first_token_ns=50),
        make("b", "a", 10, 90, "server", service="engine", first_token_ns=30),
    )
    plain = prompt(*spans)
    row = prompt(spans[0] | {column: value}, spans[1])
    assert row == plain
    assert row[column] is None


def test_a_relay_that_saw_no_tokens_hands_on_what_its_only_call_brings(
    make: Make, prompt: Prompt, parts: Parts
) -> None:
    """The way there takes 40 and the way back 10, whatever the clocks say: both are the network's."""
    spans = [
        make("a", "", 0, 200, "client", service="app", host="h1", first_token_ns=100),
        make("b", "a", 1040, 1190, "gateway", service="gate", host="h2"),
        make("c", "b", 1045, 1185, "call", service="gate", host="h2", first_token_ns=45),
        make("d", "c", 1050, 1180, "server", service="engine", host="h2", first_token_ns=38),
    ]
    row = prompt(*spans)
    assert (row["ttft_ns"], row["ttft_source"]) == (100, "client")
    assert parts(row) == {"network": 57, "gateway": 5, "unattributed": 38}
    # Whose tokens it handed on is not known of two calls.
    row = prompt(*spans, make("e", "b", 1041, 1044, "call", service="gate", host="h2"))
    assert parts(row)["gateway"] > 5


def test_what_goes_on_in_an_attempt_that_was_given_up_is_nobodys(make: Make, prompt: Prompt, parts: Parts) -> None:
    """The engine works on after the router timed out and went to another: that time is the second attempt's."""
    row = prompt(
        make("a", "", 0, 100, "router", service="route", streaming=True),
        make("b", "a", 10, 30, "call", service="route", failed=True, error_type="ReadTimeout"),
        make("c", "b", 12, 80, "server", service="engine"),
        make("d", "c", 12, 80, "queue", service="engine"),
        make("e", "a", 35, 95, "call", service="route"),
        make("f", "e", 37, 95, "server", service="engine2", first_token_ns=33),
    )
    assert (row["ttft_ns"], row["retry_ns"]) == (70, 25)
    assert parts(row) == {"router": 35, "network": 2, "unattributed": 33}


# --- given up across hosts, and claims that cannot be ---


def test_a_callee_hears_of_a_hang_up_a_transit_later(make: Make, prompt: Prompt, parts: Parts) -> None:
    """40 ms there and 40 ms back, given up after 100 ms: the gateway's span is as long as the call, but begins and ends
    40 ms after it. It had its first token 90 ms after it began, when nobody was there any more."""
    row = prompt(
        make("a", "", 0, 100, "client", service="app", host="h1", abort="client", streaming=True),
        make("b", "a", 0, 100, "call", service="app", host="h1", abort="client"),
        make("t", "b", 0, 80, "tcp", service="app", host="h1"),
        make("c", "b", 1080, 1100, "gateway", service="gate", host="h2", abort="client", first_token_ns=10),
    )
    assert row["status"] == "client_abort"
    assert (row["ttft_ns"], row["clock_offset_ns"]) == (130, None)
    assert parts(row) == {"network": 120, "gateway": 10}


def test_what_a_span_says_came_after_its_end_it_cannot_have_seen(make: Make, prompt: Prompt) -> None:
    """A first token in the wrong unit: no longer than the span, and nothing is stretched by it."""
    row = prompt(
        make("a", "", 0, 100, "client", service="app", first_token_ns=60_000),
        make("b", "a", 10, 90, "server", service="engine", first_token_ns=40_000),
    )
    assert (row["ttft_ns"], row["ttft_engine_ns"], row["e2e_ns"]) == (100, 80, 100)


def test_the_root_counts_until_the_first_token_whatever_its_calls_brought(
    make: Make, prompt: Prompt, parts: Parts
) -> None:
    """The relay's own call brought one at once; the one that the prompt goes by came from another process, later."""
    row = prompt(
        make("a", "", 0, 0, "edge", service="edge"),
        make("b", "a", 0, 100, "client", service="app", first_token_ns=100),
        make("c", "a", 0, 0, "client", service="edge", first_token_ns=0),
    )
    assert row["ttft_ns"] == 100
    assert parts(row) == {"unattributed": 100}
