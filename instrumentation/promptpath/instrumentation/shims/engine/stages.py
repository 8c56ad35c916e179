"""Turns what an engine did with a request into its stages: queue, prefill, decode, detokenize."""

from __future__ import annotations

from opentelemetry.util.types import AttributeValue

from promptpath import semconv
from promptpath.instrumentation import recorder
from promptpath.instrumentation.live import LiveSpan
from promptpath.instrumentation.shims import state
from promptpath.instrumentation.shims.engine.batch import Tracked
from promptpath.semconv import Stage


def record(
    request: Tracked,
    span: LiveSpan,
    notes: state.RequestState,
    scope: str,
    *,
    end_ns: int,
    queued_ns: int | None = None,
    queued: bool = True,
    abort: str | None = None,
    error: str | None = None,
) -> None:
    """Record the stages of a request that is over, below its server span.

    Args:
        request: what was seen of it.
        span, notes: its server span and the notes on it.
        scope: the engine shim's instrumentation scope.
        end_ns: when it was over, monotonic [ns]; ends the stage in which it was given up, if it was.
        queued_ns: when it began to wait, if that was after it was added (the engine tokenized it first).
        queued: whether it can have waited at all.
        abort, error: `promptpath.abort` and `error.type`, for the stage in which it ended early.
    """
    queued_ns = queued_ns or request.added_ns

    def stage(name: Stage, start_ns: int, stop_ns: int, last: bool, attributes: dict[str, AttributeValue]) -> None:
        made = recorder.start(
            name.value, scope=scope, stage=name, parent=span, attributes=attributes, start_mono_ns=start_ns
        )
        if name is Stage.DECODE and made.recording:
            made.deliveries_mono_ns.extend(request.token_ns)
            if any(count != 1 for count in request.token_counts):
                made.delivery_counts = list(request.token_counts)
        if last:
            if abort is not None:
                made.set(semconv.ABORT, abort)
            if error is not None:
                made.fail(error)
        made.end(end_mono_ns=max(stop_ns, start_ns))

    if queued:
        stage(
            Stage.QUEUE,
            queued_ns,
            request.scheduled_ns or end_ns,
            not request.scheduled_ns,
            {semconv.QUEUE_POSITION: request.ahead} if request.ahead is not None else {},
        )
    if not request.scheduled_ns:
        return
    stage(
        Stage.PREFILL,
        request.scheduled_ns,
        request.first_token_ns or end_ns,
        not request.first_token_ns,
        {semconv.BATCH_SIZE: request.prefill_batch} if request.prefill_batch else {},
    )
    if not request.first_token_ns:
        return
    stage(
        Stage.DECODE,
        request.first_token_ns,
        request.last_token_ns,
        True,
        {semconv.BATCH_SIZE: request.decode_batch} if request.decode_batch else {},
    )
    # Of several calls of an engine for one request, the first token's text is that of the first.
    if notes.first_text_mono_ns >= request.first_token_ns:
        stage(
            Stage.DETOKENIZE,
            request.first_token_ns,
            notes.first_text_mono_ns,
            False,
            {semconv.DETOKENIZE_TOTAL_US: notes.decode_ns // 1000} if notes.decode_ns else {},
        )
