"""The same code over ClickHouse's HTTP interface: a small HTTP server passes what the client sends to a real engine.

No ClickHouse server runs here, so that is as near as it gets: URLs, settings and bodies are as a server gets them.
"""

from __future__ import annotations

import gzip
import re
import tempfile
import threading
import zlib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import chdb
import pytest

from promptpath.storage import connect, ingest, migrate
from promptpath.storage.queries import prompts
from promptpath.storage.rows import insert_prompts

from .conftest import Store
from .otlp_rows import CAPTURES, metric_rows, requests, same_rows, span_rows, stored
from .prompt_rows import prompt, table

_TRANSPORT = {"query", "database", "query_id", "session_id", "client_protocol_version", "wait_end_of_query", "compress"}


class _Server(ThreadingHTTPServer):
    """One engine handle a request, with the request's settings."""

    daemon_threads = True

    def __init__(self, path: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.path = path
        self.seen: list[str] = []
        self.keep = chdb.connect(str(path))

    def run(self, query: dict[str, str], statement: str, body: bytes) -> bytes:
        handle = chdb.connect(str(self.path))
        try:
            if query.get("database"):
                handle.query(f"USE {query['database']}")
            # A server checks all settings of a URL against what held before; here that means `readonly` last.
            for name, value in sorted(query.items(), key=lambda item: item[0] == "readonly"):
                if name not in _TRANSPORT and not name.startswith("param_"):
                    quoted = value.replace("\\", "\\\\").replace("'", "\\'")
                    handle.query(f"SET {name} = '{quoted}'")
            parameters = {name[6:]: value for name, value in query.items() if name.startswith("param_")}
            insert = re.fullmatch(r"\s*INSERT INTO (.*?)\s+FORMAT (\w+)\s*", statement, re.DOTALL)
            if insert is None:
                text = statement + body.decode()
                return bytes(handle.query(text, "TabSeparated", params=parameters).bytes() or b"")
            with tempfile.NamedTemporaryFile() as file:
                file.write(body)
                file.flush()
                handle.query(f"INSERT INTO {insert[1]} FROM INFILE '{file.name}' FORMAT {insert[2]}")
            return b""
        finally:
            handle.close()


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        encoding = self.headers.get("Content-Encoding")
        self._answer(
            gzip.decompress(body) if encoding == "gzip" else zlib.decompress(body) if encoding == "deflate" else body
        )

    def _answer(self, body: bytes) -> None:
        query = dict(parse_qsl(urlsplit(self.path).query, keep_blank_values=True))
        statement = query.get("query", "")
        if not statement:
            # As the server does it: with no query in the URL, the body's first line up to its data is the statement.
            head = re.match(rb"INSERT INTO [^\n]* FORMAT \w+\n", body)
            statement, body = (head[0].decode(), body[head.end() :]) if head else (body.decode(), b"")
        self.server.seen.append(statement)
        try:
            data, status = self.server.run(query, statement, body), 200
        except Exception as error:
            data, status = str(error).encode(), 500
        self.send_response(status)
        if status == 500:
            found = re.search(rb"Code: (\d+)", data)
            self.send_header("X-ClickHouse-Exception-Code", found[1].decode() if found else "0")
        self.send_header(
            "X-ClickHouse-Format", "Native" if statement.rstrip().endswith("FORMAT Native") else "TabSeparated"
        )
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Nothing: a test's output is its own."""


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[_Server]:
    # An engine that is given a schema as text keeps a copy in its working directory; a server has a directory for them.
    monkeypatch.chdir(tmp_path)
    server = _Server(tmp_path / "engine")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        server.keep.close()


class _Remote(Store):
    """A store behind a URL of its own."""

    address: str = ""

    @property
    def url(self) -> str:
        return self.address


def test_the_whole_way_over_http(server: _Server, tmp_path: Path) -> None:
    store = _Remote(tmp_path)
    store.address = f"clickhouse://127.0.0.1:{server.server_address[1]}/prod"
    try:
        migrate(store.open())
        assert migrate(store.client) == []
        assert store.client.command("SELECT currentDatabase()") == "prod"

        spans = b"".join(requests(CAPTURES / "vllm-detailed" / "traces.pb"))
        metrics = b"".join(requests(CAPTURES / "litellm-v1-metrics" / "metrics.pb"))
        for _ in range(2):
            ingest.insert_traces(store.client, spans, "t")
            ingest.insert_metrics(store.client, metrics, "m")
        assert "INSERT INTO otlp_traces FORMAT ProtobufSingle" in {" ".join(text.split()) for text in server.seen}
        same_rows(stored(store, "otel_traces"), list(span_rows([spans])), "TraceId", "SpanId", "Timestamp")
        tables = {name for name, _ in metric_rows([metrics])}
        assert sum(store.count(name) for name in tables) == len(list(metric_rows([metrics])))
        with pytest.raises(ingest.BadBody):
            ingest.insert_traces(store.client, b"hello, world", "bad")

        insert_prompts(store.client, table(prompt(1), prompt(2)))
        assert store.count("prompt_minutes") == 1
        reader = store.open(readonly=True)
        assert prompts.list_prompts(reader, model="m").num_rows == 2
    finally:
        store.close()


def test_a_database_that_is_missing_is_not_made_by_a_reader(server: _Server) -> None:
    from promptpath.storage import StorageError

    with pytest.raises(StorageError, match="there is no database 'prod'"):
        connect(f"clickhouse://127.0.0.1:{server.server_address[1]}/prod", readonly=True)
