"""Lanes: the light client must mean exactly what the full one means."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gangsched.kube.http import connection_pool as module
from gangsched.kube.http.client import connect
from gangsched.kube.http.connection_pool import ConnectionPool
from gangsched.kube.http.faults import ApiFault, Malformed, Unreachable
from tests.unit.kube.fakes import kubeconfig, says, serving, status

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def talking(
    tmp_path: Path, talk: Talk, host: str = "127.0.0.1"
) -> AsyncIterator[ConnectionPool]:
    """Lanes to a server that says on each connection what `talk` says."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await talk(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(serve, host, 0)
    port = server.sockets[0].getsockname()[1]
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    async with await connect(
        kubeconfig(tmp_path / "k", f"http://{address}/base", token="t")
    ) as client:
        connection_pool = ConnectionPool(client)
        yield connection_pool
        connection_pool.close()
    server.close()


async def request_of(reader: asyncio.StreamReader) -> bytes:
    """One whole request."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    return head + await reader.readexactly(length)


def pieces(*parts: bytes) -> Talk:
    """Answer every request with these parts, each in a packet of its own."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            try:
                await request_of(reader)
            except asyncio.IncompleteReadError:
                return
            for part in parts:
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(0.001)  # separate packets

    return talk


async def test_warm_lanes_are_there_for_the_first_requests(tmp_path: Path) -> None:
    """Connections opened beforehand are used, and no others."""
    opened: list[None] = []
    answer = pieces(b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}")

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        opened.append(None)
        await answer(reader, writer)

    async with talking(tmp_path, talk) as connection_pool:
        await connection_pool.warm(3)
        await asyncio.gather(*(connection_pool.request("POST", "/x", b"[]") for _ in range(3)))
    assert len(opened) == 3


async def test_lanes_are_warmed_in_vain_when_nobody_listens(tmp_path: Path) -> None:
    """A server that is not there is the business of the requests."""
    async with talking(tmp_path, pieces()) as connection_pool:
        pass
    await connection_pool.warm(2)
    with pytest.raises(Unreachable):
        await connection_pool.request("POST", "/x", b"[]")


@pytest.mark.parametrize(("host", "shown"), [("127.0.0.1", b"127.0.0.1"), ("::1", b"[::1]")])
async def test_request_says_who_and_what(tmp_path: Path, host: str, shown: bytes) -> None:
    """Path, host, credentials, type and body arrive, and the server's own path is kept."""
    seen: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await request_of(reader))
        writer.write(b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}")

    async with talking(tmp_path, talk, host) as connection_pool:
        assert (
            await connection_pool.request("POST", "/x", b"[1]", content_type="application/y")
            == b"{}"
        )
    head, _, body = seen[0].partition(b"\r\n\r\n")
    assert b"\r\nHost: " + shown + b":" in head
    assert head.startswith(b"POST /base/x HTTP/1.1\r\n")
    assert b"\r\nAuthorization: Bearer t\r\n" in head
    assert b"\r\nContent-Type: application/y\r\n" in head
    assert body == b"[1]"


@pytest.mark.parametrize(
    "parts",
    [
        [b"HTTP/1.1 200 OK\r\nContent-", b"Length: 5\r\n", b"\r\n", b"he", b"llo"],
        [
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            b"2\r\nhe\r\n3",
            b"\r\nllo\r\n",
            b"0\r\n\r\n",
        ],
        [b"HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\n\r\n"],
        [b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 200 OK\r\ncontent-length:5\r\n\r\nhello"],
    ],
)
async def test_answers_are_put_together(tmp_path: Path, parts: list[bytes]) -> None:
    """An answer may come in any pieces, with a length or in chunks, one after the other on one
    connection.
    """
    async with talking(tmp_path, pieces(*parts)) as connection_pool:
        assert [await connection_pool.request("POST", "/x", b"{}") for _ in range(3)] == [
            b"hello"
        ] * 3


async def test_chunk_that_looks_like_the_last(tmp_path: Path) -> None:
    """A body that contains what ends a chunked answer is not cut short."""
    tricky = b"a\r\n0\r\n\r\n"
    first = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s" % (len(tricky), tricky)
    async with talking(tmp_path, pieces(first, b"\r\n1\r\nb\r\n0\r\n\r\n")) as connection_pool:
        assert await connection_pool.request("POST", "/x", b"{}") == tricky + b"b"


async def test_end_of_connection_ends_a_body_without_length(tmp_path: Path) -> None:
    """An answer without a length is what came until the connection ended; the next one has a new
    connection.
    """

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        writer.write(b"HTTP/1.0 200 OK\r\n\r\nhello")

    async with talking(tmp_path, talk) as connection_pool:
        assert [await connection_pool.request("POST", "/x", b"{}") for _ in range(2)] == [
            b"hello",
            b"hello",
        ]


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"HTTP/1.1 201 Created\r\nContent-Le",
        b"HTTP/1.1 201 Created\r\nContent-Length: 9\r\n\r\n{",
    ],
)
async def test_lost_answer_is_unreachable(tmp_path: Path, said: bytes) -> None:
    """A connection that ends before the answer does is Unreachable: the request may have been
    carried out.
    """

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        writer.write(said)

    async with talking(tmp_path, talk) as connection_pool:
        with pytest.raises(Unreachable, match=r"No answer from http://127\.0\.0\.1"):
            await connection_pool.request("POST", "/x", b"{}")


