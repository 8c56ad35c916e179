"""What a rule file can say, as the database applies it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from promptpath.collector.assemble.rules import load_rules
from promptpath.collector.assemble.rules_sql import compile_select, default_select
from promptpath.collector.assemble.schema import check_spans
from promptpath.collector.assemble.store import read_spans

Row = dict[str, Any]
MS = 1_000_000
SERVER, CLIENT = 2, 3
TRACE = "0" * 31 + "1"
RULE = 'system = "mine"\norder = 5\n[[span]]\nname = "it"\nmatch.name = "it"\nstage = "server"\ninference = true\n'


@pytest.fixture
def read(store: Any, put: Any, request_of: Any, tmp_path: Path) -> Callable[..., Row]:
    """A span named `it` with some attributes, as the rules (with more of ours behind `RULE`) read it."""

    number = itertools.count(1)

    def run(more: str = "", attributes: Row | None = None, events: Any = (), name: str = "it", kind: int = CLIENT,
            scope: str = "test", resource: Row | None = None) -> Row:  # fmt: skip
        (tmp_path / "mine.toml").write_text(RULE + more)
        trace = f"{next(number):032x}"
        span = (name, kind, 0, 1000 * MS, attributes or {}, {"id": "1" * 16, "trace": trace, "events": events})
        put(store, request_of(span, scope=scope, resource=resource))
        spans = check_spans(read_spans(store, [trace], compile_select(load_rules([tmp_path]))))
        (row,) = spans.to_pylist()
        return dict(row)

    return run


def _parts(row: Row) -> list[tuple[str, int, int]]:
    return list(zip(row["part_stages"], row["part_starts_ns"], row["part_durations_ns"], strict=True))


@pytest.mark.parametrize(
    ("text", "ns"),
    [("250ms", 250 * MS), ("1.5s", 1_500 * MS), ("12.25µs", 12_250), ("3us", 3_000), ("700ns", 700), ("5", None),
     ("soon", None), ("", None), ("1h", None)],
)  # fmt: skip
def test_a_number_with_its_unit(read: Callable[..., Row], text: str, ns: int | None) -> None:
    more = '[span.fields]\nfirst_token_ns = [{ attribute = "t", unit = "text" }]\n'
    assert read(more, {"t": text})["first_token_ns"] == ns


def test_values_inside_json(read: Callable[..., Row]) -> None:
    more = """
    [span.fields]
    input_tokens = [{ attribute = "u", json = "in" }]
    output_tokens = [{ attribute = "u", json = "deep.out" }]
    model = [{ attribute = "u", json = "model" }]
    cost_usd = [{ attribute = "u", json = "cost" }]
    """
    row = read(more, {"u": '{"in": 3, "deep": {"out": 4}, "model": "m", "cost": 0.5}'})
    assert [row[name] for name in ("input_tokens", "output_tokens", "model", "cost_usd")] == [3, 4, "m", 0.5]


@pytest.mark.parametrize("text", ["", "no json", "[]", '{"in": "many"}', '{"other": 1}', '{"in": null}'])
def test_json_that_makes_no_sense_is_unknown(read: Callable[..., Row], text: str) -> None:
    assert (
        read('[span.fields]\ninput_tokens = [{ attribute = "u", json = "in" }]\n', {"u": text})["input_tokens"] is None
    )


@pytest.mark.parametrize(("text", "model"), [('"llama"', "llama"), ("llama", ""), ('{"a":1}', '{"a":1}'), ("", "")])
def test_a_value_that_is_json_itself(read: Callable[..., Row], text: str, model: str) -> None:
    assert read('[span.fields]\nmodel = [{ attribute = "u", json = "" }]\n', {"u": text})["model"] == model


@pytest.mark.parametrize("text", ['"llama"', "llama"])
def test_a_model_that_mlflow_names(read: Callable[..., Row], text: str) -> None:
    row = read("", {"mlflow.spanType": '"CHAT_MODEL"', "mlflow.llm.model": text}, name="other")
    assert (row["stage"], row["request_model"]) == ("call", "llama")


@pytest.mark.parametrize(
    ("operation", "known"),
    [("general", ""), ("self_check_input", ""), ("chat", "chat"), ("completion", "text_completion")],
)
def test_models_that_rails_ask_by_any_name(read: Callable[..., Row], operation: str, known: str) -> None:
    """NeMo Guardrails names the operation after its task."""
    said = {"gen_ai.operation.name": operation, "gen_ai.request.model": "m"}
    row = read("", said, name=f"{operation} m", scope="nemo_guardrails")
    assert (row["stage"], row["inference"], row["operation"], row["request_model"]) == ("call", True, known, "m")


def test_parts_from_the_start_and_the_rest(read: Callable[..., Row]) -> None:
    more = """
    from_start = [
      { stage = "queue", duration = { attribute = "q", unit = "ms" } },
      { stage = "kv_transfer", duration = { attribute = "k", unit = "ms" } },
      { stage = "prefill", duration = "rest" },
    ]
    [span.fields]
    first_token_ns = [{ attribute = "t", unit = "ms" }]
    """
    assert _parts(read(more, {"q": 10, "k": 5, "t": 100})) == [
        ("queue", 0, 10 * MS), ("kv_transfer", 10 * MS, 5 * MS), ("prefill", 15 * MS, 85 * MS),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("attributes", "parts"),
    [
        ({"q": 10, "t": 100}, [("queue", 0, 10 * MS), ("prefill", 10 * MS, 90 * MS)]),
        ({"q": 10}, [("queue", 0, 10 * MS)]),
        ({"t": 100}, [("prefill", 0, 100 * MS)]),
        ({"q": 120, "t": 100}, [("queue", 0, 120 * MS)]),
        ({"q": -5, "t": 100}, [("prefill", 0, 100 * MS)]),
        ({}, []),
    ],
)
def test_the_rest_is_never_below_nothing(read: Callable[..., Row], attributes: Row, parts: list[Any]) -> None:
    more = """
    from_start = [{ stage = "queue", duration = { attribute = "q", unit = "ms" } },
                  { stage = "prefill", duration = "rest" }]
    [span.fields]
    first_token_ns = [{ attribute = "t", unit = "ms" }]
    """
    assert _parts(read(more, attributes)) == parts


def test_parts_around_the_first_token(read: Callable[..., Row]) -> None:
    more = """
    before_first_token = [{ stage = "queue", duration = { attribute = "q", unit = "us" } },
                          { stage = "prefill", duration = { attribute = "p", unit = "us" } }]
    after_first_token = [{ stage = "decode", duration = { attribute = "d", unit = "us" } },
                         { stage = "stream", duration = { attribute = "s", unit = "us" } }]
    [span.fields]
    first_token_ns = [{ attribute = "t", unit = "us" }]
    """
    said = {"q": 10, "p": 20, "d": 30, "s": 40}
    assert _parts(read(more, said | {"t": 100})) == [
        ("queue", 70_000, 10_000), ("prefill", 80_000, 20_000),
        ("decode", 100_000, 30_000), ("stream", 130_000, 40_000),
    ]  # fmt: skip
    assert _parts(read(more, said)) == []


def test_the_span_itself_as_a_time(read: Callable[..., Row]) -> None:
    row = read('from_start = [{ stage = "prefill", duration = { span = "duration" } }]\n'
               '[span.fields]\nfirst_byte_ns = [{ span = "duration" }]\n')  # fmt: skip
    assert (row["first_byte_ns"], _parts(row)) == (1000 * MS, [("prefill", 0, 1000 * MS)])


def test_the_first_of_several_events(read: Callable[..., Row]) -> None:
    more = '[span.fields]\nfirst_token_ns = [{ event = ["b", "a"] }]\n'
    assert read(more, events=[("x", 1, {}), ("a", 20 * MS, {}), ("b", 30 * MS, {})])["first_token_ns"] == 20 * MS
    assert read(more, events=[("x", 1, {})])["first_token_ns"] is None


@pytest.mark.parametrize(
    ("path", "operation"),
    [
        ("/openai/deployments/gpt/chat/completions?api-version=1", "chat"),
        ("https://x.openai.azure.com/openai/deployments/e/embeddings", "embeddings"),
        ("/model/anthropic.claude-v2%3A1/converse-stream", "chat"),
        ("/serving-endpoints/llama/invocations", "chat"),
        ("/mounted/chat/completions/", "chat"),
        ("/v2/models/m/infer", ""),
    ],
)
def test_paths_of_other_apis(read: Callable[..., Row], path: str, operation: str) -> None:
    row = read("", {"http.url": path, "http.method": "POST"}, name="POST", kind=SERVER)
    assert (row["stage"], row["inference"], row["operation"]) == ("inbound", True, operation)


@pytest.mark.parametrize(
    ("attributes", "text"),
    [({"f": ["stop", "length"]}, "stop"), ({"f": "length"}, "length"), ({"f": []}, ""), ({}, "")],
)
def test_the_first_of_a_list(read: Callable[..., Row], attributes: Row, text: str) -> None:
    assert read('[span.fields]\nfinish_reason = ["f"]\n', attributes)["finish_reason"] == text


def test_a_path_that_a_rule_asks_for(read: Callable[..., Row]) -> None:
    more = '[[span]]\nname = "path"\nmatch.path = "/private/*"\nstage = "edge"\n[fields]\npath = ["asked"]\n'
    assert read(more, {"asked": "http://h/private/x?y=1"}, name="other")["stage"] == "edge"
    assert read(more, {"asked": "/public/x"}, name="other")["stage"] == ""


@pytest.mark.parametrize(
    ("scope", "name", "attributes", "resource", "stage"),
    [
        # The spans of one system do not become another's because they bear the same name.
        ("other", "infer", {}, {}, ""),
        ("other", "tokenize", {}, {}, ""),
        ("other", "prefill", {}, {}, ""),
        ("sglang server", "prefill_waiting", {}, {}, "queue"),
        ("sglang server", "decode_transferred", {}, {}, ""),
        ("vllm.v1.engine.core", "Prepare model", {}, {}, ""),  # of kind CLIENT here
        ("kong-internal", "kong.dns", {}, {}, "dns"),
        ("kong-internal", "kong.access.plugin.ai-semantic-prompt-guard", {}, {}, "safety"),
        ("kong-internal", "kong.access.plugin.rate-limiting", {}, {}, "gateway"),
        ("nemo-guardrails", "guardrails.rail", {"rail.type": "output"}, {}, "safety"),
        ("nemo-guardrails", "guardrails.rail", {"rail.type": "dialog"}, {}, ""),
        ("litellm", "execute_guardrail pii", {}, {}, "safety"),
        ("litellm", "cache.get llm_response", {}, {}, "gateway"),
    ],
)
def test_stages_of_systems(
    read: Callable[..., Row], scope: str, name: str, attributes: Row, resource: Row, stage: str
) -> None:
    assert read("", attributes, name=name, scope=scope, resource=resource)["stage"] == stage


def test_the_select_of_all_rules_is_analysed_quickly(store: Any) -> None:
    """It is analysed for every batch; in CPU time, for the machine may be busy."""
    parameters = {"trace_ids": [TRACE], "tenant": "", "from_ns": 0, "to_ns": 1}
    used = []
    for _ in range(4):
        before = time.process_time()
        assert store.query_arrow(default_select(), parameters=parameters).num_rows == 0
        used.append(time.process_time() - before)
    assert min(used) < 0.3
