"""One request in vLLM's engine core: what was seen of it, and the spans that it becomes when it is over."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final

from opentelemetry import propagate
from opentelemetry.util.types import AttributeValue

from promptpath import semconv
from promptpath.instrumentation import recorder
from promptpath.instrumentation.shims.engine.vllm.frontend import CHOICE_HEADER, SCOPE
from promptpath.semconv import Abort, Stage


class CoreRequest:
    """A request, from being queued until it is over. Times are monotonic [ns], 0 while not reached.

    Attributes:
        token_ns: when steps that gave it tokens were over.
        token_counts: tokens of each of these; empty while each gave one.
        proposed: draft tokens that steps have tried for it.
        ahead: requests that waited before it when it came.
        kv_start_ns, kv_end_ns: a connector loads its cache from elsewhere.
        unsettled: it is not in plain decode: it waits, is in prefill, or preempted.
    """

    __slots__ = (
        "_batch_from",
        "_cached_tokens",
        "_choice",
        "_chunks",
        "_headers",
        "_preempted",
        "_prefill_batch",
        "_prompt_tokens_left",
        "_request",
        "_waits_since_ns",
        "ahead",
        "kv_end_ns",
        "kv_start_ns",
        "proposed",
        "queued_ns",
        "scheduled_ns",
        "token_counts",
        "token_ns",
        "unsettled",
    )

    def __init__(self, queued_ns: int, request: Any) -> None:
        self._request = request
        self._headers: Mapping[str, str] = request.trace_headers or {}
        self._choice = self._headers.get(CHOICE_HEADER)
        self.queued_ns = queued_ns
        self.scheduled_ns = 0
        self.kv_start_ns = self.kv_end_ns = 0
        self.token_ns: list[int] = []
        self.token_counts: list[int] = []
        self.ahead = 0
        self.proposed = 0
        self.unsettled = True
        self._chunks: list[tuple[int, int]] = []
        self._preempted: list[tuple[int, int]] = []
        self._waits_since_ns = 0
        self._prompt_tokens_left = 0
        self._cached_tokens: int | None = None
        self._prefill_batch = 0
        self._batch_from = (0, 0)

    def scheduled(self, start_ns: int, tokens: int, batch: int) -> int:
        """A step works on it, while it is unsettled.

        Args:
            start_ns: of the step.
            tokens: of this request that the step computes.
            batch: requests in the step.

        Returns:
            How many of the tokens are of its prompt, for the first time.
        """
        if not self.scheduled_ns:
            self.scheduled_ns = start_ns
            self._cached_tokens = _cached_tokens(self._request)
            self._prompt_tokens_left = self._request.num_prompt_tokens - (self._cached_tokens or 0)
        if self._waits_since_ns:
            self._preempted.append((self._waits_since_ns, max(start_ns, self._waits_since_ns)))
            self._waits_since_ns = 0
        # A step may be planned before the one that ends the prefill is over: its token is no chunk.
        prompt_tokens = min(tokens, self._prompt_tokens_left)
        if prompt_tokens > 0:
            self._prompt_tokens_left -= prompt_tokens
            self._chunks.append((start_ns, prompt_tokens))
            self._prefill_batch = batch
        return max(prompt_tokens, 0)

    def passed_over(self, start_ns: int) -> None:
        """A step does not work on it; it may be waiting for its cache."""
        if not self.kv_start_ns and self._request.kv_transfer_params is not None:
            status = getattr(self._request.status, "name", "")
            if status == "WAITING_FOR_REMOTE_KVS":
                self.kv_start_ns = start_ns

    def preempted(self, now_ns: int) -> None:
        """It lost its place and waits for another."""
        self._waits_since_ns = now_ns
        self.unsettled = True

    def settle(self, steps: int, worked_on: int) -> bool:
        """It got tokens while unsettled; False if it remains so (tokens of a step from before it was preempted)."""
        if not self.token_ns:
            self._batch_from = (steps, worked_on)
            self._is_first()
        self.unsettled = bool(self._waits_since_ns)
        return not self.unsettled

    def count(self, tokens: int) -> None:
        """The step just appended gave it other than one token, or one of those before did."""
        self.token_counts.extend([1] * (len(self.token_ns) - 1 - len(self.token_counts)))
        self.token_counts.append(tokens)

    def over(self, end_ns: int, reason: str, steps: int, worked_on: int, *, asked_for: bool = True) -> None:
        """It is over: record its spans.

        Args:
            end_ns: when, monotonic [ns].
            reason: vLLM's finish reason (`stop`, `length`, `abort`, `error`, `repetition`).
            steps, worked_on: of the scheduler so far, as given to `settle`.
            asked_for: an abort that the API server asked for: the client has gone, or the answer is complete by a stop
                string, which the engine core cannot know. Otherwise the engine gives up all that it has.
        """
        if not self._headers:
            return
        parent = propagate.extract(self._headers)
        ended_early = reason in ("abort", "error")
        first_ns = self.token_ns[0] if self.token_ns else 0
        stages: list[tuple[Stage, int, int, dict[str, AttributeValue]]] = []
        if self._is_first():
            stages += self._way_to_first_token(first_ns or end_ns)
        if first_ns:
            stages.append((Stage.DECODE, first_ns, end_ns if ended_early else self.token_ns[-1], {}))
            batch_steps = steps - self._batch_from[0]
            if batch_steps:
                stages[-1][3][semconv.BATCH_SIZE] = round((worked_on - self._batch_from[1]) / batch_steps)
            if self.proposed:
                stages[-1][3][semconv.SPEC_PROPOSED] = self.proposed
                stages[-1][3][semconv.SPEC_ACCEPTED] = sum(self.token_counts) - len(self.token_counts)
        if not stages:
            return
        last = stages[-1][3]
        last[semconv.PREEMPTIONS] = self._request.num_preemptions
        if reason == "abort" and not asked_for:
            last[semconv.ABORT] = Abort.SERVER.value
        for stage, start_ns, stop_ns, attributes in stages:
            if lost := self._preempted_us(start_ns, stop_ns, end_ns):
                attributes[semconv.PREEMPTED_US] = lost
            span = recorder.start(
                stage.value, scope=SCOPE, stage=stage, parent=parent, attributes=attributes, start_mono_ns=start_ns
            )
            if stage is Stage.DECODE and span.recording:
                span.deliveries_mono_ns.extend(self.token_ns)
                if self.token_counts:
                    span.delivery_counts = self.token_counts
            if reason == "error" and attributes is last:
                span.fail("engine_error")
            span.end(end_mono_ns=max(stop_ns, start_ns))

    def _is_first(self) -> bool:
        """Whether the way to a first token is this request's: of n answers to one prompt, of the first to come."""
        if self._choice is None:
            return True
        return _first_choices.claim(self._headers.get("traceparent", ""), self)

    def _way_to_first_token(self, end_ns: int) -> list[tuple[Stage, int, int, dict[str, AttributeValue]]]:
        waited: dict[str, AttributeValue] = {semconv.QUEUE_POSITION: self.ahead}
        stages = [(Stage.QUEUE, self.queued_ns, self.kv_start_ns or self.scheduled_ns or end_ns, waited)]
        if self.kv_start_ns:
            stages.append((Stage.KV_TRANSFER, self.kv_start_ns, self.kv_end_ns or self.scheduled_ns or end_ns, {}))
        if self.scheduled_ns:
            done: dict[str, AttributeValue] = {}
            if self._prefill_batch:
                done[semconv.BATCH_SIZE] = self._prefill_batch
            if self._cached_tokens is not None:
                done[semconv.PREFIX_CACHE_HIT_TOKENS] = self._cached_tokens
            if len(self._chunks) > 1:
                done[semconv.PREFILL_CHUNKS] = tuple(
                    number for at_ns, tokens in self._chunks for number in ((at_ns - self.scheduled_ns) // 1000, tokens)
                )
            stages.append((Stage.PREFILL, self.scheduled_ns, end_ns, done))
        return stages

    def _preempted_us(self, start_ns: int, stop_ns: int, end_ns: int) -> tuple[int, ...]:
        """Offset from the start and duration of each wait after a preemption that began in a stage, microseconds."""
        waits = [*self._preempted]
        if self._waits_since_ns:
            waits.append((self._waits_since_ns, end_ns))
        return tuple(
            number
            for since_ns, until_ns in waits
            if start_ns <= since_ns < stop_ns
            for number in ((since_ns - start_ns) // 1000, (until_ns - since_ns) // 1000)
        )


def _cached_tokens(request: Any) -> int | None:
    """Prompt tokens that need not be computed; known once it is scheduled. Older releases count on the request."""
    stats = getattr(request, "prefill_stats", None)
    cached = getattr(request if stats is None else stats, "num_cached_tokens", -1)
    return int(cached) if cached >= 0 else None


class _FirstChoices:
    """Which of n answers to one prompt got its first token first; the newest prompts are remembered."""

    def __init__(self) -> None:
        self._first: OrderedDict[str, CoreRequest] = OrderedDict()

    def claim(self, prompt: str, request: CoreRequest) -> bool:
        """Whether it is the first; who asks first is."""
        first = self._first.setdefault(prompt, request)
        while len(self._first) > _REMEMBERED:
            self._first.popitem(last=False)
        return first is request


_REMEMBERED: Final = 4096
_first_choices: Final = _FirstChoices()
