"""`promptpath`: finds the command, runs it, and turns what goes wrong into one line."""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from promptpath.cli.errors import one_line
from promptpath.cli.options import PREFIX

#: Where each command is. They are loaded when they are asked for.
_COMMANDS = {
    "up": "promptpath.cli.up:up",
    "demo": "promptpath.cli.demo.command:demo",
    "collector": "promptpath.cli.collector:collector",
    "dashboard": "promptpath.cli.dashboard:dashboard",
    "run": "promptpath.cli.run:run",
    "sql": "promptpath.cli.sql:sql",
    "prompts": "promptpath.cli.prompts:prompts",
    "show": "promptpath.cli.show:show",
    "import": "promptpath.cli.import_:import_",
    "export": "promptpath.cli.export:export",
    "assemble": "promptpath.cli.assemble:assemble",
    "rules": "promptpath.cli.rules:rules",
    "tokens": "promptpath.cli.tokens:tokens",
    "storage": "promptpath.cli.storage:storage",
    "simulate": "promptpath.cli.simulate:simulate",
    "doctor": "promptpath.cli.doctor:doctor",
    "bench": "promptpath.cli.bench:bench",
}


class _Lazy(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        place = _COMMANDS.get(cmd_name)
        if place is None:
            return None
        module, _, name = place.partition(":")
        found = getattr(importlib.import_module(module), name)
        assert isinstance(found, click.Command)
        return found


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    envvar=PREFIX + "CONFIG",
    help="A file of settings.  [default: promptpath.toml in this folder, if there is one]",
)
@click.version_option(importlib.metadata.version("promptpath"), prog_name="promptpath", message="%(prog)s %(version)s")
@click.pass_context
def root(ctx: click.Context, config: Path | None) -> None:
    """Shows what happens to a prompt between the key press and the last token, and why it was slow."""
    ctx.obj = config


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command; returns its exit code: 0, 1 (the answer is no), 2 (wrong use), 130 (Ctrl-C)."""
    try:
        result = root.main(list(argv) if argv is not None else None, prog_name="promptpath", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as failure:
        click.echo(failure.format_message())
        return 0
    except (click.Abort, KeyboardInterrupt):
        return 130
    except BrokenPipeError:
        # Whoever read our output has gone; the interpreter must not complain about it at exit either.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except Exception as failure:
        message = one_line(failure)
        if message is None:
            raise
        context = getattr(failure, "ctx", None)
        path = context.command_path if context is not None else "promptpath"
        hint = f" (try '{path} --help')" if isinstance(failure, click.UsageError) else ""
        click.echo(f"{path}: {' '.join(message.split())}{hint}", err=True)
        return 2
    return result if isinstance(result, int) else 0