async def test_garbage_is_malformed(tmp_path: Path) -> None:
    """Whoever does not speak HTTP is a fault, not a crash or a wait."""
    async with talking(tmp_path, pieces(b"SSH-2.0-OpenSSH\r\n\r\n")) as connection_pool:
        with pytest.raises(Malformed, match="not HTTP"):
            await connection_pool.request("POST", "/x", b"{}")


async def test_silence_ends_at_the_timeout(tmp_path: Path) -> None:
    """No answer in time is Unreachable, and one that comes after all is not taken for the next
    request's.
    """
    slow = True

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal slow
        while True:
            try:
                request = await request_of(reader)
            except asyncio.IncompleteReadError:
                return
            if slow:
                slow = False
                await asyncio.sleep(0.05)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n" + request[-1:])

    async with talking(tmp_path, talk) as connection_pool:
        with pytest.raises(Unreachable):
            await connection_pool.request("POST", "/x", b"1", timeout_s=0.02)
        assert await connection_pool.request("POST", "/x", b"2", timeout_s=5.0) == b"2"


async def test_each_request_has_its_own_timeout(tmp_path: Path) -> None:
    """However many are in flight, and however the timeouts of those before were; one that has its
    answer is not touched by the timer of others.
    """
    clock = asyncio.get_running_loop().time

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await request_of(reader)
        if request.endswith(b"!"):
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n!")
        else:
            await reader.read()  # until the pool ends the connection

    async with talking(tmp_path, talk) as connection_pool:
        ended: list[float] = []

        async def unanswered(timeout_s: float) -> None:
            began_s = clock()
            with pytest.raises(Unreachable, match="timed out"):
                await connection_pool.request("POST", "/x", b"1", timeout_s=timeout_s)

            assert clock() - began_s > timeout_s - 0.01
            ended.append(timeout_s)

        async with asyncio.TaskGroup() as group:
            for timeout_s in (0.6, 0.2, 0.4):
                group.create_task(unanswered(timeout_s))

            assert await connection_pool.request("POST", "/x", b"!", timeout_s=0.3) == b"!"

        assert ended == [0.2, 0.4, 0.6]


async def test_connections_are_kept_but_not_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests one after the other share a connection; one that idled too long is not
    used again.
    """
    made = 0

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal made
        made += 1
        await pieces(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")(reader, writer)

    async with talking(tmp_path, talk) as connection_pool:
        for _ in range(5):
            await connection_pool.request("POST", "/x", b"{}")
        assert made == 1
        await asyncio.gather(*(connection_pool.request("POST", "/x", b"{}") for _ in range(3)))
        assert made == 3
        monkeypatch.setattr(module, "IDLE_FOR_S", 0.0)
        await connection_pool.request("POST", "/x", b"{}")
        assert made == 4


async def test_status_becomes_a_fault(tmp_path: Path) -> None:
    """An error answer keeps code, reason, words and the time to wait."""
    async with serving(tmp_path) as (server, client):
        connection_pool = ConnectionPool(client)
        server.will(
            "POST", "/x", says(status(429, "TooManyRequests", "busy"), 429, **{"Retry-After": "3"})
        )
        with pytest.raises(ApiFault, match="busy") as caught:
            await connection_pool.request("POST", "/x", b"{}")
        assert (caught.value.status, caught.value.reason, caught.value.retry_after_s) == (
            429,
            "TooManyRequests",
            3.0,
        )
        connection_pool.close()


async def test_new_token_is_read_after_a_401(tmp_path: Path) -> None:
    """A token replaced in its file is used at the next refusal, for the same request."""
    async with serving(tmp_path) as (server, _):
        path = kubeconfig(tmp_path / "k", server.url, token="old")
        async with await connect(path) as client:
            connection_pool = ConnectionPool(client)
            kubeconfig(path, server.url, token="new")
            refused = says(status(401, "Unauthorized", "Unauthorized"), 401)
            server.will("POST", "/x", refused, refused, says({"ok": True}))
            assert b"ok" in await connection_pool.request("POST", "/x", b"{}")
            assert await connection_pool.request("POST", "/x", b"{}")
            assert server.seen[-1].headers["Authorization"] == "Bearer new"
            connection_pool.close()


async def test_nobody_there_is_unreachable(tmp_path: Path) -> None:
    """A refused connection is Unreachable, chained to its cause."""
    async with await connect(kubeconfig(tmp_path / "k", "http://127.0.0.1:1")) as client:
        with pytest.raises(Unreachable) as caught:
            await ConnectionPool(client).request("POST", "/x", b"{}")
        assert isinstance(caught.value.__cause__, OSError)


async def test_proxy_is_left_to_the_full_client(tmp_path: Path) -> None:
    """Behind a proxy requests go through the client that knows how."""
    async with serving(tmp_path) as (server, client):
        server.will("POST", "/x", says({"ok": True}))
        client.credentials.proxy = server.url
        client.credentials.server = "http://elsewhere.invalid"
        assert b"ok" in await ConnectionPool(client).request("POST", "/x", b"{}")
        assert server.seen[-1].headers["Host"] == "elsewhere.invalid"
