"""Ports: free ones, and whether one is taken."""

from __future__ import annotations

import errno
import socket

from promptpath.cli.errors import Wrong


def free_port(host: str = "127.0.0.1") -> int:
    """A port that nobody listens on at the moment."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        port = probe.getsockname()[1]
        assert isinstance(port, int)
        return port


def claim(host: str, port: int, option: str) -> int:
    """`port` if it can be listened on, a free one for 0.

    Raises:
        Wrong: taken or not allowed; the message names the option that chooses another.
    """
    if port == 0:
        return free_port(host)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as failure:
            if failure.errno == errno.EADDRINUSE:
                raise Wrong(
                    f"port {port} is taken: stop what listens on it, or choose another with {option} (0: any free one)"
                ) from None
            raise Wrong(
                f"cannot listen on {host}:{port} ({failure.strerror}): choose another with {option} or --host"
            ) from None
    return port


def answers(host: str, port: int, timeout_s: float = 1.0) -> bool:
    """Whether somebody accepts connections there."""
    try:
        socket.create_connection((host, port), timeout_s).close()
    except OSError:
        return False
    return True
