"""Tokens and tenants, over both receivers and as far as the rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from google.rpc import status_pb2
from opentelemetry.proto.metrics.v1 import metrics_pb2

from promptpath.collector import auth
from promptpath.collector.auth import Scope
from promptpath.collector.otlp import Signal, tenant

from .running import RunningCollector, make_spans, wait_for

ACME, GLOBEX, READER = auth.new_token(), auth.new_token(), auth.new_token()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCollector]:
    folder = tmp_path_factory.mktemp("guarded")
    auth.write(
        folder / "tokens.toml",
        [
            auth.entry("acme-1", "acme", ACME),
            auth.entry("globex-1", "globex", GLOBEX),
            auth.entry("reader", "acme", READER, [Scope.QUERY]),
        ],
    )
    with RunningCollector(folder / "store", tokens=folder / "tokens.toml", max_body_bytes=1 << 20) as running:
        yield running


def body(first: int, name: str) -> bytes:
    request = make_spans(1, first=first, name=name)
    request.resource_spans[0].resource.attributes.add(key="promptpath.tenant").value.string_value = "forged"
    return tenant.stamp(request.SerializeToString(), "forged")


def send(collector: RunningCollector, signal: Signal, data: bytes, token: str, way: str) -> None:
    if way == "http":
        assert collector.post(data, signal=signal, Authorization=f"Bearer {token}").status == 200
        return
    with grpc.insecure_channel(f"127.0.0.1:{collector.ports.grpc}") as channel:
        channel.unary_unary(signal.rpc_method)(data, metadata=(("authorization", f"Bearer {token}"),), timeout=20)


# These two come first: a process opens one store at a time, and the rest share theirs.
def test_a_sender_cannot_write_a_tenant_where_no_token_is_asked_for(tmp_path: Path) -> None:
    with RunningCollector(tmp_path / "store") as collector:
        assert collector.post(body(1, "open")).status == 200
        wait_for(lambda: collector.sql("SELECT 1 FROM otel_traces") != [], "a row")
        assert collector.sql("SELECT Tenant, ResourceAttributes['promptpath.tenant'] FROM otel_traces") == [
            ["", "forged"]
        ]


def test_a_new_token_counts_and_a_revoked_one_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth, "_LOOK_S", 0.0)
    file = tmp_path / "tokens.toml"
    auth.write(file, [auth.entry("a", "acme", ACME)])
    with RunningCollector(tmp_path / "store", tokens=file) as collector:
        assert collector.post(b"", Authorization=f"Bearer {ACME}").status == 200
        auth.write(file, [auth.entry("g", "globex", GLOBEX)])
        assert collector.post(b"", Authorization=f"Bearer {ACME}").status == 401
        assert collector.post(b"", Authorization=f"Bearer {GLOBEX}").status == 200


@pytest.mark.parametrize("way", ["http", "grpc"])
def test_rows_have_the_tenant_of_the_token_not_what_the_sender_says(guarded: RunningCollector, way: str) -> None:
    for token in (ACME, GLOBEX):
        send(guarded, Signal.TRACES, body(1, way), token, way)
        logs = Signal.LOGS.request()
        logs.resource_logs.add().scope_logs.add().log_records.add(time_unix_nano=1, event_name=way)
        send(guarded, Signal.LOGS, logs.SerializeToString(), token, way)
        metrics = Signal.METRICS.request()
        scope = metrics.resource_metrics.add().scope_metrics.add()
        scope.metrics.add(name=way).gauge.data_points.add(as_int=1, time_unix_nano=1)
        scope.metrics.add(name=way).sum.data_points.add(as_int=1, time_unix_nano=1)
        scope.metrics.add(name=way).histogram.data_points.add(count=1, time_unix_nano=1)
        scope.metrics.add(name=way).exponential_histogram.data_points.add(count=1, time_unix_nano=1)
        scope.metrics.add(name=way).summary.data_points.add(count=1, time_unix_nano=1)
        assert isinstance(scope.metrics[0], metrics_pb2.Metric)
        send(guarded, Signal.METRICS, metrics.SerializeToString(), token, way)

    tables = {"otel_traces": "SpanName", "otel_logs": "EventName"} | {
        f"otel_metrics_{kind}": "MetricName"
        for kind in ("gauge", "sum", "histogram", "exponential_histogram", "summary")
    }
    for table, name in tables.items():
        query = f"SELECT Tenant FROM {table} WHERE {name} = '{way}' ORDER BY 1"
        wait_for(lambda query=query: len(guarded.sql(query)) == 2, table)
        assert guarded.sql(query) == [["acme"], ["globex"]]
    assert guarded.sql("SELECT DISTINCT Tenant FROM trace_arrivals ORDER BY 1") == [["acme"], ["globex"]]


@pytest.mark.parametrize("header", [None, "Bearer nonsense", "Basic eDp5", f"Bearer {ACME[:-1]}"], ids=range(4))
def test_without_a_known_token_it_is_401(guarded: RunningCollector, header: str | None) -> None:
    counter = 'refused_requests_total{signal="traces",protocol="http",reason="unauthenticated"}'
    before = guarded.metric(counter)
    answer = guarded.post(body(2, "refused"), **({} if header is None else {"Authorization": header}))
    assert (answer.status, answer.headers["www-authenticate"]) == (401, 'Bearer realm="promptpath"')
    assert status_pb2.Status.FromString(answer.body).code == 16
    assert guarded.metric(counter) == before + 1
    channel = grpc.insecure_channel(f"127.0.0.1:{guarded.ports.grpc}")
    with pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary(Signal.TRACES.rpc_method)(
            body(2, "refused"), metadata=() if header is None else (("authorization", header),)
        )
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert guarded.sql("SELECT count() FROM otel_traces WHERE SpanName = 'refused'") == [[0]]


def test_a_large_body_without_a_token_still_gets_its_answer(guarded: RunningCollector) -> None:
    assert guarded.post(bytes(900_000)).status == 401


def test_a_token_that_may_only_query_is_403(guarded: RunningCollector) -> None:
    answer = guarded.post(body(3, "forbidden"), Authorization=f"Bearer {READER}")
    assert answer.status == 403
    assert 'error="insufficient_scope"' in answer.headers["www-authenticate"]
    assert status_pb2.Status.FromString(answer.body).message == "the token 'reader' lacks the scope 'ingest'"
    channel = grpc.insecure_channel(f"127.0.0.1:{guarded.ports.grpc}")
    with pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary(Signal.TRACES.rpc_method)(b"", metadata=(("authorization", f"Bearer {READER}"),))
    assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED


def test_health_and_metrics_need_no_token(guarded: RunningCollector) -> None:
    for path in ("/healthz", "/readyz", "/metrics"):
        assert guarded.get(path).status == 200
