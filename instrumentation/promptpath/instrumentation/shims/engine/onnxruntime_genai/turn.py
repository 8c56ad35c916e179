"""One prompt given to a generator and the answer to it, and the spans that they become."""

from __future__ import annotations

from functools import partial
from typing import Any

from opentelemetry.util.types import AttributeValue

from promptpath import semconv
from promptpath.instrumentation.live import LiveSpan
from promptpath.instrumentation.shims import state, usage
from promptpath.instrumentation.shims.engine import calls, stages
from promptpath.instrumentation.shims.engine.batch import Tracked
from promptpath.instrumentation.shims.engine.onnxruntime_genai import text
from promptpath.instrumentation.shims.engine.onnxruntime_genai.models import SCOPE
from promptpath.semconv import Abort


class Turn(Tracked):
    """A prompt and its answer. Times are monotonic [ns].

    Args:
        start_ns: when the prompt was appended.
        span: the server span of its request.
        owns: whether that span was made for this turn.
        options: the generator's search options.

    Attributes:
        rows: prompts.
        before: tokens of each sequence that precede the answer, with those of the turns before.
        appended_ns: when the prompt had been computed.
        is_over: it has been recorded, or will be when the request's answer is sent.
    """

    def __init__(self, start_ns: int, span: LiveSpan, options: dict[str, Any], *, owns: bool) -> None:
        super().__init__(start_ns)
        self.scheduled_ns = start_ns
        self.span = span
        self.owns = owns
        self.notes = state.of(span)
        self.before = 0
        self.appended_ns = start_ns
        self._input_tokens = 0
        self._options = options
        self.rows = max(1, int(options.get("batch_size") or 1))
        self._at_the_end = calls.AtTheEnd(self.notes)
        self.is_over = False
        if self.notes.closes:
            # Its generator may be kept for longer than the request lasts.
            self.notes.at_end.append(self.over)

    @property
    def beams(self) -> int:
        """Beams of each answer."""
        return int(self._options.get("num_beams") or 1)

    @property
    def sequences(self) -> int:
        """Answers."""
        return self.rows * int(self._options.get("num_return_sequences") or 1)

    @property
    def limit(self) -> int:
        """Tokens that a sequence may have, with the prompt; 0 if not known."""
        return int(self._options.get("max_length") or 0)

    @property
    def is_plain(self) -> bool:
        """One answer, whose tokens are settled one by one: how many there are is known without looking at them."""
        return self.sequences == self.beams == 1

    def appended(self, tokens: int) -> None:
        """So many tokens of prompts have been appended."""
        self._input_tokens += tokens

    def over(
        self,
        end_ns: int = 0,
        answers: list[int] | None = None,
        reasons: tuple[str, ...] = (),
        error: BaseException | None = None,
    ) -> None:
        """The turn is over: say what was seen, once.

        Args:
            end_ns: when; 0 for when something of it was last seen.
            answers: tokens of each answer; None if all the tokens computed are of its one.
            reasons: why each answer ended; none if not known.
            error: what it failed with.
        """
        if self.is_over:
            return
        self.is_over = True
        self.token_ns = list(self.token_ns)  # its generator may go on all the same
        if answers is None and self.is_plain:
            answers = [len(self.token_ns)]
        if self.token_ns:
            self.first_token_ns, self.last_token_ns = self.token_ns[0], self.token_ns[-1]
        self.prefill_batch = self.rows
        self.decode_batch_sum = self.rows * max(0, len(self.token_ns) - 1)
        if self.beams > 1:
            self.token_ns = []
        self.token_counts = [1] * len(self.token_ns)
        end_ns = end_ns or max(self.last_token_ns, self.notes.first_text_mono_ns, self.appended_ns)
        failure = type(error).__qualname__ if error is not None else None
        self._describe(answers, reasons)
        abort = Abort.CLIENT.value if self.notes.disconnected and not reasons and failure is None else None
        self._at_the_end.call_is_over(partial(self._record, end_ns, abort, failure))
        if self.owns:
            self.span.deliveries_mono_ns.extend(self.token_ns)
            if failure is not None:
                self.span.fail(failure)
            self.span.end(end_mono_ns=end_ns)

    def _record(self, end_ns: int, abort: str | None, failure: str | None) -> None:
        text.wait_no_more(self.notes)
        stages.record(self, self.span, self.notes, SCOPE, end_ns=end_ns, queued=False, abort=abort, error=failure)

    def _describe(self, answers: list[int] | None, reasons: tuple[str, ...]) -> None:
        """Usage, limits and finish reasons on the request, where nobody has said them."""
        if self.span.ended:
            return
        options, attributes = self._options, self.span.attributes
        said: dict[str, AttributeValue] = {}
        if self.limit:
            said[semconv.GEN_AI_REQUEST_MAX_TOKENS] = max(0, self.limit - self.before)
        if options.get("do_sample"):
            said[semconv.GEN_AI_REQUEST_TEMPERATURE] = float(options.get("temperature", 1.0))
            said[semconv.GEN_AI_REQUEST_TOP_P] = float(options.get("top_p", 1.0))
        if self.sequences > self.rows:
            said[semconv.GEN_AI_REQUEST_CHOICE_COUNT] = self.sequences // self.rows
        if reasons and not self.notes.disconnected:
            said[semconv.GEN_AI_RESPONSE_FINISH_REASONS] = reasons
        for name, value in said.items():
            attributes.setdefault(name, value)
        usage.add(self.span, self._input_tokens, sum(answers) if answers is not None else None)
