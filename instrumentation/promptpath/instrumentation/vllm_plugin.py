"""The entry point `vllm.general_plugins`: vLLM calls it in each of its processes, and is instrumented from then on."""

from __future__ import annotations

import importlib

from promptpath.instrumentation.safety import guard


def load() -> None:
    """What `import promptpath.auto` does. May be called more than once."""
    with guard("vllm_plugin"):
        importlib.import_module("promptpath.auto")
