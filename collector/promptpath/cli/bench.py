"""`promptpath bench NAME`: how fast a part is on this machine, and beside what."""

from __future__ import annotations

import importlib
import json

import click

from promptpath.cli.benches import NAMES, Figures
from promptpath.cli.extras import need
from promptpath.cli.options import command, format_option, option


@command("bench")
@click.argument("name", type=click.Choice(list(NAMES)))
@option("--prompts", type=click.IntRange(1), default=50_000, help="How many prompts of about 20 spans to measure with.")
@format_option("table", "json")
def bench(name: str, prompts: int, output: str) -> None:
    """Measures a part of Promptpath on this machine, and prints figures and ratios.

    \b
    assemble   spans made into prompts, a second of one core; beside the same rules in plain Python
    size       bytes on disk a span, a token and a prompt; beside the same spans in the usual schema
    ingest     OTLP from a socket to a row, CPU a span of the whole process, and how long a sender waits for its answer;
               beside protobuf through Python columns, and rotel (where installed) into the same storage
    overhead   what recording a prompt costs the program that is traced; beside the OpenTelemetry SDK, logfire and
               ddtrace (where installed)
    query      how long the queries of the dashboard and of SQL take, in the process of the store and over HTTP
    """
    need("bench", "collector")
    module, _ = NAMES[name]
    found: Figures = importlib.import_module(module).measure(prompts)
    if output == "json":
        click.echo(json.dumps(found.as_dict()))
        return
    click.echo(
        f"{found.name} on {found.machine['cpu']}, {found.machine['cores']} cores, load {found.machine['load_1m']}"
    )
    for title, values in (("figures", found.figures), ("ratios", found.ratios)):
        for key, value in values.items():
            click.echo(f"  {title:8}{key:30}{'-' if value is None else format(value, ',')}")
