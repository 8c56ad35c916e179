"""`promptpath tokens`: who may send to a collector and query it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from promptpath.cli.errors import Wrong
from promptpath.cli.extras import need
from promptpath.cli.options import command, format_option, option

_FILE = option(
    "--tokens",
    "path",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    show_default=False,
    help="The file of tokens that the collector reads, hashed.",
)
_SCOPES = ("ingest", "query")


@click.group("tokens")
def tokens() -> None:
    """Makes, lists and revokes the tokens that a collector accepts.

    A collector reads the file again when it changes: no restart.
    """


@command("create")
@_FILE
@click.option("--name", required=True, help="What the token is called, in lists and messages.")
@click.option("--tenant", required=True, help="Written on every row that is sent with it.")
@click.option(
    "--scope",
    "scopes",
    type=click.Choice(_SCOPES),
    multiple=True,
    default=("ingest",),
    show_default=True,
    help="What it is good for; give it twice for both.",
)
def create(path: Path, name: str, tenant: str, scopes: tuple[str, ...]) -> None:
    """Makes a token and prints it, once: only its hash is kept."""
    need("tokens", "collector")
    from promptpath.collector import auth

    token = auth.new_token()
    made = auth.entry(name, tenant, token, [auth.Scope(scope) for scope in scopes])
    with _locked(path):
        known = auth.read(path) if path.exists() else []
        if any(one.name == name for one in known):
            raise Wrong(f"{path} has a token {name!r} already: revoke it, or choose another name")
        auth.write(path, [*known, made])
    click.echo(token)
    click.echo("This is the only time it is shown: keep it safe.", err=True)


@command("list")
@_FILE
@format_option("table", "json")
def list_(path: Path, output: str) -> None:
    """Lists the tokens, without the tokens themselves."""
    need("tokens", "collector")
    from promptpath.collector import auth

    rows: list[dict[str, Any]] = [
        {"name": one.name, "tenant": one.tenant, "scopes": sorted(scope.value for scope in one.scopes)}
        for one in auth.read(path)
    ]
    if output == "json":
        for row in rows:
            click.echo(json.dumps(row))
        return
    lines = [("NAME", "TENANT", "SCOPES"), *((r["name"], r["tenant"], " ".join(r["scopes"])) for r in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(3)]
    for line in lines:
        click.echo("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())


@command("revoke")
@_FILE
@click.argument("name")
def revoke(path: Path, name: str) -> None:
    """Takes the token NAME out: requests with it are refused from the next second on."""
    need("tokens", "collector")
    from promptpath.collector import auth

    with _locked(path):
        known = auth.read(path)
        kept = [one for one in known if one.name != name]
        if len(kept) == len(known):
            raise Wrong(f"{path} has no token {name!r}: promptpath tokens list shows them")
        auth.write(path, kept)
    click.echo(f"revoked {name}", err=True)


for _command in (create, list_, revoke):
    tokens.add_command(_command)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Alone with the file among commands of this kind; readers need no lock, the file is replaced whole."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path.with_name(f".{path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as failure:
        raise Wrong(f"cannot write the tokens file {path}: {failure.strerror}") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
