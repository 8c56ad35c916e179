"""One simulation from beginning to end: prompts come, spans and truth go out."""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from promptpath.collector.simulate.client import agent, ask, unseen
from promptpath.collector.simulate.export import Counts, Exporter, Sink
from promptpath.collector.simulate.kernel import Process
from promptpath.collector.simulate.prompt import Prompt, Workload
from promptpath.collector.simulate.scenario import Scenario
from promptpath.collector.simulate.systems import speak
from promptpath.collector.simulate.truth import TruthFile, write_clocks
from promptpath.collector.simulate.world import World

_AGENT_CALLS: Final = (2, 7)
_FLUSH_EVERY: Final = 64


@dataclass(frozen=True)
class Result:
    """What a simulation made. prompts: whole ones too; simulated_ns: from its start to its last span."""

    prompts: int
    whole: int
    counts: Counts
    simulated_ns: int


def simulate(
    scenario: Scenario, sinks: list[Sink], out: Path | None = None, progress: Callable[[int], None] | None = None
) -> Result:
    """Run a scenario.

    Args:
        scenario: what to simulate.
        sinks: where the spans go; they are closed at the end.
        out: a directory for `truth.parquet` and `clocks.parquet`; None for no truth.
        progress: called with the number of prompts that are over, now and then.
    """
    return _Run(scenario, sinks, out, progress).run()


class _Run:
    def __init__(
        self, scenario: Scenario, sinks: list[Sink], out: Path | None, progress: Callable[[int], None] | None
    ) -> None:
        self._scenario = scenario
        self._world = World(scenario)
        self._workload = Workload(scenario, self._world.rng)
        self._exporter = Exporter(scenario, sinks)
        self._out = out
        self._truth = TruthFile(out / "truth.parquet") if out is not None else None
        self._progress = progress
        self._live: list[int] = []
        self._ended: dict[int, int] = {}
        self._over = self._whole = 0
        self._end_ns = scenario.start_ns

    def run(self) -> Result:
        world = self._world
        world.kernel.start(self._arrivals())
        try:
            world.kernel.run()
        finally:
            self._exporter.close()
            if self._truth is not None:
                self._truth.close()
        if self._out is not None:
            write_clocks(self._out / "clocks.parquet", world.stack, self._scenario, self._end_ns)
        if self._progress is not None:
            self._progress(self._over)
        return Result(self._over, self._whole, self._exporter.counts, self._end_ns - self._scenario.start_ns)

    def _arrivals(self) -> Process[None]:
        world, scenario = self._world, self._scenario
        kernel, number = world.kernel, 0
        for at in arrival_times(scenario, world.rng):
            if number >= scenario.prompts:
                return
            yield at
            topology = self._workload.topology()
            if topology == "agent":
                count = min(world.rng.randint(*_AGENT_CALLS), scenario.prompts - number)
                kernel.start(self._one_agent(number, count))
                number += count
            else:
                kernel.start(self._one(self._workload.draw(number, topology, world.trace_id())))
                number += 1

    def _one(self, prompt: Prompt) -> Process[None]:
        world = self._world
        begun = world.now
        heapq.heappush(self._live, begun)
        if prompt.topology == "headless":
            yield from unseen(world, prompt)
        else:
            yield from ask(world, prompt, world.pick(world.stack.clients))
        speak(prompt, self._scenario.systems, world.ids)
        prompt.whole = self._exporter.add(prompt.spans)
        self._finish(begun, [prompt])

    def _one_agent(self, first: int, count: int) -> Process[None]:
        begun = self._world.now
        heapq.heappush(self._live, begun)
        prompts, run, tools = yield from agent(self._world, self._workload, first, count)
        whole = self._exporter.add([run, *tools])
        for prompt in prompts:
            speak(prompt, self._scenario.systems, self._world.ids)
            prompt.whole = self._exporter.add(prompt.spans) and whole
        self._finish(begun, prompts)

    def _finish(self, begun: int, prompts: list[Prompt]) -> None:
        """These prompts, begun together, are over."""
        for prompt in prompts:
            self._over += 1
            self._whole += prompt.whole
            self._end_ns = max(self._end_ns, prompt.ended_ns)
            if self._truth is not None:
                self._truth.add(prompt)
        self._ended[begun] = self._ended.get(begun, 0) + 1
        live = self._live
        while live and self._ended.get(live[0], 0):
            start = heapq.heappop(live)
            self._ended[start] -= 1
            if not self._ended[start]:
                del self._ended[start]
        if self._over % _FLUSH_EVERY < len(prompts):
            self._exporter.flush(live[0] if live else self._world.now)
            if self._progress is not None:
                self._progress(self._over)


def arrival_times(scenario: Scenario, rng: random.Random) -> Iterator[int]:
    """True instants [ns] at which prompts (or agents) come, without end."""
    at = float(scenario.start_ns)
    agents = scenario.topology.get("agent", 0) / sum(scenario.topology.values())
    mean_ns = (1 + agents * (sum(_AGENT_CALLS) / 2 - 1)) * 1e9 / scenario.arrival_rate
    length = float(scenario.length_ns)
    while True:
        factor = 1.0
        if scenario.arrivals == "burst":
            # A fifth of the time three times as many come, else half as many.
            factor = 3.0 if (at - scenario.start_ns) % 20e9 < 4e9 else 0.5
        elif scenario.arrivals == "diurnal":
            factor = 1.0 + 0.6 * math.sin(2 * math.pi * (at - scenario.start_ns) / length)
        at += rng.expovariate(1.0) * mean_ns / factor
        yield int(at)


def summary(result: Result, seconds: float) -> dict[str, Any]:
    """A result as `--format json` prints it."""
    counts = result.counts
    return {
        "prompts": result.prompts,
        "whole_prompts": result.whole,
        "spans": counts.spans,
        "requests": counts.requests,
        "lost": counts.lost,
        "late": counts.late,
        "doubled": counts.doubled,
        "simulated_s": round(result.simulated_ns / 1e9, 3),
        "seconds": round(seconds, 3),
    }
