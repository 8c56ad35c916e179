"""What a call of `generate` was asked and what it gave, in numbers: no token is kept."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from opentelemetry.util.types import AttributeValue

from promptpath import semconv
from promptpath.instrumentation.shims.engine import calls


@dataclass(frozen=True)
class Outcome:
    """What a call gave.

    Attributes:
        tokens: of each answer, with the one that ended it, without what fills it up.
        reasons: why each answer ended; None unless all are known.
    """

    tokens: tuple[int, ...]
    reasons: tuple[str, ...] | None

    @property
    def longest(self) -> int:
        """Tokens of the longest answer."""
        return max(self.tokens, default=0)


def model_name(model: Any) -> str:
    """What a model is called; its class, if it was made and not loaded."""
    name = getattr(getattr(model, "config", None), "name_or_path", "")
    return calls.model_of(name) if isinstance(name, str) and name else type(model).__name__


def input_tokens(given: dict[str, Any]) -> int | None:
    """Tokens of the prompts, without what fills them up; None where the input is no text.

    Args:
        given: the arguments of `generate` by name.
    """
    prompt = next(
        (given[name] for name in ("input_ids", "inputs", "inputs_embeds") if given.get(name) is not None), None
    )
    if prompt is None:
        return None
    is_embedded = given.get("input_ids") is None and given.get("inputs") is None
    if prompt.is_floating_point() != is_embedded:
        return None  # sound, or a picture
    rows, length = prompt.shape[:2]
    mask = given.get("attention_mask")
    if mask is not None and tuple(mask.shape) == (rows, length):
        return int(mask.sum())
    return int(rows * length)


def limits(config: Any, prompt_length: int) -> dict[str, AttributeValue]:
    """What was asked for: how many tokens and answers at most, and how they are drawn.

    Args:
        config: as `generate` has completed it; None if it was not seen.
        prompt_length: of what the loop continues [tokens].
    """
    found: dict[str, AttributeValue] = {}
    longest = getattr(config, "max_length", None)
    if isinstance(longest, int):
        found[semconv.GEN_AI_REQUEST_MAX_TOKENS] = longest - prompt_length
    if getattr(config, "do_sample", False):
        for name, value in (
            (semconv.GEN_AI_REQUEST_TEMPERATURE, getattr(config, "temperature", None)),
            (semconv.GEN_AI_REQUEST_TOP_P, getattr(config, "top_p", None)),
        ):
            if isinstance(value, (int, float)):
                found[name] = float(value)
    answers = getattr(config, "num_return_sequences", None)
    if isinstance(answers, int) and answers > 1:
        found[semconv.GEN_AI_REQUEST_CHOICE_COUNT] = answers
    return found


def read(result: Any, prompt_length: int, config: Any) -> Outcome:
    """Count what a call returned.

    Args:
        result: ids of shape [answers, length], or an object that has them as `sequences`.
        prompt_length: tokens in front of each answer.
        config: as `generate` has completed it.
    """
    sequences = getattr(result, "sequences", result)
    answers = sequences[:, prompt_length:]
    width = int(answers.shape[1])
    ends = _ids(config, "eos_token_id", sequences.device)
    ended = [False] * len(answers)
    tokens = [width] * len(answers)
    if width and ends is not None:
        is_end = sys.modules["torch"].isin(answers, ends)
        ended = is_end.any(dim=1).tolist()
        first = is_end.int().argmax(dim=1).tolist()
        tokens = [at + 1 if over else width for over, at in zip(ended, first, strict=True)]
    filler = _ids(config, "pad_token_id", sequences.device)
    if width and filler is not None and len(answers) > 1 and not all(ended):
        # An answer that ended without such a token is filled up too, while others go on.
        kept = (~sys.modules["torch"].isin(answers, filler)).int().flip(1).argmax(dim=1).tolist()
        tokens = [count if over else width - behind for over, count, behind in zip(ended, tokens, kept, strict=True)]
    reasons = tuple(_reason(over, prompt_length + count, config) for over, count in zip(ended, tokens, strict=True))
    known = tuple(reason for reason in reasons if reason is not None)
    return Outcome(tuple(tokens), known if len(known) == len(reasons) else None)


def of_stream(last_put: Any, tokens: int, prompt_length: int, config: Any) -> Outcome:
    """As `read`, of one answer that a streamer got.

    Args:
        last_put: the ids it got last.
        tokens: how many it got.
    """
    ends = _ids(config, "eos_token_id", last_put.device)
    ended = ends is not None and bool(sys.modules["torch"].isin(last_put.flatten()[-1], ends))
    reason = _reason(ended, prompt_length + tokens, config)
    return Outcome((tokens,), None if reason is None else (reason,))


def _ids(config: Any, name: str, device: Any) -> Any:
    """A special token's ids as a tensor; None if there are none."""
    ids = getattr(config, f"_{name.removesuffix('_id')}_tensor", None)
    if ids is None:
        ids = getattr(config, name, None)
    if ids is None:
        return None
    return sys.modules["torch"].as_tensor(ids, device=device)


def _reason(ended: bool, length: int, config: Any) -> str | None:
    if ended:
        return "stop"
    if length >= (getattr(config, "max_length", None) or sys.maxsize):
        return "length"
    return "stop" if getattr(config, "stop_strings", None) else None
