"""CTranslate2 itself, with a tiny model: what a generator did, by a clock of the test's own."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.vllm.environment import Environment

from .driving import MS, Seen, drive, token_times_ns

SERVER = "text_completion tiny"
REQUEST = "POST /generate"

#: What a request of eight tokens says of itself, from a prompt of seven.
EIGHT = {
    "gen_ai.request.max_tokens": 8,
    "gen_ai.response.finish_reasons": ["length"],
    "gen_ai.usage.input_tokens": 7,
    "gen_ai.usage.output_tokens": 8,
}


def own(*, stream: bool = False) -> dict[str, Any]:
    """What a request that is a call of the generator says of itself before it begins."""
    return {
        "gen_ai.operation.name": "text_completion",
        "gen_ai.request.model": "tiny",
        "gen_ai.request.stream": stream,
    }


@pytest.fixture(scope="module")
def seen(vllm_environment: Environment, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return drive("drive_ctranslate2.py", vllm_environment, tmp_path_factory.mktemp("ctranslate2"))


@pytest.fixture(autouse=True)
def _nothing_failed(seen: dict[str, Any]) -> None:
    assert seen["failures"] == {}


def test_loading_a_model(seen: dict[str, Any]) -> None:
    one: Seen = seen["loads"]
    assert one.names == ["load tiny", "load tiny"]  # that of the script, and of the scenario
    for span in one.spans:
        assert span["attributes"] == {"promptpath.stage": "load", "gen_ai.request.model": "tiny"}
        assert span["end_ns"] > span["start_ns"]


def test_a_call_is_a_request(seen: dict[str, Any]) -> None:
    one: Seen = seen["whole"]
    assert one.says["tokens"] == 8
    assert one.names == [SERVER, "prefill", "decode"]
    server, prefill, decode = one.spans
    assert (server["kind"], server["parent"], server["status"]) == ("SERVER", None, "UNSET")
    assert [span["parent"] for span in (prefill, decode)] == [SERVER, SERVER]
    assert one.attributes(SERVER) == own() | EIGHT
    assert one.attributes("prefill") == one.attributes("decode") == {"promptpath.batch.size": 1}
    assert prefill["start_ns"] == server["start_ns"] >= one.says["start_ns"] - MS
    assert prefill["end_ns"] == decode["start_ns"]
    assert len(decode["gaps_us"]) == 8
    assert server["gaps_us"] == []
    assert decode["end_ns"] <= server["end_ns"] <= one.says["end_ns"] + MS


def test_times_by_another_clock(seen: dict[str, Any]) -> None:
    """A token comes before the pause that the program's own callback makes for it, and is delivered after that."""
    one: Seen = seen["with_a_callback"]
    assert one.says["same"]
    computed, delivered = token_times_ns(one.span("decode")), token_times_ns(one.span(SERVER))
    theirs = one.says["at_ns"]
    assert len(computed) == len(delivered) == len(theirs) == 8
    for before, between, after in zip(computed, theirs, delivered, strict=True):
        assert before + 2 * MS <= between <= after + MS
    assert all(after >= before - 1000 for before, after in zip(delivered, computed[1:], strict=False))
    assert one.attributes(SERVER) == own(stream=True) | EIGHT


def test_streaming(seen: dict[str, Any]) -> None:
    one: Seen = seen["streamed"]
    assert one.names == [SERVER, "prefill", "decode"]
    assert one.attributes(SERVER) == own(stream=True) | EIGHT
    assert all(
        at <= arrived + MS for at, arrived in zip(token_times_ns(one.span("decode")), one.says["arrived"], strict=True)
    )


def test_streaming_within_a_request(seen: dict[str, Any]) -> None:
    one: Seen = seen["streamed_to_asyncio"]
    assert one.says == 8
    assert one.names == [REQUEST, "prefill", "decode"]
    assert {span["parent"] for span in one.spans[1:]} == {REQUEST}
    assert one.attributes(REQUEST) == EIGHT


@pytest.mark.parametrize("name", ["streamed_within_a_request", "text_that_comes_late"])
def test_the_first_tokens_text(seen: dict[str, Any], name: str) -> None:
    one: Seen = seen[name]
    assert one.names[0] == REQUEST
    assert set(one.names[1:]) == {"prefill", "decode", "detokenize"}
    assert {span["parent"] for span in one.spans[1:]} == {REQUEST}
    detokenize, decode = one.span("detokenize"), one.span("decode")
    assert detokenize["start_ns"] == one.span("prefill")["end_ns"] < detokenize["end_ns"]
    assert one.attributes("detokenize")["promptpath.detokenize.total_us"] > 0
    assert (detokenize["end_ns"] > decode["end_ns"]) is (name == "text_that_comes_late")


