"""OpenVINO GenAI's `ContinuousBatchingPipeline` and `Tokenizer`: what a server built on them does with a request.

The request is the server span in whose context `add_request` is called. Stages below it:

- `parse` (the chat template) and `tokenize`, timed;
- `queue`: from `add_request` to the start of the first step that works on the request;
- `prefill`: from there to the first token computed, by the pipeline's own clock for tokens (the same monotonic
  clock);
- `decode`: first to last token computed, with each token's time from the same source;
- `detokenize`: first token computed until `Tokenizer.decode` has given its text; that includes handing the token over
  to the thread or event loop that decodes it. What follows (`stream`) is the ASGI shim's.

A pipeline's steps become metrics `promptpath.engine.*`. `step` keeps Python's interpreter lock, so that nothing else
of the process runs during a step; what waits for that shows in the stage that waits.
"""

from __future__ import annotations

import sys
import weakref
from collections import deque
from collections.abc import Callable, Collection
from functools import partial
from time import monotonic_ns
from typing import Any, ClassVar, Final

from opentelemetry.instrumentation.instrumentor import BaseInstrumentor  # type: ignore[attr-defined]

from promptpath import semconv
from promptpath.instrumentation import recorder
from promptpath.instrumentation.live import LiveSpan
from promptpath.instrumentation.safety import guard, note_failure
from promptpath.instrumentation.shims import genai, role, state
from promptpath.instrumentation.shims.engine import stages
from promptpath.instrumentation.shims.engine.batch import Batch, Tracked
from promptpath.instrumentation.shims.engine.meter import EngineMeter
from promptpath.instrumentation.wrapping import unwrap_all, wrap
from promptpath.semconv import Abort, Stage

SCOPE: Final = "promptpath.openvino_genai"


class OpenVinoGenAiInstrumentor(BaseInstrumentor):  # type: ignore[misc]
    """Puts the shim on OpenVINO GenAI."""

    library: ClassVar[tuple[str, ...]] = ("openvino_genai",)

    def instrumentation_dependencies(self) -> Collection[str]:
        return ("openvino-genai >= 2025.0",)

    def _instrument(self, **kwargs: Any) -> None:
        wrap("openvino_genai", "ContinuousBatchingPipeline.add_request", _add_request)
        wrap("openvino_genai", "ContinuousBatchingPipeline.step", _step)
        wrap("openvino_genai.py_openvino_genai", "GenerationHandle.cancel", _cancel)
        wrap("openvino_genai.py_openvino_genai", "GenerationHandle.stop", _stop)
        wrap("openvino_genai", "Tokenizer.apply_chat_template", _apply_chat_template)
        wrap("openvino_genai", "Tokenizer.encode", _encode)
        wrap("openvino_genai", "Tokenizer.decode", _decode)
        role.engine_is_here(SCOPE)

    def _uninstrument(self, **kwargs: Any) -> None:
        unwrap_all()
        role.engine_is_gone(SCOPE)
        _pipelines.clear()
        _by_handle.clear()
        _waiting_for_text.clear()
        _meter.forget()


