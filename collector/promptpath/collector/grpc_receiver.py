"""OTLP over gRPC."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import grpc

from promptpath.collector import otlp, rpc_status
from promptpath.collector.auth import AuthError
from promptpath.collector.intake import Intake, Refusal, response_of
from promptpath.collector.journal import JournalError
from promptpath.collector.otlp import Malformed, OtlpError, Signal, TooLarge

_WORKERS: Final = 16
#: How long the library may take to tell that it has ended a call whose message it refused.
_REFUSAL_S: Final = 0.5
_DETAILS_KEY: Final = "grpc-status-details-bin"
_CODES: Final = {code.value[0]: code for code in grpc.StatusCode}


class GrpcReceiver:
    """A gRPC server with the three export methods, on threads: a handler waits for its group commit."""

    def __init__(self, intake: Intake) -> None:
        self._intake = intake
        self._server = grpc.server(
            ThreadPoolExecutor(_WORKERS, thread_name_prefix="otlp-grpc"),
            options=[
                ("grpc.max_receive_message_length", intake.max_body_bytes),
                ("grpc.so_reuseport", 0),
            ],
        )
        # On the wire a unary request is a stream of one. As a stream it reaches the handler even when the library
        # refuses the message for its size, so that the refusal is counted.
        handlers = {signal.rpc_method: grpc.stream_unary_rpc_method_handler(self._handler(signal)) for signal in Signal}
        self._server.add_generic_rpc_handlers((_Methods(handlers),))

    def start(self, host: str, port: int) -> int:
        """Listens on `host:port` (0: a free port) and returns the port.

        Raises:
            OSError: the address cannot be had.
        """
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            bound = self._server.add_insecure_port(address)
        except RuntimeError as error:
            raise OSError(str(error)) from error
        if bound == 0:
            raise OSError(f"cannot listen on {address}")
        self._server.start()
        return int(bound)

    def stop(self, grace_s: float) -> None:
        """Refuses new calls and waits up to `grace_s` for those under way."""
        self._server.stop(grace_s).wait()

    def _handler(self, signal: Signal) -> Callable[[Iterator[bytes], Any], bytes]:
        def export(messages: Iterator[bytes], context: Any) -> bytes:
            started = time.perf_counter()
            try:
                tenant = self._intake.tenant_of(dict(context.invocation_metadata()).get("authorization"))
                read = self._intake.read(signal, self._message(messages, context), otlp.PROTOBUF, tenant=tenant)
                self._intake.keep(read).result()
            except (OtlpError, AuthError, JournalError) as error:
                _abort(context, self._intake.refused(signal, "grpc", error))
            self._intake.acknowledged(read, "grpc", started)
            response: bytes = response_of(read).SerializeToString()  # type: ignore[attr-defined]
            return response

        return export

    def _message(self, messages: Iterator[bytes], context: Any) -> bytes:
        """The call's one message.

        Raises:
            TooLarge: the library refused it. It cancels the call then, before or after this reads from it.
            Malformed: the caller sent none.
        """
        refused: Exception | None = None
        try:
            return next(messages)
        except StopIteration:
            over = threading.Event()
            if context.add_callback(over.set) and not over.wait(_REFUSAL_S):
                raise Malformed("the call has no message: it is one export request") from None
        except Exception as error:  # the library's own, without a public type
            refused = error
        raise TooLarge(
            f"the message has more than {self._intake.max_body_bytes} bytes, which is the limit"
        ) from refused


class _Methods(grpc.GenericRpcHandler):  # type: ignore[misc]
    def __init__(self, handlers: dict[str, Any]) -> None:
        self._handlers = handlers

    def service(self, handler_call_details: Any) -> Any:
        return self._handlers.get(handler_call_details.method)


def _abort(context: Any, refusal: Refusal) -> None:
    details = rpc_status.status(refusal.rpc_code, refusal.message, retry_after_s=refusal.retry_after_s)
    context.set_trailing_metadata(((_DETAILS_KEY, details.SerializeToString()),))
    context.abort(_CODES[refusal.rpc_code], refusal.message)  # raises
