"""Sockets and the HTTP servers behind them.

Sockets are bound before anything else starts, so that a taken port is an error about that port and nothing is half up.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import socket
from collections.abc import Iterator
from typing import Any, Final

import uvicorn

from promptpath.collector.errors import CollectorError, PortTaken
from promptpath.collector.http_limits import LimitedProtocol
from promptpath.collector.tls import Tls

_BACKLOG: Final = 2048
_START_S: Final = 10.0
_POLL_S: Final = 0.005


def bind(host: str, port: int, option: str) -> socket.socket:
    """A listening TCP socket. Connections wait in its backlog until a server takes them.

    Args:
        port: 0 for a free one.
        option: name of the option that sets the port, for the message.

    Raises:
        PortTaken: the port is in use.
        CollectorError: the host is no address of this machine, or the port needs privileges.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise CollectorError(
            f"cannot listen on {host!r} ({error.strerror}): give --host an address of this machine"
        ) from None
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise PortTaken(option, host, port) from None
        if error.errno == errno.EACCES:
            raise CollectorError(f"port {port} needs privileges: choose one above 1023 with {option}") from None
        raise CollectorError(
            f"cannot listen on {host}:{port} ({error.strerror}): give --host an address of this machine"
        ) from None
    return listener


def port_of(listener: socket.socket) -> int:
    """The port that a socket is bound to."""
    return int(listener.getsockname()[1])


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class HttpServer:
    """An ASGI application on a bound socket, in the running event loop."""

    def __init__(self, app: Any, listener: socket.socket, *, grace_s: float, tls: Tls | None = None) -> None:
        self._listener = listener
        config = uvicorn.Config(
            app,
            http=LimitedProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="error",  # whoever sends garbage must not fill the log with warnings
            access_log=False,
            server_header=False,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=max(int(grace_s), 1),
        )
        config.load()
        config.ssl = tls.context if tls is not None else None
        self._server = _Server(config)
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Returns once requests are answered."""
        self._task = asyncio.create_task(self._server.serve(sockets=[self._listener]))
        deadline = asyncio.get_running_loop().time() + _START_S
        while not self._server.started:
            if self._task.done():
                await self._task
            if self._task.done() or asyncio.get_running_loop().time() > deadline:
                raise CollectorError("the HTTP server did not start")
            await asyncio.sleep(_POLL_S)

    async def stop(self) -> None:
        """Accepts no more connections, and finishes the requests under way."""
        self._server.should_exit = True
        if self._task is not None:
            await self._task


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the collector's: it has two of these."""
        yield
