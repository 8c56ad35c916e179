"""kill -9 at random moments, under load: nothing acknowledged is lost, nothing is stored twice, prompts are the same.

    python -m tests.bench.kill9 --kills 50 --seed 1
    python -m tests.bench.kill9 --kills 50 --seed 1 --storage http [--victim engine|both]

A collector in a process of its own, with the embedded engine or with an engine behind HTTP, takes spans, log records
and metric points from several senders at once, over HTTP, HTTP with gzip, and gRPC; these send again, as exporters do,
what was not acknowledged. It is killed while it starts, takes up its journal, runs, stops, or assembles, and started
again; the engine is killed and started again beside it. At the end all that was acknowledged must be there exactly
once, in every table that a view fills; then the same requests go into an empty store without kills, and prompts and
minutes of both must be equal, row for row. It stops when asked to, and starts once more: it must still be so.

Exit code 1 where anything is not.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.bench import exactness
from tests.bench.exactness import Rows
from tests.bench.numbered import REQUESTS_PER_UNIT, unit
from tests.bench.retrying import Senders, mixed
from tests.bench.stack import Stack

#: When the collector is killed: how often, and how long after the moment in question [s].
_MOMENTS: Final = {
    "start": (2, 0.0, 0.0),  # up to what a start takes
    "replay": (2, 0.0, 0.6),
    "load": (3, 0.3, 2.5),
    "stop": (1, 0.0, 0.6),
    "assembly": (2, 0.0, 0.6),
}
_ENGINE_AWAY_S: Final = (0.1, 1.5)
_DRAIN_S: Final = 300.0


@dataclass
class Result:
    """What came of a run."""

    seed: int
    storage: str
    victim: str
    kills: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    requests: int = 0
    attempts: dict[str, int] = field(default_factory=dict)
    #: Requests that were sent again although an earlier attempt may have been taken.
    sent_again: int = 0
    stored: dict[str, int] = field(default_factory=dict)
    #: Of `sent_again` those that are there more than once.
    doubled_retries: int = 0
    exit_code: int = 0
    faults: list[str] = field(default_factory=list)


def run(
    kills: int,
    *,
    seed: int,
    folder: Path,
    storage: str = "embedded",
    victim: str = "collector",
    senders: int = 6,
    requests_per_s: float = 20.0,
    progress: Callable[[str], None] = lambda _: None,
) -> Result:
    """Kills `kills` times. storage: embedded, http. victim: collector, engine, both (http only). requests_per_s: of
    each sender, at most."""
    began = time.monotonic()
    base_ns = time.time_ns()
    result = Result(seed, storage, victim)
    dice = random.Random(seed)
    stack = Stack(folder / "killed", over_http=storage == "http")
    units = (unit(n, base_ns) for n in itertools.count())
    sending = Senders(mixed(stack.http_port, stack.grpc_port, senders), units, requests_per_s)
    try:
        if stack.over_http:
            stack.start_engine()
        stack.launch()
        start_s = stack.wait_ready()
        sending.start()
        while (done := sum(result.kills.values())) < kills:
            on_engine = victim == "engine" or (victim == "both" and dice.random() < 0.4)
            moment = _kill_engine(stack, dice) if on_engine else _kill_collector(stack, dice, start_s)
            if moment:
                result.kills[moment] += 1
                progress(f"kill {done + 1}/{kills} ({moment}): {len(sending.ledger)} requests")
        if not stack.is_running():
            stack.launch()
        stack.wait_ready()
        sending.finish(_DRAIN_S)
        stack.settle()
        progress("the same without kills")
        reference = _without_kills(folder / "reference", base_ns, len(_units(sending)), progress)
        _judge(stack, sending, reference, result, "after the kills")
        result.exit_code = stack.stop()
        if left := stack.left_in_journal():
            result.faults.append(f"left in the journal after a stop: {left}")
        stack.launch()
        stack.wait_ready()
        stack.settle()
        _judge(stack, sending, reference, result, "after one more start")
        if stack.stop() or result.exit_code:
            result.faults.append("a stop did not end with exit code 0")
        if "Traceback" in (log := stack.log.read_text()):
            result.faults.append(f"a traceback in the log: {log[log.index('Traceback') :][:1500]}")
    finally:
        stack.close()
    result.requests = len(sending.ledger)
    result.attempts = {outcome.value: count for outcome, count in sending.outcomes.items()}
    result.sent_again = sum(entry.lost > 0 for entry in sending.ledger.values())
    result.faults += [f"a wrong answer: {one}" for one in sending.wrong[:5]]
    result.seconds = round(time.monotonic() - began, 1)
    return result


def _kill_collector(stack: Stack, dice: random.Random, start_s: float) -> str:
    """Kills it at one moment, starting it first where it does not run; leaves it dead. "" if it was dead before."""
    moment = dice.choices(list(_MOMENTS), [often for often, _, _ in _MOMENTS.values()])[0]
    _, least_s, most_s = _MOMENTS[moment]
    if moment == "start":
        if stack.is_running():
            stack.kill(stack.collector)
        stack.launch()
        time.sleep(dice.uniform(0, start_s))
        return moment if stack.kill(stack.collector) else ""
    if not stack.is_running():
        stack.launch()
        stack.wait_ready()
    if moment == "assembly":
        _wait_for_assembly(stack)
    if moment == "stop":
        time.sleep(dice.uniform(0.2, 1.0))
        stack.ask_to_stop()
    time.sleep(dice.uniform(least_s, most_s))
    return moment if stack.kill(stack.collector) else ""


def _wait_for_assembly(stack: Stack) -> None:
    """Until a run of the assembler has just written rows: the next does so a second later."""
    deadline = time.monotonic() + 10
    before = stack.metrics().get("assembler_prompts_total", 0)
    while time.monotonic() < deadline and stack.metrics().get("assembler_prompts_total", 0) <= before:
        time.sleep(0.02)


def _kill_engine(stack: Stack, dice: random.Random) -> str:
    """Kills the engine and starts it again, while the collector goes on."""
    if not stack.is_running():
        stack.launch()
        stack.wait_ready()
    time.sleep(dice.uniform(0.3, 2.0))
    stack.kill(stack.engine)
    time.sleep(dice.uniform(*_ENGINE_AWAY_S))
    stack.start_engine()
    return "engine"


def _units(sending: Senders) -> set[int]:
    return {number // REQUESTS_PER_UNIT for number in sending.ledger}


def _without_kills(folder: Path, base_ns: int, units: int, progress: Callable[[str], None]) -> Rows:
    stack = Stack(folder, over_http=False)
    try:
        stack.launch()
        stack.wait_ready()
        sending = Senders(mixed(stack.http_port, stack.grpc_port, 3), (unit(n, base_ns) for n in range(units)), 0)
        sending.start()
        sending.join(_DRAIN_S)
        stack.settle()
        client = stack.client()
        verdict = exactness.judge(client, sending.ledger)
        if faults := verdict.faults():
            raise RuntimeError(f"the run without kills is not right itself: {faults}")
        expected = sum(entry.prompts for entry in sending.ledger.values())
        found = exactness.rows(client)
        if len(found.prompts) != expected:
            raise RuntimeError(f"the run without kills has {len(found.prompts)} prompts of {expected}")
        client.close()
        return found
    finally:
        stack.close()


def _judge(stack: Stack, sending: Senders, reference: Rows, result: Result, when: str) -> None:
    client = stack.client()
    verdict = exactness.judge(client, sending.ledger, reference)
    client.close()
    result.faults += [f"{when}: {line}" for line in verdict.faults()]
    result.stored = verdict.stored
    result.doubled_retries = len(verdict.doubled_retries)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50, help="how often (default 50)")
    parser.add_argument("--seed", type=int, default=None, help="of when it is killed (default: a new one)")
    parser.add_argument("--storage", choices=["embedded", "http"], default="embedded")
    parser.add_argument("--victim", choices=["collector", "engine", "both"], default="collector")
    parser.add_argument("--senders", type=int, default=6, help="that send at once (default 6)")
    parser.add_argument("--requests-per-s", type=float, default=20.0, help="of each sender, at most (default 20)")
    parser.add_argument("--keep", type=Path, default=None, help="leave everything in this folder")
    parser.add_argument("--format", choices=["text", "json"], default="text")
    arguments = parser.parse_args()
    if arguments.victim != "collector" and arguments.storage != "http":
        parser.error("an embedded engine has no process of its own: --victim goes with --storage http")
    folder = arguments.keep or Path(tempfile.mkdtemp(prefix="kill9-"))
    seed = arguments.seed if arguments.seed is not None else random.randrange(1 << 30)
    try:
        result = run(
            arguments.kills,
            seed=seed,
            folder=folder,
            storage=arguments.storage,
            victim=arguments.victim,
            senders=arguments.senders,
            requests_per_s=arguments.requests_per_s,
            progress=lambda line: print(line, file=sys.stderr, flush=True),
        )
    finally:
        if arguments.keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    _show(result, arguments.format)
    return 1 if result.faults else 0


def _show(result: Result, form: str) -> None:
    figures: dict[str, Any] = vars(result)
    if form == "json":
        print(json.dumps({"name": "kill9", "figures": figures}))
        return
    for name, value in figures.items():
        text = ", ".join(f"{key} {count}" for key, count in value.items()) if isinstance(value, dict) else value
        print(f"{name:16} {text}")


if __name__ == "__main__":
    sys.exit(main())
