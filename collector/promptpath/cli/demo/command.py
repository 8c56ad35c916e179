"""`promptpath demo`: a real stack, real prompts, and what became of them."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from promptpath.cli import ports, stack
from promptpath.cli.demo import model
from promptpath.cli.errors import Wrong
from promptpath.cli.extras import need
from promptpath.cli.options import command, default_env, option, retention_option
from promptpath.cli.processes import ChildDied, Children, answers_http

if TYPE_CHECKING:
    from promptpath.cli.demo.check import Outcome

#: Models take seconds to load, more where two do it on a busy machine.
_MODEL_START_S = 180.0
#: How long rows may take to appear after the last prompt.
_ROWS_S = 60.0
_ROWS_POLL_S = 1.0
_QUICK = 24
_QUICK_AGENT_CALLS = 3


@dataclass(frozen=True)
class Addresses:
    """The ports of the demo's servers."""

    gateway: int
    router: int
    engine: int
    small_engine: int

    @property
    def api_url(self) -> str:
        """What an OpenAI client takes as its base URL."""
        return f"http://127.0.0.1:{self.gateway}/v1"


@command("demo")
@stack.receiver_options
@retention_option
@stack.dashboard_port_option
@option("--gateway-port", type=stack.PORT, default=0, help="The demo's own API; 0: any free one.")
@option("--prompts", "count", type=click.IntRange(8, 10_000), default=170, help="About how many to send.")
@option("--seed", type=int, default=7, help="The same prompts for the same number.")
@click.option("--quick", is_flag=True, help=f"Only {_QUICK} prompts and an agent of {_QUICK_AGENT_CALLS} calls.")
@click.option("--once", is_flag=True, help="End after the report; exit code 0 only if every prompt sent has a row.")
def demo(
    storage: str | None,
    host: str,
    http_port: int,
    grpc_port: int,
    sql_port: int,
    ttl: dict[str, int],
    dashboard_port: int,
    gateway_port: int,
    count: int,
    seed: int,
    quick: bool,
    once: bool,
) -> int:
    """Starts everything, and a small serving stack with a real model; sends prompts through it and shows them.

    Gateway, router, two inference servers and the client are separate programs on this machine, instrumented as yours
    would be. It keeps serving until Ctrl-C.
    """
    need("demo", "collector", "dashboard", "demo")
    try:
        model.find_gguf()
    except model.ModelNotFound as failure:
        raise Wrong(str(failure)) from None
    logs = stack.logs_dir(storage)
    options = stack.StackOptions(storage, host, http_port, grpc_port, sql_port, dashboard_port, ttl).with_ports()
    addresses = Addresses(
        ports.claim("127.0.0.1", gateway_port, "--gateway-port"), *(ports.free_port() for _ in range(3))
    )
    load = _Load(_QUICK if quick else count, _QUICK_AGENT_CALLS if quick else 12, seed)
    with stack.running() as wait_for_ctrl_c, Children(logs) as children:
        outcome, row = _play(children, options, addresses, load)
        _tell(outcome, row, options, addresses)
        if once:
            return 0 if outcome.complete else 1
        click.echo("Ctrl-C ends it.", err=True)
        wait_for_ctrl_c(children)
    return 0


@dataclass(frozen=True)
class _Load:
    count: int
    agent_calls: int
    seed: int

    @property
    def total(self) -> int:
        from promptpath.cli.demo.prompts import plan

        return sum(len(part.questions) for part in plan(self.count, self.seed)) + self.agent_calls


