"""ClickHouse's HTTP interface over a real engine, as far as writers and readers of tests and benches need it.

No ClickHouse server can be installed beside the tests, so this is as near as it gets: URLs, settings and bodies are as
a server gets them, and the engine is the same. As a program (`python engine_server.py DIRECTORY [PORT]`) it is a
process that can be killed: it prints its port and serves until then.
"""

from __future__ import annotations

import gzip
import re
import sys
import tempfile
import zlib
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import chdb

_TRANSPORT = {"query", "database", "query_id", "session_id", "client_protocol_version", "wait_end_of_query", "compress"}


class EngineServer(ThreadingHTTPServer):
    """One engine handle a request, with the request's settings."""

    daemon_threads = True

    def __init__(self, path: Path, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.path = path
        self.seen: deque[str] = deque(maxlen=1000)
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


class Handler(BaseHTTPRequestHandler):
    server: EngineServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        if self.headers.get("Transfer-Encoding") == "chunked":
            chunks = []
            while size := int(self.rfile.readline(), 16):
                chunks.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            body = b"".join(chunks)
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


def main() -> None:
    """A process of its own."""
    server = EngineServer(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
