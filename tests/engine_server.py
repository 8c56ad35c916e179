"""ClickHouse's HTTP interface over an embedded engine that may write: what stands in for a server in tests and benches.

No ClickHouse server can be installed beside them, so that is as near as it gets: URLs, settings, credentials and bodies
are as a server gets them, the engine is real. In this process: `served(path)`. In one of its own, which can be killed:
`python engine_server.py DIRECTORY [PORT]` prints the port it listens on and serves until then.
"""

from __future__ import annotations

import base64
import contextlib
import email
import gzip
import re
import ssl
import sys
import tempfile
import threading
import zlib
from collections import deque
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import chdb

_TRANSPORT = {"query", "database", "query_id", "session_id", "client_protocol_version", "wait_end_of_query", "compress"}


class HttpEngine:
    """One engine, one handle a request with the request's settings, behind as many listeners as are opened."""

    def __init__(self, path: Path) -> None:
        self.path = path
        #: The newest statements, in the order in which they came.
        self.seen: deque[str] = deque(maxlen=1000)
        self._keep = chdb.connect(str(path))

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

    def close(self) -> None:
        self._keep.close()


class Listener(ThreadingHTTPServer):
    """An address of an engine. tls: certificate and key files. credentials: `user:password` that it wants."""

    daemon_threads = True

    def __init__(
        self, engine: HttpEngine, *, tls: tuple[Path, Path] | None = None, credentials: str = "", port: int = 0
    ) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.engine = engine
        self.credentials = credentials
        self.requests = 0
        #: Whether to break connections once a request has come, as a host does that is lost in the middle.
        self.breaks = False
        self._open: set[Any] = set()
        if tls is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*tls)
            self.socket = context.wrap_socket(self.socket, server_side=True)
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: what a client breaks off is no error of a test."""

    def stop(self) -> None:
        """Stops listening, and breaks the connections that are open."""
        self.shutdown()
        self._thread.join()
        self.server_close()
        for request in self._open:
            with contextlib.suppress(OSError):
                request.shutdown(2)


class _Handler(BaseHTTPRequestHandler):
    server: Listener
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
        server = self.server
        server.requests += 1
        if server.breaks:
            self.close_connection = True
            self.connection.shutdown(2)
            return
        query = dict(parse_qsl(urlsplit(self.path).query, keep_blank_values=True))
        if self.headers.get_content_type() == "multipart/form-data":
            # How clients send what is too long for a URL: the parameters of a query over thousands of ids.
            query, body = query | _form(self.headers["Content-Type"], body), b""
        statement = query.get("query", "")
        if not statement:
            # As the server does it: with no query in the URL, the body's first line up to its data is the statement.
            head = re.match(rb"INSERT INTO [^\n]* FORMAT \w+\n", body)
            statement, body = (head[0].decode(), body[head.end() :]) if head else (body.decode(), b"")
        server.engine.seen.append(statement)
        try:
            self._check_credentials()
            data, status = server.engine.run(query, statement, body), 200
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

    def _check_credentials(self) -> None:
        wanted = "Basic " + base64.b64encode(self.server.credentials.encode()).decode()
        if self.server.credentials and self.headers.get("Authorization") != wanted:
            raise PermissionError(
                "Code: 516. DB::Exception: default: Authentication failed: password is incorrect, or there is no user "
                "with such name. (AUTHENTICATION_FAILED)"
            )

    def log_message(self, *_: Any) -> None:
        """Nothing: a test's output is its own."""


def _form(content_type: str, body: bytes) -> dict[str, str]:
    message = email.message_from_bytes(b"Content-Type: " + content_type.encode() + b"\r\n\r\n" + body)
    parts = message.get_payload()
    assert isinstance(parts, list)
    return {
        str(part.get_param("name", header="Content-Disposition")): bytes(part.get_payload(decode=True)).decode()
        for part in parts
    }


@contextlib.contextmanager
def served(path: Path) -> Iterator[Listener]:
    """An engine behind one listener, in this process."""
    engine = HttpEngine(path)
    listener = Listener(engine)
    try:
        yield listener
    finally:
        listener.stop()
        engine.close()


if __name__ == "__main__":
    print(Listener(HttpEngine(Path(sys.argv[1])), port=int(sys.argv[2]) if len(sys.argv) > 2 else 0).port, flush=True)
    threading.Event().wait()
