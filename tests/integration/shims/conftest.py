"""Spans kept in memory, and the shims put on for a test and taken off after it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from promptpath.instrumentation import recorder, safety
from promptpath.instrumentation.shims.client.httpx import HttpxInstrumentor
from promptpath.instrumentation.shims.client.openai import OpenAiInstrumentor
from promptpath.instrumentation.shims.gateway.asgi import AsgiInstrumentor
from promptpath.instrumentation.shims.gateway.fastapi import FastApiInstrumentor
from promptpath.instrumentation.shims.tokenizer.tokenizers import TokenizersInstrumentor

from .running import Spans

SHIMS = (OpenAiInstrumentor, HttpxInstrumentor, AsgiInstrumentor, FastApiInstrumentor, TokenizersInstrumentor)


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spans]:
    """The program's SDK."""
    yield Spans(monkeypatch)
    recorder.force_flush(5000)


@pytest.fixture(autouse=True)
def _shims(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """All shims on; and none of them may have failed when the test is over."""
    monkeypatch.delenv("PROMPTPATH_ROLE", raising=False)
    before = safety.failures()
    for shim in SHIMS:
        shim().instrument(skip_dep_check=True)
    try:
        yield
    finally:
        for shim in reversed(SHIMS):
            shim().uninstrument()
    assert safety.failures() == before
