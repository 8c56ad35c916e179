"""`promptpath doctor`: what is set up here, what is not, and what to do about it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import click

from promptpath.cli import checks, stack
from promptpath.cli.checks import Finding
from promptpath.cli.options import command, format_option, option

_MARKS = {"ok": "  ok     ", "note": "  note   ", "problem": "  PROBLEM"}


@command("doctor")
@stack.receiver_options
@stack.dashboard_port_option
@format_option("table", "json")
@click.option(
    "--service", "services", multiple=True, metavar="NAME", help="A service that must be sending; may be repeated."
)
@option("--quiet-minutes", type=click.IntRange(1), default=10, help="After so many without a span a service is silent.")
def doctor(
    storage: str | None,
    host: str,
    http_port: int,
    grpc_port: int,
    sql_port: int,
    dashboard_port: int,
    output: str,
    services: tuple[str, ...],
    quiet_minutes: int,
) -> int:
    """Checks the installation, the exporter's settings, the shims, the store and the ports.

    Exit code 0 if there is no problem, else 1.
    """
    expected = services or tuple(filter(None, [os.environ.get("OTEL_SERVICE_NAME")]))
    taken = {"http-port": http_port, "grpc-port": grpc_port, "sql-port": sql_port, "dashboard-port": dashboard_port}
    problems = 0
    for finding in _all(storage, expected, quiet_minutes, host, taken):
        problems += finding.level == "problem"
        if output == "json":
            click.echo(json.dumps(finding.as_row()))
        else:
            click.echo(f"{_MARKS[finding.level]}  {finding.about:<24} {finding.text}")
    if output == "table":
        click.echo("no problems" if not problems else f"{problems} problem{'s' if problems > 1 else ''}")
    return 1 if problems else 0


def _all(
    storage: str | None, services: tuple[str, ...], quiet_minutes: int, host: str, taken: dict[str, int]
) -> Iterator[Finding]:
    yield from checks.installation()
    yield from checks.exporter()
    yield from checks.shims()
    yield from checks.store(storage, services, quiet_minutes)
    yield from checks.listening(host, taken)
