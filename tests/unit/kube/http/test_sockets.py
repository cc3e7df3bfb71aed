"""Connections that die without a word: what is asked of the kernel, and what of our
own time-outs.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gangsched.kube.http import client as client_module
from gangsched.kube.http.client import ApiClient, connect
from gangsched.kube.http.connection_pool import ConnectionPool
from gangsched.kube.http.faults import Unreachable
from gangsched.kube.http.sockets import DEAD_AFTER_S
from tests.unit.kube.fakes import kubeconfig, says, serving, streams

OPTIONS = {
    socket.SO_KEEPALIVE: (socket.SOL_SOCKET, 1),
    socket.TCP_USER_TIMEOUT: (socket.IPPROTO_TCP, DEAD_AFTER_S * 1000),
}


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[asyncio.BaseTransport]:
    """Every client connection that the loop makes."""
    transports: list[asyncio.BaseTransport] = []
    original = asyncio.BaseEventLoop.create_connection

    async def noting(self: Any, *args: Any, **more: Any) -> Any:
        transport, protocol = await original(self, *args, **more)
        transports.append(transport)
        return transport, protocol

    monkeypatch.setattr(asyncio.BaseEventLoop, "create_connection", noting)
    return transports


def options(transport: asyncio.BaseTransport) -> dict[int, int]:
    found: socket.socket = transport.get_extra_info("socket")
    return {option: found.getsockopt(level, option) for option, (level, _) in OPTIONS.items()}


async def test_every_connection_is_probed_by_the_kernel(
    tmp_path: Path, made: list[asyncio.BaseTransport]
) -> None:
    """Requests, watches, the pool's and a library's own connections: all have keepalive and a user
    timeout.
    """

    async def plain(request: aiohttp.ClientRequest, handler: Any) -> aiohttp.ClientResponse:
        return await handler(request)  # type: ignore[no-any-return]

    async with serving(tmp_path) as (server, client):
        server.will("GET", "/x", says({}))
        server.will("WATCH", "/x", streams({}))
        server.will("POST", "/x", says({}))
        await client.request("GET", "/x")
        pool = ConnectionPool(client)
        await pool.request("POST", "/x", b"{}")
        async with client.session(plain) as session:
            await session.get(f"{server.url}/x")
            expected = {option: value for option, (_, value) in OPTIONS.items()}
            assert [options(transport) for transport in made] == [expected] * 3
        pool.close()
    assert DEAD_AFTER_S <= 30


@asynccontextmanager
async def black_hole(tmp_path: Path) -> AsyncIterator[ApiClient]:
    """A client of a server whose kernel takes connections and requests, and that never says
    anything.
    """
    with socket.create_server(("127.0.0.1", 0), backlog=8) as mute:
        config = kubeconfig(tmp_path / "kubeconfig", f"http://127.0.0.1:{mute.getsockname()[1]}")
        async with await connect(config) as client:
            yield client


async def watch(client: ApiClient) -> None:
    async with aclosing(client.chunks("/x?watch=true", silence_s=60.0)) as chunks:  # type: ignore[type-var]
        async for _ in chunks:
            pass


async def read_through_a_library(client: ApiClient) -> None:
    async def plain(request: aiohttp.ClientRequest, handler: Any) -> aiohttp.ClientResponse:
        return await handler(request)  # type: ignore[no-any-return]

    async with client.session(plain) as session:
        await session.get(
            f"{client.credentials.server}/x", timeout=aiohttp.ClientTimeout(total=330)
        )


@pytest.mark.parametrize(
    ("ask", "ends"),
    [
        (watch, Unreachable),
        (lambda client: client.request("GET", "/x", timeout_s=60.0), Unreachable),
        (read_through_a_library, TimeoutError),
    ],
    ids=["watch", "request", "library"],
)
async def test_an_answer_that_does_not_begin_is_given_up(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ask: Callable[[ApiClient], Any],
    ends: type[Exception],
) -> None:
    """A black hole is noticed by the time-out for headers, however long the body might
    have taken.
    """
    assert client_module.HEADERS_TIMEOUT_S + client_module.CONNECT_TIMEOUT_S <= 35
    monkeypatch.setattr(client_module, "HEADERS_TIMEOUT_S", 0.2)
    async with black_hole(tmp_path) as client, asyncio.timeout(5):
        with pytest.raises(ends):
            await ask(client)


async def test_a_pool_whose_request_timed_out_starts_afresh(tmp_path: Path) -> None:
    """Idle connections go with the one that a request was lost on: whatever silenced it silenced
    them.
    """
    async with serving(tmp_path) as (server, client):
        server.will("POST", "/x", says({}))
        server.will("POST", "/slow", streams(hold=True))
        pool = ConnectionPool(client)
        await pool.warm(3)
        await pool.request("POST", "/x", b"{}")
        with pytest.raises(Unreachable):
            await pool.request("POST", "/slow", b"{}", timeout_s=0.1)
        assert pool._idle == []