class _Request(Tracked):
    """One request in a pipeline, and whom it is for (nobody, if it was not added on behalf of a request served)."""

    def __init__(self, added_ns: int, span: LiveSpan | None) -> None:
        super().__init__(added_ns)
        self.span = span
        self.notes = state.of(span) if span is not None else None
        self.handle: weakref.ref[Any] | None = None
        self.queued_ns = added_ns
        self.input_tokens: int | None = None
        self.max_new_tokens: int | None = None
        self.readable = False
        self.ended_ns = 0
        self.complete = False
        self.cancelled = False
        self.error: str | None = None
        self._recorded = False

    @property
    def waits_for_text(self) -> bool:
        """Its first token is there, the text of that is not."""
        if self.notes is None or self.notes.first_text_mono_ns or self.cancelled:
            return False
        return self.handle is not None and self.handle() is not None

    def record(self) -> None:
        """Record its stages, once."""
        span, notes = self.span, self.notes
        if span is None or notes is None or self._recorded:
            return
        self._recorded = True
        now_ns = monotonic_ns()
        self._read_pipelines_clock()
        abort: str | None = None
        if self.cancelled:
            abort = Abort.CLIENT.value if notes.disconnected else Abort.SERVER.value
        stages.record(
            self,
            span,
            notes,
            SCOPE,
            end_ns=self.ended_ns or now_ns,
            queued_ns=self.queued_ns,
            abort=abort,
            error=self.error,
        )
        self._describe(span)

    def _read_pipelines_clock(self) -> None:
        """Replace times seen from outside (ends of steps) by the pipeline's own, given for complete answers."""
        handle = self.handle() if self.handle is not None else None
        if handle is None or not self.first_token_ns or not self.complete:
            return
        with guard("openvino_genai.token_times"):
            raw = handle.get_perf_metrics().raw_metrics
            times = [round(time_ms * 1e6) for time_ms in raw.m_new_token_times]
            counts = [int(count) for count in raw.m_batch_sizes]
            # Only if they are times of this request on our clock.
            if times and self.scheduled_ns <= times[0] <= self.first_token_ns and times == sorted(times):
                self.token_ns = times
                self.token_counts = counts if len(counts) == len(times) else [1] * len(times)
                self.first_token_ns, self.last_token_ns = times[0], times[-1]

    def _describe(self, span: LiveSpan) -> None:
        """Usage and finish reason, where the server itself does not say them."""
        attributes = span.attributes
        if span.ended:
            return
        if self.input_tokens is not None:
            attributes.setdefault(semconv.GEN_AI_USAGE_INPUT_TOKENS, self.input_tokens)
        generated = sum(self.token_counts)
        if generated:
            attributes.setdefault(semconv.GEN_AI_USAGE_OUTPUT_TOKENS, generated)
        if self.ended_ns and not self.cancelled and self.error is None:
            reason = "length" if self.max_new_tokens is not None and generated >= self.max_new_tokens else "stop"
            attributes.setdefault(genai.FINISH_REASONS, (reason,))


_pipelines: Final[weakref.WeakKeyDictionary[Any, Batch[_Request]]] = weakref.WeakKeyDictionary()
_by_handle: Final[dict[int, _Request]] = {}
_meter: Final = EngineMeter(SCOPE)


def _batch(pipeline: Any) -> Batch[_Request]:
    batch = _pipelines.get(pipeline)
    if batch is None:
        batch = _pipelines.setdefault(pipeline, Batch())
    return batch


# --- requests ---------------------------------------------------------------------------------------------------------


