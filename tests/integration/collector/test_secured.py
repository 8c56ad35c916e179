"""TLS, mTLS, CORS and what is refused beyond this machine."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
import trustme

from promptpath.collector.errors import CollectorError
from promptpath.collector.otlp import Signal
from promptpath.collector.tls import TlsFiles

from .running import RunningCollector, make_spans

SERVERS, CLIENTS = trustme.CA(), trustme.CA()
GUEST = CLIENTS.issue_cert("sender@example.org")
ORIGIN = "https://app.example.com"


def issue(folder: Path) -> TlsFiles:
    issued = SERVERS.issue_cert("localhost", "127.0.0.1")
    issued.private_key_pem.write_to_path(folder / "key.pem")
    (folder / "cert.pem").write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    CLIENTS.cert_pem.write_to_path(folder / "ca.pem")
    return TlsFiles(folder / "cert.pem", folder / "key.pem", folder / "ca.pem")


@pytest.mark.parametrize("mutual", [False, True])
def test_tls_and_mtls_on_both_receivers(tmp_path: Path, mutual: bool) -> None:
    files = issue(tmp_path)
    tls = files if mutual else TlsFiles(files.cert, files.key)
    roots = SERVERS.cert_pem.bytes()
    guest = (GUEST.private_key_pem.bytes(), GUEST.cert_chain_pems[0].bytes())
    with RunningCollector(tmp_path / "store", tls=tls) as collector:

        def http_status(with_certificate: bool) -> int:
            context = ssl.create_default_context(cadata=roots.decode())
            if with_certificate:
                GUEST.configure_cert(context)
            connection = http.client.HTTPSConnection("localhost", collector.ports.http, context=context, timeout=20)
            connection.request(
                "POST", "/v1/traces", make_spans(1).SerializeToString(), {"Content-Type": "application/x-protobuf"}
            )
            return connection.getresponse().status

        def grpc_call(with_certificate: bool) -> bytes:
            credentials = grpc.ssl_channel_credentials(roots, *(guest if with_certificate else (None, None)))
            with grpc.secure_channel(f"localhost:{collector.ports.grpc}", credentials) as channel:
                answer: bytes = channel.unary_unary(Signal.TRACES.rpc_method)(b"", timeout=20)
                return answer

        assert http_status(True) == 200
        assert grpc_call(True) == b""
        if mutual:
            with pytest.raises((ssl.SSLError, ConnectionError)):
                http_status(False)
            with pytest.raises(grpc.RpcError) as caught:
                grpc_call(False)
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        else:
            assert http_status(False) == 200
            assert grpc_call(False) == b""
        # Unencrypted bytes get nowhere.
        plain = http.client.HTTPConnection("127.0.0.1", collector.ports.http, timeout=20)
        plain.request("GET", "/healthz")
        with pytest.raises((http.client.HTTPException, ConnectionError)):
            plain.getresponse()


def test_a_new_certificate_is_used_without_a_restart(tmp_path: Path) -> None:
    files = issue(tmp_path)
    with RunningCollector(tmp_path / "store", tls=TlsFiles(files.cert, files.key)) as collector:

        def serials() -> set[str]:
            ports = (collector.ports.http, collector.ports.grpc, collector.ports.sql)
            return {ssl.get_server_certificate(("127.0.0.1", port), timeout=20) for port in ports}

        before = serials()
        issue(tmp_path)
        collector.collector._reload()  # what SIGHUP does
        after = serials()
        assert (len(before), len(after)) == (1, 1)
        assert before != after


@pytest.fixture(scope="module")
def for_browsers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCollector]:
    with RunningCollector(tmp_path_factory.mktemp("store"), cors_origins=(ORIGIN, "https://b.example")) as running:
        yield running


def cors(collector: RunningCollector, method: str, **headers: str) -> tuple[int, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", collector.ports.http, timeout=20)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, "/v1/traces", b"{}" if method == "POST" else None, named)
    answer = connection.getresponse()
    answer.read()
    return answer.status, {name.lower(): value for name, value in answer.getheaders()}


def test_pages_of_known_origins_may_send(for_browsers: RunningCollector) -> None:
    asked = {"Access_Control_Request_Method": "POST", "Access_Control_Request_Headers": "content-type,authorization"}
    status, headers = cors(for_browsers, "OPTIONS", Origin=ORIGIN, **asked)
    assert (status, headers["access-control-allow-origin"]) == (200, ORIGIN)
    assert "POST" in headers["access-control-allow-methods"]
    assert "authorization" in headers["access-control-allow-headers"]
    status, headers = cors(for_browsers, "POST", Origin=ORIGIN, Content_Type="application/json")
    assert (status, headers["access-control-allow-origin"]) == (200, ORIGIN)
    assert "Retry-After" in headers["access-control-expose-headers"]
    status, headers = cors(for_browsers, "OPTIONS", Origin="https://evil.example", **asked)
    assert status == 400
    assert "access-control-allow-origin" not in headers


def test_nothing_listens_beyond_this_machine_unasked(for_browsers: RunningCollector, tmp_path: Path) -> None:
    for tls in (None, issue(tmp_path)):  # certificates are asked for by the OTLP ports, not by the SQL port
        with (
            pytest.raises(CollectorError, match="give --tokens, or say --allow-anonymous"),
            RunningCollector(tmp_path, host="0.0.0.0", tls=tls),
        ):
            pass
