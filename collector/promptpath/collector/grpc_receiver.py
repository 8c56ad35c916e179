"""OTLP over gRPC."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from typing import Any, Final

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from promptpath.collector import otlp, rpc_status
from promptpath.collector.auth import AuthError
from promptpath.collector.errors import JournalError
from promptpath.collector.intake import Busy, Intake, Refusal, response_of
from promptpath.collector.otlp import OtlpError, Signal, TooLarge, TooSlow
from promptpath.collector.otlp.errors import INVALID_ARGUMENT
from promptpath.collector.tls import Tls

#: Seconds that a call may take to send its one message. A call that waits costs a few kilobytes, and no thread.
MESSAGE_S: Final = 15.0
#: Calls that are open at once on one connection and in all; what comes above that is refused by the library.
_CALLS_PER_CONNECTION: Final = 256
_CALLS: Final = 4096
#: Messages over this are read in a worker thread, so that one of them does not hold up the others.
_OFFLOAD_BYTES: Final = 128 << 10
_DETAILS_KEY: Final = "grpc-status-details-bin"
_CODES: Final = {code.value[0]: code for code in grpc.StatusCode}
_OPTIONS: Final = (
    ("grpc.so_reuseport", 0),
    ("grpc.max_concurrent_streams", _CALLS_PER_CONNECTION),
    # A peer that has gone without a word is found out, and may ask whether we are there as often as it likes to.
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    # Connections come anew from time to time, so that a balancer in front spreads them over collectors that were added.
    ("grpc.max_connection_age_ms", 30 * 60_000),
    ("grpc.max_connection_age_grace_ms", 60_000),
    ("grpc.max_connection_idle_ms", 15 * 60_000),
)


class GrpcReceiver:
    """A gRPC server in the running event loop: the three export methods, health and reflection.

    A call is a coroutine that waits, for its message and then for its group commit: senders that are stuck or slow hold
    up nobody else.
    """

    def __init__(self, intake: Intake, executor: Executor, tls: Tls | None = None) -> None:
        """`executor`: threads for large messages."""
        self._intake = intake
        self._executor = executor
        self._tls = tls
        self._health = health.aio.HealthServicer()
        self._server = grpc.aio.server(
            options=[("grpc.max_receive_message_length", intake.max_body_bytes), *_OPTIONS],
            maximum_concurrent_rpcs=_CALLS,
        )
        # On the wire a unary request is a stream of one. As a stream it reaches the handler even when the library
        # refuses the message for its size, so that the refusal is counted.
        handlers = {signal.rpc_method: grpc.stream_unary_rpc_method_handler(self._handler(signal)) for signal in Signal}
        self._server.add_generic_rpc_handlers((_Methods(handlers),))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        self._services = [signal.rpc_method.split("/")[1] for signal in Signal]
        names = (*self._services, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, self._server)

    async def start(self, host: str, port: int) -> int:
        """Listens on `host:port` (0: a free port) and returns the port.

        Raises:
            OSError: the address cannot be had.
        """
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            if self._tls is None:
                bound = self._server.add_insecure_port(address)
            else:
                bound = self._server.add_secure_port(address, self._tls.grpc_credentials())
        except RuntimeError as error:
            raise OSError(str(error)) from error
        if bound == 0:
            raise OSError(f"cannot listen on {address}")
        await self._server.start()
        for service in ("", *self._services):
            await self._health.set(service, health_pb2.HealthCheckResponse.SERVING)
        return int(bound)

    async def stop(self, grace_s: float) -> None:
        """Says that it is not serving any more, refuses new calls, and waits up to `grace_s` for those under way."""
        await self._health.enter_graceful_shutdown()
        await self._server.stop(grace_s)

    def _handler(self, signal: Signal) -> Callable[[Any, Any], Awaitable[bytes]]:
        async def export(_: Any, context: Any) -> bytes:
            started = time.perf_counter()
            try:
                tenant = self._intake.tenant_of(dict(context.invocation_metadata()).get("authorization"))
                message = await self._message(context)
                with self._intake.holding() as held:
                    held.add(len(message))
                    read = await self._read(signal, message, tenant)
                    keeping = time.perf_counter()
                    # A sender that hangs up takes nothing back: what the journal was given it writes.
                    await asyncio.shield(asyncio.wrap_future(self._intake.keep(read)))
            except (OtlpError, AuthError, JournalError, Busy) as error:
                await _abort(context, self._intake.refused(signal, "grpc", error, started))
                raise
            self._intake.acknowledged(read, "grpc", started, keeping)
            response: bytes = response_of(read).SerializeToString()  # type: ignore[attr-defined]
            return response

        return export

    async def _read(self, signal: Signal, message: bytes, tenant: str) -> otlp.Request:
        if len(message) <= _OFFLOAD_BYTES:
            return self._intake.read(signal, message, otlp.PROTOBUF, tenant=tenant)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, self._intake.read, signal, message, otlp.PROTOBUF, "", tenant)

    async def _message(self, context: Any) -> bytes:
        """The call's one message.

        Raises:
            NoMessage: there is none, or the library refused it for its size.
            TooSlow: it did not come in time.
        """
        try:
            async with asyncio.timeout(MESSAGE_S):
                message = await context.read()
        except TimeoutError:
            raise TooSlow(f"the message did not come within {MESSAGE_S:g} s") from None
        if not isinstance(message, bytes):
            raise NoMessage(f"the call has no message, or one of more than {self._intake.max_body_bytes} bytes")
        return message


class NoMessage(TooLarge):
    """A call that ends without a message for us.

    The library has told the sender of one over the limit so already (RESOURCE_EXHAUSTED), and does not tell us; a call
    with none at all ends with this one's code. They are counted alike: the first is what happens.
    """

    rpc_code = INVALID_ARGUMENT


class _Methods(grpc.GenericRpcHandler):  # type: ignore[misc]
    def __init__(self, handlers: dict[str, Any]) -> None:
        self._handlers = handlers

    def service(self, handler_call_details: Any) -> Any:
        return self._handlers.get(handler_call_details.method)


async def _abort(context: Any, refusal: Refusal) -> None:
    details = rpc_status.status(refusal.rpc_code, refusal.message, retry_after_s=refusal.retry_after_s)
    trailing = ((_DETAILS_KEY, details.SerializeToString()),)
    await context.abort(_CODES[refusal.rpc_code], refusal.message, trailing)  # raises
