"""`promptpath assemble`: prompts anew from the spans that are stored."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import click

from promptpath.cli.errors import Wrong
from promptpath.cli.extras import need
from promptpath.cli.options import command, format_option, option, rules_option, storage_option
from promptpath.cli.progress import Progress
from promptpath.cli.times import Time


@command("assemble")
@storage_option
@format_option("table", "json")
@option("--since", type=Time(), required=True, help="Traces with spans from then on: 1d, or 2026-01-31T12:00 (UTC).")
@option("--until", type=Time(), default=None, show_default="now", help="And up to then.")
@option("--shard", metavar="I/N", default="0/1", help="Only the I-th of N parts of the traces (I from 0).")
@rules_option
def assemble(
    storage: str | None,
    output: str,
    since: dt.datetime,
    until: dt.datetime | None,
    shard: str,
    rules: Path | None,
) -> None:
    """Assembles stored traces again: after a change of rules, or what a collector has not seen to."""
    need("assemble", "collector")
    from promptpath.cli.store import select_of, writable
    from promptpath.collector.assemble.store import Shard
    from promptpath.collector.backfill import assemble_since

    index, _, of = shard.partition("/")
    if not (index.isdecimal() and of.isdecimal() and int(index) < int(of)):
        raise Wrong(f"--shard {shard} is no part: write I/N with I from 0 to N - 1, as in 0/4")
    with writable(storage) as client, Progress("assembling") as progress:
        written = assemble_since(
            client,
            round(since.timestamp() * 1_000_000) * 1000,
            until_ns=round(until.timestamp() * 1_000_000) * 1000 if until is not None else None,
            shard=Shard(int(index), int(of)),
            select=select_of(rules),
            progress=progress,
        )
    click.echo(json.dumps({"prompts": written}) if output == "json" else f"{written} prompts")
