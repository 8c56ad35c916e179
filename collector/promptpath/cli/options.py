"""Options, their environment variables and their keys in `promptpath.toml`: three spellings of one thing.

`--http-port 4418`, `PROMPTPATH_HTTP_PORT=4418` and `http_port = 4418` say the same; the first found in this order wins.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from promptpath.cli.errors import Wrong

_F = TypeVar("_F", bound=Callable[..., Any])

PREFIX = "PROMPTPATH_"
FILE_NAME = "promptpath.toml"


def option(name: str, *aliases: str, **details: Any) -> Callable[[_F], _F]:
    """A click option that is also an environment variable and a key of the file."""
    key = name.removeprefix("--").split("/")[0].replace("-", "_")
    details.setdefault("show_default", True)
    made: Callable[[_F], _F] = click.option(name, *aliases, envvar=PREFIX + key.upper(), show_envvar=True, **details)
    return made


def command(name: str, **details: Any) -> Callable[[Callable[..., Any]], click.Command]:
    """A click command with `--config`, whose options may stand in the file."""

    def decorate(function: Callable[..., Any]) -> click.Command:
        make: Callable[[Callable[..., Any]], click.Command] = click.command(name, **details)
        made = make(function)
        made.params.append(
            click.Option(
                ["--config"],
                type=click.Path(path_type=Path),
                is_eager=True,
                expose_value=False,
                callback=_read_config,
                envvar=PREFIX + "CONFIG",
                show_envvar=True,
                help=f"A file of settings.  [default: {FILE_NAME} in this folder, if there is one]",
            )
        )
        return made

    return decorate


def storage_option(function: _F) -> _F:
    """`--storage`, as all commands have it that read or write."""
    return option(
        "--storage",
        metavar="URL",
        default=None,
        show_default="chdb:// and your data directory",
        help="chdb:///directory (embedded) or clickhouse://user:password@host:8443/database?secure=1",
    )(function)


def rules_option(function: _F) -> _F:
    """`--rules`, of every command that assembles or looks at rule files."""
    return option(
        "--rules",
        type=click.Path(path_type=Path, exists=True, file_okay=False),
        default=None,
        show_default=False,
        help="A directory of your own rule files; one that has the name of one of ours takes its place.",
    )(function)


class _Retention(click.ParamType[dict[str, int]]):
    """`TABLE=DURATION,...` as seconds by table."""

    name = "retention"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, int]:
        from promptpath.storage.errors import StorageError
        from promptpath.storage.retention import parse_retention

        try:
            return value if isinstance(value, dict) else parse_retention(str(value))
        except StorageError as failure:
            self.fail(str(failure), param, ctx)


def retention_option(function: _F) -> _F:
    """`--ttl`, of whatever decides how long a store keeps its rows."""
    return option(
        "--ttl",
        type=_Retention(),
        multiple=True,
        callback=lambda _ctx, _param, values: {name: s for value in values for name, s in value.items()},
        metavar="TABLE=DURATION",
        show_default="otel_traces, otel_logs, otel_metrics 30d; prompts, clock_offsets, alerts 365d; the rest for ever",
        help="How long a table keeps its rows, as in otel_traces=7d,prompts=0 (0: for ever).",
    )(function)


def format_option(*formats: str) -> Callable[[_F], _F]:
    """`--format`, of a command that prints data; the first is the default."""
    return option("--format", "output", type=click.Choice(formats), default=formats[0], help="How to print it.")


def _read_config(ctx: click.Context, _param: click.Parameter, value: Path | None) -> None:
    path = value or (ctx.obj if isinstance(ctx.obj, Path) else None)
    if path is None:
        path = Path(FILE_NAME)
        if not path.is_file():
            return
    root = ctx.find_root().command
    assert isinstance(root, click.Group)
    values = load(path, known_keys(root, ctx))
    ctx.default_map = {
        parameter.name: values[key]
        for parameter in ctx.command.params
        if parameter.name is not None and (key := _key_of(parameter)) in values
    }


def _key_of(parameter: click.Parameter) -> str:
    variable = parameter.envvar
    return variable.removeprefix(PREFIX).lower() if isinstance(variable, str) else ""


def known_keys(root: click.Group, ctx: click.Context) -> dict[str, click.Parameter]:
    """All keys that may stand in the file, each with an option that it sets."""
    keys: dict[str, click.Parameter] = {}
    for name in root.list_commands(ctx):
        found = root.get_command(ctx, name)
        if isinstance(found, click.Group):
            for key, parameter in known_keys(found, ctx).items():
                keys.setdefault(key, parameter)
        for parameter in found.params if found is not None else ():
            if (key := _key_of(parameter)) not in ("", "config"):
                keys.setdefault(key, parameter)
    return keys


def load(path: Path, known: Mapping[str, click.Parameter]) -> dict[str, Any]:
    """The settings in a file.

    Raises:
        Wrong: it cannot be read, is no TOML, or has a key or a value that no option takes; file and key are named.
    """
    try:
        values = tomllib.loads(path.read_text("utf-8"))
    except tomllib.TOMLDecodeError as failure:
        raise Wrong(f"{path} is no valid TOML: {failure}") from None
    except (OSError, UnicodeDecodeError) as failure:
        raise Wrong(f"cannot read {path}: {getattr(failure, 'strerror', None) or failure}") from None
    for key, value in values.items():
        parameter = known.get(key)
        if parameter is None:
            close = difflib.get_close_matches(key, known, n=1)
            meant = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(sorted(known))}"
            raise Wrong(f"{path}: unknown key {key!r}: {meant}")
        several = isinstance(parameter, click.Option) and parameter.multiple
        if several:
            values[key] = value = value.split() if isinstance(value, str) else value
        items = value if several and isinstance(value, list) else [value]
        if not all(isinstance(item, str | int | float) for item in items):
            raise Wrong(f"{path}: {key}: {value!r} is no single value: write {key} = VALUE")
        try:
            for item in items:
                parameter.type.convert(item, parameter, None)
        except click.UsageError as failure:
            raise Wrong(f"{path}: {key}: {failure.message}") from None
    return values


def default_env(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment for our own children: without our own options, which they are given as arguments."""
    return {key: value for key, value in environment.items() if not key.startswith(PREFIX)}
