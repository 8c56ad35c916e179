"""The same prompts in other systems' words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from promptpath.collector.simulate import Scenario, ScenarioError, run
from promptpath.collector.simulate.encode import Protobuf
from promptpath.collector.simulate.scenario import SYSTEMS, parse_systems
from promptpath.collector.simulate.truth import row_of

Row = dict[str, Any]


class _Nowhere:
    """A sink that keeps nothing."""

    encoder = Protobuf()

    def write(self, body: bytes, spans: int) -> None: ...

    def close(self) -> None: ...


def prompts_of(systems: Iterable[str], monkeypatch: pytest.MonkeyPatch, **knobs: Any) -> list[Any]:
    """The prompts of a small run, as they were sent."""
    found: list[Any] = []
    speak = run.speak

    def heard(prompt: Any, *more: Any) -> None:
        speak(prompt, *more)
        found.append(prompt)

    monkeypatch.setattr(run, "speak", heard)
    run.simulate(Scenario(seed=2, prompts=150, systems=tuple(systems), **knobs), [_Nowhere()])
    return found


def test_names() -> None:
    assert parse_systems("") == ()
    assert parse_systems("all") == tuple(SYSTEMS)
    assert parse_systems("vllm, envoy") == ("vllm", "envoy")
    with pytest.raises(ScenarioError, match="system 'tgi' is not known: use all, otel-genai"):
        parse_systems("vllm,tgi")


def test_without_systems_nothing_is_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    found = prompts_of([], monkeypatch)
    assert len(found) == 150
    assert all(prompt.told is None for prompt in found)
    assert all(span.scope.startswith("promptpath.") for prompt in found for span in prompt.spans)


@pytest.mark.parametrize(
    ("system", "scope", "name", "attribute"),
    [
        ("vllm", "vllm.tracing.otel", "llm_request", "gen_ai.latency.time_in_queue"),
        ("sglang", "sglang server", "prefill_forward", ""),
        ("envoy", "envoy", "ingress", "response_flags"),
        ("litellm-v1", "litellm", "Received Proxy Server Request", "http.route"),
        ("litellm-v2", "fastapi", "POST /v1/chat/completions", "litellm.call_id"),
        ("otel-genai", "opentelemetry.instrumentation.openai_v2", "chat ", "gen_ai.system"),
    ],
)
def test_each_in_its_own_words_and_the_time_is_the_same(
    monkeypatch: pytest.MonkeyPatch, system: str, scope: str, name: str, attribute: str
) -> None:
    ours = {prompt.number: row_of(prompt) for prompt in prompts_of([], monkeypatch)}
    spoken = [prompt for prompt in prompts_of([system], monkeypatch) if prompt.told is not None]
    assert len(spoken) > 20
    heard = 0
    for prompt in spoken:
        spans = [span for span in prompt.spans if span.scope == scope and span.name.startswith(name)]
        heard += bool(spans)
        assert all(attribute in dict(span.attributes) for span in spans if attribute)
        assert len({span.id for span in prompt.spans}) == len(prompt.spans)
        here = {span.id for span in prompt.spans} | {b"", prompt.parent}
        assert all(span.parent in here for span in prompt.spans)
        row, true = row_of(prompt), ours[prompt.number]
        for same in ("ttft_ns", "e2e_ns", "status", "attempts", "model", "hops", "input_tokens", "output_tokens"):
            assert row[same] == true[same]
        if row["ttft_ns"] is not None:
            assert sum(value for key, value in row.items() if key in PARTS) == row["ttft_ns"]
    assert heard > 20


PARTS = {
    f"ttft_{part}_ns"
    for part in ("network", "gateway", "router", "tokenize", "queue", "prefill", "post", "stream", "unattributed")
}
