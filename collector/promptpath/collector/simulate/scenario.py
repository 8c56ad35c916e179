"""What is to be simulated: every knob, with its default, and how it is written on a command line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

TOPOLOGIES: Final[dict[str, str]] = {
    "full": "client, gateway, router, engine",
    "direct": "client, engine",
    "edge": "client, edge proxy, gateway, engine",
    "headless": "gateway, router, engine, the client unseen",
    "disagg": "client, gateway, router, then a prefill and a decode worker",
    "agent": "an agent's run of calls and tools, each call as in full",
}
DEFAULT_TOPOLOGY: Final = "full=40,direct=15,edge=15,headless=10,disagg=10,agent=10"
#: Systems in whose words spans can be, and of which hop.
SYSTEMS: Final[dict[str, str]] = {
    "otel-genai": "client",
    "envoy": "edge, gateway",
    "litellm-v1": "gateway",
    "litellm-v2": "gateway",
    "vllm": "engine",
    "sglang": "engine",
}
ARRIVALS: Final = ("poisson", "burst", "diurnal")
#: Stages whose service times a regression can stretch.
REGRESSION_STAGES: Final = (
    "client", "dns", "tcp", "tls", "transit", "edge", "gateway", "router", "parse", "tokenize", "prefill",
    "kv_transfer", "decode", "detokenize", "safety", "stream",
)  # fmt: skip


class ScenarioError(ValueError):
    """A knob that cannot be turned so; one line that says what to do."""


@dataclass(frozen=True)
class Regression:
    """From a point of the run on, a stage takes longer.

    stage: of REGRESSION_STAGES; factor: how many times as long; at: from 0 to 1; model: only for its prompts, '' for
    all.
    """

    stage: str
    factor: float
    at: float = 0.5
    model: str = ""


@dataclass(frozen=True)
class Scenario:
    """A simulation. Shares are fractions of prompts (or of spans) from 0 to 1.

    seed: the same seed and start give the same bytes. prompts: how many. start_ns: the true time at which it begins.
    topology: weight per name of TOPOLOGIES. arrivals, arrival_rate: the process by which prompts come, and their mean
    number per second. engines: inference servers in all; load per engine follows from it and the rate. hosts: how many
    hosts the processes share, 0 for one each. skew_s, drift_ppm, ntp_step_s: bounds of the clocks' errors. late, lost,
    doubled: shares of spans; late_s: by how much at most. errors: share of prompts an attempt of which fails.
    rejections: refused by authentication, limits, validation, guardrails. aborts: given up by somebody before the end.
    guardrails: with a safety check on their way. stalls: with a pause of a hop's or a link's in their stream.
    non_streaming, embeddings, choices: of these kinds. preemption: share of its memory that an engine lacks. systems:
    whose words (of SYSTEMS) the spans of prompts are in that were answered at the first attempt.
    """

    seed: int = 0
    prompts: int = 1000
    start_ns: int = 1_767_225_600_000_000_000
    topology: Mapping[str, float] = field(default_factory=lambda: parse_topology(DEFAULT_TOPOLOGY))
    arrivals: str = "poisson"
    arrival_rate: float = 60.0
    engines: int = 8
    hosts: int = 0
    skew_s: float = 0.05
    drift_ppm: float = 20.0
    ntp_step_s: float = 0.0
    late: float = 0.01
    late_s: float = 30.0
    lost: float = 0.0
    doubled: float = 0.002
    errors: float = 0.03
    rejections: float = 0.02
    aborts: float = 0.03
    guardrails: float = 0.1
    stalls: float = 0.05
    non_streaming: float = 0.1
    embeddings: float = 0.05
    choices: float = 0.03
    preemption: float = 0.9
    regressions: tuple[Regression, ...] = ()
    systems: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in (
            "late", "lost", "doubled", "errors", "rejections", "aborts", "guardrails", "stalls", "non_streaming",
            "embeddings", "choices", "preemption",
        ):  # fmt: skip
            if not 0 <= getattr(self, name) <= 1:
                raise ScenarioError(f"{name} is {getattr(self, name)}: it is a share, from 0 to 1")
        for name in ("prompts", "engines"):
            if getattr(self, name) < 1:
                raise ScenarioError(f"{name} is {getattr(self, name)}: there must be one at least")
        if self.arrival_rate <= 0:
            raise ScenarioError(f"arrival_rate is {self.arrival_rate}: it must be above 0")
        if self.arrivals not in ARRIVALS:
            raise ScenarioError(f"arrivals is {self.arrivals!r}: it is one of {', '.join(ARRIVALS)}")

    @property
    def length_ns(self) -> int:
        """About how long the prompts take to come."""
        return round(self.prompts / self.arrival_rate * 1e9)


def parse_topology(text: str) -> dict[str, float]:
    """`full=40,direct=10` or `full`: weights per topology.

    Raises:
        ScenarioError: a name or weight that there is not.
    """
    weights: dict[str, float] = {}
    for item in text.split(","):
        name, _, weight = item.strip().partition("=")
        if name not in TOPOLOGIES:
            raise ScenarioError(f"topology {name!r} is not known: use {', '.join(TOPOLOGIES)}")
        weights[name] = _number(f"the weight of topology {name}", weight or "1")
    if min(weights.values()) < 0 or sum(weights.values()) <= 0:
        raise ScenarioError(f"topology {text!r}: weights must not be negative and not all 0")
    return weights


def parse_systems(text: str) -> tuple[str, ...]:
    """`vllm,litellm-v2`; `all` for all; '' for none.

    Raises:
        ScenarioError: a name that there is not.
    """
    names = tuple(SYSTEMS) if text.strip() == "all" else tuple(one.strip() for one in text.split(",") if one.strip())
    for name in names:
        if name not in SYSTEMS:
            raise ScenarioError(f"system {name!r} is not known: use all, {', '.join(SYSTEMS)}")
    return names


def parse_regressions(text: str) -> tuple[Regression, ...]:
    """`stage=prefill,factor=1.2,at=0.5,model=NAME`, several with semicolons between; '' for none.

    Raises:
        ScenarioError: a key, stage or number that there is not.
    """
    return tuple(_regression(one) for one in text.split(";") if one.strip())


def _regression(text: str) -> Regression:
    values = {"stage": "", "factor": "", "at": "0.5", "model": ""}
    for item in text.split(","):
        key, _, value = item.strip().partition("=")
        if key not in values:
            raise ScenarioError(f"regression: {key!r} is not known: write stage=prefill,factor=1.2,at=0.5")
        values[key] = value.strip()
    if values["stage"] not in REGRESSION_STAGES:
        raise ScenarioError(f"regression: stage {values['stage']!r} is none of {', '.join(REGRESSION_STAGES)}")
    factor, at = _number("regression: factor", values["factor"]), _number("regression: at", values["at"])
    if factor <= 0 or not 0 <= at <= 1:
        raise ScenarioError("regression: factor must be above 0, at from 0 to 1: write stage=prefill,factor=1.2,at=0.5")
    return Regression(values["stage"], factor, at, values["model"])


def _number(what: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ScenarioError(f"{what} is {text!r}: it must be a number") from None
