"""`promptpath import`: OTLP files into storage and prompts out of them, without a collector."""

from __future__ import annotations

import json
from pathlib import Path

import click

from promptpath.cli.extras import need
from promptpath.cli.options import command, format_option, option, rules_option, storage_option
from promptpath.cli.progress import Progress


@command("import")
@storage_option
@format_option("table", "json")
@option(
    "--signal",
    type=click.Choice(["traces", "metrics", "logs"]),
    default=None,
    show_default="told by the file's name, else traces",
    help="What protobuf files hold; OTLP/JSON says it itself.",
)
@rules_option
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True, dir_okay=False))
def import_(storage: str | None, output: str, signal: str | None, rules: Path | None, files: tuple[Path, ...]) -> None:
    """Stores the OTLP requests of FILES, assembles their prompts, and ends.

    \b
    A file is OTLP/JSON, one request a line, or protobuf, each request behind its length in 4 bytes (big-endian).
    promptpath import traces.jsonl metrics.pb --storage chdb:///tmp/imported
    """
    need("import", "collector")
    from promptpath.cli.store import select_of, writable
    from promptpath.collector.assembler import AssemblerService
    from promptpath.collector.importing import import_files
    from promptpath.collector.otlp import Signal
    from promptpath.storage import DEFAULT_URL, client_factory

    size = sum(path.stat().st_size for path in files)
    with writable(storage) as client:
        with Progress("storing", size) as progress:
            done = import_files(client, files, Signal(signal) if signal else None, progress)
        assembler = AssemblerService(client_factory(storage or DEFAULT_URL), select=select_of(rules))
        try:
            prompts = assembler.flush()
        finally:
            assembler.close()
    figures = {
        "files": len(files),
        "spans": done.items["traces"],
        "data_points": done.items["metrics"],
        "log_records": done.items["logs"],
        "rejected": done.rejected,
        "prompts": prompts,
    }
    if output == "json":
        click.echo(json.dumps(figures))
        return
    click.echo(", ".join(f"{count} {name.replace('_', ' ')}" for name, count in figures.items()))
    if done.rejected:
        click.echo(f"the first rejected: {done.first_reason}", err=True)
