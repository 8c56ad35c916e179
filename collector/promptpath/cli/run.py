"""`promptpath run`: starts a command with every shim in it."""

from __future__ import annotations

import click

from promptpath.cli.options import command, option


@command("run", context_settings={"allow_interspersed_args": False})
@option("--service", metavar="NAME", help="Its service.name, as OTEL_SERVICE_NAME.")
@option(
    "--role",
    type=click.Choice(["gateway", "router", "server", "edge"]),
    help="What its HTTP requests are.  [default: server where an engine runs in it, else gateway]",
    show_default=False,
)
@click.argument("argv", nargs=-1, required=True, metavar="[--] COMMAND [ARG]...", type=click.UNPROCESSED)
def run(service: str | None, role: str | None, argv: tuple[str, ...]) -> int:
    """Runs COMMAND instrumented, without a change to its code.

    Each Python process that it starts loads the shims of the libraries that it uses. Where the spans go is set by the
    usual OTEL_ variables; without them, to a collector on this machine.

    \b
    promptpath run -- vllm serve MODEL
    promptpath run --service gateway -- uvicorn app:app
    """
    from promptpath.instrumentation.run import main

    options = [text for name, value in (("--service", service), ("--role", role)) if value for text in (name, value)]
    return main([*options, "--", *argv])
