"""What `up` and `demo` share: a collector and a dashboard, each in its own process."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import click

from promptpath.cli import dashboard, ports
from promptpath.cli.errors import Wrong
from promptpath.cli.options import PREFIX, option, storage_option
from promptpath.cli.processes import ChildDied, Children, answers_http, sigterm_as_ctrl_c

_F = TypeVar("_F", bound=Callable[..., Any])

PORT = click.IntRange(0, 65535)

_LOOPBACK = ("127.0.0.1", "::1", "localhost")

#: How long a part may take to start, in seconds; imports on a busy two-core machine are slow.
START_S = 90.0


@dataclass(frozen=True)
class StackOptions:
    """Where everything is: the options of `up`, ports decided. `ttl`: how long tables keep rows [s], 0 for ever."""

    storage: str | None
    host: str
    http_port: int
    grpc_port: int
    sql_port: int
    dashboard_port: int
    ttl: Mapping[str, int] = field(default_factory=dict)
    own_spans: bool = False

    @property
    def reach(self) -> str:
        """The host to connect to: what is listened on, or this machine where that is every address."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)
        return f"[{host}]" if ":" in host else host

    @property
    def otlp_url(self) -> str:
        """Where programs send OTLP over HTTP."""
        return f"http://{self.reach}:{self.http_port}"

    def store_url(self) -> str:
        """The storage URL for everyone but the collector, which must be running: with tokens, it holds its owner's."""
        from promptpath.storage import data_dir, owner

        if self.storage is not None and self.on_server:
            return self.storage
        directory = data_dir(self.storage)
        running = owner.find(directory) if directory is not None else None
        if running is not None and running.sql_url:
            return running.sql_url
        return f"clickhouse://{self.reach}:{self.sql_port}/promptpath"

    @property
    def on_server(self) -> bool:
        """Whether the store is a ClickHouse server, so that the collector serves no SQL of its own."""
        return self.storage is not None and not self.storage.startswith("chdb:")

    @property
    def dashboard_url(self) -> str:
        """What to open in a browser."""
        return f"http://{self.reach}:{self.dashboard_port}"

    def with_ports(self) -> StackOptions:
        """Every port checked, and each 0 replaced by a free one.

        Raises:
            Wrong: a port is taken; the message names its option.
        """
        return replace(
            self,
            http_port=ports.claim(self.host, self.http_port, "--http-port"),
            grpc_port=ports.claim(self.host, self.grpc_port, "--grpc-port"),
            sql_port=0 if self.on_server else ports.claim(self.host, self.sql_port, "--sql-port"),
            dashboard_port=ports.claim(self.host, self.dashboard_port, "--dashboard-port"),
        )


def receiver_options(function: _F) -> _F:
    """The options of whatever runs a collector."""
    for decorate in reversed(
        (
            storage_option,
            option("--host", default="127.0.0.1", help="The address to listen on."),
            option("--http-port", type=PORT, default=4318, help="OTLP over HTTP; 0: any free one."),
            option("--grpc-port", type=PORT, default=4317, help="OTLP over gRPC; 0: any free one."),
            option("--sql-port", type=PORT, default=8123, help="ClickHouse's HTTP interface to an embedded store."),
        )
    ):
        function = decorate(function)
    return function


def own_spans_option(function: _F) -> _F:
    """`--own-spans`, of whatever runs a collector for good."""
    text = "Store spans of the collector's own work, too."
    return option("--own-spans", is_flag=True, default=False, help=text)(function)


def dashboard_port_option(function: _F) -> _F:
    """The option of whatever runs a dashboard."""
    return option("--dashboard-port", type=PORT, default=8501, help="The dashboard; 0: any free one.")(function)


def logs_dir(storage: str | None) -> Path:
    """Where the processes' logs go: beside an embedded store, else beside the default one.

    Raises:
        StorageError: the URL is none, or the data directory cannot be written.
    """
    from promptpath.storage import owner
    from promptpath.storage.connection import data_dir

    return owner.prepare_directory(data_dir(storage) or data_dir(None) or Path.cwd()) / "logs"


def launch(children: Children, options: StackOptions, settings: Mapping[str, str]) -> None:
    """Starts the collector, and the dashboard once that answers. They end last, so that what others still send is
    stored.

    Args:
        children: what is started.
        options: of the command; they win over `settings`.
        settings: the collector's environment: what it is told beside.

    Raises:
        ChildDied, TimeoutError: the collector does not start.
    """
    argv = [sys.executable, "-m", "promptpath.cli", "collector", "--host", options.host]
    argv += ["--http-port", str(options.http_port), "--grpc-port", str(options.grpc_port)]
    if not options.on_server:
        argv += ["--sql-port", str(options.sql_port)]
    for table, seconds in options.ttl.items():
        argv += ["--ttl", f"{table}={seconds}s" if seconds else f"{table}=0"]
    if options.own_spans:
        argv += ["--own-spans"]
    if options.host not in _LOOPBACK:
        click.echo(f"everyone who reaches {options.host} may send and query: no tokens are asked for", err=True)
        argv += ["--allow-anonymous"]
    # Its URL may hold a password, which everyone on this machine could read among its arguments.
    own = {} if options.storage is None else {PREFIX + "STORAGE": options.storage}
    children.start("collector", argv, {**settings, **own})
    children.wait_until(lambda: answers_http(f"{options.otlp_url}/readyz"), "the collector", START_S)
    children.start(
        "dashboard", dashboard.argv(options.host, options.dashboard_port), dashboard.environment(options.store_url())
    )


def wait(children: Children, options: StackOptions) -> None:
    """Waits until the dashboard answers too.

    Raises:
        ChildDied, TimeoutError: it does not start.
    """
    children.wait_until(lambda: answers_http(f"{options.dashboard_url}/_stcore/health"), "the dashboard", START_S)


@contextmanager
def running() -> Iterator[Callable[[Children], None]]:
    """Around a program that starts children and then only waits: gives the function that waits.

    Ctrl-C and SIGTERM end it well once it waits, and interrupt it before. A child that dies and one that takes too
    long to start are told in one line.
    """
    waiting = False

    def wait_for_ctrl_c(children: Children) -> None:
        nonlocal waiting
        waiting = True
        children.watch()

    with sigterm_as_ctrl_c():
        try:
            yield wait_for_ctrl_c
        except ChildDied as failure:
            raise explain(failure) from None
        except TimeoutError as failure:
            raise Wrong(str(failure)) from None
        except KeyboardInterrupt:
            if not waiting:
                raise
            click.echo("stopped", err=True)


def explain(failure: ChildDied) -> Wrong:
    """A child's end as our own error: what it said, if that was meant for the user."""
    return Wrong(failure.own_words or str(failure))
