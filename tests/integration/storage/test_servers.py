"""clickhouse:// against real HTTP servers: TLS, passwords, several hosts of which some are lost, time limits."""

from __future__ import annotations

import logging
import socket
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from clickhouse_connect.driver.exceptions import ClickHouseError

from promptpath.storage import StorageError, connect, failover, ingest, migrate
from tests.engine_server import HttpEngine, Listener

from .otlp_rows import CAPTURES, requests

_PASSWORD = "pa:ss@/w?rd"
_IN_URL = "pa%3Ass%40%2Fw%3Frd"


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpEngine]:
    folder = tmp_path_factory.mktemp("servers")
    with pytest.MonkeyPatch.context() as patch:
        # An engine that is given a schema as text keeps a copy in its working directory.
        patch.chdir(folder)
        engine = HttpEngine(folder / "engine")
        try:
            yield engine
        finally:
            engine.close()


@pytest.fixture
def listen(engine: HttpEngine) -> Iterator[Callable[..., Listener]]:
    listeners: list[Listener] = []

    def open_one(**options: Any) -> Listener:
        listeners.append(Listener(engine, **options))
        return listeners[-1]

    failover._pool.cache_clear()
    yield open_one
    for listener in listeners:
        listener.stop()


def _closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _url(*ports: int, query: str = "", user: str = "", database: str = "default") -> str:
    hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
    return f"clickhouse://{user}{hosts}/{database}{query}"


# --- who may connect, and what is said of it --------------------------------------------------------------------------


def test_user_and_password(listen: Callable[..., Listener], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    port = listen(credentials=f"me:{_PASSWORD}").port
    client = connect(_url(port, user=f"me:{_IN_URL}@"))
    assert client.command("SELECT 1") == 1
    with pytest.raises(ClickHouseError) as refused:
        client.command("SELECT nothing")
    client.close()
    for wrong in (f"you:{_IN_URL}@", "me:other@", ""):
        with pytest.raises(StorageError, match=r"refused user '(you|me|default)': check user and password") as caught:
            connect(_url(port, user=wrong))
        told = "".join(traceback.format_exception(caught.value) + traceback.format_exception(refused.value))
        assert _PASSWORD not in told + caplog.text
        assert _IN_URL not in told.replace(repr(wrong), "") + caplog.text


def test_tls(listen: Callable[..., Listener], tmp_path: Path) -> None:
    authority, stranger = trustme.CA(), trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    certificate.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "server.pem"))
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    stranger.cert_pem.write_to_path(str(tmp_path / "stranger.pem"))
    ports = [listen(tls=(tmp_path / "server.pem", tmp_path / "server.pem")).port for _ in range(2)]

    for some in (ports[:1], [_closed_port(), *ports]):
        for accepted in (f"?secure=1&ca_cert={tmp_path / 'ca.pem'}", "?secure=1&verify=0"):
            client = connect(_url(*some, query=accepted))
            assert client.command("SELECT 1") == 1
            client.close()
        for refused in ("?secure=1", f"?secure=1&ca_cert={tmp_path / 'stranger.pem'}"):
            with pytest.raises(StorageError, match=r"cannot reach ClickHouse at .*certificate"):
                connect(_url(*some, query=refused))
    with pytest.raises(StorageError, match="cannot reach ClickHouse"):
        connect(_url(ports[0]))


# --- several hosts ----------------------------------------------------------------------------------------------------


def test_the_first_host_that_answers(listen: Callable[..., Listener]) -> None:
    first, second = listen(), listen()
    client = connect(_url(_closed_port(), first.port, second.port))
    assert [client.command("SELECT 1") for _ in range(3)] == [1, 1, 1]
    client.close()
    assert first.requests > 3
    assert second.requests == 0


def test_a_host_is_lost_and_comes_back(listen: Callable[..., Listener]) -> None:
    first, second = listen(), listen()
    url = _url(first.port, second.port)
    client, reader = connect(url), connect(url, readonly=True)
    port = first.port
    first.stop()
    assert client.command("SELECT 1") == 1
    assert reader.command("SELECT 2") == 2
    assert second.requests >= 2
    third = listen(port=port)
    second.stop()
    assert client.command("SELECT 3") == 3
    assert reader.query("SELECT 4").result_rows == [(4,)]
    assert third.requests >= 2
    client.close()
    reader.close()


def test_a_host_is_lost_in_the_middle(listen: Callable[..., Listener]) -> None:
    """A read is repeated elsewhere. Of a write nobody knows whether it was carried out: that is its maker's to say."""
    first, second = listen(), listen()
    client = connect(_url(first.port, second.port))
    client.command("CREATE TABLE t (x UInt8) ENGINE = Memory")
    first.breaks = True
    assert client.command("SELECT 1") == 1
    assert client.query("SELECT 2").result_rows == [(2,)]

    first.breaks, second.breaks = False, True
    with pytest.raises(ClickHouseError):
        client.command("INSERT INTO t SELECT 1")
    client.command("INSERT INTO t SELECT 2")
    assert client.query("SELECT x FROM t").result_rows == [(2,)]
    client.command("DROP TABLE t")
    client.close()


def test_an_insert_goes_on_at_another_host_once(listen: Callable[..., Listener], tmp_path: Path) -> None:
    first, second = listen(), listen()
    client = connect(_url(first.port, second.port, database="over"))
    migrate(client)
    body = b"".join(requests(CAPTURES / "vllm-detailed" / "traces.pb"))
    ingest.insert(client, "traces", body, "a")
    spans = client.command("SELECT count() FROM otel_traces")
    first.stop()
    ingest.insert(client, "traces", body, "a")
    (tmp_path / "segment").write_bytes(body)
    second.breaks = True
    with pytest.raises(StorageError, match="try again with the same token"):
        ingest.insert(client, "traces", tmp_path / "segment", "b")
    second.breaks = False
    for _ in range(2):
        ingest.insert(client, "traces", tmp_path / "segment", "b")
    assert client.command("SELECT count() FROM otel_traces") == 2 * spans
    client.close()


def test_no_host_answers(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    ports = _closed_port(), _closed_port()
    with pytest.raises(StorageError) as caught:
        connect(_url(*ports, user=f"me:{_IN_URL}@"))
    hosts = f"127.0.0.1:{ports[0]},127.0.0.1:{ports[1]}/default"
    assert str(caught.value) == (
        f"cannot reach ClickHouse at {hosts} (Connection refused): check that it runs and the storage URL"
    )
    assert _PASSWORD not in caplog.text + "".join(traceback.format_exception(caught.value))


# --- time limits ------------------------------------------------------------------------------------------------------


def test_a_host_that_never_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(StorageError, match=r"(?i)cannot reach ClickHouse at .*timed out"):
            connect(_url(port, query="?send_receive_timeout=1"))
