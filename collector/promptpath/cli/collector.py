"""`promptpath collector`: receives, stores and assembles, in this process."""

from __future__ import annotations

import logging
from pathlib import Path

import click

from promptpath.cli.extras import need
from promptpath.cli.options import command, option, retention_option, rules_option
from promptpath.cli.stack import receiver_options


@command("collector")
@receiver_options
@option(
    "--journal",
    type=click.Path(path_type=Path, file_okay=False),
    default=None,
    help="Where requests are kept until they are stored.  [default: journal/ in the data directory]",
    show_default=False,
)
@option("--grace-s", type=click.FloatRange(0), default=2.0, help="Quiet seconds before a prompt is assembled.")
@rules_option
@option(
    "--tokens",
    type=click.Path(path_type=Path, dir_okay=False),
    default=None,
    show_default=False,
    help="A file of tokens (see: promptpath tokens); without it everyone who reaches a port may use it.",
)
@retention_option
@option("--max-body-bytes", type=click.IntRange(1), default=64 << 20, help="The largest request, decompressed.")
def collector(
    storage: str | None,
    host: str,
    http_port: int,
    grpc_port: int,
    sql_port: int,
    journal: Path | None,
    grace_s: float,
    rules: Path | None,
    tokens: Path | None,
    ttl: dict[str, int],
    max_body_bytes: int,
) -> None:
    """Receives OTLP, stores it, and turns it into prompts.

    An embedded store has one owner: this process, which serves it to everyone else as ClickHouse's HTTP interface.
    """
    need("collector", "collector")
    from promptpath.collector.service import Collector, CollectorConfig
    from promptpath.storage.connection import DEFAULT_URL
    from promptpath.storage.urls import redacted

    config = CollectorConfig(
        storage=storage or DEFAULT_URL,
        host=host,
        http_port=http_port,
        grpc_port=grpc_port,
        sql_port=sql_port,
        journal=journal,
        retention=ttl,
        max_body_bytes=max_body_bytes,
        grace_s=grace_s,
        rules=rules,
        tokens=tokens,
    )
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")

    def ready(running: Collector) -> None:
        at = running.ports
        sql = redacted(running.sql_url)
        click.echo(f"OTLP/HTTP  http://{host}:{at.http}\nOTLP/gRPC  {host}:{at.grpc}\nSQL        {sql}")

    Collector(config).run(ready)