def test_a_request_that_is_answered_before_its_call_is_over(seen: dict[str, Any]) -> None:
    one: Seen = seen["answered_before_it_is_over"]
    assert one.says == len(one.span("decode")["gaps_us"]) == 200
    assert one.names == [REQUEST, "prefill", "decode"]
    assert one.span("decode")["end_ns"] > one.span(REQUEST)["end_ns"]


def test_an_asynchronous_call_is_over_with_its_last_token(seen: dict[str, Any]) -> None:
    one: Seen = seen["asynchronous"]
    assert one.says["tokens"] == len(one.span("decode")["gaps_us"]) == 200
    times = token_times_ns(one.span("decode"))
    assert one.says["start_ns"] <= times[0] + MS
    assert times[-1] > one.says["handed_ns"]  # long after the call has returned
    server = one.span(SERVER)
    assert times[-1] <= server["end_ns"] + 1000
    assert server["end_ns"] <= one.says["done_ns"] + 20 * MS  # not when it was asked for, 50 ms later


def test_the_prompts_own_tokens_are_prefill(seen: dict[str, Any]) -> None:
    one: Seen = seen["with_its_prompt"]
    assert (one.says["called"], one.says["given"], one.says["prompt"]) == (14, 15, 7)
    assert one.attributes(SERVER) == own(stream=True) | EIGHT
    forced = one.says["prompt"] - 1
    first_ns = one.span("prefill")["end_ns"]
    assert one.says["at_ns"][forced - 1] - MS <= first_ns <= one.says["at_ns"][forced] + MS
    assert len(one.span("decode")["gaps_us"]) == len(one.span(SERVER)["gaps_us"]) == 8
    never: Seen = seen["never_past_its_prompt"]
    assert never.says == 4
    assert never.names == [SERVER]
    assert never.attributes(SERVER)["gen_ai.usage.output_tokens"] == 0


def test_batches(seen: dict[str, Any]) -> None:
    one: Seen = seen["batch"]
    assert one.says == {"answers": [8, 8, 8], "called": 24}
    expected = (
        own(stream=True)
        | EIGHT
        | {
            "gen_ai.usage.input_tokens": 7 + 2 + 7,
            "gen_ai.usage.output_tokens": 24,
            "gen_ai.response.finish_reasons": ["length"] * 3,
        }
    )
    assert one.attributes(SERVER) == expected
    assert one.attributes("prefill") == one.attributes("decode") == {"promptpath.batch.size": 3}
    # Of the answer that came first.
    assert len(one.span("decode")["gaps_us"]) == len(one.span(SERVER)["gaps_us"]) == 8

    prompts: Seen = seen["batch_with_prompts"]
    generated = [
        answer - prompt for answer, prompt in zip(prompts.says["answers"], prompts.says["prompts"], strict=True)
    ]
    assert prompts.attributes(SERVER)["gen_ai.usage.output_tokens"] == sum(generated)
    assert len(prompts.span("decode")["gaps_us"]) == max(generated)  # the shorter prompt's answer begins first

    split: Seen = seen["in_small_batches"]
    assert split.attributes("prefill") == split.attributes("decode") == {}  # how many at a time, is not said
    assert split.attributes(SERVER)["gen_ai.usage.output_tokens"] == 24


def test_several_answers(seen: dict[str, Any]) -> None:
    one: Seen = seen["several_answers"]
    assert one.attributes(SERVER) == own() | EIGHT | {
        "gen_ai.request.choice.count": 2,
        "gen_ai.usage.output_tokens": 16,
        "gen_ai.response.finish_reasons": ["length", "length"],
    }
    assert one.attributes("decode") == {"promptpath.batch.size": 2}


def test_a_static_prompt_counts(seen: dict[str, Any]) -> None:
    assert seen["after_a_static_prompt"].attributes(SERVER) == own() | EIGHT | {"gen_ai.usage.input_tokens": 7 + 2}


def test_why_an_answer_ended(seen: dict[str, Any]) -> None:
    assert seen["stopped"].says == []
    assert seen["stopped_at_the_limit"].says is True
    assert seen["stopped_by_the_program"].says == 3
    for name, tokens in (("stopped", 1), ("stopped_at_the_limit", 1), ("stopped_by_the_program", 3)):
        said = seen[name].attributes(SERVER)
        assert said["gen_ai.response.finish_reasons"] == ["stop"]
        assert said["gen_ai.usage.output_tokens"] == tokens
        assert len(seen[name].span("decode")["gaps_us"]) == tokens
    closed: Seen = seen["closed_early"]
    assert closed.names == [SERVER, "prefill", "decode"]
    assert 3 <= len(closed.span("decode")["gaps_us"]) < 400