def _add_request(wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    added_ns = monotonic_ns()
    request: _Request | None = None
    with guard("openvino_genai.add_request"):
        span = recorder.request_span()
        request = _Request(added_ns, span)
        if request.notes is not None:
            request.notes.end_parse(added_ns)
        # Before the pipeline has it: a step may take it up before this thread goes on.
        _batch(instance).add(request)
    try:
        handle = wrapped(*args, **kwargs)
    except BaseException:
        if request is not None:
            _batch(instance).remove(request)
        raise
    if request is not None:
        with guard("openvino_genai.add_request"):
            _describe_request(request, args, kwargs)
            request.handle = weakref.ref(handle, partial(_forget, id(handle)))
            _by_handle[id(handle)] = request
            if request.notes is not None and request.notes.closes:
                request.notes.at_end.append(request.record)
    return handle


def _describe_request(request: _Request, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    config = kwargs.get("generation_config", args[-1] if args else None)
    limit = getattr(config, "max_new_tokens", None)
    request.max_new_tokens = limit if isinstance(limit, int) else None
    prompt = kwargs.get("input_ids", args[1] if len(args) > 1 else None)
    shape = getattr(prompt, "shape", None)
    if shape is not None and len(shape) == 2:
        request.input_tokens = int(shape[1])
        return
    if isinstance(prompt, str):
        # It was tokenized before it was queued; how long that took of the call, the pipeline does not say yet.
        request.queued_ns = monotonic_ns()
        if request.notes is not None:
            request.notes.stage("tokenize", Stage.TOKENIZE, SCOPE, request.added_ns, request.queued_ns)


def _forget(key: int, reference: weakref.ref[Any]) -> None:
    """The program has let go of a handle."""
    with guard("openvino_genai.forget"):
        request = _by_handle.get(key)
        if request is None or request.handle is not reference:
            return
        del _by_handle[key]
        for batch in list(_pipelines.values()):
            batch.remove(request)
        if request.notes is not None and not request.notes.closes:
            request.record()


def _cancel(wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    with guard("openvino_genai.cancel"):
        _ended_by_program(instance, cancelled=True)
    return wrapped(*args, **kwargs)


def _stop(wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    with guard("openvino_genai.stop"):
        _ended_by_program(instance, cancelled=False)
    return wrapped(*args, **kwargs)


def _ended_by_program(handle: Any, *, cancelled: bool) -> None:
    """The program ends a request: as no longer wanted, or as complete (a stop string)."""
    request = _by_handle.get(id(handle))
    if request is None or request.handle is None or request.handle() is not handle or request.ended_ns:
        return
    request.cancelled = cancelled
    request.ended_ns = monotonic_ns()
    for batch in list(_pipelines.values()):
        batch.remove(request)
    if request.notes is not None and not request.notes.closes:
        request.record()


# --- steps ------------------------------------------------------------------------------------------------------------


def _step(wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    batch: Batch[_Request] | None = None
    with guard("openvino_genai.step"):
        batch = _batch(instance)
        for request in batch.requests:
            handle = request.handle() if request.handle is not None else None
            request.readable = handle is not None and handle.can_read()
    start_ns = monotonic_ns()
    try:
        result = wrapped(*args, **kwargs)
    except BaseException as error:
        with guard("openvino_genai.step"):
            _failed(batch, type(error).__qualname__)
        raise
    end_ns = monotonic_ns()
    if batch is not None:
        try:
            _stepped(instance, batch, start_ns, end_ns)
        except Exception as error:
            note_failure("openvino_genai.step", error)
    return result


def _stepped(pipeline: Any, batch: Batch[_Request], start_ns: int, end_ns: int) -> None:
    progress: list[tuple[_Request, int, int]] = []
    over: list[_Request] = []
    running: int = sys.modules["openvino_genai"].GenerationStatus.RUNNING.value
    for request in list(batch.requests):
        handle = request.handle() if request.handle is not None else None
        if handle is None:
            continue
        # Tokens of a step before may not have been read; a request that already has tokens then gets another one.
        if handle.can_read() and (not request.readable or request.first_token_ns):
            progress.append((request, 1, 0))
        # The number of a status is at hand; its name, or comparing it, costs microseconds.
        status = handle.get_status()
        if status.value != running:
            over.append(request)
            request.ended_ns = end_ns
            if status.name == "FINISHED":
                request.complete = True
            elif status.name == "IGNORED":
                request.error = "kv_cache_full"
    metrics = pipeline.get_metrics()
    worked_on: int = metrics.scheduled_requests
    batch.stepped(start_ns, end_ns, worked_on, progress)
    for request, _, _ in progress:
        if request.notes is not None and not request.notes.first_token_mono_ns:
            request.notes.first_token_mono_ns = request.first_token_ns
            while _waiting_for_text and not _waiting_for_text[0].waits_for_text:
                _waiting_for_text.popleft()
            _waiting_for_text.append(request)
    for request in over:
        batch.remove(request)
        if request.notes is not None and not request.notes.closes:
            request.record()
    waiting = batch.waiting
    _meter.step(
        pipeline, len(batch.requests) - waiting, waiting, float(metrics.cache_usage) / 100, (end_ns - start_ns) / 1e9
    )


def _failed(batch: Batch[_Request] | None, error: str) -> None:
    """A step raised: it failed for all that it may have worked on."""
    for request in batch.requests if batch is not None else ():
        if request.error is None:
            request.error = error
            request.ended_ns = monotonic_ns()


# --- text -------------------------------------------------------------------------------------------------------------

#: Requests whose first token has no text yet, oldest first; for text that is made outside of any request's context.
_waiting_for_text: Final[deque[_Request]] = deque()


def _apply_chat_template(wrapped: Callable[..., Any], _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return _timed(wrapped, args, kwargs, "chat_template", Stage.PARSE)


def _encode(wrapped: Callable[..., Any], _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return _timed(wrapped, args, kwargs, "tokenize", Stage.TOKENIZE)


def _timed(wrapped: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], name: str, stage: Stage) -> Any:
    start_ns = monotonic_ns()
    result = wrapped(*args, **kwargs)
    end_ns = monotonic_ns()
    try:
        notes = state.of_request()
        if notes is not None:
            notes.end_parse(start_ns)
            notes.stage(name, stage, SCOPE, start_ns, end_ns)
    except Exception as error:
        note_failure(f"openvino_genai.{name}", error)
    return result


def _decode(wrapped: Callable[..., Any], _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    start_ns = monotonic_ns()
    text = wrapped(*args, **kwargs)
    end_ns = monotonic_ns()
    try:
        notes = state.of_request()
        if notes is None:
            notes = _oldest_without_text()
        if notes is not None:
            notes.decoded(text, start_ns, end_ns)
    except Exception as error:
        note_failure("openvino_genai.decode", error)
    return text


def _oldest_without_text() -> state.RequestState | None:
    return next((request.notes for request in tuple(_waiting_for_text) if request.waits_for_text), None)
