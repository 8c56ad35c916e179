"""Hugging Face tokenizers inside and outside of prompts."""

from __future__ import annotations

import pytest
import tokenizers
from opentelemetry.trace import SpanKind
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from promptpath.instrumentation import prompt, recorder
from promptpath.instrumentation.shims import state
from promptpath.instrumentation.shims.tokenizer.tokenizers import MAX_SPANS, TokenizersInstrumentor
from promptpath.semconv import Stage

from .running import Spans


@pytest.fixture
def tokenizer() -> tokenizers.Tokenizer:
    made = tokenizers.Tokenizer(WordLevel({"the": 0, "sky": 1, "?": 2}, unk_token="?"))
    made.pre_tokenizer = Whitespace()
    return made


TOKENIZE = {
    "name": "tokenize",
    "kind": "INTERNAL",
    "scope": "promptpath.tokenizers",
    "parent": "POST /generate",
    "attributes": {"promptpath.stage": "tokenize"},
    "deliveries": 0,
    "status": ("UNSET", None),
    "events": [],
}


def test_inside_a_request(tokenizer: tokenizers.Tokenizer, spans: Spans) -> None:
    request = recorder.start("POST /generate", scope="t", stage=Stage.SERVER, kind=SpanKind.SERVER)
    with recorder.use(request):
        assert tokenizer.encode("the blue sky").ids == [0, 2, 1]
        assert [e.ids for e in tokenizer.encode_batch(["the", "sky"])] == [[0], [1]]
        assert tokenizer.decode([0, 1]) == "the sky"
    request.end()
    assert spans.dicts(3)[1:] == [TOKENIZE, TOKENIZE]


def test_inside_a_prompt(tokenizer: tokenizers.Tokenizer, spans: Spans) -> None:
    with prompt("chat", model="m"):
        tokenizer.encode("the sky")
    assert spans.dicts(2)[1] == {**TOKENIZE, "parent": "chat m"}


def test_outside_nothing_is_recorded(tokenizer: tokenizers.Tokenizer, spans: Spans) -> None:
    tokenizer.encode("the sky")
    tokenizer.decode([0])
    assert spans.all() == []


def test_no_storm_of_spans(tokenizer: tokenizers.Tokenizer, spans: Spans) -> None:
    with prompt("chat", model="m"):
        for _ in range(100):
            tokenizer.encode("the")
    assert len(spans.all()) == 1 + MAX_SPANS


def test_text_after_the_first_token_is_noted(tokenizer: tokenizers.Tokenizer, spans: Spans) -> None:
    request = recorder.start("POST /generate", scope="t", stage=Stage.SERVER, kind=SpanKind.SERVER)
    notes = state.of(request)
    with recorder.use(request):
        tokenizer.decode([0])
        assert notes.first_text_mono_ns == 0
        notes.first_token_mono_ns = recorder.monotonic_ns()
        tokenizer.decode([])
        assert notes.first_text_mono_ns == 0
        tokenizer.decode([0])
        first = notes.first_text_mono_ns
        assert first >= notes.first_token_mono_ns
        tokenizer.decode_batch([[0], [1]])
    assert notes.first_text_mono_ns == first
    assert notes.decode_ns > 0


def test_errors_are_the_tokenizers(tokenizer: tokenizers.Tokenizer, spans: Spans) -> None:
    with prompt("chat", model="m"), pytest.raises(TypeError):
        tokenizer.encode(5)
    assert [span["name"] for span in spans.dicts(1)] == ["chat m"]


def test_uninstrument_takes_everything_off(tokenizer: tokenizers.Tokenizer) -> None:
    assert hasattr(tokenizers.Tokenizer.__dict__["encode"], "_self_wrapper")
    TokenizersInstrumentor().uninstrument()
    assert not hasattr(tokenizers.Tokenizer.__dict__["encode"], "_self_wrapper")
    assert tokenizer.encode("the").ids == [0]
