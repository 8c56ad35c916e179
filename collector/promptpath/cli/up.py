"""`promptpath up`: the collector and the dashboard, together."""

from __future__ import annotations

import os

import click

from promptpath.cli import stack
from promptpath.cli.extras import need
from promptpath.cli.options import command, retention_option
from promptpath.cli.processes import Children


@command("up")
@stack.receiver_options
@retention_option
@stack.own_spans_option
@stack.dashboard_port_option
def up(
    storage: str | None,
    host: str,
    http_port: int,
    grpc_port: int,
    sql_port: int,
    ttl: dict[str, int],
    own_spans: bool,
    dashboard_port: int,
) -> None:
    """Starts the collector and the dashboard, and ends both with Ctrl-C."""
    need("up", "collector", "dashboard")
    logs = stack.logs_dir(storage)
    options = stack.StackOptions(
        storage, host, http_port, grpc_port, sql_port, dashboard_port, ttl, own_spans
    ).with_ports()
    with stack.running() as wait_for_ctrl_c, Children(logs) as children:
        click.echo("starting the collector and the dashboard ...", err=True)
        stack.launch(children, options, os.environ)
        stack.wait(children, options)
        click.echo(addresses(options))
        wait_for_ctrl_c(children)


def addresses(options: stack.StackOptions) -> str:
    """What listens where, one a line."""
    lines = [
        ("dashboard", options.dashboard_url),
        ("OTLP/HTTP", options.otlp_url),
        ("OTLP/gRPC", f"{options.reach}:{options.grpc_port}"),
    ]
    if not options.on_server:
        lines.append(("SQL", f"http://{options.reach}:{options.sql_port} (ClickHouse's HTTP interface)"))
    return "\n".join(f"{name:<10} {where}" for name, where in lines)
