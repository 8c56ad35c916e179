"""A prompt's spans as other systems would have sent them: same time, same truth, other spellings.

What a system does not say nobody can read out of its spans: its truth is moved to where the documentation's definitions
put what is not said (a tokenizer without a span is `unattributed`, tokens that nobody counts have no gaps). Only
answers that came whole at the first attempt are told so: how these systems tell of failures is not known well enough
to be a truth.
"""

from __future__ import annotations

import random
import uuid
from typing import Any, Final

from promptpath import semconv
from promptpath.collector.simulate.call import answer_attributes
from promptpath.collector.simulate.prompt import Prompt
from promptpath.collector.simulate.spans import CLIENT, INTERNAL, SERVER, Span
from promptpath.collector.simulate.stack import Value
from promptpath.semconv import Part, Stage, Status

_ENGINES: Final = ("vllm", "sglang")
_GATEWAYS: Final = ("envoy", "litellm-v1", "litellm-v2")
_GENAI: Final = "opentelemetry.instrumentation.openai_v2"
_SGLANG: Final = "sglang server"
Attributes = list[tuple[str, Value | tuple[int, ...]]]


def speak(prompt: Prompt, systems: tuple[str, ...], rng: random.Random) -> None:
    """Rewrite a prompt's spans in the words of some of `systems`, one a hop; note in `prompt.told` what they tell.

    rng: makes ids.
    """
    if not systems:
        return
    plain = prompt.chat and len(prompt.outputs) == 1 and prompt.calls == 1 and prompt.topology != "disagg"
    # One who was refused first and came back has more than one call of a kind.
    servers = [_said(span, semconv.STAGE) for span in prompt.spans if span.kind == SERVER]
    plain = plain and len(servers) == len(set(servers))
    if not plain or prompt.status is not Status.OK or prompt.fate.guard:
        return
    _Rewriting(prompt, rng).all(systems)


