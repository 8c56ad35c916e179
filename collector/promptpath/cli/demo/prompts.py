"""What the demo's client asks: a plan of prompts of every kind, the same for the same seed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Kind = Literal["streamed", "long", "whole", "aborted", "bad_key", "rate_limited", "too_long"]

MODEL = "smollm2-135m"
SMALL_MODEL = "smollm2-135m-small"

KEY = "demo-key-analytics"
OTHER_KEY = "demo-key-support"
TRIAL_KEY = "demo-key-trial"
UNKNOWN_KEY = "demo-key-of-nobody"

_QUESTIONS = (
    "What is the capital of {place}?",
    "Name three rivers of {place}.",
    "Write one sentence about the weather in {place}.",
    "What do people eat for breakfast in {place}?",
    "Give me a title for a short story set in {place}.",
    "Which languages are spoken in {place}?",
    "Say something kind to a traveller who is on the way to {place}.",
    "Explain to a child where {place} is.",
)
_PLACES = ("France", "Kenya", "Japan", "Peru", "Norway", "Egypt", "Canada", "Vietnam", "Portugal", "Ghana", "Nepal")
_REPORT = (
    "Ticket {n}: the export of the monthly figures took {m} minutes instead of {k}, the file was complete, and the "
    "second attempt went through at once. "
)


@dataclass(frozen=True, slots=True)
class Question:
    """One prompt to send. An aborted one hangs up after `tokens_before_abort` deltas."""

    kind: Kind
    model: str
    key: str
    text: str
    max_tokens: int
    temperature: float = 0.0
    tokens_before_abort: int | None = None

    @property
    def stream(self) -> bool:
        """Whether the answer is asked for as a stream."""
        return self.kind != "whole"


@dataclass(frozen=True, slots=True)
class Round:
    """Questions asked by `concurrency` askers at a time."""

    concurrency: int
    questions: list[Question]


def plan(prompts: int, seed: int) -> list[Round]:
    """About `prompts` questions in rounds of 1, 4 and 8 at a time; each round has every kind in it that fits."""
    rng = random.Random(seed)
    alone = max(2, prompts // 12)
    four = max(4, prompts // 3)
    eight = max(8, prompts - alone - four)
    return [Round(c, list(_questions(rng, count, first=c == 4))) for c, count in ((1, alone), (4, four), (8, eight))]


def _questions(rng: random.Random, count: int, *, first: bool) -> Iterator[Question]:
    refused: list[Kind] = ["bad_key", "rate_limited", "too_long"]
    for n in range(count):
        kind: Kind = "streamed"
        if n % 8 == 5:
            kind = "long"
        elif n % 6 == 3:
            kind = "whole"
        elif n % 10 == 6:
            kind = "aborted"
        elif n % 12 == 7:
            kind = refused[n // 12 % len(refused)]
        model = SMALL_MODEL if n % 5 in (1, 4) else MODEL
        yield question(rng, kind, model)
    if first:
        # The trial key lets two requests pass; those after are refused.
        yield from (question(rng, "rate_limited", MODEL) for _ in range(3))
        yield question(rng, "bad_key", MODEL)
        yield question(rng, "too_long", MODEL)


def question(rng: random.Random, kind: Kind, model: str) -> Question:
    """One question of that kind."""
    text = rng.choice(_QUESTIONS).format(place=rng.choice(_PLACES))
    key = rng.choice((KEY, KEY, OTHER_KEY))
    if kind == "bad_key":
        key = UNKNOWN_KEY
    elif kind == "rate_limited":
        key = TRIAL_KEY
    elif kind in ("long", "too_long"):
        count = rng.randint(8, 20) if kind == "long" else 60
        report = "".join(
            _REPORT.format(n=rng.randint(100, 999), m=rng.randint(20, 90), k=rng.randint(2, 9)) for _ in range(count)
        )
        text = f"{report}\nSum up these tickets in one sentence."
    return Question(
        kind,
        model,
        key,
        text,
        max_tokens=rng.choice((16, 24, 32, 48, 64)) if kind != "long" else 32,
        temperature=rng.choice((0.0, 0.7)),
        tokens_before_abort=rng.randint(2, 6) if kind == "aborted" else None,
    )
