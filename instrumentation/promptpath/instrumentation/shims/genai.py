"""`gen_ai.*` attributes out of the JSON bodies of requests and answers. No content of a prompt is ever read out.

The spellings of OpenAI's chat completions, completions, embeddings and responses, and of Anthropic's messages, are
known.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from opentelemetry.util.types import AttributeValue

from promptpath import semconv

FINISH_REASONS: Final = semconv.GEN_AI_RESPONSE_FINISH_REASONS
OUTPUT_TOKENS: Final = semconv.GEN_AI_USAGE_OUTPUT_TOKENS

#: A longer request body is not parsed: model and stream are looked for in its bytes.
MAX_PARSED_BYTES: Final = 256 << 10
#: Of a longer body nothing is kept.
MAX_KEPT_BYTES: Final = 4 << 20

_MODEL: Final = re.compile(rb'"model"\s*:\s*"([^"\\]{1,256})"')
_STREAM: Final = re.compile(rb'"stream"\s*:\s*(true|false)')

#: Key in the body, attribute, type. Of several keys for one attribute the first that is there counts.
_REQUEST: Final[tuple[tuple[str, str, type], ...]] = (
    ("model", semconv.GEN_AI_REQUEST_MODEL, str),
    ("stream", semconv.GEN_AI_REQUEST_STREAM, bool),
    ("max_completion_tokens", semconv.GEN_AI_REQUEST_MAX_TOKENS, int),
    ("max_output_tokens", semconv.GEN_AI_REQUEST_MAX_TOKENS, int),
    ("max_tokens", semconv.GEN_AI_REQUEST_MAX_TOKENS, int),
    ("temperature", semconv.GEN_AI_REQUEST_TEMPERATURE, float),
    ("top_p", semconv.GEN_AI_REQUEST_TOP_P, float),
)


def request_attributes(body: Mapping[str, Any]) -> dict[str, AttributeValue]:
    """Of a request: model, stream, limits, sampling. Values of a wrong type are left out."""
    found: dict[str, AttributeValue] = {}
    for key, name, kind in _REQUEST:
        value = body.get(key)
        if kind is float and type(value) is int:
            value = float(value)
        fits = type(value) is kind  # a bool is no number here
        if fits and name not in found:
            found[name] = value
    count = choices(body)
    if count > 1:
        found[semconv.GEN_AI_REQUEST_CHOICE_COUNT] = count
    return found


def choices(body: Mapping[str, Any]) -> int:
    """How many answers are asked for (`n`)."""
    count = body.get("n")
    return count if isinstance(count, int) and not isinstance(count, bool) and count > 0 else 1


def request_attributes_of_bytes(raw: bytes) -> dict[str, AttributeValue]:
    """As `request_attributes`, from a body as it came; empty if that is no JSON object. A long one is only searched."""
    if len(raw) > MAX_PARSED_BYTES:
        found: dict[str, AttributeValue] = {}
        model = _MODEL.search(raw)
        if model is not None:
            found[semconv.GEN_AI_REQUEST_MODEL] = model.group(1).decode("utf-8", "replace")
        stream = _STREAM.search(raw)
        if stream is not None:
            found[semconv.GEN_AI_REQUEST_STREAM] = stream.group(1) == b"true"
        return found
    body = json_object(raw)
    return request_attributes(body) if body is not None else {}


def json_object(raw: bytes) -> dict[str, Any] | None:
    """The JSON object that these bytes are; None if they are none."""
    if not raw or raw.lstrip()[:1] != b"{":
        return None
    try:
        body = json.loads(raw)
    except ValueError:
        return None
    return body if isinstance(body, dict) else None


def response_attributes(body: Mapping[str, Any]) -> dict[str, AttributeValue]:
    """Of an answer, or of a frame of one: model, id, finish reasons, usage."""
    found: dict[str, AttributeValue] = {}
    # The responses API and Anthropic's first frame carry the answer one level down.
    for inner in (body.get("response"), body.get("message")):
        if isinstance(inner, Mapping):
            found.update(response_attributes(inner))
    model = body.get("model")
    if isinstance(model, str) and model:
        found[semconv.GEN_AI_RESPONSE_MODEL] = model
    identity = body.get("id")
    if isinstance(identity, str) and identity:
        found[semconv.GEN_AI_RESPONSE_ID] = identity
    reasons = [
        choice["finish_reason"]
        for choice in body.get("choices") or ()
        if isinstance(choice, Mapping) and isinstance(choice.get("finish_reason"), str)
    ]
    if isinstance(body.get("stop_reason"), str):
        reasons.append(body["stop_reason"])
    if reasons:
        found[FINISH_REASONS] = tuple(reasons)
    usage = body.get("usage")
    if isinstance(usage, Mapping):
        found.update(usage_attributes(usage))
    return found


def usage_attributes(usage: Mapping[str, Any]) -> dict[str, AttributeValue]:
    """Of a `usage` object. Input tokens include cached ones, as the conventions want (Anthropic's do not)."""
    taken = _count(usage, "prompt_tokens", "input_tokens")
    details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details")
    cached = _count(details, "cached_tokens") if isinstance(details, Mapping) else None
    read = _count(usage, "cache_read_input_tokens")
    if read is not None:
        cached = read
        if taken is not None:
            taken += read + (_count(usage, "cache_creation_input_tokens") or 0)
    given = _count(usage, "completion_tokens", "output_tokens")
    details = usage.get("completion_tokens_details") or usage.get("output_tokens_details")
    reasoning = _count(details, "reasoning_tokens") if isinstance(details, Mapping) else None
    counts = (
        (semconv.GEN_AI_USAGE_INPUT_TOKENS, taken),
        (semconv.GEN_AI_USAGE_OUTPUT_TOKENS, given),
        (semconv.GEN_AI_USAGE_CACHE_READ_INPUT_TOKENS, cached),
        (semconv.GEN_AI_USAGE_REASONING_OUTPUT_TOKENS, reasoning),
    )
    return {name: value for name, value in counts if value is not None}


def _count(values: Mapping[str, Any], *keys: str) -> int | None:
    for key in keys:
        value = values.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
    return None
