"""Sockets and what is wrong with them."""

from __future__ import annotations

import socket

import pytest

from promptpath.collector.errors import CollectorError, PortTaken
from promptpath.collector.listeners import bind, is_loopback, port_of


def test_a_free_port_is_found_and_listens() -> None:
    with bind("127.0.0.1", 0, "--http-port") as listener, socket.create_connection(("127.0.0.1", port_of(listener)), 5):
        assert listener.getsockname()[0] == "127.0.0.1"


def test_a_taken_port_is_one_line_with_option_and_port() -> None:
    with bind("127.0.0.1", 0, "--http-port") as listener:
        port = port_of(listener)
        with pytest.raises(PortTaken) as caught:
            bind("127.0.0.1", port, "--sql-port")
    assert str(caught.value) == (
        f"port {port} on 127.0.0.1 is taken: stop what listens there, or choose another with --sql-port"
    )


@pytest.mark.parametrize("host", ["192.0.2.1", "no.such.host.invalid"])
def test_an_address_of_another_machine_is_one_line(host: str) -> None:
    with pytest.raises(CollectorError, match="--host") as caught:
        bind(host, 0, "--http-port")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("host", "answer"),
    [("127.0.0.1", True), ("localhost", True), ("::1", True), ("0.0.0.0", False), ("10.0.0.1", False), ("box", False)],
)
def test_loopback(host: str, answer: bool) -> None:
    assert is_loopback(host) is answer
