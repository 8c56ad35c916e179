"""What the kernel knows of a connection: the peer's address and, on Linux, the round-trip time."""

from __future__ import annotations

import socket
import struct
import sys
from typing import Any, Final

from opentelemetry.util.types import AttributeValue

from promptpath import semconv

_TCP_INFO: Final = getattr(socket, "TCP_INFO", 11)
#: Offset of tcpi_rtt [us] in Linux's struct tcp_info (include/uapi/linux/tcp.h).
_RTT_OFFSET: Final = 68
_LENGTH: Final = 104


def attributes(network_stream: Any) -> dict[str, AttributeValue]:
    """Peer address and port, and `promptpath.tcp.rtt_us`, of an httpcore network stream, as far as they are known."""
    found: dict[str, AttributeValue] = {}
    peer = network_stream.get_extra_info("server_addr")
    if isinstance(peer, tuple) and len(peer) >= 2:
        found[semconv.NETWORK_PEER_ADDRESS] = peer[0]
        found[semconv.NETWORK_PEER_PORT] = peer[1]
    if sys.platform == "linux":
        connection = network_stream.get_extra_info("socket")
        if connection is not None and connection.family in (socket.AF_INET, socket.AF_INET6):
            info = connection.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _LENGTH)
            if len(info) >= _RTT_OFFSET + 4:
                found[semconv.TCP_RTT_US] = struct.unpack_from("=I", info, _RTT_OFFSET)[0]
    return found
