"""Hugging Face transformers itself, with a tiny model: what `generate` did, by a clock of the test's own."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.vllm.environment import Environment

from .driving import MS, Seen, drive, token_times_ns

SERVER = "text_completion model"
REQUEST = "POST /generate"

#: What a request of eight tokens says of itself, from a prompt of seven.
EIGHT = {
    "gen_ai.request.max_tokens": 8,
    "gen_ai.response.finish_reasons": ["length"],
    "gen_ai.usage.input_tokens": 7,
    "gen_ai.usage.output_tokens": 8,
}


def own(*, stream: bool = False, model: str = "model") -> dict[str, Any]:
    """What a request that is a call of `generate` says of itself before it begins."""
    return {
        "gen_ai.operation.name": "text_completion",
        "gen_ai.request.model": model,
        "gen_ai.request.stream": stream,
    }


@pytest.fixture(scope="module")
def seen(vllm_environment: Environment, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return drive("drive_transformers.py", vllm_environment, tmp_path_factory.mktemp("transformers"))


@pytest.fixture(autouse=True)
def _nothing_failed(seen: dict[str, Any]) -> None:
    assert seen["failures"] == {}


def test_a_call_is_a_request(seen: dict[str, Any]) -> None:
    one: Seen = seen["greedy"]
    assert one.names == [SERVER, "prefill", "decode"]
    server, prefill, decode = one.spans
    assert (server["kind"], server["parent"], server["status"]) == ("SERVER", None, "UNSET")
    assert [span["parent"] for span in (prefill, decode)] == [SERVER, SERVER]
    assert one.attributes(SERVER) == own() | EIGHT
    assert one.attributes("prefill") == one.attributes("decode") == {"promptpath.batch.size": 1}
    assert server["gaps_us"] == []  # it was not streamed


def test_times_by_another_clock(seen: dict[str, Any]) -> None:
    """Each token comes after its logits, and before the pause that precedes those of the next."""
    one: Seen = seen["greedy"]
    server, prefill, decode = one.spans
    assert prefill["start_ns"] == server["start_ns"]
    assert prefill["end_ns"] == decode["start_ns"]
    assert server["start_ns"] >= one.says["start_ns"] - MS
    assert abs(server["end_ns"] - one.says["end_ns"]) < 20 * MS
    times = token_times_ns(decode)
    logits = one.says["at_ns"]
    assert len(times) == len(logits) == 8
    assert times[-1] <= server["end_ns"]
    assert all(at >= before - MS for at, before in zip(times, logits, strict=True))
    assert all(at <= after - 4 * MS for at, after in zip(times, logits[1:], strict=False))


def test_results_are_the_same_without_us(seen: dict[str, Any]) -> None:
    kinds = ("greedy", "sampled", "beams", "batch", "assisted", "streamed", "dict")
    assert seen["same_results"].says == dict.fromkeys(kinds, True)


def test_sampling(seen: dict[str, Any]) -> None:
    one: Seen = seen["sampling"]
    assert one.attributes(SERVER) == own() | EIGHT | {
        "gen_ai.request.temperature": 0.7,
        "gen_ai.request.top_p": 0.9,
        "gen_ai.request.choice.count": 2,
        "gen_ai.response.finish_reasons": ["length", "length"],
        "gen_ai.usage.output_tokens": 16,
    }
    assert len(one.span("decode")["gaps_us"]) == 8
    assert one.attributes("decode") == {"promptpath.batch.size": 2}


def test_no_token_of_a_beam_search_is_settled_before_its_end(seen: dict[str, Any]) -> None:
    one: Seen = seen["beams"]
    assert one.names == [SERVER, "prefill", "decode"]
    assert one.span("decode")["gaps_us"] == []
    assert one.span("prefill")["end_ns"] < one.span("decode")["end_ns"]
    assert one.attributes(SERVER) == own() | EIGHT
    assert one.attributes("prefill") == {"promptpath.batch.size": 1}


def test_a_batch(seen: dict[str, Any]) -> None:
    """What fills prompts and answers up is not counted."""
    one: Seen = seen["batch"]
    assert one.says["input"] < one.says["filled"]
    assert one.attributes(SERVER) == own() | {
        "gen_ai.request.max_tokens": 6,
        "gen_ai.response.finish_reasons": ["stop", "length"],
        "gen_ai.usage.input_tokens": one.says["input"],
        "gen_ai.usage.output_tokens": 3 + 6,
    }
    assert len(one.span("decode")["gaps_us"]) == 6
    assert one.attributes("prefill") == one.attributes("decode") == {"promptpath.batch.size": 2}


def test_why_an_answer_ended(seen: dict[str, Any]) -> None:
    stopped = seen["stopped"].attributes(SERVER)
    assert stopped["gen_ai.response.finish_reasons"] == ["stop"]
    assert stopped["gen_ai.usage.output_tokens"] == 5
    assert len(seen["stopped"].span("decode")["gaps_us"]) == 5
    by_string: Seen = seen["stopped_by_a_string"]
    assert by_string.attributes(SERVER)["gen_ai.response.finish_reasons"] == ["stop"]
    assert by_string.attributes(SERVER)["gen_ai.usage.output_tokens"] == by_string.says["tokens"] < 8


def test_a_streamer_brings_its_request_to_another_thread(seen: dict[str, Any]) -> None:
    one: Seen = seen["streamed_to_a_thread"]
    assert one.names == [REQUEST, "tokenize", "prefill", "decode", "detokenize"]
    assert {span["parent"] for span in one.spans[1:]} == {REQUEST}
    assert one.attributes(REQUEST) == EIGHT
    times = token_times_ns(one.span("decode"))
    assert all(at >= before - MS for at, before in zip(times, one.says["at_ns"], strict=True))
    # The text is ready after its token and before the thread that waits for it has it.
    first_text_ns = one.span("detokenize")["end_ns"]
    assert one.span("detokenize")["start_ns"] == one.span("prefill")["end_ns"]
    assert times[0] <= first_text_ns <= one.says["arrived"][0] + MS


def test_a_streamed_call_outside_of_requests(seen: dict[str, Any]) -> None:
    one: Seen = seen["streamed_alone"]
    assert one.says["text"]
    assert one.names == [SERVER, "prefill", "decode", "detokenize"]
    assert one.attributes(SERVER) == own(stream=True) | EIGHT
    delivered = token_times_ns(one.span(SERVER))
    computed = token_times_ns(one.span("decode"))
    assert len(delivered) == len(computed) == 8
    # What makes text of a token lies between.
    assert all(after >= before for after, before in zip(delivered, computed, strict=True))
    assert all(after <= before for after, before in zip(delivered, computed[1:], strict=False))
    assert one.span("detokenize")["end_ns"] <= delivered[0] + 1000


def test_with_an_assistant(seen: dict[str, Any]) -> None:
    """What the assistant generates is no request, and no step of this one."""
    plain: Seen = seen["assisted"]
    assert plain.names == [SERVER, "prefill", "decode"]
    assert plain.span("decode")["gaps_us"] == []
    assert plain.attributes(SERVER) == own() | EIGHT
    streamed: Seen = seen["assisted_and_streamed"]
    given = streamed.says["given"]
    assert sum(given) == 8 > len(given)
    assert streamed.attributes("decode")["promptpath.token.counts"] == given
    assert streamed.attributes(SERVER) == own(stream=True) | EIGHT | {"promptpath.token.counts": given}


@pytest.mark.parametrize("name", ["encoder_and_decoder", "embedded"])
def test_prompts_of_other_kinds(seen: dict[str, Any], name: str) -> None:
    one: Seen = seen[name]
    model = {"embedded": "model", "encoder_and_decoder": "T5ForConditionalGeneration"}[name]
    server = f"text_completion {model}"
    assert one.names == [server, "prefill", "decode"]
    assert one.attributes(server) == own(model=model) | EIGHT | {"gen_ai.usage.input_tokens": one.says["input"]}
    assert len(one.span("decode")["gaps_us"]) == 8


def test_two_calls_within_a_request_are_added_up(seen: dict[str, Any]) -> None:
    one: Seen = seen["within_a_request"]
    assert one.names == [REQUEST, "tokenize", "prefill", "decode", "prefill", "decode"]
    assert {span["parent"] for span in one.spans[1:]} == {REQUEST}
    assert one.attributes(REQUEST) == EIGHT | {
        "gen_ai.usage.input_tokens": 2 * one.says["input"],
        "gen_ai.usage.output_tokens": 16,
    }


def test_within_asyncio(seen: dict[str, Any]) -> None:
    one: Seen = seen["within_asyncio"]
    assert one.names == [REQUEST, "tokenize", "prefill", "decode", "detokenize"]
    assert {span["parent"] for span in one.spans[1:]} == {REQUEST}


def test_threads_do_not_mix(seen: dict[str, Any]) -> None:
    one: Seen = seen["four_threads"]
    by_trace: dict[int, dict[str, dict[str, Any]]] = {}
    for span in one.spans:
        by_trace.setdefault(span["trace"], {})[span["name"]] = span
    assert len(by_trace) == 4
    counts = []
    for spans in by_trace.values():
        counts.append(spans[SERVER]["attributes"]["gen_ai.usage.output_tokens"])
        assert len(spans["decode"]["gaps_us"]) == counts[-1]
    assert sorted(counts) == [3, 5, 7, 9]


def test_the_thread_of_the_server(seen: dict[str, Any]) -> None:
    """A request's context goes along to the one thread that generates; who comes second waits for it."""
    one: Seen = seen["served_by_one_thread"]
    assert one.says[1] == 8
    first, second = ([span for span in one.spans if span["parent"] == f"POST {number}"] for number in (1, 2))
    for number in (1, 2):  # said before the streamer's last word, upon which the first request ends
        assert one.attributes(f"POST {number}") == EIGHT
    for stages in (first, second):
        names = [span["name"] for span in stages if span["name"] != "tokenize"]
        assert names == ["queue", "prefill", "decode"]
        by_name = {span["name"]: span for span in stages}
        assert by_name["queue"]["attributes"] == {"promptpath.stage": "queue"}
        assert by_name["queue"]["end_ns"] == by_name["prefill"]["start_ns"]
        assert len(by_name["decode"]["gaps_us"]) == 8
    decoded = next(span for span in first if span["name"] == "decode")
    waited = next(span for span in second if span["name"] == "queue")
    assert waited["end_ns"] >= decoded["end_ns"] > waited["start_ns"]


