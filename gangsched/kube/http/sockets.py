"""Options of every TCP connection to the API server, so that one that is dead is noticed.

Invariant: a connection whose peer is silent, or leaves what was sent unacknowledged, fails after `DEAD_AFTER_S`. The
kernel sees to that; a peer whose kernel answers for a process that hangs is noticed by time-outs of the client alone.
"""

from __future__ import annotations

import os
import socket
from typing import Any

IDLE_S, EVERY_S, PROBES = 10, 5, 3
DEAD_AFTER_S = IDLE_S + EVERY_S * PROBES


def keep_alive(connection: socket.socket) -> None:
    """Let the kernel probe an idle connection, and give one up whose peer does not answer."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_KEEPIDLE", IDLE_S),
        ("TCP_KEEPINTVL", EVERY_S),
        ("TCP_KEEPCNT", PROBES),
        ("TCP_USER_TIMEOUT", DEAD_AFTER_S * 1000),
    ):
        if hasattr(socket, option):  # Linux has all of them
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def open_socket(address: tuple[Any, ...]) -> socket.socket:
    """A socket for an address as `getaddrinfo` gives it: aiohttp's `socket_factory`."""
    family, kind, protocol, *_ = address
    made = socket.socket(family, kind, protocol)
    keep_alive(made)
    return made


def keep_transport_alive(transport: Any) -> None:
    """`keep_alive` for the connection under a transport, asyncio's or uvloop's."""
    found = transport.get_extra_info("socket")
    if found is not None:
        # uvloop's socket takes no options; a duplicate of its descriptor does, and it is the same connection.
        with socket.socket(fileno=os.dup(found.fileno())) as twin:
            keep_alive(twin)
