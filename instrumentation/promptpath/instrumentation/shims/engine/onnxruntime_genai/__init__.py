"""ONNX Runtime GenAI: what a `Generator` does with a prompt.

The program drives a generator itself: it appends the prompt, asks for one token after the other, and makes text of
them. From one `append_tokens` (or `set_inputs`) to the end of the answer is a turn (`turn.py`). A turn within a request
served is a part of that request; outside of any it is a request of its own, with a server span. Below the request:

- `parse` (the chat template) and `tokenize`, timed;
- `prefill`: from the prompt being appended, which computes it, to the first token;
- `decode`: first to last token, each with the time at which `generate_next_token` has given it. Beams settle no token
  before their end: there `decode` has no times of tokens;
- `detokenize`: first token until its text is ready.

`Engine`, which batches the requests of several callers, is not looked at.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, ClassVar

from opentelemetry.instrumentation.instrumentor import BaseInstrumentor  # type: ignore[attr-defined]

from promptpath.instrumentation.shims import role
from promptpath.instrumentation.shims.engine.onnxruntime_genai import generator, models, text

SCOPE = models.SCOPE


class OnnxRuntimeGenAiInstrumentor(BaseInstrumentor):  # type: ignore[misc]
    """Puts the shim on ONNX Runtime GenAI."""

    library: ClassVar[tuple[str, ...]] = ("onnxruntime_genai",)

    def instrumentation_dependencies(self) -> Collection[str]:
        return tuple(f"onnxruntime-genai{kind} >= 0.12" for kind in ("", "-cuda", "-directml", "-winml"))

    def _instrument(self, **kwargs: Any) -> None:
        models.wrap_all()
        text.wrap_all()
        generator.wrap_all()
        role.engine_is_here(SCOPE)

    def _uninstrument(self, **kwargs: Any) -> None:
        generator.unwrap()
        text.unwrap()
        models.unwrap()
        role.engine_is_gone(SCOPE)