def test_calls_that_fail(seen: dict[str, Any]) -> None:
    early: Seen = seen["fails_before_it_begins"]
    assert early.says.startswith("ValueError: `max_new_tokens` must be greater than 0")
    assert early.names == [SERVER]
    prefill, decode = seen["fails_in_prefill"], seen["fails_in_decode"]
    assert prefill.says == decode.says == "ArithmeticError: no logits today"
    assert set(prefill.names) == {SERVER, "prefill"}
    assert prefill.span("prefill")["status"] == decode.span("decode")["status"] == "ERROR"
    assert decode.span("prefill")["status"] == "UNSET"
    assert len(decode.span("decode")["gaps_us"]) == 3
    for one, kind in ((early, "ValueError"), (prefill, "ArithmeticError"), (decode, "ArithmeticError")):
        assert one.span(SERVER)["status"] == "ERROR"
        assert one.attributes(SERVER)["error.type"] == kind
        assert "gen_ai.response.finish_reasons" not in one.attributes(SERVER)


def test_a_streamer_that_gives_up(seen: dict[str, Any]) -> None:
    one: Seen = seen["given_up"]
    assert one.says.startswith("GenerationCancelled")
    assert one.span(SERVER)["status"] == one.span("decode")["status"] == "UNSET"
    assert one.attributes(SERVER)["promptpath.abort"] == one.attributes("decode")["promptpath.abort"] == "client"
    assert len(one.span(SERVER)["gaps_us"]) == 2  # the third token was refused


