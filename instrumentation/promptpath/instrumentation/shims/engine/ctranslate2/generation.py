"""One call of `generate_batch`: its tokens as they come, and the spans that it becomes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import monotonic_ns
from typing import Any, Final

from promptpath import semconv
from promptpath.instrumentation.live import LiveSpan
from promptpath.instrumentation.safety import guard, note_failure
from promptpath.instrumentation.shims import state, usage
from promptpath.instrumentation.shims.engine import calls, stages
from promptpath.instrumentation.shims.engine.batch import Tracked
from promptpath.instrumentation.shims.engine.ctranslate2.pool import Job, Pool
from promptpath.semconv import Abort

SCOPE: Final = "promptpath.ctranslate2"

Callback = Callable[[Any], Any]


class Generation(Tracked):
    """A call of `generate_batch`. Times are monotonic [ns].

    Args:
        start_ns: of the call.
        span: the server span of its request.
        owns: whether that span was made for this call.
        prompts: its start tokens.
        options: its keyword arguments.
        ends: tokens and ids that end an answer.
        pool: its generator's.

    Attributes:
        sequences: when the tokens of each answer came, by prompt and hypothesis; with those of the prompt that were
            computed one by one.
        watches: whether tokens come one by one.
        done_ns: when the last token came, or the call was over otherwise.
    """

    def __init__(
        self,
        start_ns: int,
        span: LiveSpan,
        prompts: list[list[str]],
        options: dict[str, Any],
        ends: frozenset[str | int],
        pool: Pool,
        *,
        owns: bool,
    ) -> None:
        super().__init__(start_ns)
        self.span = span
        self.owns = owns
        self.notes = state.of(span)
        self.watches = options.get("beam_size", 1) == 1 and not options.get("return_alternatives")
        self.sequences: dict[tuple[int, int], list[int]] = {}
        self.done_ns = 0
        self._ends = ends
        self._pool = pool
        self._before: list[Job] = []
        self._hypotheses: int = options.get("num_hypotheses", 1)
        self._left = len(prompts) * self._hypotheses
        self._limit: int = options.get("max_length", 512)
        self._batch = self._left if not 0 < options.get("max_batch_size", 0) < len(prompts) else 0
        # The first token of a prompt starts the decoder; the others it is made to compute.
        self._lengths = [len(prompt) for prompt in prompts]
        self._includes_prompt = bool(options.get("include_prompt_in_result", True))
        self._forced = [max(0, length - 1) if self._includes_prompt else 0 for length in self._lengths]
        self._input_tokens = sum(self._lengths) + len(prompts) * len(options.get("static_prompt") or ())
        self._first_key: tuple[int, int] | None = None
        self._given: int | None = None
        self._untaken = 0
        self._at_the_end = calls.AtTheEnd(self.notes)
        self._reasons: dict[tuple[int, int], str | None] = {}
        self._stopped = False
        self._is_described = False
        self._is_over = False

    def queue(self) -> None:
        """It is about to be handed to the generator."""
        self._before = self._pool.add(self)
        if len(self._before) >= self._pool.workers:
            self.ahead = len(self._before) - self._pool.workers

    # -- tokens, in the generator's thread -----------------------------------------------------------------------------

    def callback(self, theirs: Callback | None, *, ends_here: bool) -> Callback:
        """What `generate_batch` is to call for each token.

        Args:
            theirs: the program's own callback, which is called with the same, and whose answer counts.
            ends_here: whether the call is over with its last token (an asynchronous one).
        """
        one = self._left == 1
        first_forced = self._forced[0]
        marks = self.owns and theirs is not None
        only = self.sequences.setdefault((0, 0), []) if one else []

        def quick(step: Any) -> bool:
            only.append(monotonic_ns())
            if step.is_last:
                with guard("ctranslate2.token"):
                    self._last(step, only, only[-1])
                    if ends_here:
                        self.over(only[-1], None)
            return False

        if one and theirs is None:
            return quick

        def see(step: Any) -> bool:
            """Whether it is a token of an answer that the program is given now."""
            now_ns = monotonic_ns()
            times = only if one else self._of(step)
            times.append(now_ns)
            if step.is_last:
                self._last(step, times, now_ns)
            if theirs is None:
                return False
            is_answer = len(times) > (first_forced if one else self._forced[step.batch_id])
            if is_answer and not self.notes.first_token_mono_ns:
                self.notes.first_token_mono_ns = now_ns
            return is_answer

        def call(step: Any) -> Any:
            is_answer = False
            try:
                is_answer = see(step)
            except Exception as error:
                note_failure("ctranslate2.token", error)
            stop: Any = False
            if theirs is not None:
                try:
                    stop = theirs(step)
                except BaseException as error:
                    if ends_here:
                        self._end(error)
                    raise
                if marks and is_answer and (one or self._is_first(step)):
                    self.span.mark()
            if stop and not step.is_last:
                self._stop(step)
            if ends_here and not self._left:
                self._end(None)
            return stop

        return call

    def _of(self, step: Any) -> list[int]:
        key = (step.batch_id, step.hypothesis_id)
        times = self.sequences.get(key)
        return times if times is not None else self.sequences.setdefault(key, [])

    def _is_first(self, step: Any) -> bool:
        """Whether it is of the answer that came first."""
        return self._first() == (step.batch_id, step.hypothesis_id)

    def _first(self) -> tuple[int, int] | None:
        if self._first_key is not None:
            return self._first_key
        began = [
            (times[self._forced[key[0]]], key)
            for key, times in list(self.sequences.items())
            if len(times) > self._forced[key[0]]
        ]
        if began:
            self._first_key = min(began)[1]
        return self._first_key

    def _last(self, step: Any, times: list[int], now_ns: int) -> None:
        """An answer is complete, and whoever waits for that does not know it yet."""
        key = (step.batch_id, step.hypothesis_id)
        if step.token in self._ends or step.token_id in self._ends:
            reason: str | None = "stop"
        elif len(times) < self._limit:
            reason = "stop"  # by an end that we do not know of
        else:
            reason = "length" if self._ends else None
        self._finish(key, reason, now_ns)

    def _stop(self, step: Any) -> None:
        """The program wants no more of an answer."""
        with guard("ctranslate2.stop"):
            self._stopped = True
            self._finish((step.batch_id, step.hypothesis_id), "stop", monotonic_ns())

    def _finish(self, key: tuple[int, int], reason: str | None, now_ns: int) -> None:
        if key in self._reasons:
            return
        self._reasons[key] = reason
        self._left -= 1
        if not self._left:
            self.done_ns = now_ns
            self.describe()

    # -- the end -------------------------------------------------------------------------------------------------------

    def _end(self, error: BaseException | None) -> None:
        with guard("ctranslate2.end"):
            self.over(monotonic_ns(), error)

    def results(self, results: list[Any], *, taken: bool) -> None:
        """The generator has answered: with results, or (asynchronously) with what results can be taken from.

        Args:
            results: one for each prompt.
            taken: whether they are results.
        """
        if taken and not self.watches:
            self._given = sum(map(self._tokens_of, range(len(results)), results))
        if taken or not results:
            self.over(monotonic_ns(), None)
        self._untaken = len(results)

    def taken(self, row: int, result: Any) -> None:
        """The result of a prompt of an asynchronous call has been taken. The last ends a call that was not watched."""
        if self.watches:
            return
        self._given = (self._given or 0) + self._tokens_of(row, result)
        self._untaken -= 1
        if self._untaken <= 0:
            self.over(monotonic_ns(), None)

    def _tokens_of(self, row: int, result: Any) -> int:
        """Tokens of a result's answers, without the prompt."""
        front = self._lengths[row] if self._includes_prompt else 0
        return sum(len(ids) - front for ids in result.sequences_ids)

    def over(self, end_ns: int, error: BaseException | None) -> None:
        """The call is over: say what was seen, once.

        Args:
            end_ns: when.
            error: what it raised.
        """
        if self._is_over:
            return
        self._is_over = True
        self.done_ns = self.done_ns or end_ns
        self._pool.remove(self)
        failure = type(error).__qualname__ if error is not None else None
        abort = Abort.CLIENT.value if self._stopped and self.notes.disconnected else None
        self._settle()
        self._before = []
        if self.first_token_ns:
            self._at_the_end.call_is_over(
                partial(
                    stages.record,
                    self,
                    self.span,
                    self.notes,
                    SCOPE,
                    end_ns=end_ns,
                    queued=self.ahead is not None,
                    abort=abort,
                    error=failure,
                )
            )
        elif not self.owns:
            calls.whole_call(SCOPE, self.span, "generate_batch", self.added_ns, end_ns, failure)
        self.describe()
        if self.owns:
            if failure is not None:
                self.span.fail(failure)
            self.span.end(end_mono_ns=end_ns)

    def _settle(self) -> None:
        """When tokens were computed: of several answers, of the one that came first."""
        key = self._first()
        if key is None:
            return
        self.token_ns = self.sequences[key][self._forced[key[0]] :]
        self.token_counts = [1] * len(self.token_ns)
        self.first_token_ns, self.last_token_ns = self.token_ns[0], self.token_ns[-1]
        seen_ns = min(times[0] for times in self.sequences.values() if times)
        self.scheduled_ns = min(self._pool.taken_up_ns(self, self._before), seen_ns)
        self.prefill_batch = self._batch
        if self._batch:
            self.decode_batch_sum = self._output_tokens() - len(self.sequences)

    def _output_tokens(self) -> int:
        return sum(max(0, len(times) - self._forced[key[0]]) for key, times in self.sequences.items())

    def describe(self) -> None:
        """Usage, limits and finish reasons on the request, where nobody has said them; once."""
        if self._is_described or self.span.ended:
            return
        self._is_described = True
        attributes = self.span.attributes
        if len(set(self._forced)) == 1:
            attributes.setdefault(semconv.GEN_AI_REQUEST_MAX_TOKENS, max(0, self._limit - self._forced[0]))
        if self._hypotheses > 1:
            attributes.setdefault(semconv.GEN_AI_REQUEST_CHOICE_COUNT, self._hypotheses)
        reasons = [self._reasons[key] for key in sorted(self._reasons)]
        known = tuple(reason for reason in reasons if reason is not None)
        if known and not self._left and len(known) == len(reasons) and not self.notes.disconnected:
            attributes.setdefault(semconv.GEN_AI_RESPONSE_FINISH_REASONS, known)
        usage.add(self.span, self._input_tokens, self._output_tokens() if self.watches else self._given)
