"""TLS of the SQL port, with clickhouse-connect, curl and this machine's own commands."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import clickhouse_connect
import pytest

from promptpath import storage
from promptpath.collector.auth import Scope, entry, new_token, write

from .running import RunningCollector
from .test_secured import SERVERS, issue

TOKEN = new_token()


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCollector]:
    """With client CAs as well: they are for senders."""
    folder = tmp_path_factory.mktemp("pem")
    SERVERS.cert_pem.write_to_path(folder / "roots.pem")
    write(folder / "tokens.toml", [entry("reader", "acme", TOKEN, [Scope.QUERY])])
    directory = tmp_path_factory.mktemp("store")
    with RunningCollector(directory, tls=issue(folder), tokens=folder / "tokens.toml") as collector:
        yield collector


def roots(collector: RunningCollector) -> Path:
    assert collector.config.tls is not None
    return collector.config.tls.cert.parent / "roots.pem"


def test_clickhouse_connect_by_tls(secured: RunningCollector) -> None:
    client = clickhouse_connect.get_client(
        host="localhost",
        port=secured.ports.sql,
        secure=True,
        ca_cert=str(roots(secured)),
        username="default",
        password=TOKEN,
        database="promptpath",
    )
    assert client.query("SELECT count() FROM otel_traces").result_rows == [(0,)]
    client.close()


def test_a_storage_url_by_tls(secured: RunningCollector) -> None:
    url = f"clickhouse://default:{TOKEN}@localhost:{secured.ports.sql}/promptpath?secure=1"
    client = storage.connect(f"{url}&ca_cert={roots(secured)}", readonly=True)
    assert client.query("SELECT 1").result_rows == [(1,)]
    client.close()
    # A certificate of a CA that nobody knows is not believed.
    with pytest.raises(storage.StorageError):
        storage.connect(url, readonly=True).query("SELECT 1")


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_by_tls(secured: RunningCollector) -> None:
    at = f"https://localhost:{secured.ports.sql}/?query=SELECT%2040%2B2"
    command = ["curl", "--silent", "--show-error", "--user", f"default:{TOKEN}", at]
    known = subprocess.run([*command, "--cacert", str(roots(secured))], capture_output=True, timeout=60, check=True)
    assert known.stdout == b"42\n"
    unknown = subprocess.run(command, capture_output=True, timeout=60)
    assert (unknown.returncode, unknown.stdout) == (60, b"")


def test_the_owner_s_own_commands_need_nothing_said(secured: RunningCollector) -> None:
    directory = Path(secured.config.storage.removeprefix("chdb://"))
    command = [sys.executable, "-m", "promptpath.cli", "sql", "--storage", f"chdb://{directory}", "--format", "json"]
    ran = subprocess.run([*command, "SELECT count() AS n FROM otel_traces"], capture_output=True, timeout=120)
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert json.loads(ran.stdout) == {"n": 0}
    assert secured.collector.sql_url.endswith(f":{secured.ports.sql}/promptpath?secure=1")


def test_unencrypted_queries_get_nowhere(secured: RunningCollector) -> None:
    with pytest.raises((urllib.error.URLError, ConnectionError)):
        urllib.request.urlopen(f"http://127.0.0.1:{secured.ports.sql}/ping", timeout=20)
