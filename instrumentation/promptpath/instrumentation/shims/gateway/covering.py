"""Which requests the ASGI shim covers."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any, Final

from opentelemetry import context as context_api
from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY

from promptpath.instrumentation.safety import note_failure
from promptpath.instrumentation.shims import paths

#: Set in the scope of a request that is covered, so that an application mounted in another does not cover it again.
COVERED: Final = "promptpath.covered"


def is_inference(scope: MutableMapping[str, Any]) -> bool:
    """Whether this is an inference request, not covered yet, and not under suppressed instrumentation. Never raises."""
    try:
        return bool(
            scope["type"] == "http"
            and scope["method"] == "POST"
            and paths.inference_path(scope["path"]) is not None
            and COVERED not in scope
            and not context_api.get_value(_SUPPRESS_INSTRUMENTATION_KEY)
        )
    except Exception as error:
        note_failure("asgi.is_inference", error)
        return False
