"""`promptpath collector`: receives, stores and assembles, in this process."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from promptpath.cli.errors import Wrong
from promptpath.cli.extras import need
from promptpath.cli.options import command, option, retention_option, rules_option
from promptpath.cli.stack import own_spans_option, receiver_options

_F = TypeVar("_F", bound=Callable[..., Any])
_ORIGIN = re.compile(r"\*|https?://[^/\s]+")


def _file_option(name: str, text: str) -> Callable[[_F], _F]:
    path = click.Path(path_type=Path, dir_okay=False)
    return option(name, type=path, default=None, show_default=False, help=text)


def _check_origins(_: click.Context, __: click.Parameter, origins: tuple[str, ...]) -> tuple[str, ...]:
    for origin in origins:
        if not _ORIGIN.fullmatch(origin):
            raise click.BadParameter(f"{origin!r} is no origin: write scheme://host, with no path, or *")
    return origins


@command("collector")
@receiver_options
@option(
    "--journal",
    type=click.Path(path_type=Path, file_okay=False),
    default=None,
    help="Where requests are kept until they are stored.  [default: journal/ in the data directory]",
    show_default=False,
)
@option(
    "--journal-max-bytes",
    type=click.IntRange(1 << 20),
    default=4 << 30,
    help="What may wait in the journal; above that senders are asked to come back.",
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
@own_spans_option
@_file_option("--tls-cert", "The server's certificate and its chain, PEM: TLS on the OTLP ports and the SQL port.")
@_file_option("--tls-key", "The key of --tls-cert, PEM, not encrypted.")
@_file_option("--tls-client-ca", "CAs, PEM: only senders with a certificate of theirs are let in (mTLS).")
@option(
    "--cors-origin",
    "cors_origins",
    multiple=True,
    callback=_check_origins,
    metavar="ORIGIN",
    show_default=False,
    help="Whose pages may send from a browser, such as https://app.example.com; * for any; may be repeated.",
)
@option(
    "--allow-anonymous",
    is_flag=True,
    default=False,
    help="Listen beyond this machine although no tokens or client certificates are asked for.",
)
@option("--max-body-bytes", type=click.IntRange(1), default=64 << 20, help="The largest request, decompressed.")
@option("--sql-max-seconds", type=click.FloatRange(0.1), default=30.0, help="How long one SQL query may run.")
@option("--sql-max-memory-bytes", type=click.IntRange(1 << 20), default=2 << 30, help="What one SQL query may hold.")
@option("--sql-max-result-rows", type=click.IntRange(1), default=10_000_000, help="Rows that one SQL query may give.")
@option("--sql-max-result-bytes", type=click.IntRange(1), default=4 << 30, help="Bytes that one SQL query may give.")
@option("--log-format", type=click.Choice(["text", "json"]), default="text", help="json is one object a line.")
@option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="warning", help="From when on."
)
def collector(
    storage: str | None,
    host: str,
    http_port: int,
    grpc_port: int,
    sql_port: int,
    journal: Path | None,
    journal_max_bytes: int,
    grace_s: float,
    rules: Path | None,
    tokens: Path | None,
    ttl: dict[str, int],
    own_spans: bool,
    tls_cert: Path | None,
    tls_key: Path | None,
    tls_client_ca: Path | None,
    cors_origins: tuple[str, ...],
    allow_anonymous: bool,
    max_body_bytes: int,
    sql_max_seconds: float,
    sql_max_memory_bytes: int,
    sql_max_result_rows: int,
    sql_max_result_bytes: int,
    log_format: str,
    log_level: str,
) -> None:
    """Receives OTLP, stores it, and turns it into prompts.

    An embedded store has one owner: this process, which serves it to everyone else as ClickHouse's HTTP interface.
    """
    need("collector", "collector")
    from promptpath.collector import memory

    memory.keep_little()
    from promptpath.collector import logs
    from promptpath.collector.journal import JournalLimits
    from promptpath.collector.service import Collector, CollectorConfig
    from promptpath.collector.sql_settings import SqlLimits
    from promptpath.collector.tls import TlsFiles
    from promptpath.storage.connection import DEFAULT_URL
    from promptpath.storage.urls import redacted

    tls = None
    if tls_cert is not None and tls_key is not None:
        tls = TlsFiles(tls_cert, tls_key, tls_client_ca)
    elif tls_cert is not None or tls_key is not None or tls_client_ca is not None:
        raise Wrong("TLS takes both --tls-cert and --tls-key")
    config = CollectorConfig(
        storage=storage or DEFAULT_URL,
        host=host,
        http_port=http_port,
        grpc_port=grpc_port,
        sql_port=sql_port,
        journal=journal,
        journal_limits=JournalLimits(max_bytes=journal_max_bytes),
        retention=ttl,
        own_spans=own_spans,
        max_body_bytes=max_body_bytes,
        grace_s=grace_s,
        rules=rules,
        tokens=tokens,
        tls=tls,
        cors_origins=cors_origins,
        allow_anonymous=allow_anonymous,
        sql_limits=SqlLimits(
            result_rows=sql_max_result_rows,
            result_bytes=sql_max_result_bytes,
            seconds=sql_max_seconds,
            memory_bytes=sql_max_memory_bytes,
        ),
    )
    logs.set_up("json" if log_format == "json" else "text", log_level)

    def ready(running: Collector) -> None:
        at = running.ports
        sql = redacted(running.sql_url)
        scheme = "http" if tls is None else "https"
        click.echo(f"OTLP/HTTP  {scheme}://{host}:{at.http}\nOTLP/gRPC  {host}:{at.grpc}\nSQL        {sql}")

    Collector(config).run(ready)
