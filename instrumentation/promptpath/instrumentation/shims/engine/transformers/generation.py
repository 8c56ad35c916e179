"""One call of `generate`: its steps as they happen, and the spans that it becomes."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from time import monotonic_ns
from typing import Any, Final

import wrapt
from opentelemetry import context as context_api
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.util.types import AttributeValue

from promptpath import semconv
from promptpath.instrumentation import recorder
from promptpath.instrumentation.live import LiveSpan
from promptpath.instrumentation.safety import guard, note_failure
from promptpath.instrumentation.shims import role, state, usage
from promptpath.instrumentation.shims.engine import calls, stages
from promptpath.instrumentation.shims.engine.batch import Tracked
from promptpath.instrumentation.shims.engine.transformers import outcome
from promptpath.instrumentation.wrapping import unwrap_all, wrap
from promptpath.semconv import Abort

SCOPE: Final = "promptpath.transformers"

_UTILS: Final = "transformers.generation.utils"
#: The loops, and what of them is known: tokens one by one, none before the end, or several at a time.
_LOOPS: Final = {"_sample": "sample", "_beam_search": "beam", "_assisted_decoding": "assisted"}

#: The call that the code at hand works for; `_ASIDE` where what it does is not to be looked at.
_current: ContextVar[Generation | object | None] = ContextVar("promptpath-transformers-generation", default=None)
_ASIDE: Final = object()
#: When the request at hand was handed to the thread that generates, monotonic [ns]; set by `serving.py`.
submitted_ns: Final[ContextVar[int]] = ContextVar("promptpath-transformers-submitted", default=0)
#: The request in which a streamer was made: `generate` mostly runs in a thread that knows nothing of it.
_made_in: Final[weakref.WeakKeyDictionary[Any, Context]] = weakref.WeakKeyDictionary()


def wrap_all() -> None:
    """Put the shim on."""
    wrap(_UTILS, "GenerationMixin.generate", _generate)
    wrap(_UTILS, "GenerationMixin._has_unfinished_sequences", _step)
    for method, kind in _LOOPS.items():
        wrap(_UTILS, f"GenerationMixin.{method}", _loop(kind))
    wrap("transformers.generation.streamers", "TextStreamer.__init__", _streamer_made)


def unwrap() -> None:
    """Take it off."""
    unwrap_all()


class Generation(Tracked):
    """A call of `generate`. Times are monotonic [ns].

    Args:
        start_ns: of the call.
        span: the server span of its request.
        given: its arguments by name.
        owns: whether that span was made for this call.

    Attributes:
        loop: the kind of loop that makes its tokens, once it runs; "" for one that is not known.
        step_ns: each time the loop asked whether to go on; the first time before its first step.
        put_ns, put_counts: when its streamer got tokens; how many each time, where that may be other than one.
    """

    def __init__(self, start_ns: int, span: LiveSpan, given: dict[str, Any], *, owns: bool) -> None:
        super().__init__(start_ns)
        self.scheduled_ns = start_ns
        self.span = span
        self.given = given
        self.owns = owns
        self.notes = state.of(span)
        self.loop = ""
        self.streams = False
        self.step_ns: list[int] = []
        self.put_ns: list[int] = []
        self.put_counts: list[int] = []
        self._prompt_length = 0
        self._rows = 0
        self._config: Any = None
        self._last_put: Any = None
        self._is_described = False
        self._at_the_end = calls.AtTheEnd(self.notes)

    def enter_loop(self, kind: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """The loop that makes tokens begins."""
        self.loop = kind
        input_ids = args[0] if args else kwargs["input_ids"]
        self._rows, self._prompt_length = (int(size) for size in input_ids.shape)
        self._config = kwargs.get("generation_config")

    def put(self, tokens: Any) -> int:
        """The streamer gets tokens; how many for one answer. None count before the loop: these are the prompt's."""
        now_ns = monotonic_ns()
        if not self.loop:
            return 0
        self.put_ns.append(now_ns)
        self._last_put = tokens
        count = 1
        if self.loop == "assisted":
            count = int(tokens.numel())
            self.put_counts.append(count)
        if not self.notes.first_token_mono_ns:
            self.notes.first_token_mono_ns = now_ns
        return count

    def streamed(self) -> None:
        """The streamer is about to hear that it has all. Whoever waits for that may end the request at once."""
        if self._rows == 1 and self.put_ns:
            tokens = sum(self.put_counts) or len(self.put_ns)
            self._describe(outcome.of_stream(self._last_put, tokens, self._prompt_length, self._config))

    def over(self, end_ns: int, result: Any, error: BaseException | None) -> None:
        """The call is over: say what was seen.

        Args:
            end_ns: when.
            result, error: what it returned, or raised.
        """
        answer: outcome.Outcome | None = None
        if error is None and self.loop:
            with guard("transformers.outcome"):
                answer = outcome.read(result, self._prompt_length, self._config)
        abort, failure = self._why(error)
        self._settle(answer)
        # A call that went well and whose steps were not seen has no stages that we know of.
        if self.loop and (self.first_token_ns or error is not None):
            self._at_the_end.call_is_over(
                partial(
                    stages.record,
                    self,
                    self.span,
                    self.notes,
                    SCOPE,
                    end_ns=end_ns,
                    queued=self.added_ns != self.scheduled_ns,
                    abort=abort,
                    error=failure,
                )
            )
        elif not self.owns:
            calls.whole_call(SCOPE, self.span, "generate", self.added_ns, end_ns, failure)
        with guard("transformers.describe"):
            self._describe(answer)
        if self.owns:
            if failure is not None:
                self.span.fail(failure)
            if abort is not None:
                self.span.set(semconv.ABORT, abort)
            self.span.end(end_mono_ns=end_ns)

    def _why(self, error: BaseException | None) -> tuple[str | None, str | None]:
        """`promptpath.abort` and `error.type` of a call that raised."""
        if error is None:
            return None, None
        name = type(error).__qualname__
        if isinstance(error, (asyncio.CancelledError, KeyboardInterrupt, GeneratorExit)) or "Cancel" in name:
            # A streamer raises to stop the loop when nobody listens any more.
            return Abort.CLIENT.value, None
        return None, name

    def _settle(self, answer: outcome.Outcome | None) -> None:
        """When tokens were computed, from what the loop and the streamer said."""
        times = self.put_ns if self.streams else self.step_ns[1:]
        if not times or not self.loop:
            return
        self.first_token_ns, self.last_token_ns = times[0], times[-1]
        counts = self.put_counts or [1] * len(times)
        if self.loop == "sample" and answer is not None and answer.longest:
            # Processes that work in step go on until all have finished.
            times, counts = times[: answer.longest], counts[: answer.longest]
            self.last_token_ns = times[-1]
        self.prefill_batch = batch = self._batch
        self.decode_batch_sum = batch * (len(times) - 1)
        if self.loop == "sample" or self.put_counts:
            self.token_ns, self.token_counts = times, counts

    @property
    def _batch(self) -> int:
        """Sequences that a step works on; the beams of one are one."""
        beams = getattr(self._config, "num_beams", 1) or 1
        return max(1, self._rows // beams) if self.loop == "beam" else self._rows

    def _describe(self, answer: outcome.Outcome | None) -> None:
        """Usage, limits and finish reasons, where nobody has said them; once."""
        if self.span.ended or self._is_described:
            return
        self._is_described = True
        attributes: dict[str, AttributeValue] = dict(outcome.limits(self._config, self._prompt_length))
        if answer is not None and answer.reasons is not None:
            attributes[semconv.GEN_AI_RESPONSE_FINISH_REASONS] = answer.reasons
        for name, value in attributes.items():
            self.span.attributes.setdefault(name, value)
        usage.add(
            self.span,
            outcome.input_tokens(self.given),
            sum(answer.tokens) if answer is not None else (sum(self.token_counts) or None),
        )


# --- the call ---------------------------------------------------------------------------------------------------------

#: The arguments of `generate` that are looked at, by place.
_NAMES: Final = (
    "inputs",
    "generation_config",
    "logits_processor",
    "stopping_criteria",
    "prefix_allowed_tokens_fn",
    "synced_gpus",
    "assistant_model",
    "streamer",
)


def _generate(wrapped: Callable[..., Any], model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    start_ns = monotonic_ns()
    outer = _current.get()
    if outer is not None:
        return _inner(outer, wrapped, args, kwargs)
    call: Generation | None = None
    context: Context | None = None
    with guard("transformers.generate"):
        role.engine_is_here(SCOPE)
        given = dict(zip(_NAMES, args, strict=False)) | kwargs
        call, context = _begin(model, given, start_ns)
        if call is not None and call.streams:
            args, kwargs = _with_streamer(call, args, kwargs)
    if context is None:
        return wrapped(*args, **kwargs)
    current = _current.set(call or _ASIDE)
    attached = context_api.attach(context)
    try:
        result = wrapped(*args, **kwargs)
    except BaseException as error:
        if call is not None:
            _end(call, None, error)
        raise
    finally:
        recorder.detach(attached)
        _current.reset(current)
    if call is not None:
        _end(call, result, None)
    return result


def _inner(outer: object, wrapped: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call within a call: it goes on with the work (a strategy that lies elsewhere), or it is an assistant's."""
    if not isinstance(outer, Generation) or not outer.loop:
        return wrapped(*args, **kwargs)
    token = _current.set(_ASIDE)
    try:
        return wrapped(*args, **kwargs)
    finally:
        _current.reset(token)


def _begin(model: Any, given: dict[str, Any], start_ns: int) -> tuple[Generation | None, Context]:
    """The call as one to follow, None if it is not to be recorded; and the context to work in."""
    streams = given.get("streamer") is not None
    base = _context(given.get("streamer"))
    span, owns = calls.server_span(SCOPE, outcome.model_name(model), base, streams=streams, start_ns=start_ns)
    if owns:
        base = span.context
    if not span.recording:
        return None, base
    call = Generation(start_ns, span, given, owns=owns)
    if not owns:
        call.added_ns = min(submitted_ns.get() or start_ns, start_ns)
    call.streams = streams
    call.notes.end_parse(start_ns)
    return call, base


def _context(streamer: Any) -> Context:
    """The current context; where there is nothing in it, that in which the streamer was made."""
    current = context_api.get_current()
    if streamer is None or trace.get_current_span(current).get_span_context().is_valid:
        return current
    with guard("transformers.streamer"):
        return _made_in.get(streamer, current)
    return current


def _end(call: Generation, result: Any, error: BaseException | None) -> None:
    end_ns = monotonic_ns()
    with guard("transformers.generate"):
        call.over(end_ns, result, error)


# --- steps ------------------------------------------------------------------------------------------------------------


def _step(wrapped: Callable[..., Any], _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    result = wrapped(*args, **kwargs)
    call = _current.get()
    if type(call) is Generation:
        call.step_ns.append(monotonic_ns())
    return result


def _loop(kind: str) -> Callable[..., Any]:
    def loop(wrapped: Callable[..., Any], _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        call = _current.get()
        if isinstance(call, Generation) and not call.loop:
            with guard("transformers.loop"):
                call.enter_loop(kind, args, kwargs)
        return wrapped(*args, **kwargs)

    return loop


# --- streamers --------------------------------------------------------------------------------------------------------


class _Streamer(wrapt.ObjectProxy):  # type: ignore[type-arg]
    """A streamer that says when it gets tokens, and is otherwise the one that was given."""

    def __init__(self, streamer: Any, call: Generation) -> None:
        super().__init__(streamer)
        self._self_call = call

    def put(self, value: Any) -> Any:
        call: Generation = self._self_call
        count = 0
        try:
            count = call.put(value)
        except Exception as error:
            note_failure("transformers.put", error)
        result = self.__wrapped__.put(value)
        if call.owns and count:
            call.span.mark(count)
        return result

    def end(self) -> Any:
        with guard("transformers.end"):
            self._self_call.streamed()
        return self.__wrapped__.end()


def _with_streamer(
    call: Generation, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The call's arguments, with the streamer under observation."""
    place = _NAMES.index("streamer")
    if len(args) > place:
        return (*args[:place], _Streamer(args[place], call), *args[place + 1 :]), kwargs
    return args, kwargs | {"streamer": _Streamer(kwargs["streamer"], call)}


def _streamer_made(wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    result = wrapped(*args, **kwargs)
    with guard("transformers.streamer"):
        remember(instance)
    return result


def remember(streamer: Any) -> None:
    """A streamer is made: the request at hand, if there is one, is what it streams for."""
    if recorder.request_span() is not None:
        _made_in[streamer] = context_api.get_current()
