"""How long things take: log-normal times per step, stretched where the scenario says that a stage regresses."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from typing import Final

from promptpath.collector.simulate.scenario import Regression, Scenario

#: Step: (median [ms], sigma of its logarithm, the stage whose regression stretches it).
_STEPS: Final[Mapping[str, tuple[float, float, str]]] = {
    "prepare": (0.5, 0.4, "client"),
    "hand_out": (0.04, 0.3, "client"),
    "pool": (0.03, 0.4, "transit"),
    "dns": (2.5, 0.9, "dns"),
    "tls": (1.2, 0.3, "tls"),
    "edge": (0.12, 0.4, "edge"),
    "waf": (0.35, 0.6, "edge"),
    "read": (0.15, 0.4, "gateway"),
    "authenticate": (1.0, 0.8, "gateway"),
    "rate_limit": (0.3, 0.5, "gateway"),
    "prompt_policy": (0.8, 0.6, "gateway"),
    "gateway": (0.2, 0.4, "gateway"),
    "relay": (0.03, 0.3, "gateway"),
    "refuse": (0.15, 0.4, "gateway"),
    "route": (0.6, 0.6, "router"),
    "router": (0.15, 0.4, "router"),
    "router_relay": (0.03, 0.3, "router"),
    "back_off": (60.0, 0.5, ""),
    "client_back_off": (600.0, 0.3, ""),
    "safety": (14.0, 0.6, "safety"),
    "long_safety": (220.0, 0.5, "safety"),
    "parse": (0.5, 0.5, "parse"),
    "tokenize": (0.3, 0.3, "tokenize"),
    "tokenize_1k": (1.1, 0.3, "tokenize"),
    "between": (0.06, 0.5, ""),
    "detokenize": (0.3, 0.5, "detokenize"),
    "stream": (0.09, 0.5, "stream"),
    "kv_transfer_1k": (18.0, 0.4, "kv_transfer"),
    "kv_set_up": (1.5, 0.4, "kv_transfer"),
    "crash": (400.0, 0.8, ""),
    "patience": (900.0, 1.0, ""),
    "tool": (250.0, 0.9, ""),
    "think": (4.0, 0.6, ""),
}


class ServiceTimes:
    """Draws times.

    rng: the simulation's randomness. Times are ints [ns].
    """

    def __init__(self, scenario: Scenario, rng: random.Random) -> None:
        self._rng = rng
        self._steps = {name: (math.log(ms * 1e6), sigma, stage) for name, (ms, sigma, stage) in _STEPS.items()}
        begins = scenario.start_ns
        self._regressions: dict[str, list[tuple[int, Regression]]] = {}
        for one in scenario.regressions:
            at = begins + round(one.at * scenario.length_ns)
            self._regressions.setdefault(one.stage, []).append((at, one))

    def factor(self, stage: str, now_ns: int, model: str) -> float:
        """By how much a stage is stretched now for prompts of a model."""
        factor = 1.0
        for at_ns, one in self._regressions.get(stage, ()):
            if now_ns >= at_ns and one.model in ("", model):
                factor *= one.factor
        return factor

    def draw(self, step: str, now_ns: int, model: str, size: float = 1.0) -> int:
        """Time of a step begun now; of one that grows with `size` (thousands of tokens), that many times it."""
        mu, sigma, stage = self._steps[step]
        time = self._rng.lognormvariate(mu, sigma) * size
        if stage in self._regressions:
            time *= self.factor(stage, now_ns, model)
        return int(time) + 1