def _play(
    children: Children, options: stack.StackOptions, addresses: Addresses, load: _Load
) -> tuple[Outcome, dict[str, Any] | None]:
    """Starts all, sends all; returns the comparison, and the slowest prompt's row."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from promptpath.storage.connection import connect

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("starting", total=4)

        def step(text: str) -> None:
            progress.update(task, description=text)
            if not progress.console.is_terminal:
                click.echo(text, err=True)

        step("starting the collector and the dashboard")
        stack.launch(children, options, default_env())
        _start_engines(children, options, addresses)
        _start_servers(children, options, addresses)
        stack.wait(children, options)
        progress.advance(task, 2)
        step("loading the language model")
        for port in (addresses.engine, addresses.small_engine, addresses.router, addresses.gateway):
            children.wait_until(
                lambda port=port: answers_http(f"http://127.0.0.1:{port}/health"),  # type: ignore[misc]
                f"the server on port {port}",
                _MODEL_START_S,
            )
        progress.update(task, completed=0, total=load.total)
        step("sending prompts")
        records = _send(children, options, addresses, load, lambda: progress.advance(task))
        step("waiting for the last rows")
        client = connect(options.store_url())
        try:
            outcome, rows = _await_rows(children, client, records)
            slowest = max(
                (row for row in rows if row["ttft_ns"] is not None), key=lambda row: row["ttft_ns"], default=None
            )
            if slowest is None:
                return outcome, None
            from promptpath.cli import show

            row = show.find(client, slowest["prompt_id"])
            return outcome, row | {"names": show.span_names(client, row)}
        finally:
            client.close()


def _environment(options: stack.StackOptions) -> dict[str, str]:
    """What a user would set, where the collector is not on the usual port."""
    return default_env() | {
        "OTEL_EXPORTER_OTLP_ENDPOINT": options.otlp_url,
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
    }


def _program(name: str, service: str, role: str | None, *arguments: str) -> list[str]:
    """A server of the demo under `promptpath run`."""
    run = [sys.executable, "-m", "promptpath.cli", "run", "--service", service]
    run += ["--role", role] if role else []
    return [*run, "--", sys.executable, "-m", f"promptpath.cli.demo.{name}", *arguments]


def _start_engines(children: Children, options: stack.StackOptions, addresses: Addresses) -> None:
    from promptpath.cli.demo.prompts import MODEL, SMALL_MODEL

    env = _environment(options)
    large = ("--port", str(addresses.engine), "--name", MODEL)
    small = ("--port", str(addresses.small_engine), "--name", SMALL_MODEL, "--max-num-seqs", "2", "--max-waiting", "1")
    children.start("engine-a", _program("engine", "demo-engine-a", "server", *large), env)
    children.start("engine-b", _program("engine", "demo-engine-b", "server", *small, "--kv-blocks", "160"), env)


def _start_servers(children: Children, options: stack.StackOptions, addresses: Addresses) -> None:
    from promptpath.cli.demo.prompts import MODEL, SMALL_MODEL

    env = _environment(options)
    large = f"{MODEL}@http://127.0.0.1:{addresses.engine}"
    small = f"{SMALL_MODEL}@http://127.0.0.1:{addresses.small_engine}"
    routes = ("--route", f"{MODEL}={large},{small}", "--route", f"{SMALL_MODEL}={small},{large}")
    children.start("router", _program("router", "demo-router", "router", "--port", str(addresses.router), *routes), env)
    upstream = ("--port", str(addresses.gateway), "--upstream", f"http://127.0.0.1:{addresses.router}")
    children.start("gateway", _program("gateway", "demo-gateway", "gateway", *upstream), env)


def _send(
    children: Children, options: stack.StackOptions, addresses: Addresses, load: _Load, advance: Any
) -> list[dict[str, Any]]:
    """Runs the client to its end; returns what it noted."""
    with tempfile.TemporaryDirectory(prefix="promptpath-demo-") as folder:
        out = Path(folder) / "records.json"
        argv = [sys.executable, "-m", "promptpath.cli.demo.load", "--url", addresses.api_url, "--out", str(out)]
        argv += ["--prompts", str(load.count), "--agent-calls", str(load.agent_calls), "--seed", str(load.seed)]
        env = _environment(options) | {"OTEL_SERVICE_NAME": "demo-client"}
        client = children.start("client", argv, env, pipe_stdout=True)
        assert client.process.stdout is not None
        for _line in client.process.stdout:
            advance()
        code = client.process.wait()
        if code:
            raise ChildDied(client.name, code, client.last_line(), client.log)
        children.forget(client)
        client.process.stdout.close()
        records: list[dict[str, Any]] = json.loads(out.read_text())
        return records


def _await_rows(children: Children, client: Any, records: list[dict[str, Any]]) -> tuple[Outcome, list[dict[str, Any]]]:
    """Waits until every prompt has a row and no row changes any more, or for `_ROWS_S`."""
    from promptpath.cli.demo import check

    traces = sorted({record["trace_id"] for record in records})
    deadline = time.monotonic() + _ROWS_S
    before: list[dict[str, Any]] = []
    while True:
        children.check()
        rows = check.rows_of_traces(client, traces)
        outcome = check.compare(records, rows)
        if (outcome.complete and rows == before) or time.monotonic() > deadline:
            return outcome, rows
        before = rows
        time.sleep(_ROWS_POLL_S)


def _tell(outcome: Outcome, row: dict[str, Any] | None, options: stack.StackOptions, addresses: Addresses) -> None:
    from promptpath.cli import show
    from promptpath.cli.demo import check

    click.echo("\n".join(check.report(outcome)))
    if row is not None:
        click.echo("\nThe slowest prompt (promptpath show --slowest):\n")
        show.print_waterfall(row, row["names"])
        click.echo(f"\nThis prompt  {options.dashboard_url}/prompt?id={row['prompt_id']}")
    click.echo(f"Dashboard    {options.dashboard_url}")
    click.echo(f"The API      {addresses.api_url} (key: demo-key-support, model: smollm2-135m)")
