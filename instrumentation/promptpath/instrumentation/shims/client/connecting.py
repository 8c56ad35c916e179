"""What opening a connection took: name resolution told apart from the TCP handshake, and TLS.

httpcore tells through its `trace` extension when connecting begins and ends; within that, the resolver is timed. Sync
code resolves with `socket.getaddrinfo`, async code with anyio's, on the same thread or task, so a context variable
ties them.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from time import monotonic_ns
from typing import Any, Final

from promptpath.instrumentation import recorder
from promptpath.instrumentation.live import LiveSpan
from promptpath.instrumentation.safety import note_failure
from promptpath.instrumentation.shims import errors
from promptpath.instrumentation.wrapping import wrap
from promptpath.semconv import Stage

SCOPE: Final = "promptpath.httpx"


class Connecting:
    """Follows httpcore's trace events of one request and records `dns`, `tcp` and `tls` spans below a parent.

    Args:
        parent: the call, or None for the current context.
    """

    __slots__ = ("_dns", "_parent", "_started_ns")

    def __init__(self, parent: LiveSpan | None) -> None:
        self._parent = parent
        self._started_ns = 0
        self._dns: tuple[int, int] | None = None

    def event(self, name: str, info: Mapping[str, Any]) -> None:
        """One trace event of httpcore."""
        # Every request has a dozen events; those of a connection come with a new one only.
        if not name.startswith("connection."):
            return
        what, _, when = name[len("connection.") :].partition(".")
        if what in ("connect_tcp", "connect_unix_socket"):
            if when == "started":
                self._dns = None
                _resolving.set(self if _is_name(info.get("host")) else None)
                self._started_ns = monotonic_ns()
            else:
                self._connected(info)
        elif what == "start_tls":
            if when == "started":
                self._started_ns = monotonic_ns()
            else:
                self._record("tls", Stage.TLS, self._started_ns, monotonic_ns(), info.get("exception"))

    def resolved(self, start_ns: int, end_ns: int) -> None:
        """The resolver has answered, or failed."""
        self._dns = (self._dns[0] if self._dns is not None else start_ns, end_ns)

    def _connected(self, info: Mapping[str, Any]) -> None:
        end_ns = monotonic_ns()
        _resolving.set(None)
        error = info.get("exception")
        start_ns = self._started_ns
        if self._dns is not None:
            unresolved = error is not None and type(error.__cause__ or error.__context__).__name__ == "gaierror"
            self._record("dns", Stage.DNS, start_ns, self._dns[1], error if unresolved else None)
            if unresolved:
                return
            start_ns = self._dns[1]
        self._record("tcp", Stage.TCP, start_ns, end_ns, error)

    def _record(self, name: str, stage: Stage, start_ns: int, end_ns: int, error: BaseException | None) -> None:
        recorder.record(
            name,
            scope=SCOPE,
            stage=stage,
            start_mono_ns=start_ns,
            end_mono_ns=end_ns,
            parent=self._parent,
            status_error=errors.error_type(error) if error is not None else None,
        )

    # The user's own trace hook, if there is one, is called after ours.

    def chained(self, users: Callable[[str, Any], Any] | None) -> Callable[[str, Any], None]:
        """A trace hook for sync requests."""

        def trace(name: str, info: Any) -> Any:
            try:
                self.event(name, info)
            except Exception as error:
                note_failure("httpx.trace", error)
            return users(name, info) if users is not None else None

        return trace

    def chained_async(
        self, users: Callable[[str, Any], Awaitable[Any]] | None
    ) -> Callable[[str, Any], Awaitable[None]]:
        """A trace hook for async requests."""

        async def trace(name: str, info: Any) -> None:
            try:
                self.event(name, info)
            except Exception as error:
                note_failure("httpx.trace", error)
            if users is not None:
                await users(name, info)

        return trace


_resolving: Final[ContextVar[Connecting | None]] = ContextVar("promptpath-resolving", default=None)


def watch_resolvers(group: str) -> None:
    """Time the resolvers while a connection of ours is opened; patches belong to `group`."""
    wrap("socket", "getaddrinfo", _getaddrinfo, group=group)
    wrap("anyio._core._sockets", "getaddrinfo", _getaddrinfo_async, group=group)


def _getaddrinfo(wrapped: Callable[..., Any], _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    connecting = _resolving.get()
    if connecting is None:
        return wrapped(*args, **kwargs)
    start_ns = monotonic_ns()
    try:
        return wrapped(*args, **kwargs)
    finally:
        connecting.resolved(start_ns, monotonic_ns())


def _getaddrinfo_async(wrapped: Callable[..., Any], _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    connecting = _resolving.get()
    if connecting is None:
        return wrapped(*args, **kwargs)
    return _timed(wrapped(*args, **kwargs), connecting)


async def _timed(answer: Awaitable[Any], connecting: Connecting) -> Any:
    start_ns = monotonic_ns()
    try:
        return await answer
    finally:
        connecting.resolved(start_ns, monotonic_ns())


def _is_name(host: object) -> bool:
    """Whether a host has to be looked up; an address does not."""
    if not isinstance(host, str):
        return False
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return True
    return False
