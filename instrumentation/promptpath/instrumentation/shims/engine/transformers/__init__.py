"""Hugging Face transformers: what `generate` does with a prompt.

A call of `generate` inside a request served is a part of that request; outside of any it is a request of its own, with
a server span. Below the request (`generation.py`):

- `prefill`: from the start of the call to the first token computed;
- `decode`: first to last token computed. Each token's time is there for greedy search and sampling. A beam search
  settles no token before its end, and an assistant gives several at once: there `decode` has no times of tokens, except
  where a streamer is told of what an assistant gave;
- `detokenize`: with a streamer, first token computed until its text is ready;
- `queue`: under `transformers serve`, until the thread that generates takes the request up (`serving.py`).

A step is over when the loop that makes them asks whether there is another: by then the device has been waited for. With
a streamer a token's time is when the streamer gets it.

The loops are those of `GenerationMixin`: of a custom one (`custom_generate`) and of continuous batching only the whole
call is timed.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, ClassVar

from opentelemetry.instrumentation.instrumentor import BaseInstrumentor  # type: ignore[attr-defined]

from promptpath.instrumentation.shims import role
from promptpath.instrumentation.shims.engine.transformers import generation, serving

SCOPE = generation.SCOPE


class TransformersInstrumentor(BaseInstrumentor):  # type: ignore[misc]
    """Puts the shim on transformers.

    It waits for the module that generates: a program that only takes tokenizers from transformers is no engine.
    """

    library: ClassVar[tuple[str, ...]] = ("transformers.generation.utils",)

    def instrumentation_dependencies(self) -> Collection[str]:
        return ("transformers >= 4.45",)

    def _instrument(self, **kwargs: Any) -> None:
        generation.wrap_all()
        serving.wrap_all()

    def _uninstrument(self, **kwargs: Any) -> None:
        generation.unwrap()
        serving.unwrap()
        role.engine_is_gone(SCOPE)
