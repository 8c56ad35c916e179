"""Ports that are free, taken, or not ours to take."""

from __future__ import annotations

import socket

import pytest

from promptpath.cli import ports
from promptpath.cli.errors import Wrong


def test_free_and_taken() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        taken = server.getsockname()[1]
        assert ports.answers("127.0.0.1", taken)
        with pytest.raises(Wrong) as failure:
            ports.claim("127.0.0.1", taken, "--http-port")
        assert failure.value.message == (
            f"port {taken} is taken: stop what listens on it, or choose another with --http-port (0: any free one)"
        )
    assert ports.claim("127.0.0.1", taken, "--http-port") == taken
    assert not ports.answers("127.0.0.1", taken)
    assert ports.claim("127.0.0.1", 0, "--http-port") > 0


def test_an_address_that_is_not_ours() -> None:
    with pytest.raises(Wrong, match=r"cannot listen on 192\.0\.2\.1:\d+ .*: choose another with --sql-port or --host"):
        ports.claim("192.0.2.1", 18123, "--sql-port")
