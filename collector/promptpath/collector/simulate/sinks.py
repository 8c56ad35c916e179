"""Where simulated spans go: files, or a collector over OTLP/HTTP."""

from __future__ import annotations

import http.client
import struct
import time
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from promptpath.collector.simulate.encode import Encoder, Json, Protobuf

_BUFFER_BYTES: Final = 1 << 20
_TRIES: Final = 30
_TIMEOUT_S: Final = 60.0


class SinkError(RuntimeError):
    """Spans cannot be sent or written; one line that says what to do."""


class ProtobufFile:
    """Requests behind a 4-byte big-endian length each."""

    encoder: Encoder

    def __init__(self, path: Path) -> None:
        self.encoder = Protobuf()
        self._file = path.open("wb", buffering=_BUFFER_BYTES)

    def write(self, body: bytes, spans: int) -> None:
        """Append a request."""
        self._file.write(struct.pack(">I", len(body)))
        self._file.write(body)

    def close(self) -> None:
        """Write out what is buffered."""
        self._file.close()


class JsonFile:
    """OTLP/JSON, one request a line."""

    encoder: Encoder

    def __init__(self, path: Path) -> None:
        self.encoder = Json()
        self._file = path.open("wb", buffering=_BUFFER_BYTES)

    def write(self, body: bytes, spans: int) -> None:
        """Append a request."""
        self._file.write(body)
        self._file.write(b"\n")

    def close(self) -> None:
        """Write out what is buffered."""
        self._file.close()


class HttpSink:
    """A collector that takes OTLP/HTTP.

    url: of the collector (`http://host:4318`), or with the path `/v1/traces`. rate: spans per second at most, 0 for as
    fast as it takes them. It waits where the collector says that it must (429, 503).
    """

    encoder: Encoder

    def __init__(self, url: str, rate: float = 0.0) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise SinkError(f"endpoint {url!r} is no URL of a collector: write http://host:4318")
        self.encoder = Protobuf()
        self._url = url
        self._path = parts.path if parts.path.endswith("/v1/traces") else parts.path.rstrip("/") + "/v1/traces"
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._connection = kind(parts.hostname, parts.port, timeout=_TIMEOUT_S)
        self._rate = rate
        self._began = 0.0
        self._sent = 0

    def write(self, body: bytes, spans: int) -> None:
        """Send a request and wait until it is taken.

        Raises:
            SinkError: nobody listens, or it is refused.
        """
        self._wait()
        self._sent += spans
        for _ in range(_TRIES):
            status, retry_after, text = self._post(body)
            if status < 300:
                return
            if status not in (429, 502, 503, 504):
                raise SinkError(f"{self._url} refuses the spans: {status} {text}")
            time.sleep(min(retry_after, 30.0))
        raise SinkError(f"{self._url} takes no spans: {status} {_TRIES} times; look at the collector")

    def close(self) -> None:
        """Hang up."""
        self._connection.close()

    def _wait(self) -> None:
        if not self._rate:
            return
        now = time.monotonic()
        self._began = self._began or now
        behind = self._began + self._sent / self._rate - now
        if behind > 0:
            time.sleep(behind)

    def _post(self, body: bytes) -> tuple[int, float, str]:
        headers = {"Content-Type": "application/x-protobuf"}
        for again in (True, False):
            try:
                self._connection.request("POST", self._path, body, headers)
                response = self._connection.getresponse()
                text = response.read(200).decode("utf-8", "replace")
                response.read()
                return response.status, _seconds(response.getheader("Retry-After")), " ".join(text.split())
            except (OSError, http.client.HTTPException) as error:
                # A connection that was kept open may have been closed meanwhile.
                self._connection.close()
                if not again:
                    reason = getattr(error, "strerror", None) or error
                    raise SinkError(f"cannot send to {self._url} ({reason}): start a collector there") from None
        raise AssertionError


def _seconds(text: str | None) -> float:
    try:
        return max(float(text or 0), 0.2)
    except ValueError:
        return 1.0
