"""One prompt: what is asked, what befalls it, and what is written down about it."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any, Final

from promptpath.collector.simulate.deliveries import Deliveries
from promptpath.collector.simulate.ledger import Ledger
from promptpath.collector.simulate.scenario import Scenario
from promptpath.collector.simulate.spans import Span
from promptpath.collector.simulate.stack import CHAT_MODELS, EMBEDDING_MODEL, Node
from promptpath.semconv import Status

_MAX_INPUT: Final = 4096
_MAX_OUTPUT: Final = 320
_PREFIXES: Final = 60
_REFUSALS: Final = ("authenticate", "rate_limit", "prompt_policy", "guardrail", "too_long")


@dataclass(eq=False, slots=True)
class Fate:
    """What befalls a prompt.

    refusal: `authenticate`, `rate_limit`, `prompt_policy`, `guardrail` (at a gateway), `too_long` (at the engine), or
    ''. failures: how the first attempts fail: `unavailable`, `refused` (no connection), `slow` (the caller's patience
    ends first); as many as there are names. breaks: `cut` or `error`: the engine ends the answer early. gives_up:
    `client` or `timeout`: the client ends it; gateway_timeout: the gateway does. guard: `before`, `beside` or `behind`:
    a safety check before the call, beside it, or on the first tokens. stall: hop of the way back that pauses, 0 the
    engine's end, -1 none. lag: of the client's reading, as a share of prompts with merged deliveries.
    """

    refusal: str = ""
    failures: tuple[str, ...] = ()
    breaks: str = ""
    gives_up: str = ""
    gateway_timeout: bool = False
    guard: str = ""
    stall: int = -1
    lag: bool = False


@dataclass(eq=False, slots=True)
class Prompt:
    """A prompt and what happened to it.

    number: from 0. chat: whether it generates (else embeddings). outputs: tokens to make, of each choice. raw: the
    client reads bytes, not chunks. reached: model of the last server that it reached, attempts made again aside.
    span_id: of its root. begun_ns, ended_ns: of its root, true time. calls: attempts. passed: processes in order, one
    of each service and host. engine: the process that computed its first token; engine_ns: in how long, from its
    request on; prefilled_ns: the same of a prefill worker, until a decode worker has taken over. generated: tokens its
    engine made. counted: somebody has said how many tokens came in. seen: the deliveries at the outermost hop that saw
    any; gaps_source: which. whole: whether all its spans are sent. told: where its spans are in the words of other
    systems, what of the truth those tell otherwise.
    """

    number: int
    topology: str
    model: str
    chat: bool
    streaming: bool
    input_tokens: int
    outputs: tuple[int, ...]
    prefix: int
    prefix_tokens: int
    raw: bool
    fate: Fate
    trace: bytes
    parent: bytes = b""
    span_id: bytes = b""
    request_model: str = ""
    reached: str = ""
    finish: str = "stop"
    workflow_id: bytes = b""
    conversation_id: str = ""
    agent_name: str = ""
    begun_ns: int = 0
    ended_ns: int = 0
    ledger: Ledger = field(default_factory=lambda: Ledger(0))
    spans: list[Span] = field(default_factory=list)
    passed: list[Node] = field(default_factory=list)
    calls: int = 0
    preemptions: int | None = None
    counted: bool = False
    cached_tokens: int | None = None
    generated: int | None = None
    engine_seen: Deliveries | None = None
    engine: Node | None = None
    engine_ns: int | None = None
    told: dict[str, Any] | None = None
    prefilled_ns: int | None = None
    seen: Deliveries | None = None
    gaps_source: str = ""
    status: Status = Status.OK
    root: Node | None = None
    whole: bool = True

    @property
    def operation(self) -> str:
        return "chat" if self.chat else "embeddings"

    @property
    def path(self) -> str:
        return "/v1/chat/completions" if self.chat else "/v1/embeddings"

    def pass_by(self, node: Node) -> None:
        """The prompt has come to a process."""
        if not any(node.service == other.service and node.host is other.host for other in self.passed):
            self.passed.append(node)

    def saw(self, source: str, found: Deliveries | None) -> None:
        """A hop has seen these deliveries; hops further out come later."""
        if found is not None and len(found):
            self.seen = found
            self.gaps_source = source


class Workload:
    """Draws prompts."""

    def __init__(self, scenario: Scenario, rng: random.Random) -> None:
        self._scenario = scenario
        self._rng = rng
        self._names = list(scenario.topology)
        self._weights = list(scenario.topology.values())

    def topology(self) -> str:
        """The topology of the next arrival."""
        return self._rng.choices(self._names, self._weights)[0]

    def draw(self, number: int, topology: str, trace: bytes, parent: bytes = b"") -> Prompt:
        """A prompt of a topology."""
        rng, scenario = self._rng, self._scenario
        chat = topology in ("disagg", "agent", "direct") or rng.random() >= scenario.embeddings
        tokens = min(max(int(rng.lognormvariate(5.7, 0.9)), 8), _MAX_INPUT)
        prefix = rng.randrange(_PREFIXES) if rng.random() < 0.6 else -1
        wanted = 1
        if chat and topology != "disagg" and rng.random() < scenario.choices:
            wanted = rng.randint(2, 4)
        model = rng.choices(CHAT_MODELS, (2, 1))[0] if chat else EMBEDDING_MODEL
        if topology == "disagg":
            model = CHAT_MODELS[0]
        return Prompt(
            number=number,
            topology=topology,
            model=model,
            chat=chat,
            streaming=chat and rng.random() >= scenario.non_streaming,
            input_tokens=tokens,
            outputs=tuple(self._output() for _ in range(wanted)) if chat else (),
            prefix=prefix if chat else -1,
            # A prefix is the same for all that have it, so its length follows from its number.
            prefix_tokens=min(tokens, 64 + 16 * (prefix % 29)) // 16 * 16,
            raw=rng.random() < 0.3,
            fate=self._fate(topology, wanted),
            trace=trace,
            parent=parent,
            request_model=model,
        )

    def _output(self) -> int:
        return min(max(int(self._rng.lognormvariate(3.6, 0.8)), 1), _MAX_OUTPUT)

    def _fate(self, topology: str, choices: int) -> Fate:
        rng, scenario = self._rng, self._scenario
        has_gateway = topology != "direct"
        fate = Fate()
        if rng.random() < scenario.rejections:
            fate.refusal = rng.choice(_REFUSALS) if has_gateway else _REFUSALS[-1]
        elif rng.random() < scenario.errors:
            kind = rng.random()
            if kind < 0.2 and choices == 1:
                fate.breaks = rng.choice(("cut", "error"))
            else:
                few = 1 if rng.random() < 0.75 else rng.randint(2, 3)
                fate.failures = tuple(rng.choice(("unavailable", "refused", "slow")) for _ in range(few))
        elif rng.random() < scenario.aborts and choices == 1:
            kind = rng.random()
            fate.gives_up = "" if kind >= 0.9 else "client" if kind < 0.6 else "timeout"
            fate.gateway_timeout = kind >= 0.9 and has_gateway
        if has_gateway and rng.random() < scenario.guardrails:
            fate.guard = rng.choice(("before", "beside", "behind"))
        if rng.random() < scenario.stalls:
            fate.stall = rng.randrange(3)
        fate.lag = rng.random() < 0.15
        return fate
