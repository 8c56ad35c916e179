"""The assembler beside known truth: simulate, store, assemble, compare; prints one JSON object.

python tests/bench/judge.py                       100,000 prompts, clocks off by up to 5 s, 1 % late, 0.1 % lost
python tests/bench/judge.py --prompts 3000 --seed 7
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from promptpath.cli.benches.stored import requests
from promptpath.collector.assembler import AssemblerService
from promptpath.collector.simulate import ProtobufFile, Scenario, simulate
from promptpath.collector.simulate.judge import judge
from promptpath.collector.simulate.scenario import parse_systems, parse_topology
from promptpath.storage import client_factory, migrate
from promptpath.storage.ingest import insert


def run(scenario: Scenario, folder: Path) -> dict[str, Any]:
    """One judgement; figures and how long each step took [s]."""
    seconds: dict[str, float] = {}
    began = time.perf_counter()

    def lap(name: str) -> None:
        nonlocal began
        now = time.perf_counter()
        seconds[name], began = round(now - began, 2), now

    made = simulate(scenario, [ProtobufFile(folder / "traces.pb")], folder)
    lap("simulate")
    memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    factory = client_factory(f"chdb://{folder}/store")
    client = factory()
    migrate(client)
    for number, body in enumerate(requests(folder / "traces.pb")):
        insert(client, "traces", body, f"judge-{number}")
    lap("store")
    service = AssemblerService(factory, grace_s=0)
    service.flush()
    lap("assemble")
    prompts = client.query_arrow("SELECT * FROM prompts")
    verdict = judge(pq.read_table(folder / "truth.parquet"), prompts)
    lap("judge")
    service.close()
    client.close()
    wrong = {name: ids[:5] for name, ids in verdict.wrong.items() if ids}
    return {
        "name": "judge",
        "figures": verdict.figures() | {"spans": made.counts.spans, "simulate_peak_mb": memory_mb},
        "seconds": seconds,
        "examples": wrong | {"missing": verdict.missing[:5], "doubled": verdict.doubled[:5]},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--skew", type=float, default=5.0, help="seconds")
    parser.add_argument("--drift-ppm", type=float, default=50.0)
    parser.add_argument("--late", type=float, default=0.01)
    parser.add_argument("--lost", type=float, default=0.001)
    parser.add_argument("--doubled", type=float, default=0.002)
    parser.add_argument("--hosts", type=int, default=0)
    parser.add_argument("--ntp-step", type=float, default=0.0, help="seconds")
    parser.add_argument("--arrival-rate", type=float, default=60.0)
    parser.add_argument("--topology", type=parse_topology)
    parser.add_argument(
        "--systems", type=parse_systems, default=(), help="in whose words, as promptpath simulate takes"
    )
    parser.add_argument("--keep", type=Path, help="a folder for the spans, the truth and the store")
    given = parser.parse_args()
    scenario = Scenario(
        seed=given.seed,
        prompts=given.prompts,
        skew_s=given.skew,
        drift_ppm=given.drift_ppm,
        late=given.late,
        lost=given.lost,
        doubled=given.doubled,
        hosts=given.hosts,
        ntp_step_s=given.ntp_step,
        arrival_rate=given.arrival_rate,
        systems=given.systems,
        **({"topology": given.topology} if given.topology else {}),
    )
    with tempfile.TemporaryDirectory() as folder:
        where = given.keep or Path(folder)
        where.mkdir(parents=True, exist_ok=True)
        print(json.dumps(run(scenario, where), indent=1))


if __name__ == "__main__":
    main()
