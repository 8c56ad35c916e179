"""`promptpath simulate`: a whole serving stack that does not exist, and the truth about it."""

from __future__ import annotations

import datetime as dt
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from promptpath.cli.errors import Wrong
from promptpath.cli.extras import need
from promptpath.cli.options import command, format_option, option
from promptpath.cli.progress import Progress
from promptpath.cli.times import Time

if TYPE_CHECKING:
    from promptpath.collector.simulate.export import Sink

_SHARE = click.FloatRange(0.0, 1.0)


@command("simulate")
@format_option("text", "json")
@option("--seed", type=int, default=0, help="The same seed and start give the same spans.")
@option("--prompts", "count", type=click.IntRange(1), default=1000, help="How many.")
@option("--out", type=click.Path(path_type=Path, file_okay=False), help="A folder for the spans and the truth.")
@option(
    "--spans",
    type=click.Choice(["pb", "jsonl", "both", "none"]),
    default="pb",
    help="What is written into --out: traces.pb, traces.jsonl (OTLP/JSON), both, or the truth only.",
)
@option("--endpoint", metavar="URL", help="A collector that is sent the spans by OTLP/HTTP: http://127.0.0.1:4318.")
@option("--rate", type=click.FloatRange(0.0), default=0.0, help="Spans per second to --endpoint; 0: all it takes.")
@option(
    "--start", type=Time(), show_default="so that it ends now", help="When it begins: 2h, or 2026-01-31T12:00 (UTC)."
)
@option(
    "--topology",
    metavar="NAME[=WEIGHT],…",
    default="full=40,direct=15,edge=15,headless=10,disagg=10,agent=10",
    help="Ways of prompts: full (client, gateway, router, engine), direct, edge, headless, disagg, agent.",
)
@option(
    "--arrivals",
    type=click.Choice(["poisson", "burst", "diurnal"]),
    default="poisson",
    help="How prompts come in time.",
)
@option("--arrival-rate", type=click.FloatRange(0.001), default=60.0, help="Prompts per simulated second.")
@option("--engines", type=click.IntRange(1), default=8, help="Inference servers; fewer have more to do each.")
@option("--hosts", type=click.IntRange(0), default=0, help="Machines that the processes share; 0: one each.")
@option("--skew", type=click.FloatRange(0.0), default=0.05, help="Clocks are off by up to so many seconds.")
@option("--drift-ppm", type=click.FloatRange(0.0), default=20.0, help="Clocks drift by up to so much.")
@option("--ntp-step", type=click.FloatRange(0.0), default=0.0, help="Each clock is set once, by up to so many seconds.")
@option("--late", type=_SHARE, default=0.01, help="Share of spans that are sent late.")
@option("--late-s", type=click.FloatRange(1.0), default=30.0, help="By how much at most [s].")
@option("--lost", type=_SHARE, default=0.0, help="Share of spans that are never sent.")
@option("--doubled", type=_SHARE, default=0.002, help="Share of spans that are sent twice.")
@option("--errors", type=_SHARE, default=0.03, help="Share of prompts with a failed attempt or a broken answer.")
@option(
    "--rejections", type=_SHARE, default=0.02, help="Share refused: credentials, limits, policy, guardrail, length."
)
@option("--aborts", type=_SHARE, default=0.03, help="Share given up by a client or a time limit.")
@option("--guardrails", type=_SHARE, default=0.1, help="Share with a safety check before, beside or behind the call.")
@option("--stalls", type=_SHARE, default=0.05, help="Share with a pause on the way back.")
@option("--non-streaming", type=_SHARE, default=0.1, help="Share of answers in one piece.")
@option("--embeddings", type=_SHARE, default=0.05, help="Share of embeddings.")
@option("--choices", type=_SHARE, default=0.03, help="Share that asks for several answers (n > 1).")
@option("--preemption", type=_SHARE, default=0.9, help="How short of memory engines are.")
@option(
    "--regression",
    metavar="stage=…,factor=…,at=…[,model=…]",
    default="",
    help="A stage takes longer from a point of the run (0 to 1) on: stage=prefill,factor=1.2,at=0.5. Several: with ;",
)
@option(
    "--systems",
    metavar="NAME,…",
    default="",
    help="In whose words spans are: all, otel-genai, envoy, litellm-v1, litellm-v2, vllm, sglang. Default: ours.",
)
def simulate(
    output: str,
    count: int,
    out: Path | None,
    spans: str,
    endpoint: str | None,
    rate: float,
    start: dt.datetime | None,
    topology: str,
    skew: float,
    ntp_step: float,
    regression: str,
    systems: str,
    **knobs: Any,
) -> None:
    """Simulates a serving stack and sends or writes the spans that its processes would, with the truth beside them.

    Engines batch, run out of memory and preempt; hosts have wrong clocks; requests fail, are retried and given up;
    spans come late, twice or never. truth.parquet has a row a prompt in true time, clocks.parquet how wrong each clock
    was.

    \b
    promptpath simulate --prompts 5000 --out /tmp/simulated
    promptpath simulate --endpoint http://127.0.0.1:4318 --regression stage=prefill,factor=1.3,at=0.6
    """
    need("simulate", "collector")
    if out is None and endpoint is None:
        raise Wrong("say where to: --out DIRECTORY for files, --endpoint http://127.0.0.1:4318 for a collector")
    from promptpath.collector.simulate import Scenario, ScenarioError, SinkError
    from promptpath.collector.simulate import simulate as run
    from promptpath.collector.simulate.run import summary
    from promptpath.collector.simulate.scenario import parse_regressions, parse_systems, parse_topology

    try:
        scenario = Scenario(
            prompts=count,
            start_ns=_start_ns(start, count, knobs["arrival_rate"]),
            topology=parse_topology(topology),
            skew_s=skew,
            ntp_step_s=ntp_step,
            regressions=parse_regressions(regression),
            systems=parse_systems(systems),
            **knobs,
        )
        sinks = _sinks(out, spans, endpoint, rate)
        began = time.monotonic()
        with Progress("prompts", count) as progress:
            result = run(scenario, sinks, out, progress)
    except (ScenarioError, SinkError) as failure:
        raise Wrong(str(failure)) from None
    figures = summary(result, time.monotonic() - began)
    if output == "json":
        click.echo(json.dumps(figures))
    else:
        _tell(figures, out, spans, endpoint)


