"""What a continuous batching engine does with its requests, followed from outside, step by step.

Such an engine tells how many requests a step worked on, not which. But it serves prompts in the order they came, so:
of those that a step worked on, what did not give a request its next token were prompts, and they were the oldest
without a first token.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

_R = TypeVar("_R", bound="Tracked")


class Tracked:
    """One request in an engine. Times are monotonic [ns], 0 while not reached.

    Attributes:
        added_ns: when it was handed to the engine.
        scheduled_ns: start of the first step that worked on it.
        first_token_ns: when its first token was computed.
        last_token_ns: when its last token so far was computed.
        token_ns: when tokens were computed: one time for each step that gave some.
        token_counts: tokens of each of these.
        ahead: requests that waited before it when it came; None where that is not known.
        prefill_batch: requests in the step that gave its first token.
        decode_batch_sum: requests in the steps after that, summed.
    """

    def __init__(self, added_ns: int) -> None:
        self.added_ns = added_ns
        self.scheduled_ns = 0
        self.first_token_ns = 0
        self.last_token_ns = 0
        self.token_ns: list[int] = []
        self.token_counts: list[int] = []
        self.ahead: int | None = None
        self.prefill_batch = 0
        self.decode_batch_sum = 0

    @property
    def decode_batch(self) -> int:
        """Requests in a decode step of this one, on average; 0 if there was none."""
        steps = len(self.token_ns) - 1
        return round(self.decode_batch_sum / steps) if steps > 0 and self.decode_batch_sum else 0


class Batch(Generic[_R]):
    """The requests of one engine, in the order they came."""

    def __init__(self) -> None:
        self.requests: list[_R] = []

    def add(self, request: _R) -> None:
        """A request comes in."""
        request.ahead = sum(1 for other in self.requests if not other.scheduled_ns)
        self.requests.append(request)

    def remove(self, request: _R) -> None:
        """A request is over, or never came in."""
        if request in self.requests:
            self.requests.remove(request)

    @property
    def waiting(self) -> int:
        """Requests that no step has worked on yet."""
        return sum(1 for request in self.requests if not request.scheduled_ns)

    def stepped(self, start_ns: int, end_ns: int, worked_on: int, progress: Sequence[tuple[_R, int, int]]) -> None:
        """A step is over.

        Args:
            start_ns, end_ns: the step, monotonic [ns].
            worked_on: how many requests it worked on, as the engine says.
            progress: each request that got tokens in it, how many, and when the last of them was computed [ns], 0 if
                the engine does not say.
        """
        prompts = worked_on
        for request, tokens, computed_ns in progress:
            if not request.first_token_ns:
                continue
            # Most of a step: requests that got their next token.
            prompts -= 1
            request.last_token_ns = at_ns = computed_ns or end_ns
            request.token_ns.append(at_ns)
            request.token_counts.append(tokens)
            request.decode_batch_sum += worked_on
        if prompts > 0:
            self._begin(start_ns, prompts)
        for request, tokens, computed_ns in progress:
            if request.first_token_ns:
                continue
            # A request that is handed over while a step runs may come in before its tokens are seen.
            at_ns = min(max(computed_ns or end_ns, request.added_ns), end_ns)
            request.scheduled_ns = request.scheduled_ns or min(max(start_ns, request.added_ns), at_ns)
            request.first_token_ns = request.last_token_ns = max(at_ns, request.scheduled_ns)
            request.prefill_batch = worked_on
            request.token_ns.append(request.first_token_ns)
            request.token_counts.append(tokens)

    def _begin(self, start_ns: int, prompts: int) -> None:
        """The oldest requests without a first token were worked on, this many."""
        for request in self.requests:
            if request.first_token_ns:
                continue
            if not request.scheduled_ns:
                request.scheduled_ns = max(start_ns, request.added_ns)
            prompts -= 1
            if not prompts:
                return
