"""The collector in one process: receivers, journal, writer, assembler, SQL endpoint."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from promptpath.collector import http_receiver, sql_endpoint
from promptpath.collector.auth import Tokens, new_token
from promptpath.collector.errors import CollectorError, JournalError, PortTaken
from promptpath.collector.grpc_receiver import GrpcReceiver
from promptpath.collector.intake import Intake
from promptpath.collector.journal import Journal, JournalLimits
from promptpath.collector.listeners import HttpServer, bind, is_loopback, port_of
from promptpath.collector.otlp import Reader
from promptpath.collector.own_spans import OwnSpans
from promptpath.collector.selfmetrics import SelfMetrics
from promptpath.collector.selfsamples import assembler_samples, journal_samples, process_samples
from promptpath.collector.sql_auth import authenticator
from promptpath.collector.sql_engine import SqlEngine
from promptpath.collector.sql_settings import SqlLimits
from promptpath.collector.tls import Tls, TlsFiles
from promptpath.collector.writer import Writer
from promptpath.storage import DEFAULT_URL, client_factory, connect, data_dir, migrate, owner
from promptpath.storage.connection import cluster_of
from promptpath.storage.retention import apply_retention
from promptpath.storage.urls import DATABASE, default_dir, redacted

if TYPE_CHECKING:
    import socket

_log = logging.getLogger(__name__)

_WILDCARDS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}
_BODY_WORKERS: Final = 2
#: How often the files of TLS are looked at.
_TLS_LOOK_S: Final = 10.0


@dataclass(frozen=True)
class CollectorConfig:
    """Settings of a collector. Port 0 is a free port; `Collector.ports` says which.

    `journal` defaults to `journal/` in the store's directory (for a server: the user's data directory). `grace_s`:
    quiet seconds before a prompt is assembled. `rules`: a directory of the user's rule files. `tokens`: a file of
    tokens, without which everyone who reaches a port may use it; beyond this machine that has to be allowed
    (`allow_anonymous`). `cors_origins`: whose pages may send from browsers. `drain_s`: how long a stop may take to
    store what the journal holds; the rest is stored by the next start. `sql_limits`: what one query at the SQL endpoint
    may take.
    `own_spans`: spans of its own work into its own journal.
    `retention`: seconds that tables keep their rows for, over `storage.retention.DEFAULTS_S`.
    """

    storage: str = DEFAULT_URL
    host: str = "127.0.0.1"
    http_port: int = 4318
    grpc_port: int = 4317
    sql_port: int = 8123
    journal: Path | None = None
    max_body_bytes: int = 64 << 20
    grace_s: float = 2.0
    rules: Path | None = None
    tokens: Path | None = None
    tls: TlsFiles | None = None
    cors_origins: tuple[str, ...] = ()
    allow_anonymous: bool = False
    assemble: bool = True
    own_spans: bool = False
    drain_s: float = 10.0
    retention: Mapping[str, int] = field(default_factory=dict)
    journal_limits: JournalLimits = field(default_factory=JournalLimits)
    sql_limits: SqlLimits = field(default_factory=SqlLimits)


@dataclass(frozen=True)
class Ports:
    """Where a running collector listens. `sql` is None where a server holds the store."""

    http: int
    grpc: int
    sql: int | None


class Collector:
    """`async with Collector(config) as collector: ...`, or `Collector(config).run()`."""

    def __init__(self, config: CollectorConfig) -> None:
        self.config = config
        self.metrics = SelfMetrics()
        self.metrics.add_source(process_samples)
        self._stack = AsyncExitStack()
        self._ports: Ports | None = None
        self._stopping = False
        self._own_spans = OwnSpans(self.metrics) if config.own_spans else None
        self._journal: Journal | None = None
        self._tokens: Tokens | None = None
        #: Sees all at the SQL endpoint where tokens are asked for; known to this process and the store's directory.
        self.owner_token = new_token()
        self._tls: Tls | None = None
        #: Of the SQL port, which asks for no client certificates: this machine's own commands have none.
        self._sql_tls: Tls | None = None

    @property
    def ports(self) -> Ports:
        """The ports in use, once started."""
        if self._ports is None:
            raise CollectorError("the collector has not started")
        return self._ports

    @property
    def sql_url(self) -> str:
        """The storage URL for other processes: the SQL endpoint, or the server that holds the store."""
        if self.ports.sql is None:
            return self.config.storage
        secure = "?secure=1" if self.config.tls is not None else ""
        return f"clickhouse://{_url_host(self.config.host)}:{self.ports.sql}/{DATABASE}{secure}"

    def run(self, on_ready: Callable[[Collector], None] | None = None) -> None:
        """Runs until SIGTERM or SIGINT, then stops in order; for the main thread of a process.

        Raises:
            CollectorError, StorageError: it cannot start.
        """
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(self._run(on_ready))

    async def _run(self, on_ready: Callable[[Collector], None] | None) -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        async with self:
            if on_ready is not None:
                on_ready(self)
            await stop.wait()
            _log.info("stopping: what was accepted is stored, or kept in the journal")

    def _reload(self) -> None:
        if self._tokens is not None:
            self._tokens.reload()
        self._refresh_tls()

    def _check_exposure(self) -> None:
        """Others than this machine reach a collector only if it knows who they are, or was told that this is meant."""
        config = self.config
        if is_loopback(config.host) or config.tokens is not None:
            return
        # Client certificates guard the OTLP ports only: where SQL is served, too, they are not enough.
        serves_sql = data_dir(config.storage) is not None
        if config.tls is not None and config.tls.client_ca is not None and not serves_sql:
            return
        if not config.allow_anonymous:
            enough = "--tokens" if serves_sql else "--tokens or --tls-client-ca"
            raise CollectorError(
                f"on {config.host} everyone who reaches a port could send and query: give {enough}, "
                "or say --allow-anonymous if that is meant"
            )
        _log.warning("on %s everyone who reaches a port may send and query: no tokens are asked for", config.host)

    def _refresh_tls(self) -> None:
        for tls in (self._tls, self._sql_tls):
            if tls is not None:
                tls.refresh()

    async def _watch_tls(self) -> None:
        while True:
            await asyncio.sleep(_TLS_LOOK_S)
            await asyncio.to_thread(self._refresh_tls)

    async def __aenter__(self) -> Collector:
        try:
            await self._start()
        except BaseException as error:
            await self._stack.aclose()
            if isinstance(error, JournalError):
                raise CollectorError(str(error)) from error
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stopping = True
        await self._stack.aclose()

    async def _start(self) -> None:
        """Starts in the order in which nothing is ever without what it needs; the stack undoes it backwards."""
        config = self.config
        self._tokens = Tokens(config.tokens) if config.tokens is not None else None
        if config.tls is not None:
            self._tls = Tls(config.tls)
            self._sql_tls = Tls(replace(config.tls, client_ca=None))
        self._check_exposure()
        directory = data_dir(config.storage)
        if directory is not None:
            owner.prepare_directory(directory)
        http_socket = self._bind(config.http_port, "--http-port")
        sql_socket = self._bind(config.sql_port, "--sql-port") if directory is not None else None
        grpc_port = config.grpc_port
        if grpc_port:  # its library binds by itself, later: look now
            bind(config.host, grpc_port, "--grpc-port").close()

        claim = owner.claim(directory) if directory is not None else None
        if claim is not None:
            self._stack.callback(claim.release)
        keeper = await asyncio.to_thread(self._open_store)
        self._stack.callback(keeper.close)
        if directory is not None and sql_socket is not None:
            await self._start_sql(directory, sql_socket)
        if config.assemble:
            await self._start_assembler()

        journal = self._journal = await asyncio.to_thread(Journal, self._journal_dir(directory), config.journal_limits)
        self._stack.callback(journal.close)
        writer = Writer(journal, partial(connect, config.storage), self.metrics, self._own_spans)
        self.metrics.add_source(partial(journal_samples, journal, writer))
        writer.start()
        if self._own_spans is not None:
            self._own_spans.start(journal)
        self._stack.push_async_callback(self._drain, journal, writer)

        intake = Intake(
            Reader(),
            journal,
            self.metrics,
            max_body_bytes=config.max_body_bytes,
            tokens=self._tokens,
            own_spans=self._own_spans,
        )
        rpc, grpc_port = await self._start_grpc(intake)
        if self._tls is not None:
            watching = asyncio.create_task(self._watch_tls())
            self._stack.callback(watching.cancel)
        self._ports = Ports(port_of(http_socket), grpc_port, port_of(sql_socket) if sql_socket is not None else None)
        if claim is not None:
            claim.publish(self._owner_url())
        # Last, for it answers whether all is ready.
        http = await self._start_http(intake, http_socket)
        self._stack.push_async_callback(self._stop_receiving, rpc, http)
        sql = redacted(self.sql_url)
        _log.info("collecting: OTLP/HTTP on %d, OTLP/gRPC on %d, SQL at %s", self.ports.http, grpc_port, sql)

    def _owner_url(self) -> str:
        """`sql_url` for this machine's owner of the store, with a token of its own where tokens are asked for."""
        url = self.sql_url
        if self.ports.sql is None:
            return url
        if self._sql_tls is not None:
            # The certificate names the host to others, seldom the address here; and nothing leaves this machine.
            url += "&verify=0"
        return url if self._tokens is None else url.replace("://", f"://owner:{self.owner_token}@", 1)

    def _bind(self, port: int, option: str) -> socket.socket:
        listener = bind(self.config.host, port, option)
        self._stack.callback(listener.close)
        return listener

    def _open_store(self) -> Any:
        client = connect(self.config.storage)
        try:
            cluster = cluster_of(self.config.storage)
            for migration in migrate(client, cluster=cluster):
                _log.info("storage: applied migration %04d %s", migration.version, migration.name)
            apply_retention(client, self.config.retention, cluster=cluster)
        except BaseException:
            client.close()
            raise
        return client

    def _journal_dir(self, directory: Path | None) -> Path:
        return self.config.journal or (directory or default_dir()) / "journal"

    async def _start_sql(self, directory: Path, listener: socket.socket) -> None:
        engine = await asyncio.to_thread(SqlEngine, directory, database=DATABASE, limits=self.config.sql_limits)
        hosts = {"localhost", "127.0.0.1", "::1", self.config.host.lower()}
        app = sql_endpoint.build_app(
            engine,
            self.metrics,
            allowed_hosts=frozenset(hosts) if is_loopback(self.config.host) else None,
            authenticate=authenticator(self._tokens, self.owner_token) if self._tokens is not None else None,
        )
        self._stack.callback(app.state.close)
        server = HttpServer(app, listener, grace_s=self.config.drain_s, tls=self._sql_tls)
        await server.start()
        self._stack.push_async_callback(server.stop)

    async def _start_assembler(self) -> None:
        from promptpath.collector.assemble.rules import RuleError
        from promptpath.collector.assemble.rules_sql import select_of
        from promptpath.collector.assembler import AssemblerService

        try:
            select = select_of(self.config.rules)
        except RuleError as error:
            raise CollectorError(str(error)) from error
        assembler = AssemblerService(
            client_factory(self.config.storage),
            grace_s=self.config.grace_s,
            select=select,
            own_spans=self._own_spans,
        )
        await asyncio.to_thread(assembler.start)
        self._stack.push_async_callback(asyncio.to_thread, assembler.stop)
        self.metrics.add_source(lambda: assembler_samples(assembler.stats))

    def _bodies(self) -> ThreadPoolExecutor:
        """Threads in which a receiver reads large bodies."""
        executor = ThreadPoolExecutor(_BODY_WORKERS, thread_name_prefix="otlp-body")
        self._stack.callback(executor.shutdown)
        return executor

    async def _start_grpc(self, intake: Intake) -> tuple[GrpcReceiver, int]:
        receiver = GrpcReceiver(intake, self._bodies(), self._tls)
        try:
            port = await receiver.start(self.config.host, self.config.grpc_port)
        except OSError:
            raise PortTaken("--grpc-port", self.config.host, self.config.grpc_port) from None
        self._stack.push_async_callback(receiver.stop, self.config.drain_s)
        return receiver, port

    async def _start_http(self, intake: Intake, listener: socket.socket) -> HttpServer:
        app = http_receiver.build_app(intake, self.metrics, self._not_ready, self._bodies(), self.config.cors_origins)
        server = HttpServer(app, listener, grace_s=self.config.drain_s, tls=self._tls)
        await server.start()
        self._stack.push_async_callback(server.stop)
        return server

    async def _stop_receiving(self, rpc: GrpcReceiver, http: HttpServer) -> None:
        """Both at once: while one finishes what is under way, the other must not take in more."""
        await asyncio.gather(rpc.stop(self.config.drain_s), http.stop())

    async def _drain(self, journal: Journal, writer: Writer) -> None:
        if self._own_spans is not None:
            await asyncio.to_thread(self._own_spans.stop)
        await asyncio.to_thread(journal.stop_accepting)
        if not await asyncio.to_thread(writer.stop, drain_s=self.config.drain_s):
            _log.warning("the journal still holds %d items: the next start stores them", journal.state().items)

    def _not_ready(self) -> str:
        if self._stopping or self._journal is None:
            return "stopping"
        state = self._journal.state()
        if state.bytes >= self.config.journal_limits.max_bytes:
            return "the journal is full"
        return state.failure


def _url_host(host: str) -> str:
    reachable = _WILDCARDS.get(host, host)
    return f"[{reachable}]" if ":" in reachable else reachable


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
