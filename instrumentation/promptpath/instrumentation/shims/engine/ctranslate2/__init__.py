"""CTranslate2: what a `Generator` does with a prompt.

`generate_tokens`, `async_generate_tokens` and `generate_iterable` all end in `generate_batch`; that is where the shim
is. A call within a request served is a part of that request; outside of any it is a request of its own, with a server
span. Below the request (`generation.py`):

- `queue`: until one of the generator's workers is free, which is concluded from the calls before it (`pool.py`);
- `prefill`: from there to the first token computed;
- `decode`: first to last token computed, with each token's time. Of several answers, those of the first to come;
- `detokenize`: first token computed until its text is ready, where tokens are handed on one by one.

Tokens are seen through the callback that `generate_batch` takes, in front of the program's own. There is none with beam
search: of that only the whole call is timed. Asked to include the prompt in the result (the default), CTranslate2
computes the prompt token by token and calls back for these too: they are prefill, and not counted as answer.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, ClassVar

from opentelemetry.instrumentation.instrumentor import BaseInstrumentor  # type: ignore[attr-defined]

from promptpath.instrumentation.shims import role
from promptpath.instrumentation.shims.engine.ctranslate2 import generation, generator

SCOPE = generation.SCOPE


class CTranslate2Instrumentor(BaseInstrumentor):  # type: ignore[misc]
    """Puts the shim on CTranslate2."""

    library: ClassVar[tuple[str, ...]] = ("ctranslate2",)

    def instrumentation_dependencies(self) -> Collection[str]:
        return ("ctranslate2 >= 4.0",)

    def _instrument(self, **kwargs: Any) -> None:
        generator.wrap_all()
        role.engine_is_here(SCOPE)

    def _uninstrument(self, **kwargs: Any) -> None:
        generator.unwrap()
        role.engine_is_gone(SCOPE)
