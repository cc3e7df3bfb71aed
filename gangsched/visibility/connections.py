"""Connections: limits of their number and rate, and the check that allows a connection to send HTTP
requests.

Invariant: new connections are limited in number and rate, since a handshake blocks the event loop
for a millisecond. A client without a certificate gets 401, and its request is not parsed (decision
0044).
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, cast

import msgspec
from aiohttp import web

from gangsched.visibility.access.certificates import Serving
from gangsched.visibility.admission import Bucket, RequestRate
from gangsched.visibility.bodies import END_WITHIN_S, end_unread
from gangsched.visibility.statuses import RequestRefused

CONNECTIONS = 256
STRANGERS = 128
"""The most that shake hands, and the most that did so without a certificate; of more the oldest
ends. It is above the burst of `HANDSHAKES`, so that a burst of the front proxy's own does not end
itself."""
HANDSHAKES = RequestRate(50.0, 100.0)
PROXYS_HANDSHAKES = RequestRate(200.0, 200.0)
"""The second for addresses from which the front proxy came: a user can make it open a connection
for each request.
"""
PROXIES = 16
HANDSHAKE_WITHIN_S = 5.0
STRANGERS_FOR_S = 5.0
HTTP_OPTIONS: dict[str, Any] = {
    "access_log": None,
    "auto_decompress": False,
    "lingering_time": 0.0,
    "handler_cancellation": True,
}
"""Nothing is inflated in the parser, which sees bodies before the gate does; nothing is read after
an answer; and who has gone is not worked for."""


def _refusal() -> bytes:
    body = msgspec.json.encode(RequestRefused(401, "Unauthorized").body())
    head = (
        "HTTP/1.1 401 Unauthorized\r\nContent-Type: application/json\r\nContent-Length:"
        " %d\r\nConnection: close\r\n\r\n"
    )
    return head.encode() % len(body) + body


UNAUTHORIZED = _refusal()


class Doorkeeper(asyncio.Protocol):
    """Passes a connection with a client certificate to HTTP, and answers other connections without
    parsing requests.
    """

    def __init__(
        self,
        http: Callable[[], asyncio.Protocol],
        strangers: dict[asyncio.Transport, None],
        known: Callable[[], None],
    ) -> None:
        self._http = http
        self._strangers = strangers
        self._known = known
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called after the TLS handshake."""
        transport = cast("asyncio.Transport", transport)  # of uvloop, which has classes of its own
        if transport.get_extra_info("peercert"):
            self._known()
            http = self._http()

            # From here on the bytes go to aiohttp; until now nothing was parsed.
            transport.set_protocol(http)
            http.connection_made(transport)
            return

        self._transport = transport
        self._strangers[transport] = None
        if len(self._strangers) > STRANGERS:
            # The oldest one: a stranger that keeps its connection open has had its answer.
            next(iter(self._strangers)).abort()

        asyncio.get_running_loop().call_later(STRANGERS_FOR_S, transport.abort)

    def data_received(self, data: bytes) -> None:
        """Ignore data of a client without a certificate."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(UNAUTHORIZED)
            end_unread(self._transport)
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Record that the connection was closed."""
        if self._transport is not None:
            self._strangers.pop(self._transport, None)


class Connections:
    """The server's connections. `accept` accepts them, with TLS once there is a certificate."""

    def __init__(self, runner: web.AppRunner, warn: Callable[[str], None]) -> None:
        self._runner = runner
        self._warn = warn
        self.tls: ssl.SSLContext | None = None
        self._strangers: dict[asyncio.Transport, None] = {}
        self._proxies: dict[str, Bucket] = {}

    def end_all(self) -> None:
        """Close all connections after the client authority has changed; clients reconnect and are
        verified with the new one.
        """
        server = self._runner.server
        for connection in server.connections if server is not None else ():
            connection.force_close()

    async def accept(self, listener: socket.socket) -> None:
        """Accept connections at a limited rate; further connections wait in the kernel."""
        loop = asyncio.get_running_loop()
        bucket = Bucket(*HANDSHAKES, loop.time())

        # A dict as an ordered set, so that the oldest handshake can be ended.
        greeting: dict[asyncio.Task[None], None] = {}
        while True:
            # Not accepted rather than closed: clients wait in the kernel's backlog, which costs
            # nothing.
            if self.tls is None or self._count() >= CONNECTIONS:
                await asyncio.sleep(0.05)
                continue

            try:
                connection, address = await loop.sock_accept(listener)
            except OSError as error:  # no descriptors left, or the peer has gone already
                self._warn(f"A connection to the visibility API cannot be taken: {error.strerror}.")
                await asyncio.sleep(0.1)
                continue

            proxys = self._proxies.get(address[0])
            # A token bucket of its own for the front proxy, or strangers could keep all users out.
            while wait_s := (proxys or bucket).take(loop.time()):
                if self._proxies and proxys is None:
                    break

                await asyncio.sleep(wait_s)

            if wait_s:  # the front proxy does not wait behind other clients
                connection.close()
                continue

            task = asyncio.create_task(
                self._greet(connection, address[0], self.tls),
                name="handshake",
            )
            greeting[task] = None
            task.add_done_callback(lambda done: greeting.pop(done, None))

            if len(greeting) > STRANGERS:
                next(iter(greeting)).cancel()

    def _count(self) -> int:
        server = self._runner.server
        return len(server.connections) if server is not None else 0

    def _know(self, host: str) -> None:
        self._proxies.setdefault(
            host,
            Bucket(*PROXYS_HANDSHAKES, asyncio.get_running_loop().time()),
        )
        if len(self._proxies) > PROXIES:
            del self._proxies[next(iter(self._proxies))]

    async def _greet(self, connection: socket.socket, host: str, tls: ssl.SSLContext) -> None:
        http = self._runner.server
        assert http is not None

        with suppress(OSError, ssl.SSLError, asyncio.CancelledError):
            # Answers are small; Nagle's algorithm would delay each by the client's acknowledgement.
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: Doorkeeper(http, self._strangers, partial(self._know, host)),
                connection,
                ssl=tls,
                ssl_handshake_timeout=HANDSHAKE_WITHIN_S,
                ssl_shutdown_timeout=END_WITHIN_S,
            )
            return

        connection.close()


def tls_context(serving: Serving, authority: str) -> ssl.SSLContext:
    """A server context that requests a client certificate of `authority` but also accepts
    connections without one.

    Raises SSLError or ValueError for an invalid certificate.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])

    # A file that no disk has: Python loads keys from files only.
    descriptor = os.memfd_create("gangsched-visibility", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, f"{serving.certificate}\n{serving.key}".encode())
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)

    if authority:
        context.load_verify_locations(cadata=authority)
        context.verify_mode = ssl.CERT_OPTIONAL

    return context
