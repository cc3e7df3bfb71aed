"""A light HTTP/1.1 client: prebuilt bytes out, status and body back, one request at a time per
connection.

Invariant: it parses only what separates one answer from the next, so that the load costs little
CPU; an answer in an unexpected form ends the benchmark. It never repeats a request.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar, cast
from urllib.parse import urlsplit

T = TypeVar("T")


class HttpConnection(asyncio.Protocol):
    """One kept connection; made by `Pool`."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by asyncio."""
        # uvloop's is none of asyncio's classes
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Called by asyncio; an answer is complete when its length says so or its last chunk has
        come.
        """
        self._received += data
        received = self._received
        head_ends = received.find(b"\r\n\r\n")
        if head_ends < 0 or self._answer is None:
            return
        head = bytes(received[:head_ends]).lower()
        body = bytes(received[head_ends + 4 :])
        at = head.find(b"\r\ncontent-length: ")
        if at >= 0:
            if len(body) < int(head[at + 18 :].split(b"\r\n", 1)[0]):
                return
        elif body.endswith(b"0\r\n\r\n"):  # JSON has no bare line ends, so this is the last chunk
            body = _unchunked(body)
        else:
            return
        received.clear()
        answer, self._answer = self._answer, None
        answer.set_result((int(head[9:12]), body))

    def connection_lost(self, error: Exception | None) -> None:
        """Called by asyncio."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(
                error or ConnectionResetError("the API server closed the connection")
            )

    async def send(self, request: bytes) -> tuple[int, bytes]:
        """Status and body of the answer to one whole request."""
        assert self._transport is not None
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._answer

    def close(self) -> None:
        """Close it."""
        if self._transport is not None:
            self._transport.abort()


class Pool:
    """Connections to one API server that are open before the first request; an async context
    manager.
    """

    def __init__(self, url: str, context: ssl.SSLContext, connections: int) -> None:
        parts = urlsplit(url)
        self._host, self._port, self._context = parts.hostname or "", parts.port or 443, context
        self._connections = [HttpConnection() for _ in range(connections)]
        self._idle: asyncio.Queue[HttpConnection] = asyncio.Queue()

    async def __aenter__(self) -> Pool:
        loop = asyncio.get_running_loop()
        for connection in self._connections:
            await loop.create_connection(
                lambda made=connection: made,  # type: ignore[misc]
                self._host,
                self._port,
                ssl=self._context,
            )
            self._idle.put_nowait(connection)
        return self

    async def __aexit__(self, *_: object) -> None:
        for connection in self._connections:
            connection.close()

    def request(
        self, method: str, path: str, body: bytes = b"", content_type: str = "application/json"
    ) -> bytes:
        """The bytes of a request, to be built before the clock starts."""
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: {self._host}:{self._port}\r\nAccept:"
            " application/json\r\nUser-Agent: gangsched-bench\r\nContent-Type:"
            f" {content_type}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    async def send(self, request: bytes) -> bytes:
        """The body of the answer to a request that must succeed, on any idle connection."""
        connection = await self._idle.get()
        answer = await connection.send(request)
        self._idle.put_nowait(connection)
        return expect_success(answer)

    async def each(
        self, items: Iterable[T], work: Callable[[HttpConnection, T], Awaitable[None]]
    ) -> None:
        """Do `work` for every item, in order, on all connections."""
        todo = iter(items)

        async def worker(connection: HttpConnection) -> None:
            for item in todo:
                await work(connection, item)

        async with asyncio.TaskGroup() as group:
            for connection in self._connections:
                group.create_task(worker(connection))

    async def send_all(self, requests: Iterable[bytes]) -> None:
        """Send requests that must all succeed, as many at a time as there are connections.

        Raises RuntimeError with the server's message.
        """

        async def one(connection: HttpConnection, request: bytes) -> None:
            expect_success(await connection.send(request))

        await self.each(requests, one)


def expect_success(answer: tuple[int, bytes]) -> bytes:
    """The body of an answer below 300. Raises RuntimeError with the server's message."""
    status, body = answer
    if status >= 300:
        raise RuntimeError(
            f"The API server answered {status}: {body[:300].decode(errors='replace')}"
        )
    return body


def _unchunked(body: bytes) -> bytes:
    parts = []
    at = 0
    while size := int(body[at : (line_ends := body.index(b"\r\n", at))], 16):
        parts.append(body[line_ends + 2 : line_ends + 2 + size])
        at = line_ends + 2 + size + 2
    return b"".join(parts)
