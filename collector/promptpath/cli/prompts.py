"""`promptpath prompts`: what was asked, and how long it took."""

from __future__ import annotations

import datetime as dt
from typing import Any, Literal

import click

from promptpath.cli.extras import need
from promptpath.cli.options import command, format_option, option, storage_option
from promptpath.cli.times import Time
from promptpath.semconv import Status

#: Longer names of models are cut in the table.
_MODEL_WIDTH = 60


@command("prompts")
@storage_option
@format_option("table", "json")
@option("--model", help="Only those that this model answered.")
@option("--service", help="Only those from this service.")
@option("--tenant", help="Only those of this tenant.")
@option("--status", type=click.Choice([str(status) for status in Status]), help="Only those that ended so.")
@option("--since", type=Time(), help="Only those from then on: 15m, 2h, 3d or 2026-01-31T12:00 (UTC).")
@option(
    "--order",
    type=click.Choice(["newest", "oldest", "slowest", "fastest", "longest", "stalls", "tpot"]),
    default="newest",
    help="Slowest and fastest are by TTFT, longest by E2E.",
)
@option("--limit", type=click.IntRange(1, 10_000), default=20, help="At most so many.")
def prompts(
    storage: str | None,
    output: str,
    model: str | None,
    service: str | None,
    tenant: str | None,
    status: str | None,
    since: dt.datetime | None,
    order: Literal["newest", "oldest", "slowest", "fastest", "longest", "stalls", "tpot"],
    limit: int,
) -> None:
    """Lists prompts."""
    need("prompts", "collector")
    from promptpath.cli.tables import print_json_lines
    from promptpath.storage.connection import connect
    from promptpath.storage.queries import prompts as queries

    client = connect(storage, readonly=True)
    try:
        found = queries.list_prompts(
            client, model=model, service=service, tenant=tenant, status=status, since=since, order=order, limit=limit
        )
    finally:
        client.close()
    rows = found.to_pylist()
    if output == "json":
        print_json_lines(rows)
    elif not rows:
        click.echo("no prompts")
    else:
        _print_table(rows)


def _print_table(rows: list[dict[str, Any]]) -> None:
    from promptpath.cli.tables import print_rows
    from promptpath.cli.waterfall import duration

    columns = ["prompt", "start (UTC)", "model", "status", "TTFT", "E2E", "TPOT", "in", "out", "stalls"]
    print_rows(
        columns,
        [
            (
                row["prompt_id"],
                row["start_time"],
                _short(row["model"]),
                row["status"],
                duration(row["ttft_ns"]),
                duration(row["e2e_ns"]),
                duration(row["tpot_ns"]),
                row["input_tokens"],
                row["output_tokens"],
                row["stalls"],
            )
            for row in rows
        ],
    )


def _short(name: str) -> str:
    return name if len(name) <= _MODEL_WIDTH else name[: _MODEL_WIDTH - 1] + "~"
