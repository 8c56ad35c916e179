"""What gRPC brings along: health, reflection, compression, and senders that get stuck."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from promptpath.collector import grpc_receiver, intake
from promptpath.collector.otlp import Signal

from .running import RunningCollector, make_spans, wait_for


@pytest.fixture
def channel(collector: RunningCollector) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(f"127.0.0.1:{collector.ports.grpc}") as opened:
        yield opened


def test_health_of_the_server_and_of_each_service(channel: grpc.Channel) -> None:
    stub = health_pb2_grpc.HealthStub(channel)
    for name in ("", *(signal.rpc_method.split("/")[1] for signal in Signal)):
        answer = stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=20)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_reflection_lists_the_services_and_their_files(channel: grpc.Channel) -> None:
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    name = Signal.TRACES.rpc_method.split("/")[1]
    asked = [
        reflection_pb2.ServerReflectionRequest(list_services=""),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol=name),
    ]
    listed, file = stub.ServerReflectionInfo(iter(asked), timeout=20)
    services = {service.name for service in listed.list_services_response.service}
    assert services >= {name, "grpc.health.v1.Health"}
    assert any(b"ExportTraceServiceRequest" in proto for proto in file.file_descriptor_response.file_descriptor_proto)


@pytest.mark.parametrize("compression", list(grpc.Compression))
def test_compressed_messages(collector: RunningCollector, channel: grpc.Channel, compression: grpc.Compression) -> None:
    name = f"in {compression.name}"
    body = make_spans(2, name=name).SerializeToString()
    assert channel.unary_unary(Signal.TRACES.rpc_method)(body, compression=compression, timeout=20) == b""
    wait_for(lambda: collector.sql(f"SELECT count() FROM otel_traces WHERE SpanName = '{name}'") == [[2]], "rows")


def test_stuck_senders_starve_nobody(collector: RunningCollector, channel: grpc.Channel) -> None:
    """Calls that never send their message, more than threads could wait for: others are served all the same."""
    released = threading.Event()

    def stuck() -> Iterator[bytes]:
        released.wait()
        yield b""

    channels = [grpc.insecure_channel(f"127.0.0.1:{collector.ports.grpc}") for _ in range(4)]
    calls = [one.stream_unary(Signal.TRACES.rpc_method).future(stuck()) for one in channels for _ in range(50)]
    try:
        for number in range(20):
            answer = channel.unary_unary(Signal.TRACES.rpc_method)(
                make_spans(1, first=40_000 + number, name="served").SerializeToString(), timeout=20
            )
            assert answer == b""
        assert not any(call.done() for call in calls)
    finally:
        released.set()
        for call in calls:
            call.cancel()
        for one in channels:
            one.close()


def test_a_message_that_does_not_come_ends_the_call(
    collector: RunningCollector, channel: grpc.Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpc_receiver, "MESSAGE_S", 0.2)
    counter = 'refused_requests_total{signal="traces",protocol="grpc",reason="too_slow"}'
    before = collector.metric(counter)
    released = threading.Event()

    def stuck() -> Iterator[bytes]:
        released.wait()
        yield b""

    call = channel.stream_unary(Signal.TRACES.rpc_method).future(stuck())
    assert call.exception(timeout=20).code() is grpc.StatusCode.DEADLINE_EXCEEDED
    released.set()
    assert collector.metric(counter) == before + 1


def test_too_much_at_once_is_answered_with_when_to_come_back(
    collector: RunningCollector, channel: grpc.Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "HELD_BYTES", 0)
    seen: list[grpc.RpcError] = []
    body = make_spans(1, first=50_000, padding=100_000).SerializeToString()
    deadline = time.monotonic() + 20
    while not seen and time.monotonic() < deadline:
        calls = [channel.unary_unary(Signal.TRACES.rpc_method).future(body) for _ in range(20)]
        seen += [error for call in calls if (error := call.exception(timeout=20)) is not None]
    assert seen[0].code() is grpc.StatusCode.UNAVAILABLE
    trailing = dict(seen[0].trailing_metadata())
    status = status_pb2.Status.FromString(trailing["grpc-status-details-bin"])
    retry = error_details_pb2.RetryInfo()
    assert status.details[0].Unpack(retry)
    assert retry.retry_delay.seconds == 1
