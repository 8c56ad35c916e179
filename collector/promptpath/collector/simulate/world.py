"""What every process of a simulation shares: the kernel, randomness, the machines, the engines."""

from __future__ import annotations

import random

from promptpath.collector.simulate.deliveries import Relay
from promptpath.collector.simulate.engine import Engine, EngineSpec
from promptpath.collector.simulate.kernel import Kernel
from promptpath.collector.simulate.prompt import Prompt
from promptpath.collector.simulate.scenario import Scenario
from promptpath.collector.simulate.service_times import ServiceTimes
from promptpath.collector.simulate.spans import INTERNAL, Span, staged
from promptpath.collector.simulate.stack import CHAT_MODELS, EMBEDDING_MODEL, Node, Stack
from promptpath.semconv import Stage


class World:
    """One simulation's state.

    rng: what happens; ids: of traces and spans, which differ between runs that start at different times.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.rng = random.Random(scenario.seed)
        self.ids = random.Random(f"{scenario.seed} {scenario.start_ns}")
        self.kernel = Kernel(scenario.start_ns)
        self.times = ServiceTimes(scenario, self.rng)
        self.stack = Stack(scenario, self.rng)
        self.relay = Relay(scenario.seed)
        self.engines = {
            node.number: Engine(self.kernel, _spec(pool, scenario), self.times, self.rng)
            for pool, nodes in self.stack.pools.items()
            for node in nodes
        }

    @property
    def now(self) -> int:
        """True time [ns]."""
        return self.kernel.now

    def trace_id(self) -> bytes:
        return self.ids.getrandbits(128).to_bytes(16, "big")

    def span_id(self) -> bytes:
        return self.ids.getrandbits(64).to_bytes(8, "big")

    def pick(self, nodes: list[Node]) -> Node:
        """One of some processes that are alike."""
        return nodes[int(self.rng.random() * len(nodes))]

    def least_loaded(self, pool: str) -> Node:
        """The engine of a pool with the least to do; one of them at random."""
        nodes = self.stack.pools[pool]
        least = min(self.engines[node.number].load for node in nodes)
        return self.pick([node for node in nodes if self.engines[node.number].load == least])

    def stage(
        self, prompt: Prompt, above: Span, scope: str, name: str, stage: Stage, start_ns: int, end_ns: int
    ) -> Span:
        """A stage's span below a hop's."""
        span = Span(
            above.node, above.since_ns, scope, name, INTERNAL, above.trace, self.span_id(), above.id, start_ns, end_ns
        )
        span.attributes.append(staged(stage))
        prompt.spans.append(span)
        return span


def _spec(pool: str, scenario: Scenario) -> EngineSpec:
    # At 0 the cache holds whatever can run at once; at 1 the longest prompt fills it.
    blocks = round(2400 * (320 / 2400) ** scenario.preemption)
    if pool == CHAT_MODELS[1]:
        return EngineSpec(pool, step_ms=11.0, prefill_us=80.0, decode_us=190.0, speculate=3, blocks=blocks)
    if pool == EMBEDDING_MODEL:
        return EngineSpec(pool, step_ms=2.0, prefill_us=6.0, decode_us=0.0, token_budget=8192)
    return EngineSpec(CHAT_MODELS[0], blocks=blocks)
