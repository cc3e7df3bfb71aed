"""The connection pool: short writes to the API server over keep-alive connections, with little CPU
time.

Invariant: for a caller the pool behaves like `ApiClient.request`, with the same faults. Unusual
cases (a proxy, a 401) go through the client. If an answer has no length, the connection is closed
after it. A request is sent once: if the connection ends before the answer, it may have been carried
out and the fault is Unreachable. Every write of the daemon except those of the lease passes the
write gate here, right before its bytes are sent. Not supported: redirects, cookies, compression,
streams.

aiohttp is not used because it needs 235 µs of CPU time for a bind, and this pool 90 µs; on a small
machine the API server can use the difference (decision 0014).
"""

from __future__ import annotations

import asyncio
import math
from functools import partial
from typing import cast
from urllib.parse import urlsplit

from gangsched.kube.http.answers import fault_of
from gangsched.kube.http.client import CONNECT_TIMEOUT_S, JSON, ApiClient
from gangsched.kube.http.faults import UNAUTHORIZED, Malformed, Unreachable, said
from gangsched.kube.http.fence import Fence
from gangsched.kube.http.sockets import keep_transport_alive

# 96 binds and 32 requests about claims: all stay open, since opening one costs the API server more
# than a bind.
IDLE_CONNECTIONS = 128
IDLE_FOR_S = 30.0
"""API servers and the balancers before them close a connection that was idle for a minute or more:
be first.
"""
CLOCK_STEP_S = 0.002
"""uvloop's clock has whole milliseconds, so a timer may be early by one."""
# Whatever answers without end is not an API server.
HEAD_BYTES_MAX = 64 * 1024
# Answers without a body, whatever their Content-Length says (RFC 9110).
NO_CONTENT = frozenset({204, 304})


