"""An inference engine: continuous batching, step by step.

Each step works on every running sequence: a decode step makes a token (with speculative decoding, some), a prefill
takes as much of the prompt as the step's token budget still allows. Sequences wait until there is room among the
running ones and in the KV cache; where the cache runs out in mid-decode, the youngest running sequence is thrown out
and computed anew later. A prompt whose beginning this engine has seen before starts with those tokens cached.
"""

from __future__ import annotations

import random
from collections import OrderedDict, deque
from dataclasses import dataclass, field

from promptpath.collector.simulate.kernel import NEVER, Kernel, Signal
from promptpath.collector.simulate.service_times import ServiceTimes


@dataclass(frozen=True)
class EngineSpec:
    """What an engine is like.

    max_sequences: run at once. token_budget: per step. blocks: of the KV cache, `block_tokens` each. step_ms: of a
    step, whatever is in it; prefill_us, decode_us: added per token computed. speculate: tokens proposed per step and
    sequence. queue_limit: of those waiting; more are refused.
    """

    model: str
    max_sequences: int = 48
    token_budget: int = 1024
    blocks: int = 2400
    block_tokens: int = 16
    step_ms: float = 7.0
    prefill_us: float = 50.0
    decode_us: float = 120.0
    speculate: int = 0
    accept: float = 0.7
    prefixes: int = 24
    queue_limit: int = 400


@dataclass(eq=False, slots=True)
class Sequence:
    """One sequence in an engine; instants in true time [ns], 0 until they come.

    known: prompt and generated tokens; computed: of these, those in the cache. target: tokens to make. times, counts:
    of the tokens made. over: fired when it is over, for whatever reason. transfer_ns: instead of a prefill, its cache
    comes from another engine in so long. siblings: other choices of the same prompt, begun with its first token.
    """

    model: str
    prompt_tokens: int
    target: int
    over: Signal
    prefix: int = -1
    prefix_tokens: int = 0
    transfer_ns: int = 0
    queued_ns: int = 0
    ahead: int = 0
    scheduled_ns: int = 0
    transferred_ns: int = 0
    first_ns: int = 0
    last_ns: int = 0
    ended_ns: int = 0
    cached: int = 0
    computed: int = 0
    made: int = 0
    blocks: int = 0
    batch: int = 0
    times: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    siblings: list[Sequence] = field(default_factory=list)
    preemptions: int = 0
    preempted_us: list[int] = field(default_factory=list)
    preempted_at_ns: int = 0
    chunks: list[int] = field(default_factory=list)
    proposed: int = 0
    accepted: int = 0
    is_over: bool = False
    complete: bool = False


