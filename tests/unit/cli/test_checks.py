"""Where spans would go, as OpenTelemetry's variables say it."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

import pytest

from promptpath import storage
from promptpath.cli.checks import Finding, _is_there, exporter, otlp_endpoint, store


@pytest.mark.parametrize(
    ("environment", "endpoint"),
    [
        ({}, ("http://localhost:4318", "http/protobuf", "default")),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, ("http://localhost:4317", "grpc", "default")),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a:1", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc"},
            ("http://a:1", "grpc", "OTEL_EXPORTER_OTLP_ENDPOINT"),
        ),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a:1", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://b:2/v1/traces"},
            ("http://b:2/v1/traces", "http/protobuf", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"),
        ),
    ],
)
def test_endpoint(environment: dict[str, str], endpoint: tuple[str, str, str]) -> None:
    assert otlp_endpoint(environment) == endpoint


def levels(environment: dict[str, str]) -> list[tuple[str, str]]:
    return [(finding.level, finding.text) for finding in exporter(environment)]


def test_disabled_and_elsewhere() -> None:
    assert levels({"OTEL_SDK_DISABLED": "true"}) == [("problem", "OTEL_SDK_DISABLED=true: nothing is sent; unset it")]
    assert levels({"OTEL_TRACES_EXPORTER": "console"})[0][0] == "note"


@pytest.mark.parametrize("url", ["ftp://host:1", "http://", "http://host:port"])
def test_bad_address(url: str) -> None:
    assert levels({"OTEL_EXPORTER_OTLP_ENDPOINT": url}) == [
        ("problem", f"OTEL_EXPORTER_OTLP_ENDPOINT={url} is no address: write http://HOST:PORT")
    ]


def test_reachable_or_not() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        told = list(exporter({"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{address}"}))
    text = f"OTLP (http/protobuf) to {address} (OTEL_EXPORTER_OTLP_ENDPOINT); it accepts connections"
    assert told == [Finding("ok", "exporter", text)]
    told = list(exporter({"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{address}"}))
    assert [finding.level for finding in told] == ["problem"]
    assert told[0].text.startswith(f"nobody listens on {address} ")


def test_a_folder_that_may_not_be_looked_into_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    class Locked(type(Path())):  # type: ignore[misc]
        def exists(self, **_: bool) -> bool:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self))

    monkeypatch.setattr(storage, "data_dir", lambda _: Locked("/locked"))
    text = "cannot read /locked/chdb (Permission denied): run as its owner"
    assert list(store(None, (), 10)) == [Finding("problem", "storage", text)]


def test_a_library_whose_package_is_not_installed_is_not_there() -> None:
    assert [_is_there(name) for name in ("json", "json.decoder", "json.nope", "nope", "nope.part")] == [
        True, True, False, False, False,
    ]  # fmt: skip