def _start_ns(start: dt.datetime | None, count: int, arrival_rate: float) -> int:
    if start is None:
        return time.time_ns() - round(count / arrival_rate * 1e9)
    return round(start.timestamp() * 1_000_000) * 1000


def _sinks(out: Path | None, spans: str, endpoint: str | None, rate: float) -> list[Sink]:
    from promptpath.collector.simulate import HttpSink, JsonFile, ProtobufFile

    sinks: list[Sink] = []
    if endpoint is not None:
        sinks.append(HttpSink(endpoint, rate))
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        if spans in ("pb", "both"):
            sinks.append(ProtobufFile(out / "traces.pb"))
        if spans in ("jsonl", "both"):
            sinks.append(JsonFile(out / "traces.jsonl"))
    return sinks


def _tell(figures: dict[str, Any], out: Path | None, spans: str, endpoint: str | None) -> None:
    click.echo(
        f"{figures['prompts']:,} prompts in {figures['simulated_s']:,.0f} simulated seconds: "
        f"{figures['spans']:,} spans in {figures['requests']:,} requests "
        f"({figures['lost']:,} lost, {figures['late']:,} late, {figures['doubled']:,} twice)"
    )
    if endpoint is not None:
        click.echo(f"sent to {endpoint}")
    if out is not None:
        names = {"pb": ["traces.pb"], "jsonl": ["traces.jsonl"], "both": ["traces.pb", "traces.jsonl"], "none": []}
        click.echo(f"written to {out}: {', '.join([*names[spans], 'truth.parquet', 'clocks.parquet'])}")
