"""Options of every TCP connection to the API server, so that dead connections are detected.

Invariant: a connection whose peer is silent, or does not acknowledge data, fails after
`DEAD_AFTER_S`. The kernel detects this; a peer whose process hangs while its kernel still answers
is detected only by the client's time-outs.
"""

from __future__ import annotations

import os
import socket
from typing import Any

# A dead peer is found after 25 s, before a watch counts as silent (30 s).
IDLE_S = 10
EVERY_S = 5
PROBES = 3
DEAD_AFTER_S = IDLE_S + EVERY_S * PROBES


def keep_alive(connection: socket.socket) -> None:
    """Make the kernel probe an idle connection and drop it if the peer does not answer."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_KEEPIDLE", IDLE_S),
        ("TCP_KEEPINTVL", EVERY_S),
        ("TCP_KEEPCNT", PROBES),
        # In milliseconds. Keep-alive probes are not sent while data is unacknowledged; this covers
        # that case.
        ("TCP_USER_TIMEOUT", DEAD_AFTER_S * 1000),
    ):
        if hasattr(socket, option):  # Linux has all of them
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def open_socket(address: tuple[Any, ...]) -> socket.socket:
    """A socket for an address as `getaddrinfo` gives it: aiohttp's `socket_factory`."""
    family, kind, protocol, *_ = address
    opened = socket.socket(family, kind, protocol)
    keep_alive(opened)

    return opened


def keep_transport_alive(transport: Any) -> None:
    """`keep_alive` for the connection under a transport, asyncio's or uvloop's."""
    opened = transport.get_extra_info("socket")
    if opened is not None:
        # uvloop's socket takes no options; a duplicate of its descriptor does, and it is the same
        # connection.
        with socket.socket(fileno=os.dup(opened.fileno())) as twin:
            keep_alive(twin)
