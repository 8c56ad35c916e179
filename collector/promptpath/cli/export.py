"""`promptpath export`: what is stored, as files that `promptpath import` and any OTLP receiver read, or as tables."""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from promptpath.cli.errors import Wrong
from promptpath.cli.extras import need
from promptpath.cli.options import command, option, storage_option
from promptpath.cli.progress import Progress
from promptpath.cli.times import Time

_TABLES = {"traces": "otel_traces", "logs": "otel_logs", "prompts": "prompts"}


@command("export")
@storage_option
@option("--format", "output", type=click.Choice(["otlp", "parquet"]), default="otlp", help="What to write.")
@option(
    "--encoding",
    type=click.Choice(["json", "protobuf"]),
    default="json",
    help="Of OTLP: a JSON request a line, or protobuf behind 4-byte lengths.",
)
@option(
    "--signal",
    type=click.Choice(["traces", "metrics", "logs", "prompts"]),
    default="traces",
    help="What of it; prompts as Parquet only.",
)
@option("--since", type=Time(), default=None, show_default=False, help="From when on: 2h, 3d, 2026-01-31T12:00.")
@option("--until", type=Time(), default=None, show_default=False, help="Before when.")
@option("--service", default="", show_default=False, help="Only what this service sent.")
@option("--trace", default="", show_default=False, help="Only this trace: its id in hex.")
@option("--tenant", default="", show_default=False, help="Only what came with a token of this tenant.")
@option(
    "--output",
    "-o",
    "path",
    type=click.Path(path_type=Path, dir_okay=False),
    default=None,
    help="A file.  [default: -]",
)
def export(
    storage: str | None,
    output: str,
    encoding: str,
    signal: str,
    since: dt.datetime | None,
    until: dt.datetime | None,
    service: str,
    trace: str,
    tenant: str,
    path: Path | None,
) -> None:
    """Writes what is stored to standard output or a file, in the order of time.

    \b
    promptpath export --since 1h -o traces.jsonl
    promptpath export --signal metrics --encoding protobuf > metrics.pb
    promptpath export --signal prompts --format parquet -o prompts.parquet
    """
    need("export", "collector")
    if signal == "prompts" and output == "otlp":
        raise Wrong("prompts are no OTLP: write --format parquet")
    if output == "parquet" and signal == "metrics":
        raise Wrong("metrics lie in five tables: export each with promptpath sql --format parquet")
    if path is None and (output == "parquet" or encoding == "protobuf") and sys.stdout.isatty():
        raise Wrong("this is no text: send it into a file, with -o FILE")
    from promptpath.storage.connection import connect
    from promptpath.storage.exporting import Filter

    only = Filter(since, until, service, trace, tenant)
    client = connect(storage, readonly=True, settings={"max_memory_usage": 2 << 30})
    try:
        with click.open_file(str(path or "-"), "wb") as file, Progress("exporting") as progress:
            for piece in _pieces(client, output, encoding, signal, only, progress):
                file.write(piece)
            file.flush()
    finally:
        client.close()


def _pieces(client: Any, output: str, encoding: str, signal: str, only: Any, progress: Progress) -> Iterator[bytes]:
    from promptpath.collector.otlp import Signal
    from promptpath.collector.otlp.json_format import to_protobuf
    from promptpath.storage.exporting import export_json, export_parquet

    if output == "parquet":
        yield from export_parquet(client, _TABLES[signal], only)
        return
    kind = Signal(signal)
    for line in export_json(client, kind.value, only, progress):
        if encoding == "json":
            yield line
            continue
        body = to_protobuf(kind, line)
        yield len(body).to_bytes(4, "big") + body
