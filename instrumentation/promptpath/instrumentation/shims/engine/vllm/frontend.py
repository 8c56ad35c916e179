"""What vLLM's API server does with a request: chat template, tokenization, the hand-over, the first token's text."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from time import monotonic_ns
from typing import Any, Final

from opentelemetry import propagate

from promptpath import semconv
from promptpath.instrumentation import recorder
from promptpath.instrumentation.safety import guard, note_failure
from promptpath.instrumentation.shims import state
from promptpath.instrumentation.wrapping import unwrap_all, wrap
from promptpath.semconv import Stage

SCOPE: Final = "promptpath.vllm"
#: Goes to the engine core among a request's trace headers: which of several answers to one prompt it is.
CHOICE_HEADER: Final = "promptpath-choice"

_OUTPUT_PROCESSOR: Final = "vllm.v1.engine.output_processor"
#: Where a chat template is applied, by kind of tokenizer: module and class.
_RENDERERS: Final = (
    ("base", "BaseRenderer"),
    ("cohere", "CohereRenderer"),
    ("deepseek_v32", "DeepseekV32Renderer"),
    ("deepseek_v4", "DeepseekV4Renderer"),
    ("hf", "HfRenderer"),
    ("inkling", "InklingRenderer"),
    ("kimi_k3", "KimiK3Renderer"),
    ("mistral", "MistralRenderer"),
)


class _Waiting:
    """A request whose first text is not there yet."""

    __slots__ = ("first_token_ns", "notes")

    def __init__(self, notes: state.RequestState) -> None:
        self.notes = notes
        self.first_token_ns = 0


#: By vLLM's internal request id. Empty while every stream has begun: the token path then does nothing.
_waiting: Final[dict[str, _Waiting]] = {}


def wrap_all() -> None:
    """Patch what the API server runs."""
    wrap(_OUTPUT_PROCESSOR, "OutputProcessor.add_request", _add_request)
    wrap(_OUTPUT_PROCESSOR, "OutputProcessor.process_outputs", _process_outputs)
    wrap(_OUTPUT_PROCESSOR, "OutputProcessor.abort_requests", _abort_requests)
    wrap(_OUTPUT_PROCESSOR, "instrument_manual", _native_span)
    for module, name in _RENDERERS:
        wrap(f"vllm.renderers.{module}", f"{name}.render_messages_async", _render)
    wrap("vllm.renderers.base", "BaseRenderer.tokenize_prompts_async", _tokenize)


def unwrap() -> None:
    """Take the patches off."""
    unwrap_all()
    _waiting.clear()


# --- on the way in ----------------------------------------------------------------------------------------------------


def _render(wrapped: Callable[..., Any], _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Awaitable[Any]:
    return _timed(wrapped, args, kwargs, "chat_template", Stage.PARSE)


def _tokenize(wrapped: Callable[..., Any], _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Awaitable[Any]:
    return _timed(wrapped, args, kwargs, "tokenize", Stage.TOKENIZE)


async def _timed(
    wrapped: Callable[..., Awaitable[Any]], args: tuple[Any, ...], kwargs: dict[str, Any], name: str, stage: Stage
) -> Any:
    start_ns = monotonic_ns()
    result = await wrapped(*args, **kwargs)
    end_ns = monotonic_ns()
    try:
        notes = state.of_request()
        if notes is not None:
            notes.end_parse(start_ns)
            notes.stage(name, stage, SCOPE, start_ns, end_ns)
    except Exception as error:
        note_failure(f"vllm.{name}", error)
    return result


def _add_request(wrapped: Callable[..., Any], _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    with guard("vllm.add_request"):
        span = recorder.request_span()
        if span is not None:
            request = args[0] if args else kwargs["request"]
            parent = args[2] if len(args) > 2 else kwargs.get("parent_req")
            notes = state.of(span)
            notes.end_parse()
            headers = dict(request.trace_headers or {})
            propagate.inject(headers, span.context)
            if parent is not None:
                headers[CHOICE_HEADER] = str(args[3] if len(args) > 3 else kwargs.get("request_index", 0))
            # The engine core gets it after this call. Choices of one prompt share the first one's headers object.
            request.trace_headers = headers
            if span.recording:
                _waiting[request.request_id] = _Waiting(notes)
    return wrapped(*args, **kwargs)


def _abort_requests(wrapped: Callable[..., Any], _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    aborted = wrapped(*args, **kwargs)
    if _waiting:
        with guard("vllm.abort_requests"):
            for request_id in aborted or ():
                _waiting.pop(request_id, None)
    return aborted


# --- on the way out ---------------------------------------------------------------------------------------------------


def _process_outputs(wrapped: Callable[..., Any], instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    result = wrapped(*args, **kwargs)
    if _waiting:
        now_ns = monotonic_ns()
        try:
            outputs = args[0] if args else kwargs["engine_core_outputs"]
            computed_s = args[1] if len(args) > 1 else kwargs.get("engine_core_timestamp")
            for output in outputs:
                waiting = _waiting.get(output.request_id)
                if waiting is not None:
                    _delivered(waiting, output, instance, computed_s, now_ns)
        except Exception as error:
            note_failure("vllm.process_outputs", error)
    return result


def _delivered(waiting: _Waiting, output: Any, processor: Any, computed_s: float | None, now_ns: int) -> None:
    """Tokens of a request whose first text was not there before."""
    request_id, notes = output.request_id, waiting.notes
    if not waiting.first_token_ns and output.new_token_ids:
        # The engine core's time is of the same clock; without statistics vLLM sends it all the same.
        waiting.first_token_ns = min(round(computed_s * 1e9), now_ns) if computed_s else now_ns
        if not notes.first_token_mono_ns:
            notes.first_token_mono_ns = waiting.first_token_ns
    request = processor.request_states.get(request_id)
    if request is not None and output.finish_reason is None:
        if not waiting.first_token_ns:
            return
        detokenizer = request.detokenizer
        # Half a character, or what may become a stop string, is held back.
        if getattr(detokenizer, "output_text", None) == "":
            return
    del _waiting[request_id]
    if waiting.first_token_ns and not notes.first_text_mono_ns:
        notes.first_text_mono_ns = now_ns
        notes.stage("detokenize", Stage.DETOKENIZE, SCOPE, waiting.first_token_ns, now_ns)


def _native_span(wrapped: Callable[..., Any], _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """vLLM's own span of a request: its stages are told by the engine core's spans."""
    with guard("vllm.native_span"):
        attributes = kwargs.get("attributes")
        if isinstance(attributes, dict):
            kwargs = kwargs | {"attributes": attributes | {semconv.STAGES_ELSEWHERE: True}}
    return wrapped(*args, **kwargs)