class Engine:
    """One engine in a kernel."""

    def __init__(self, kernel: Kernel, spec: EngineSpec, times: ServiceTimes, rng: random.Random) -> None:
        self.spec = spec
        self._kernel = kernel
        self._times = times
        self._rng = rng
        self._waiting: deque[Sequence] = deque()
        self._running: list[Sequence] = []
        self._free = spec.blocks
        self._busy = False
        self._transferring = 0
        self._prefixes: OrderedDict[int, int] = OrderedDict()

    @property
    def load(self) -> int:
        """Sequences it has."""
        return len(self._waiting) + len(self._running) + self._transferring

    @property
    def full(self) -> bool:
        """Whether it refuses more."""
        return len(self._waiting) >= self.spec.queue_limit

    def submit(self, sequence: Sequence, cancel_at_ns: int) -> Signal:
        """Queue a sequence; the signal fires when it is done, or cancelled at an instant before."""
        now = self._kernel.now
        sequence.queued_ns = now
        sequence.ahead = len(self._waiting)
        self._waiting.append(sequence)
        if cancel_at_ns < NEVER:
            self._kernel.at(cancel_at_ns, self._cancel, sequence)
        self._begin()
        return sequence.over

    def _cancel(self, sequence: Sequence) -> None:
        for one in (sequence, *sequence.siblings):
            if not one.is_over:
                self._end(one, complete=False)

    def _end(self, sequence: Sequence, *, complete: bool) -> None:
        sequence.is_over = True
        sequence.complete = complete
        sequence.ended_ns = self._kernel.now
        self._free += sequence.blocks
        sequence.blocks = 0
        sequence.over.fire()

    # -- steps ---------------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Begin a step, unless one is going on or there is nothing to do."""
        if self._busy:
            return
        plan, prefilled = self._plan()
        if not plan:
            return
        self._busy = True
        spec, now = self.spec, self._kernel.now
        decoding = len(plan)
        work = spec.step_ms * 1000 + prefilled * spec.prefill_us + decoding * spec.decode_us
        work *= self._rng.lognormvariate(0.0, 0.05)
        work *= self._times.factor("prefill" if prefilled else "decode", now, spec.model)
        self._kernel.at(now + int(work * 1000), self._finish, plan)

    def _plan(self) -> tuple[list[tuple[Sequence, int]], int]:
        """What the next step computes: (sequence, tokens), and how many tokens of these are prefill."""
        spec, now = self.spec, self._kernel.now
        running = self._running = [one for one in self._running if not one.is_over]
        budget = spec.token_budget
        plan: list[tuple[Sequence, int]] = []
        prefilled = 0
        size = spec.block_tokens
        index = 0
        while index < len(running) and budget > 0:
            one = running[index]
            todo = one.prompt_tokens + one.made - one.computed
            tokens = todo if todo < budget else budget
            wanted = -(-(one.computed + tokens) // size) - one.blocks
            while wanted > self._free and len(running) > index:
                self._preempt(running.pop())
            if len(running) <= index:
                break
            if wanted > 0:
                one.blocks += wanted
                self._free -= wanted
            plan.append((one, tokens))
            budget -= tokens
            if tokens > 1:
                prefilled += tokens
            index += 1
        while self._waiting and budget > 0 and len(running) + self._transferring < spec.max_sequences:
            one = self._waiting[0]
            if one.is_over:
                self._waiting.popleft()
                continue
            first = not one.scheduled_ns
            if first and not one.transfer_ns:
                one.cached = one.computed = self._cached(one)
            known = one.prompt_tokens + one.made
            # All of it must fit, or two long prompts would throw each other out for ever.
            if -(-(known + 1) // size) > self._free:
                break
            self._waiting.popleft()
            if first:
                one.scheduled_ns = now
            elif one.first_ns:
                one.preempted_us += ((one.preempted_at_ns - one.first_ns) // 1000, (now - one.preempted_at_ns) // 1000)
            if first and one.transfer_ns:
                self._take_over(one)
                continue
            tokens = min(known - one.computed, budget)
            one.blocks = -(-(one.computed + tokens) // size)
            self._free -= one.blocks
            one.chunks += ((now - one.scheduled_ns) // 1000, tokens)
            running.append(one)
            plan.append((one, tokens))
            budget -= tokens
            prefilled += tokens
        return plan, prefilled

    def _cached(self, sequence: Sequence) -> int:
        """Prompt tokens that need not be computed; the last always must be."""
        if sequence.prefix < 0:
            return 0
        prefixes = self._prefixes
        hit = prefixes.get(sequence.prefix, 0)
        prefixes[sequence.prefix] = sequence.prefix_tokens
        prefixes.move_to_end(sequence.prefix)
        if len(prefixes) > self.spec.prefixes:
            prefixes.popitem(last=False)
        return min(hit, sequence.prefix_tokens, sequence.prompt_tokens - 1)

    def _preempt(self, sequence: Sequence) -> None:
        self._free += sequence.blocks
        sequence.blocks = sequence.computed = 0
        sequence.preemptions += 1
        sequence.preempted_at_ns = self._kernel.now
        self._waiting.appendleft(sequence)

    def _take_over(self, sequence: Sequence) -> None:
        """Fetch a sequence's cache from where it was prefilled; its first token comes along."""
        sequence.blocks = -(-(sequence.prompt_tokens + 1) // self.spec.block_tokens)
        self._free -= sequence.blocks
        self._transferring += 1
        self._kernel.at(self._kernel.now + sequence.transfer_ns, self._taken_over, sequence)

    def _taken_over(self, sequence: Sequence) -> None:
        self._transferring -= 1
        if sequence.is_over:
            return
        sequence.transferred_ns = self._kernel.now
        sequence.computed = sequence.prompt_tokens
        self._token(sequence, 1, self._kernel.now)
        if not sequence.is_over:
            self._running.append(sequence)
        self._begin()

    def _finish(self, plan: list[tuple[Sequence, int]]) -> None:
        """A step is over: tokens are there."""
        self._busy = False
        now = self._kernel.now
        speculate = self.spec.speculate
        batch = len(plan)
        for one, tokens in plan:
            if one.is_over:
                continue
            one.computed += tokens
            if one.computed < one.prompt_tokens + one.made:
                continue
            one.batch = batch
            made = 1
            if speculate and one.made:
                while made <= speculate and self._rng.random() < self.spec.accept:
                    made += 1
                one.proposed += speculate
                one.accepted += made - 1
            self._token(one, made, now)
        self._begin()

    def _token(self, sequence: Sequence, made: int, now: int) -> None:
        if not sequence.target:
            sequence.first_ns = sequence.last_ns = now
            self._end(sequence, complete=True)
            return
        made = min(made, sequence.target - sequence.made)
        if not sequence.made:
            sequence.first_ns = now
            for other in sequence.siblings:
                other.scheduled_ns = other.queued_ns = now
                other.computed = sequence.prompt_tokens - 1
                self._running.append(other)
        sequence.made += made
        sequence.computed = sequence.prompt_tokens + sequence.made - 1
        sequence.times.append(now)
        sequence.counts.append(made)
        sequence.last_ns = now
        if sequence.made >= sequence.target:
            self._end(sequence, complete=True)