class _Rewriting:
    """One prompt's spans while they are rewritten. parts: moved to where what is not said belongs [ns]."""

    def __init__(self, prompt: Prompt, rng: random.Random) -> None:
        self.prompt = prompt
        self.rng = rng
        self.stage = {span.id: _said(span, semconv.STAGE) for span in prompt.spans}
        self.parts = prompt.ledger.parts()
        self.counts_preemptions = True

    def all(self, systems: tuple[str, ...]) -> None:
        """Each hop in the words of one of the systems that there are for it."""
        prompt, number = self.prompt, self.prompt.number
        engines = [name for name in systems if name in _ENGINES]
        gateways = [name for name in systems if name in _GATEWAYS]
        for span in list(prompt.spans):
            stage = self.stage.get(span.id, "")
            if stage == Stage.SERVER and engines:
                getattr(self, engines[number % len(engines)])(span)
            elif stage == Stage.GATEWAY and span.kind == SERVER and gateways and span.id != prompt.span_id:
                getattr(self, gateways[number // 2 % len(gateways)].replace("-", "_"))(span)
            elif stage == Stage.EDGE and span.kind == SERVER and "envoy" in systems:
                self.envoy(span)
        if "otel-genai" in systems and prompt.topology != "headless":
            self.otel_genai()
        prompt.told = self.told()

    # -- hops ----------------------------------------------------------------------------------------------------------

    def vllm(self, server: Span) -> None:
        """One span, its stages as numbers; the first token is the engine's."""
        inner = self._take(server)
        queue, prefill, decode = (inner[stage] for stage in (Stage.QUEUE, Stage.PREFILL, Stage.DECODE))
        usage = dict(answer_attributes(self.prompt))
        self._say(server, "vllm.tracing.otel", "llm_request", SERVER, [
            ("gen_ai.request.id", f"chatcmpl-{self.prompt.number:032x}"),
            ("gen_ai.response.model", self.prompt.model),
            ("gen_ai.latency.time_in_queue", (queue.end_ns - queue.start_ns) / 1e9),
            ("gen_ai.latency.time_to_first_token", (prefill.end_ns - server.start_ns) / 1e9),
            ("gen_ai.latency.time_in_model_prefill", (prefill.end_ns - prefill.start_ns) / 1e9),
            ("gen_ai.latency.time_in_model_decode", (decode.end_ns - decode.start_ns) / 1e9),
            ("gen_ai.latency.e2e", (server.end_ns - server.start_ns) / 1e9),
            ("gen_ai.usage.prompt_tokens", usage[semconv.GEN_AI_USAGE_INPUT_TOKENS]),
            ("gen_ai.usage.completion_tokens", usage[semconv.GEN_AI_USAGE_OUTPUT_TOKENS]),
        ])  # fmt: skip
        self._move(Part.TOKENIZE, Part.UNATTRIBUTED, self.parts[Part.TOKENIZE])
        self._way_back()

    def sglang(self, server: Span) -> None:
        """The request, its threads, their slices."""
        inner = self._take(server)
        rid = f"{self.prompt.number:032x}"
        usage = dict(answer_attributes(self.prompt))
        first = inner[Stage.PREFILL].end_ns
        self._say(server, _SGLANG, f" Req {rid[-8:]}", INTERNAL, [
            ("rid", rid),
            ("module", "sglang::request"),
            ("gen_ai.usage.prompt_tokens", usage[semconv.GEN_AI_USAGE_INPUT_TOKENS]),
            ("gen_ai.usage.completion_tokens", usage[semconv.GEN_AI_USAGE_OUTPUT_TOKENS]),
            ("gen_ai.response.model", self.prompt.model),
            ("gen_ai.response.finish_reasons", (self.prompt.finish,)),
            ("gen_ai.latency.time_to_first_token", (first - server.start_ns) / 1e9),
        ])  # fmt: skip
        tokenizer = self._new(server, "tokenizer", server.start_ns, inner[Stage.TOKENIZE].end_ns)
        scheduler = self._new(server, "scheduler [TP 0]", inner[Stage.QUEUE].start_ns, inner[Stage.DECODE].end_ns)
        for stage, name, thread in (
            (Stage.TOKENIZE, "tokenize", tokenizer),
            (Stage.QUEUE, "prefill_waiting", scheduler),
            (Stage.PREFILL, "prefill_forward", scheduler),
            (Stage.DECODE, "decode_forward", scheduler),
        ):
            self._new(thread, name, inner[stage].start_ns, inner[stage].end_ns)
        parse = inner[Stage.PARSE]
        self._move(Part.TOKENIZE, Part.UNATTRIBUTED, parse.end_ns - parse.start_ns)
        self._way_back()

    def envoy(self, hop: Span) -> None:
        """A server's span and an upstream's; all values are texts."""
        path = self.prompt.path
        (call,) = self._calls(hop)
        self._say(hop, "envoy", "ingress", SERVER, [
            ("guid:x-request-id", str(uuid.UUID(int=self.rng.getrandbits(128), version=4))),
            ("http.url", f"http://gateway.example{path}"),
            ("http.method", "POST"),
            ("http.status_code", "200"),
            ("response_flags", "-"),
            ("upstream_cluster", "llm"),
            ("component", "proxy"),
        ])  # fmt: skip
        self._say(call, "envoy", "router llm egress", CLIENT, [
            ("upstream_cluster", "llm"),
            ("http.status_code", "200"),
            ("response_flags", "-"),
            ("component", "proxy"),
        ])  # fmt: skip

    def litellm_v2(self, hop: Span) -> None:
        """FastAPI's span marked by the proxy, the check of the key, the model's call with its first chunk."""
        (call,) = self._calls(hop, keep=("authenticate",))
        self._checks(hop, "auth /v1/chat/completions")
        self._say(hop, "fastapi", f"POST {self.prompt.path}", SERVER, [
            *self._http(),
            ("litellm.call_id", str(uuid.UUID(int=self.rng.getrandbits(128), version=4))),
        ])  # fmt: skip
        self._say(call, "litellm", f"chat {self.prompt.model}", CLIENT, self._genai(call))

    def litellm_v1(self, hop: Span) -> None:
        """FastAPI's span, and beside it, with the same parent, the proxy's own."""
        (call,) = self._calls(hop, keep=("authenticate",))
        self._say(hop, "fastapi", f"POST {self.prompt.path}", SERVER, self._http())
        own = self._new(hop, "Received Proxy Server Request", hop.start_ns + 40_000, hop.end_ns - 30_000)
        own.scope, own.kind, own.parent = "litellm", SERVER, hop.parent
        own.attributes = [("http.route", self.prompt.path), ("url.path", self.prompt.path),
                          ("http.response.status_code", 200)]  # fmt: skip
        self._checks(hop, "auth", own)
        said = [(key, value) for key, value in self._genai(call) if "time_to_first_chunk" not in key]
        self._say(
            call, "litellm", "litellm_request", INTERNAL, [*said, ("llm.is_streaming", str(self.prompt.streaming))]
        )
        call.parent = own.id

    def otel_genai(self) -> None:
        """The client as OpenTelemetry's instrumentation of its library sees it: no span for the HTTP request."""
        root = next(span for span in self.prompt.spans if span.id == self.prompt.span_id)
        (call,) = self._calls(root)
        found = root.found
        self._say(root, _GENAI, f"chat {self.prompt.request_model}", CLIENT, [
            ("gen_ai.system", "openai"),
            *self._genai(root, found.first_ns if found is not None else 0),
            ("server.address", "gateway.example"),
        ])  # fmt: skip
        self.prompt.spans.remove(call)
        for span in self.prompt.spans:
            if span.parent == call.id:
                span.parent = root.id

    # -- what they have in common --------------------------------------------------------------------------------------

    def _http(self) -> Attributes:
        path = self.prompt.path
        return [
            (semconv.HTTP_REQUEST_METHOD, "POST"),
            (semconv.URL_PATH, path),
            (semconv.HTTP_ROUTE, path),
            (semconv.HTTP_RESPONSE_STATUS_CODE, 200),
        ]

    def _genai(self, span: Span, first_ns: int = 0) -> Attributes:
        """What the GenAI conventions say of a call."""
        first_ns = first_ns or (span.found.first_ns if span.found is not None and len(span.found) else 0)
        said: Attributes = [
            (semconv.GEN_AI_OPERATION_NAME, self.prompt.operation),
            (semconv.GEN_AI_REQUEST_MODEL, self.prompt.request_model),
            (semconv.GEN_AI_REQUEST_STREAM, self.prompt.streaming),
            *answer_attributes(self.prompt),
        ]
        if self.prompt.streaming and first_ns:
            said.append(("gen_ai.response.time_to_first_chunk", (first_ns - span.start_ns) / 1e9))
        return said

    def _say(self, span: Span, scope: str, name: str, kind: int, attributes: Attributes) -> None:
        span.scope, span.name, span.kind, span.attributes, span.found = scope, name, kind, attributes, None

    def _new(self, above: Span, name: str, start_ns: int, end_ns: int) -> Span:
        made = Span(above.node, above.since_ns, above.scope, name, INTERNAL, above.trace,
                    self.rng.getrandbits(64).to_bytes(8, "big"), above.id, start_ns, end_ns)  # fmt: skip
        self.prompt.spans.append(made)
        return made

    def _take(self, server: Span) -> dict[str, Span]:
        """An engine's stages, taken out of the prompt's spans."""
        inner = [span for span in self.prompt.spans if span.parent == server.id]
        self.prompt.spans = [span for span in self.prompt.spans if span.parent != server.id]
        self.counts_preemptions = False
        return {self.stage[span.id]: span for span in inner}

    def _calls(self, hop: Span, keep: tuple[str, ...] = ()) -> list[Span]:
        """A hop's calls; what else is in it, or in them, in their own process, is taken out, but for names in
        `keep`."""
        spans = self.prompt.spans
        calls = [span for span in spans if span.parent == hop.id and self.stage.get(span.id) == Stage.CALL]
        holders = {hop.id, *(call.id for call in calls)}
        self.prompt.spans = [
            span
            for span in spans
            if span.parent not in holders or span in calls or span.node is not hop.node or span.name in keep
        ]
        return calls

    def _checks(self, hop: Span, name: str, above: Span | None = None) -> None:
        for span in self.prompt.spans:
            if span.parent == hop.id and span.name == "authenticate":
                self._say(span, "litellm", name, INTERNAL, [("service", "auth")])
                span.parent = (above or hop).id

    def _move(self, source: Part, target: Part, length_ns: int) -> None:
        self.parts[source] -= length_ns
        self.parts[target] += length_ns

    def _way_back(self) -> None:
        """A server that says when its engine had the first token had handed it over then, as far as it tells."""
        for part in (Part.POST, Part.STREAM):
            self._move(part, Part.NETWORK, self.parts[part])

    def told(self) -> dict[str, Any]:
        """Columns of the truth that are otherwise than they were."""
        prompt = self.prompt
        row: dict[str, Any] = {}
        if prompt.streaming:
            row |= {f"ttft_{part}_ns": self.parts[part] for part in Part}
        if not self.counts_preemptions:
            row["preemptions"] = None
        return row


def _said(span: Span, key: str) -> str:
    return next((str(value) for one, value in span.attributes if one == key), "")