def test_unsampled_stays_unsampled(seen: dict[str, Any]) -> None:
    assert seen["unsampled"].says == [1, 15]
    assert seen["unsampled"].spans == []


def test_of_a_loop_that_is_not_known_only_the_call_is_timed(seen: dict[str, Any]) -> None:
    one: Seen = seen["a_loop_of_ones_own"]
    assert one.says == [1, 10]
    assert one.names == [SERVER]
    assert one.attributes(SERVER) == own() | {"gen_ai.usage.input_tokens": 7}


def test_taken_off_and_put_on_again(seen: dict[str, Any]) -> None:
    assert seen["taken_off"].says == {"on": [True] * 5, "off": [False] * 6, "nothing": True}
    assert seen["state_of_the_shim"].says == {"state": "instrumented", "failures": {}}


def test_a_release_without_a_hook(seen: dict[str, Any]) -> None:
    one: Seen = seen["without_a_hook"]
    place = "transformers.generation.utils:GenerationMixin._has_unfinished_sequences"
    assert one.says == {"shape": [1, 15], "skipped": [place]}
    assert seen["doctor"]["skipped"] == [place]
    assert one.names == [SERVER]  # when tokens came was not seen, and is not made up
    assert one.attributes(SERVER) == own() | EIGHT


def test_what_a_step_costs(seen: dict[str, Any]) -> None:
    """A step of the smallest models takes a millisecond and more; the bound is far above what is measured (0.6 µs)."""
    assert seen["cost"].says["seen"]
    assert 0 < seen["cost"].says["ns"] < 5000
