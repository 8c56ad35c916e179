"""Which HTTP paths are inference calls, and what they ask for."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from promptpath import semconv

#: `gen_ai.operation.name` by the end of the path; a path without one here (`/v2/models/*/infer`) may be any of them.
_OPERATIONS: Final = {
    "/v1/chat/completions": "chat",
    "/v1/completions": "text_completion",
    "/v1/responses": "chat",
    "/v1/messages": "chat",
    "/v1/embeddings": "embeddings",
    "/generate": "text_completion",
    "/generate_stream": "text_completion",
    "/api/chat": "chat",
    "/api/generate": "text_completion",
}
#: Gemini's, whose paths have the model before the colon.
_GENERATE_CONTENT: Final = (":generateContent", ":streamGenerateContent")
_PATTERN: Final = re.compile(
    f"(?:{'|'.join(re.escape(path).replace(chr(92) + '*', '[^/]+') for path in semconv.INFERENCE_PATHS)})/?$"
)


@lru_cache(maxsize=1024)
def inference_path(path: str) -> str | None:
    """The end of a URL path that makes it an inference call, such as `/v1/chat/completions`; None if it is none.

    A prefix (a mount, a tenant) does not hide it. A query string must have been cut off.
    """
    match = _PATTERN.search(path)
    return match.group().rstrip("/") if match is not None else None


@lru_cache(maxsize=1024)
def operation(path: str) -> str | None:
    """`gen_ai.operation.name` of an inference path; None if the path does not tell."""
    end = inference_path(path) or ""
    return "generate_content" if end.endswith(_GENERATE_CONTENT) else _OPERATIONS.get(end)
