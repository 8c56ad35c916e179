"""`promptpath storage`: the schema of a store, and what it holds."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from promptpath.cli.extras import need
from promptpath.cli.options import command, format_option, option, retention_option, storage_option


@click.group("storage")
def storage() -> None:
    """The store itself: its schema, and what it holds."""


@command("migrate")
@storage_option
@option(
    "--cluster",
    metavar="NAME",
    default=None,
    show_default=False,
    help="Spread the schema over this ClickHouse cluster (a name, or {cluster}); also ?cluster=NAME in the URL.",
)
@click.option("--dry-run", is_flag=True, help="Only print the statements.")
@retention_option
def migrate(storage: str | None, cluster: str | None, dry_run: bool, ttl: dict[str, int]) -> None:
    """Brings a store to the schema of this release.

    A collector does the same when it starts. Safe to run while others do: one migrates, the rest wait.
    """
    need("storage migrate", "collector")
    from promptpath import storage as schema
    from promptpath.cli.store import opened
    from promptpath.storage.connection import cluster_of
    from promptpath.storage.retention import apply_retention
    from promptpath.storage.urls import cluster_name

    on = cluster_name(cluster) if cluster is not None else cluster_of(storage)
    if dry_run:
        _print_statements(storage, on)
        return
    with opened(storage) as client:
        applied = schema.migrate(client, cluster=on)
        for step in applied:
            click.echo(f"applied {step.version:04d} {step.name}")
        changed = apply_retention(client, ttl, cluster=on)
        if changed:
            click.echo(f"retention set: {', '.join(changed)}")
        if not applied and not changed:
            click.echo("up to date")


def _print_statements(url: str | None, cluster: str) -> None:
    """What a migration would send. A store that is not there yet is not made by looking."""
    from promptpath.storage import StorageError, connect, data_dir
    from promptpath.storage.engine import ENGINE_DIR
    from promptpath.storage.migrating import pending
    from promptpath.storage.schema import ledger, migrations
    from promptpath.storage.urls import DATABASE, ServerUrl, default_dir, parse

    target = parse(url or f"chdb://{default_dir()}")
    directory = data_dir(url)
    waiting = list(migrations())
    on_server = isinstance(target, ServerUrl)
    if on_server or (directory is not None and not cluster and (directory / ENGINE_DIR).is_dir()):
        try:
            client = connect(url, readonly=True)
        except StorageError as error:
            if cluster and "cannot reach" in str(error):
                click.echo(f"{error}; this is the schema from its beginning", err=True)
            elif "there is no database" not in str(error):
                raise
        else:
            waiting = pending(client)
            client.close()
    database = target.database if isinstance(target, ServerUrl) else DATABASE
    if waiting:
        click.echo(f"{ledger(cluster, database)};\n")
    for step in waiting:
        click.echo(f"-- {step.version:04d} {step.name}")
        for statement in step.script(cluster, database):
            click.echo(f"{statement};\n")


@command("status")
@storage_option
@option(
    "--journal",
    type=click.Path(path_type=Path, file_okay=False),
    default=None,
    show_default=False,
    help="Where the collector keeps requests until they are stored.  [default: journal/ in the data directory]",
)
@format_option("table", "json")
def status(storage: str | None, journal: Path | None, output: str) -> None:
    """Shows rows, bytes, ages and retention of every table, the schema's version, and what waits in the journal.

    Asks the collector that has the store open, or opens it itself.
    """
    need("storage status", "collector")
    from promptpath.storage import connect, data_dir
    from promptpath.storage.status import store_status
    from promptpath.storage.urls import default_dir

    client = connect(storage, readonly=True)
    try:
        found = store_status(client)
    finally:
        client.close()
    waiting = _journal(journal or (data_dir(storage) or default_dir()) / "journal")
    if output == "json":
        print(json.dumps({**asdict(found), "journal": waiting}, default=lambda moment: moment.isoformat()))
        return
    _print_tables([asdict(table) for table in found.tables])
    click.echo(f"\nschema   version {found.schema_version} of {found.schema_known}")
    click.echo(
        f"journal  {waiting['segments']} segments, {_bytes(waiting['bytes'])}"
        + (f", the oldest {waiting['oldest_age_s']:.0f} s old" if waiting["segments"] else "")
        + (f"; {waiting['quarantined']} requests set aside" if waiting["quarantined"] else "")
    )


def _journal(folder: Path) -> dict[str, Any]:
    """What lies in a journal: requests that were acknowledged and are not stored yet."""
    from promptpath.collector.segments import SUFFIX

    sizes, ages = [], [0.0]
    for path in folder.glob(f"*{SUFFIX}"):
        try:
            info = path.stat()
        except FileNotFoundError:  # stored meanwhile
            continue
        if info.st_size:
            sizes.append(info.st_size)
            ages.append(max(time.time() - info.st_mtime, 0.0))
    return {
        "folder": str(folder),
        "segments": len(sizes),
        "bytes": sum(sizes),
        "oldest_age_s": round(max(ages), 1),
        "quarantined": len(list((folder / "quarantine").glob("*.pb"))),
    }


def _print_tables(tables: Sequence[dict[str, Any]]) -> None:
    from promptpath.cli.tables import print_rows

    columns = ["table", "parts", "partitions", "rows", "size", "unpacked", "B/row", "oldest", "newest", "kept"]
    print_rows(
        columns,
        [
            [
                one["table"],
                one["parts"],
                one["partitions"],
                one["rows"],
                _bytes(one["bytes_compressed"]),
                _bytes(one["bytes_uncompressed"]),
                one["bytes_per_row"],
                one["oldest"],
                one["newest"],
                _duration(one["ttl_s"]),
            ]
            for one in tables
        ],
    )


def _bytes(number: int) -> str:
    size = float(number)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def _duration(seconds: int | None) -> str:
    if seconds is None:
        return "for ever"
    for unit, length in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds % length == 0:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"


for _command in (migrate, status):
    storage.add_command(_command)
