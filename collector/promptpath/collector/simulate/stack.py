"""The machines: hosts with their clocks, processes on them, links between them, engines and which model they serve."""

from __future__ import annotations

import random
import uuid
from dataclasses import dataclass, field
from typing import Final

from promptpath import semconv
from promptpath.collector.simulate import clocks
from promptpath.collector.simulate.clocks import Clock
from promptpath.collector.simulate.scenario import Scenario

CHAT_MODELS: Final = ("llama-3.1-8b-instruct", "qwen3-32b")
EMBEDDING_MODEL: Final = "bge-m3"

Value = str | int | float | bool | tuple[str, ...]
Attributes = tuple[tuple[str, Value], ...]


@dataclass(frozen=True)
class Host:
    """A machine. id, name: as in `host.id` and `host.name`; remote: on the other side of the internet."""

    id: str
    name: str
    clock: Clock
    remote: bool


@dataclass(eq=False)
class Node:
    """A process. number: from 0; resource: of its spans; phase_ns: when in its rhythm it sends spans."""

    number: int
    service: str
    host: Host
    resource: Attributes
    port: int
    phase_ns: int
    connections: set[int] = field(default_factory=set)


@dataclass(frozen=True)
class Link:
    """One way each between two hosts [ns]. The ways differ; jitter comes on top."""

    out_ns: int
    back_ns: int
    jitter_ns: int


class Stack:
    """Every process of a scenario.

    clients, agents, edges, gateways, routers: alike, one is drawn for each prompt. pools: processes of the engines by
    what they serve: a model's name, `prefill`, `decode`.
    """

    def __init__(self, scenario: Scenario, rng: random.Random) -> None:
        self._scenario = scenario
        self._rng = rng
        self._hosts: list[Host] = []
        self._links: dict[tuple[str, str], Link] = {}
        self.nodes: list[Node] = []
        self.clients = [self._node("app", remote=True) for _ in range(6)]
        self.agents = [self._node("agent") for _ in range(2)]
        self.edges = [self._node("edge")]
        self.gateways = [self._node("gateway") for _ in range(2)]
        self.routers = [self._node("router") for _ in range(2)]
        count = scenario.engines
        special = max(1, count // 8)
        general = max(2, count - 2 * special - 1)
        second = max(1, general * 2 // 5)
        self.pools = {
            CHAT_MODELS[0]: [self._node("llama-engine", gpus=1) for _ in range(general - second)],
            CHAT_MODELS[1]: [self._node("qwen-engine", gpus=2) for _ in range(second)],
            "prefill": [self._node("prefill-engine", gpus=1) for _ in range(special)],
            "decode": [self._node("decode-engine", gpus=1) for _ in range(special)],
            EMBEDDING_MODEL: [self._node("embed-engine", gpus=1)],
        }

    @property
    def hosts(self) -> list[Host]:
        """Hosts that have a process."""
        return list({node.host.id: node.host for node in self.nodes}.values())

    def link(self, caller: Host, callee: Host) -> Link:
        """From a caller's host to a callee's; the same each time."""
        key = (caller.id, callee.id)
        found = self._links.get(key)
        if found is None:
            found = self._links[key] = self._make_link(caller, callee)
        return found

    def _make_link(self, caller: Host, callee: Host) -> Link:
        rng = self._rng
        if caller is callee:
            return Link(25_000, 25_000, 8_000)
        base = rng.uniform(4e6, 35e6) if caller.remote != callee.remote else rng.uniform(80e3, 400e3)
        lean = rng.uniform(0.85, 1.15)
        return Link(int(base * lean), int(base * (2 - lean)), int(base * rng.uniform(0.02, 0.08)) + 5_000)

    def _node(self, service: str, *, remote: bool = False, gpus: int = 0) -> Node:
        rng = self._rng
        number = len(self.nodes)
        host = self._host(number, remote)
        resource: list[tuple[str, Value]] = [
            (semconv.SERVICE_NAME, service),
            (semconv.SERVICE_INSTANCE_ID, str(uuid.UUID(int=rng.getrandbits(128), version=4))),
            (semconv.HOST_ID, host.id),
            (semconv.HOST_NAME, host.name),
            (semconv.PROCESS_PID, rng.randrange(200, 60_000)),
            ("telemetry.sdk.language", "python"),
            ("telemetry.sdk.name", "opentelemetry"),
        ]
        if gpus:
            uuids = tuple(f"GPU-{uuid.UUID(int=rng.getrandbits(128), version=4)}" for _ in range(gpus))
            resource.append((semconv.GPU_UUIDS, uuids))
        node = Node(number, service, host, tuple(resource), 8000 + number, rng.randrange(500_000_000))
        self.nodes.append(node)
        return node

    def _host(self, number: int, remote: bool) -> Host:
        limit = self._scenario.hosts
        remote = remote and limit != 1
        # Clients stay apart from the rest unless there is one host for all.
        kind = [host for host in self._hosts if host.remote == remote]
        far = max(1, limit // 4) if limit > 1 else 0
        room = far if remote else limit - far
        if limit and len(kind) >= room:
            return kind[number % len(kind)]
        scenario, rng = self._scenario, self._rng
        clock = clocks.make(
            rng,
            scenario.start_ns,
            scenario.length_ns,
            skew_ns=round(scenario.skew_s * 1e9),
            drift_ppm=scenario.drift_ppm,
            step_ns=round(scenario.ntp_step_s * 1e9),
        )
        host = Host(f"{rng.getrandbits(128):032x}", f"node-{len(self._hosts):02d}", clock, remote)
        self._hosts.append(host)
        return host
