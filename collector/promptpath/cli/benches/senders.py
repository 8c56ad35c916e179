"""Senders of OTLP for benches: as fast as they are answered, or at a pace; over HTTP or gRPC, on kept connections."""

from __future__ import annotations

import http.client
import itertools
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

#: Sends one body; True if it was acknowledged, False if the receiver asked to come back.
Send = Callable[[bytes], bool]

_TRACES_METHOD: Final = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
_COME_BACK: Final = (429, 503)
_RETRY_S: Final = 0.05


@dataclass
class Sent:
    """What became of a load. `latencies_s` are of acknowledged requests."""

    latencies_s: list[float] = field(default_factory=list)
    refused: int = 0
    wall_s: float = 0.0


def over_http(port: int) -> Send:
    """A sender on a connection of its own to `127.0.0.1:port`."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    headers = {"Content-Type": "application/x-protobuf"}

    def send(body: bytes) -> bool:
        connection.request("POST", "/v1/traces", body, headers)
        answer = connection.getresponse()
        text = answer.read()
        if answer.status not in (200, *_COME_BACK):
            raise RuntimeError(f"HTTP {answer.status}: {text[:200]!r}")
        return answer.status == 200

    return send


def over_grpc(port: int) -> Send:
    """A sender on a channel of its own to `127.0.0.1:port`."""
    import grpc

    channel = grpc.insecure_channel(f"127.0.0.1:{port}", options=[("grpc.use_local_subchannel_pool", 1)])
    call = channel.unary_unary(_TRACES_METHOD)

    def send(body: bytes) -> bool:
        try:
            call(body)
        except grpc.RpcError as error:
            if error.code() in (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE):
                return False
            raise
        return True

    return send


def load(
    make: Callable[[], Send], bodies: Sequence[bytes], count: int, *, threads: int, per_s: float | None = None
) -> Sent:
    """Sends `count` requests, taking `bodies` in turn, each until it is acknowledged.

    per_s: requests a second over all threads, on a schedule that does not wait for answers as long as a thread is free,
    and latencies count from when a request was due; None: as fast as answers come.
    """
    sent = Sent()
    lock = threading.Lock()
    numbers = itertools.count()
    began = time.perf_counter()

    def work() -> None:
        send = make()
        while (number := next(numbers)) < count:
            due = began + number / per_s if per_s else time.perf_counter()
            time.sleep(max(due - time.perf_counter(), 0))
            refused = 0
            while not send(bodies[number % len(bodies)]):
                refused += 1
                time.sleep(_RETRY_S)
            took = time.perf_counter() - due
            with lock:
                sent.latencies_s.append(took)
                sent.refused += refused

    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(work) for _ in range(threads)]:
            done.result()
    sent.wall_s = time.perf_counter() - began
    return sent