def test_of_a_beam_search_only_the_call_is_timed(seen: dict[str, Any]) -> None:
    one: Seen = seen["beams"]
    assert one.says == 8
    assert one.names == [SERVER]
    expected = own() | EIGHT
    del expected["gen_ai.response.finish_reasons"]
    assert one.attributes(SERVER) == expected
    later: Seen = seen["asynchronous_beams"]
    assert later.names == [SERVER]
    assert later.attributes(SERVER)["gen_ai.usage.output_tokens"] == sum(later.says) - 7 - 2
    within: Seen = seen["beams_within_a_request"]
    assert within.names == [REQUEST, "generate_batch"]
    assert within.span("generate_batch")["attributes"] == {}
    assert within.attributes(REQUEST) == {key: EIGHT[key] for key in EIGHT if key != "gen_ai.response.finish_reasons"}
    assert seen["alternatives"].names == [SERVER]
    assert seen["alternatives"].says == 3


def test_results_are_the_same_without_us(seen: dict[str, Any]) -> None:
    says = seen["same_results"].says
    assert len(says) == 10
    assert all(says.values()), says


def test_calls_that_fail(seen: dict[str, Any]) -> None:
    assert seen["wrong_arguments"].says.startswith("TypeError: generate_batch(): incompatible function arguments")
    assert seen["wrong_arguments"].spans == []
    refusal = "ValueError: The minimum decoding length is greater than the maximum decoding length"
    assert seen["refused"].says == seen["refused_asynchronously"].says == refusal
    assert seen["a_callback_that_is_refused"].says.startswith("ValueError: The callback function is not compatible")
    for name in ("refused", "refused_asynchronously", "a_callback_that_is_refused"):
        assert seen[name].names == [SERVER]
        assert seen[name].span(SERVER)["status"] == "ERROR"
        assert seen[name].attributes(SERVER)["error.type"] == "ValueError"
    for name in ("a_callback_that_fails", "a_callback_that_fails_asynchronously"):
        one: Seen = seen[name]
        assert one.says == "ArithmeticError: no more"
        assert one.span(SERVER)["status"] == one.span("decode")["status"] == "ERROR"
        assert one.span("prefill")["status"] == "UNSET"
        assert one.attributes(SERVER)["error.type"] == "ArithmeticError"
        assert len(one.span("decode")["gaps_us"]) == 3
        assert len(one.span(SERVER)["gaps_us"]) == 2  # the third was refused


def test_who_comes_later_waits_for_the_worker(seen: dict[str, Any]) -> None:
    one: Seen = seen["waiting_for_a_worker"]
    below = {
        number: {span["name"]: span for span in one.spans if span["parent"] == f"POST {number}"} for number in (1, 2, 3)
    }
    assert list(below[1]) == ["prefill", "decode"]
    for number in (2, 3):
        assert set(below[number]) == {"queue", "prefill", "decode"}
        queue = below[number]["queue"]
        assert queue["attributes"] == {"promptpath.stage": "queue", "promptpath.queue.position": number - 2}
        # Taken up when the one before has its last token.
        assert abs(queue["end_ns"] - below[number - 1]["decode"]["end_ns"]) < 1000
        assert queue["end_ns"] == below[number]["prefill"]["start_ns"]


def test_unsampled_stays_unsampled(seen: dict[str, Any]) -> None:
    assert seen["unsampled"].says > 0
    assert seen["unsampled"].spans == []


def test_nothing_is_kept_of_what_is_let_go(seen: dict[str, Any]) -> None:
    assert seen["let_go"].says == {"pool": 0, "results": 0}


def test_taken_off_and_put_on_again(seen: dict[str, Any]) -> None:
    assert seen["taken_off"].says == {"on": [True] * 3, "off": [False] * 3, "nothing": True}
    assert seen["taken_off"].names == [SERVER, "prefill", "decode"]
    assert seen["state_of_the_shim"].says == "instrumented"


def test_a_release_without_a_hook(seen: dict[str, Any]) -> None:
    one: Seen = seen["without_a_hook"]
    place = "ctranslate2._ext:AsyncGenerationResult.result"
    assert one.says == {"tokens": 8, "skipped": [place]}
    assert seen["doctor"]["skipped"] == [place]
    assert one.names == [SERVER, "prefill", "decode"]


def test_what_a_token_costs(seen: dict[str, Any]) -> None:
    """The bound is far above what is measured (0.2 µs)."""
    assert seen["cost"].says["seen"]
    assert 0 < seen["cost"].says["ns"] < 3000