class ConnectionPool:
    """One connection per request in flight; up to `IDLE_CONNECTIONS` stay open for
    later requests.
    """

    def __init__(self, client: ApiClient, *, fence: Fence | None = None) -> None:
        """The pool uses the credentials and address of `client`, which also handles unusual cases.

        While the write gate `fence` is closed, a write raises Fenced and is not sent.
        """
        self._client = client
        self._fence = fence
        self._idle: list[Connection] = []
        self._deadlines = _Deadlines()
        self._tls: object = None

    @property
    def client(self) -> ApiClient:
        """The client for unusual requests, which do not pass the write gate."""
        return self._client

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        content_type: str = JSON,
        timeout_s: float = 30.0,
    ) -> bytes:
        """Send one request; return the body. Raises ApiFault, Unreachable, Malformed or Fenced."""
        client = self._client
        credentials = self._client.credentials
        fence = self._fence if method != "GET" else None
        through_client = partial(
            client.request,
            method,
            path,
            body,
            content_type=content_type,
            timeout_s=timeout_s,
            fence=fence,
        )

        # Only writes are frequent; everything else may cost aiohttp's 235 µs.
        if credentials.proxy or body is None:
            return await through_client()

        await credentials.renew()
        # The timeout covers getting a connection, too.
        deadline_s = asyncio.get_running_loop().time() + timeout_s
        try:
            answer = await self._exchange(
                self._head(method, path, body, content_type) + body,
                fence,
                deadline_s,
            )
        except OSError as error:  # TimeoutError is one; ssl errors are, too
            self.close()  # what ended or silenced this connection did so to the idle ones
            raise Unreachable(f"No answer from {credentials.server}: {said(error)}.") from error

        if answer.status < 400:
            return answer.body
        if answer.status == UNAUTHORIZED:
            return await through_client()

        raise fault_of(answer.status, answer.body, answer.header(b"retry-after"))

    async def warm(self, count: int) -> None:
        """Open `count` connections in advance; errors are reported by later requests."""
        if self._client.credentials.proxy:
            return

        self._tls = self._client.credentials.tls
        opened = await asyncio.gather(*(self._open() for _ in range(count)), return_exceptions=True)
        for connection in opened:
            # Exceptions are dropped here: the next request meets the same problem and reports it.
            if isinstance(connection, Connection):
                self._keep(connection)

    def close(self) -> None:
        """Close idle connections; a connection in use is closed after its request."""
        idle = self._idle
        self._idle = []

        for connection in idle:
            connection.close()

    def _head(self, method: str, path: str, body: bytes, content_type: str) -> bytes:
        credentials = self._client.credentials
        server = urlsplit(credentials.server)
        authorization = (
            f"Authorization: {credentials.authorization}\r\n" if credentials.authorization else ""
        )

        return (
            f"{method} {server.path}{path} HTTP/1.1\r\nHost: {server.netloc}\r\n{authorization}"
            f"User-Agent: gangsched\r\nAccept: {JSON}\r\nContent-Type: {content_type}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        ).encode()

    async def _exchange(
        self,
        request: bytes,
        fence: Fence | None,
        deadline_s: float,
    ) -> Answer:
        connection = await self._connection(deadline_s)
        if fence is not None and not fence.is_open():
            self._keep(connection)  # nothing was written on it
            fence.check()

        self._deadlines.begin(connection, deadline_s)
        try:
            answer = await connection.exchange(request)
        except BaseException:
            connection.close()  # an answer that comes later must not be taken for the next one's
            raise
        finally:
            self._deadlines.end(connection)

        self._keep(connection)
        return answer

    def _keep(self, connection: Connection) -> None:
        """Keep it for the next request, unless there are enough."""
        if connection.open and len(self._idle) < IDLE_CONNECTIONS:
            connection.idle_since_s = asyncio.get_running_loop().time()
            self._idle.append(connection)
        else:
            connection.close()

    async def _connection(self, deadline_s: float) -> Connection:
        """The connection used last, or a new one if none is idle, which is open at the deadline at
        the latest. Raises OSError.
        """
        credentials = self._client.credentials
        # new credentials: a client certificate belongs to its connection
        if self._tls is not credentials.tls:
            self.close()
            self._tls = credentials.tls

        loop = asyncio.get_running_loop()
        # Last in, first out: the connections at the bottom stay idle and expire.
        while self._idle:
            connection = self._idle.pop()
            if connection.open and loop.time() - connection.idle_since_s < IDLE_FOR_S:
                return connection

            connection.close()

        return await self._open(deadline_s)

    async def _open(self, deadline_s: float = math.inf) -> Connection:
        credentials = self._client.credentials
        server = urlsplit(credentials.server)
        port = server.port or (443 if credentials.tls is not None else 80)

        loop = asyncio.get_running_loop()
        async with asyncio.timeout_at(min(deadline_s, loop.time() + CONNECT_TIMEOUT_S)):
            _, connection = await loop.create_connection(
                Connection,
                server.hostname or "",
                port,
                ssl=credentials.tls,
            )

        return connection


class _Deadlines:
    """Ends exchanges that take too long, with one timer for all of them: a timer and a context of
    asyncio for each took a quarter of a write's CPU time.

    Invariant: while an exchange is in flight, the timer is due at its deadline at the latest.
    """

    def __init__(self) -> None:
        self._in_flight: dict[Connection, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, connection: Connection, deadline_s: float) -> None:
        """An exchange begins; at the deadline it fails with TimeoutError."""
        self._in_flight[connection] = deadline_s
        # Nearly all have the same timeout, so that the deadline of the first comes first.
        if self._timer is None or deadline_s < self._timer.when():
            self._set_timer(deadline_s)

    def end(self, connection: Connection) -> None:
        """An exchange is over, however it ended."""
        del self._in_flight[connection]

    def _set_timer(self, at_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()

        self._timer = asyncio.get_running_loop().call_at(at_s, self._look)

    def _look(self) -> None:
        """End what is late, and wait for the next deadline."""
        self._timer = None
        now_s = asyncio.get_running_loop().time()
        next_s = math.inf
        for connection, deadline_s in self._in_flight.items():
            if deadline_s <= now_s + CLOCK_STEP_S:
                connection.give_up()
            else:
                next_s = min(next_s, deadline_s)

        if next_s < math.inf:
            self._set_timer(next_s)


class Answer:
    """Status, headers (in order, in lower case) and body of an answer."""

    __slots__ = ("_head", "body", "status")

    def __init__(self, status: int, head: bytes, body: bytes) -> None:
        self.status = status
        self._head = head
        self.body = body

    def header(self, name: bytes) -> str | None:
        """Value of a header; None if missing."""
        return _header(self._head, name)


class Connection(asyncio.Protocol):
    """One connection; one request at a time."""

    def __init__(self) -> None:
        self.open = False
        self.idle_since_s = 0.0
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[Answer] | None = None
        self._received = bytearray()
        self._head = b""
        self._length: int | None = None
        self._chunked = False

    async def exchange(self, request: bytes) -> Answer:
        """Send a request and wait for its answer. Raises OSError if the connection ends before
        that.
        """
        assert self._transport is not None
        assert self._answer is None
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)

        return await self._answer

    def give_up(self) -> None:
        """End the exchange with TimeoutError, unless its answer has come."""
        if self._answer is not None and not self._answer.done():
            self._fail(TimeoutError())

    def close(self) -> None:
        """Close at once."""
        self.open = False
        if self._transport is not None:
            # Not close(): a TLS shutdown would wait for the peer.
            self._transport.abort()

    # --- what asyncio calls ----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called once the connection is open."""
        # uvloop's is none of asyncio's classes
        self._transport = cast(asyncio.Transport, transport)
        keep_transport_alive(transport)
        self.open = True

    def data_received(self, data: bytes) -> None:
        """Process a part of the answer."""
        if self._answer is None or self._answer.done():
            self.close()  # an answer without a request
            return

        self._received += data
        try:
            if not self._head and not self._read_head():
                return

            body = self._whole_body()
        except ValueError as error:
            self._fail(Malformed(f"The server's answer is not HTTP: {said(error)}."))
            return

        if body is not None:
            self._settle(body)

    def connection_lost(self, error: Exception | None) -> None:
        """Complete an answer without a length; any other answer becomes a fault."""
        self.open = False
        if self._answer is None or self._answer.done():
            return

        # Without a length, the end of the connection is the end of the body (HTTP/1.0).
        if self._head and self._length is None and not self._chunked and error is None:
            self._settle(bytes(self._received))
        else:
            self._fail(
                error
                if isinstance(error, OSError)
                else ConnectionResetError("the connection was closed")
            )

    # --- inside ----------------------------------------------------------------------------------

    def _read_head(self) -> bool:
        """Take status and headers off the front; false while they are not complete."""
        ends = self._received.find(b"\r\n\r\n")
        if ends < 0:
            if len(self._received) > HEAD_BYTES_MAX:
                raise ValueError("its headers do not end")

            return False

        # Lower case once, so that header names can be searched as bytes; values that matter have no
        # case.
        head = bytes(self._received[: ends + 2]).lower()
        if not head.startswith(b"http/1."):
            raise ValueError("it starts with " + repr(head[:20]))

        del self._received[: ends + 4]
        status = int(head[9:12])
        if status < 200:  # "100 Continue" and the like announce the real one
            return bool(self._received) and self._read_head()

        self._head = head
        length = _header(head, b"content-length")
        self._chunked = "chunked" in (_header(head, b"transfer-encoding") or "")
        self._length = 0 if status in NO_CONTENT else None if length is None else int(length)

        if head.startswith(b"http/1.0") or _header(head, b"connection") == "close":
            self.open = False

        return True

    def _whole_body(self) -> bytes | None:
        """The body, once it is complete."""
        received = self._received
        if self._chunked:
            # Looking at the end first keeps a long answer from being cut up once per piece.
            if received.endswith(b"\r\n\r\n"):
                return _unchunked(received)

            return None

        if self._length is None or len(received) < self._length:
            return None

        return bytes(received[: self._length])

    def _settle(self, body: bytes) -> None:
        answer = self._answer
        self._answer = None
        head = self._head
        self._head = b""
        self._received.clear()
        assert answer is not None
        answer.set_result(Answer(int(head[9:12]), head, body))

    def _fail(self, error: Exception) -> None:
        answer = self._answer
        self._answer = None
        self.close()
        assert answer is not None
        answer.set_exception(error)


def _header(head: bytes, name: bytes) -> str | None:
    at = head.find(b"\r\n" + name + b":")
    if at < 0:
        return None

    return head[at + len(name) + 3 : head.index(b"\r\n", at + 2)].decode("latin-1").strip()


def _unchunked(received: bytearray) -> bytes | None:
    """The body that chunks make up; None while the last one is missing."""
    parts: list[bytes] = []
    at = 0

    while True:
        line_ends = received.find(b"\r\n", at)
        if line_ends < 0:
            return None

        size = int(received[at:line_ends].split(b";", 1)[0], 16)
        if size == 0:
            return b"".join(parts)

        # Chunk and the line break behind it.
        at = line_ends + 2 + size + 2
        if at > len(received):
            return None

        parts.append(bytes(received[line_ends + 2 : at - 2]))
