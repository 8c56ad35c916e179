"""What vLLM's engine core does with a request: waiting, prefill in chunks, tokens step by step, preemption, the end.

Times are taken around the scheduler's own methods, a few microseconds beside those of vLLM's statistics, which may be
off; only the end of a step is vLLM's own. A token costs one look-up and one append.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import monotonic_ns
from typing import Any, Final

from promptpath.instrumentation.safety import guard, note_failure
from promptpath.instrumentation.shims.engine.meter import EngineMeter
from promptpath.instrumentation.shims.engine.vllm.frontend import SCOPE
from promptpath.instrumentation.shims.engine.vllm.request import CoreRequest
from promptpath.instrumentation.wrapping import unwrap_all, wrap

_SCHEDULER: Final = "vllm.v1.core.sched.scheduler"


class _Steps:
    """The requests of one scheduler, and its steps that are under way."""

    def __init__(self) -> None:
        self.requests: dict[str, CoreRequest] = {}
        #: Of these, those that a step may work on for the first time, go on to prefill, or take up again.
        self.unsettled: dict[str, CoreRequest] = {}
        self.under_way: deque[tuple[int, int, int, int]] = deque()
        #: Steps and requests in them so far: the difference of two readings is a request's mean batch.
        self.steps = 0
        self.worked_on = 0


_by_scheduler: Final[dict[int, _Steps]] = {}
_meter: Final = EngineMeter(SCOPE)


def wrap_all() -> None:
    """Patch what the engine core runs."""
    wrap(_SCHEDULER, "Scheduler.add_request", _add_request)
    wrap(_SCHEDULER, "Scheduler.schedule", _schedule)
    wrap(_SCHEDULER, "Scheduler._preempt_request", _preempt)
    wrap(_SCHEDULER, "Scheduler._update_waiting_for_remote_kv", _kv_arrived)
    wrap(_SCHEDULER, "Scheduler.update_from_output", _update)
    wrap(_SCHEDULER, "Scheduler.finish_requests", _finish)


def unwrap() -> None:
    """Take the patches off and forget the requests."""
    unwrap_all()
    _by_scheduler.clear()
    _meter.forget()


def _steps_of(scheduler: Any) -> _Steps:
    steps = _by_scheduler.get(id(scheduler))
    if steps is None:
        steps = _by_scheduler.setdefault(id(scheduler), _Steps())
    return steps


def _add_request(wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    result = wrapped(*args, **kwargs)
    with guard("vllm.scheduler.add_request"):
        request = args[0] if args else kwargs["request"]
        steps = _steps_of(instance)
        if request.request_id not in steps.requests:
            made = CoreRequest(monotonic_ns(), request)
            made.ahead = max(0, len(instance.waiting) - 1)
            steps.requests[request.request_id] = steps.unsettled[request.request_id] = made
    return result


def _schedule(wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    start_ns = monotonic_ns()
    output = wrapped(*args, **kwargs)
    try:
        _scheduled(_steps_of(instance), output, start_ns)
    except Exception as error:
        note_failure("vllm.scheduler.schedule", error)
    return output


def _scheduled(steps: _Steps, output: Any, start_ns: int) -> None:
    tokens_of: dict[str, int] = output.num_scheduled_tokens
    prefill_tokens = 0
    # Requests in decode, by far the most, are not looked at.
    for request_id, request in steps.unsettled.items():
        tokens = tokens_of.get(request_id)
        if tokens:
            prefill_tokens += request.scheduled(start_ns, tokens, len(tokens_of))
        else:
            request.passed_over(start_ns)
    drafts = output.scheduled_spec_decode_tokens
    for request_id in drafts:
        request_or_none = steps.requests.get(request_id)
        if request_or_none is not None:
            request_or_none.proposed += len(drafts[request_id])
    if tokens_of:
        steps.steps += 1
        steps.worked_on += len(tokens_of)
        total = output.total_num_scheduled_tokens
        steps.under_way.append((id(output), start_ns, prefill_tokens, total - prefill_tokens))


def _preempt(wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    result = wrapped(*args, **kwargs)
    with guard("vllm.scheduler.preempt"):
        steps = _steps_of(instance)
        request_id = (args[0] if args else kwargs["request"]).request_id
        request = steps.requests.get(request_id)
        if request is not None:
            request.preempted(monotonic_ns())
            steps.unsettled[request_id] = request
    return result


def _kv_arrived(wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    result = wrapped(*args, **kwargs)
    with guard("vllm.scheduler.kv_arrived"):
        request = _steps_of(instance).requests.get((args[0] if args else kwargs["request"]).request_id)
        if request is not None:
            request.kv_end_ns = monotonic_ns()
    return result


def _update(wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    result = wrapped(*args, **kwargs)
    now_ns = monotonic_ns()
    try:
        steps = _steps_of(instance)
        for outputs in result.values():
            # vLLM's own time of the step's end, which the API server is told as well.
            end_ns = round(outputs.timestamp * 1e9)
            _computed(steps, outputs.outputs, min(end_ns, now_ns) or now_ns)
        _step_over(instance, steps, args[0] if args else kwargs["scheduler_output"], now_ns)
    except Exception as error:
        note_failure("vllm.scheduler.update_from_output", error)
    return result


def _computed(steps: _Steps, outputs: Any, now_ns: int) -> None:
    requests, unsettled = steps.requests, steps.unsettled
    for output in outputs:
        request = requests.get(output.request_id)
        if request is None:
            continue
        tokens = len(output.new_token_ids)
        if tokens:
            if request.unsettled and request.settle(steps.steps, steps.worked_on):
                unsettled.pop(output.request_id, None)
            request.token_ns.append(now_ns)
            if tokens != 1 or request.token_counts:
                request.count(tokens)
        if output.finish_reason is not None:
            del requests[output.request_id]
            unsettled.pop(output.request_id, None)
            request.over(now_ns, str(output.finish_reason), steps.steps, steps.worked_on)


def _step_over(scheduler: Any, steps: _Steps, output: Any, now_ns: int) -> None:
    while steps.under_way:
        key, start_ns, prefill_tokens, decode_tokens = steps.under_way.popleft()
        if key == id(output):
            break
    else:
        return
    usage = getattr(scheduler.kv_cache_manager, "usage", None)
    _meter.step(
        scheduler,
        len(scheduler.running),
        len(scheduler.waiting),
        float(usage) if usage is not None else None,
        (now_ns - start_ns) / 1e9,
        prefill_tokens,
        decode_tokens,
    )


def _finish(wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Requests that end from outside: given up by the client, or failed."""
    result = wrapped(*args, **kwargs)
    with guard("vllm.scheduler.finish_requests"):
        steps = _steps_of(instance)
        now_ns = monotonic_ns()
        left = instance.requests
        for request_id in [key for key in steps.requests if key not in left or left[key].is_finished()]:
            request = steps.requests.pop(request_id)
            steps.unsettled.pop(request_id, None)
            status = args[1] if len(args) > 1 else kwargs.get("finished_status")
            reason = "error" if getattr(status, "name", "") == "FINISHED_ERROR" else "abort"
            named = args[0] if args else kwargs.get("request_ids")
            request.over(now_ns, reason, steps.steps, steps.worked_on, asked_for=named is not None)
    return result
