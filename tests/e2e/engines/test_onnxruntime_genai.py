"""ONNX Runtime GenAI itself, with a tiny model: what a generator did, by a clock of the test's own."""

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
OWN = {"gen_ai.operation.name": "text_completion", "gen_ai.request.model": "tiny", "gen_ai.request.stream": True}


@pytest.fixture(scope="module")
def seen(vllm_environment: Environment, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return drive("drive_onnxruntime_genai.py", vllm_environment, tmp_path_factory.mktemp("onnxruntime_genai"))


@pytest.fixture(autouse=True)
def _nothing_failed(seen: dict[str, Any]) -> None:
    assert seen["failures"] == {}


def test_loading_a_model(seen: dict[str, Any]) -> None:
    one: Seen = seen["loads"]
    assert one.names[0] == one.names[-1] == "load tiny"  # that of the script, by path; and the scenario's, by `Config`
    for span in (one.spans[0], one.spans[-1]):
        assert span["attributes"] == {"promptpath.stage": "load", "gen_ai.request.model": "tiny"}
        assert span["end_ns"] > span["start_ns"]


def test_a_turn_is_a_request(seen: dict[str, Any]) -> None:
    one: Seen = seen["alone"]
    assert one.names == [SERVER, "prefill", "decode"]
    server, prefill, decode = one.spans
    assert (server["kind"], server["parent"], server["status"]) == ("SERVER", None, "UNSET")
    assert [span["parent"] for span in (prefill, decode)] == [SERVER, SERVER]
    assert one.attributes(SERVER) == OWN | EIGHT
    assert one.attributes("prefill") == one.attributes("decode") == {"promptpath.batch.size": 1}
    assert prefill["start_ns"] == server["start_ns"] >= one.says["start_ns"] - MS
    assert prefill["end_ns"] == decode["start_ns"]
    assert decode["end_ns"] <= server["end_ns"] <= one.says["end_ns"] + MS


def test_times_by_another_clock(seen: dict[str, Any]) -> None:
    """A token has its time between the program's asking for it and its having it; each is delivered then."""
    one: Seen = seen["alone"]
    times = token_times_ns(one.span("decode"))
    assert len(times) == 8
    for before, at, after in zip(one.says["before_ns"], times, one.says["after_ns"], strict=True):
        assert before - MS <= at <= after + MS
    delivered = token_times_ns(one.span(SERVER))
    assert all(abs(one - other) < MS for one, other in zip(delivered, times, strict=True))


def test_within_a_request(seen: dict[str, Any]) -> None:
    one: Seen = seen["within_a_request"]
    assert one.names == [REQUEST, "chat_template", "tokenize", "prefill", "decode", "detokenize"]
    assert {span["parent"] for span in one.spans[1:]} == {REQUEST}
    assert one.span("chat_template")["attributes"] == {"promptpath.stage": "parse"}
    template, tokenize, prefill = (one.span(name) for name in ("chat_template", "tokenize", "prefill"))
    assert template["end_ns"] <= tokenize["start_ns"] < tokenize["end_ns"] <= prefill["start_ns"]
    assert one.attributes(REQUEST) == EIGHT | {
        "gen_ai.request.max_tokens": 40,
        "gen_ai.usage.input_tokens": one.says["prompt"],
        "gen_ai.usage.output_tokens": 40,
    }
    assert len(one.span("decode")["gaps_us"]) == 40
    text = one.span("detokenize")
    assert text["start_ns"] == prefill["end_ns"]
    assert one.says["first_text_ns"] - 5 * MS <= text["end_ns"] <= one.says["first_text_ns"] + MS


def test_a_generator_brings_its_request_to_another_thread(seen: dict[str, Any]) -> None:
    one: Seen = seen["in_a_thread_of_its_own"]
    assert one.names == [REQUEST, "prefill", "decode"]
    assert one.attributes(REQUEST) == EIGHT


def test_text_that_is_made_elsewhere(seen: dict[str, Any]) -> None:
    one: Seen = seen["text_made_by_asyncio"]
    assert one.names == [REQUEST, "prefill", "decode", "detokenize"]
    assert one.says
    assert abs(one.span("detokenize")["end_ns"] - one.says) < 5 * MS


def test_why_an_answer_ended(seen: dict[str, Any]) -> None:
    one: Seen = seen["stopped"]
    assert one.says == len(one.span("decode")["gaps_us"]) == 5
    stopped = {"gen_ai.response.finish_reasons": ["stop"]}
    assert one.attributes(SERVER) == OWN | EIGHT | stopped | {"gen_ai.usage.output_tokens": 5}
    assert seen["stopped_at_the_limit"].says == 8
    assert seen["stopped_at_the_limit"].attributes(SERVER) == OWN | EIGHT | stopped


def test_a_program_that_has_enough(seen: dict[str, Any]) -> None:
    """Why, it does not say."""
    one: Seen = seen["let_go_of"]
    said = OWN | EIGHT | {"gen_ai.usage.output_tokens": 3}
    del said["gen_ai.response.finish_reasons"]
    assert one.attributes(SERVER) == said
    assert one.span(SERVER)["end_ns"] == one.span("decode")["end_ns"]
    assert one.span(SERVER)["status"] == "UNSET"


def test_a_caller_who_has_gone(seen: dict[str, Any]) -> None:
    one: Seen = seen["given_up"]
    assert one.names == [REQUEST, "prefill", "decode"]
    assert one.attributes("decode") == {"promptpath.batch.size": 1, "promptpath.abort": "client"}
    assert len(one.span("decode")["gaps_us"]) == 3
    assert "gen_ai.response.finish_reasons" not in one.attributes(REQUEST)


def test_turns_of_a_conversation(seen: dict[str, Any]) -> None:
    one: Seen = seen["two_turns"]
    assert one.names == [SERVER, "prefill", "decode", SERVER, "prefill", "decode"]
    first, second = (span["attributes"] for span in one.spans if span["name"] == SERVER)
    assert (first["gen_ai.usage.input_tokens"], first["gen_ai.usage.output_tokens"]) == (7, 4)
    assert (second["gen_ai.usage.input_tokens"], second["gen_ai.usage.output_tokens"]) == (one.says, 3)
    assert first["gen_ai.request.max_tokens"] == 60 - 7
    assert second["gen_ai.request.max_tokens"] == 60 - 7 - 4 - one.says
    assert one.spans[0]["end_ns"] <= one.spans[3]["start_ns"]


def test_a_prompt_in_parts_is_one(seen: dict[str, Any]) -> None:
    one: Seen = seen["a_prompt_in_two_parts"]
    assert one.names == [SERVER, "prefill", "decode"]
    short = seen["two_turns"].says
    assert one.attributes(SERVER) == OWN | EIGHT | {"gen_ai.usage.input_tokens": 7 + short}


def test_wound_back(seen: dict[str, Any]) -> None:
    one: Seen = seen["wound_back"]
    servers = [span for span in one.spans if span["name"] == SERVER]
    assert [span["attributes"] | {"promptpath.stage": ""} for span in servers] == [
        OWN | EIGHT | {"promptpath.stage": ""}
    ] * 2


def test_sampling(seen: dict[str, Any]) -> None:
    one: Seen = seen["sampled"]
    said = one.attributes(SERVER)
    assert said.pop("gen_ai.request.temperature") == pytest.approx(0.5)
    assert said.pop("gen_ai.request.top_p") == pytest.approx(0.9)
    assert said == OWN | EIGHT
    assert len(one.span("decode")["gaps_us"]) == 8


def test_no_token_of_a_beam_search_is_settled_before_its_end(seen: dict[str, Any]) -> None:
    one: Seen = seen["beams"]
    assert one.names == [SERVER, "prefill", "decode"]
    assert one.span("decode")["gaps_us"] == one.span(SERVER)["gaps_us"] == []
    assert one.attributes(SERVER) == OWN | EIGHT
    two: Seen = seen["several_answers"]
    assert two.attributes(SERVER) == OWN | EIGHT | {
        "gen_ai.request.choice.count": 2,
        "gen_ai.response.finish_reasons": ["length", "length"],
        "gen_ai.usage.output_tokens": 16,
    }


def test_a_batch(seen: dict[str, Any]) -> None:
    """What fills prompts up is not counted."""
    one: Seen = seen["batch"]
    assert one.says["rows"] == 2
    assert one.says["tokens"] < one.says["filled"]
    assert one.attributes(SERVER) == OWN | EIGHT | {
        "gen_ai.response.finish_reasons": ["length", "length"],
        "gen_ai.usage.input_tokens": one.says["tokens"],
        "gen_ai.usage.output_tokens": 16,
    }
    assert len(one.span("decode")["gaps_us"]) == 8
    assert one.attributes("prefill") == one.attributes("decode") == {"promptpath.batch.size": 2}


def test_answers_of_a_batch_that_end(seen: dict[str, Any]) -> None:
    one: Seen = seen["batch_that_ends"]
    assert one.says is True
    assert one.attributes(SERVER)["gen_ai.usage.output_tokens"] == 3 + 6
    assert one.attributes(SERVER)["gen_ai.response.finish_reasons"] == ["stop", "stop"]
    assert len(one.span("decode")["gaps_us"]) == 6


def test_generators_at_once(seen: dict[str, Any]) -> None:
    one: Seen = seen["four_threads"]
    counts = [span["attributes"]["gen_ai.usage.output_tokens"] for span in one.spans if span["name"] == SERVER]
    assert sorted(counts) == [3, 5, 7, 9]
    assert sorted(len(span["gaps_us"]) for span in one.spans if span["name"] == "decode") == [3, 5, 7, 9]


def test_failures_are_the_programs_and_are_told(seen: dict[str, Any]) -> None:
    prompt, decode = seen["too_long"], seen["fails_in_decode"]
    assert prompt.says.startswith("RuntimeError: input_ids size (7)")
    assert sorted(prompt.names) == ["prefill", SERVER]
    assert decode.says.startswith("RuntimeError: GenerateNextToken called with sequence length already at max_length")
    assert decode.names == [SERVER, "prefill", "decode"]
    assert len(decode.span("decode")["gaps_us"]) == 2
    for one, last in ((prompt, "prefill"), (decode, "decode")):
        assert one.span(SERVER)["status"] == one.span(last)["status"] == "ERROR"
        assert one.attributes(SERVER)["error.type"] == "RuntimeError"
        assert "gen_ai.response.finish_reasons" not in one.attributes(SERVER)


def test_wrong_arguments_are_refused_by_the_library(seen: dict[str, Any]) -> None:
    one: Seen = seen["wrong_arguments"]
    places = ("append_tokens(): incompatible", "generate_next_token(): incompatible", "is_done(): incompatible")
    assert all(place in says for place, says in zip(places, one.says, strict=False))
    assert one.says[-1].startswith("RuntimeError")


def test_results_are_the_same_without_us(seen: dict[str, Any]) -> None:
    kinds = ("greedy", "sampled", "beams", "batch", "texts", "text", "ids", "template")
    assert seen["same_results"].says == dict.fromkeys(kinds, True)


def test_unsampled_stays_unsampled(seen: dict[str, Any]) -> None:
    assert seen["unsampled"].says == 8
    assert seen["unsampled"].spans == []


def test_nothing_is_kept_of_generators_that_are_gone(seen: dict[str, Any]) -> None:
    assert seen["nothing_is_kept"].says == [0, 0, 0]


def test_taken_off_and_put_on_again(seen: dict[str, Any]) -> None:
    one: Seen = seen["taken_off"]
    assert one.says == {"on": False, "off": True, "nothing": True}
    assert one.names == ["text_completion onnxruntime-genai", "prefill", "decode"]
    assert seen["state_of_the_shim"].says == "instrumented"


def test_a_release_without_a_hook(seen: dict[str, Any]) -> None:
    one: Seen = seen["without_a_hook"]
    place = "onnxruntime_genai:Generator.generate_next_token"
    assert one.says == {"tokens": 8, "skipped": [place]}
    assert seen["doctor"]["skipped"] == [place]
    assert "decode" not in one.names  # when tokens came was not seen, and is not made up


def test_what_a_token_costs(seen: dict[str, Any]) -> None:
    """Bounded far above what is measured, for machines that are busy with other things."""
    assert seen["cost"].says["seen"]
    assert 0 < seen["cost"].says["ns"] < 2000
