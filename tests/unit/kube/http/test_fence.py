"""The fence: what it lets out, through either way of sending, and that it is looked at last."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from aiohttp import web

from gangsched.kube.http.client import MERGE_PATCH
from gangsched.kube.http.connection_pool import ConnectionPool
from gangsched.kube.http.faults import Fenced
from gangsched.kube.http.fence import Fence
from gangsched.kube.ports import boot_s
from tests.server_thread import Handler
from tests.unit.kube.fakes import FakeTime, says, serving, status

PATH = "/api/v1/namespaces/ns/pods/p/binding"


def test_it_is_open_until_its_moment_and_closes_by_itself() -> None:
    """Nobody has to be there to close it."""
    time = FakeTime()
    fence = Fence(time.now)
    assert not fence.is_open()
    fence.open_until(1010.0)
    assert fence.is_open()
    time.at_s = 1010.0
    assert not fence.is_open()
    with pytest.raises(Fenced):
        fence.check()
    fence.open_until(2000.0)
    fence.close()
    assert not fence.is_open()


def test_its_clock_never_goes_back() -> None:
    """It is a monotonic clock."""
    assert 0 < boot_s() <= boot_s()


async def test_a_closed_fence_lets_reads_out_and_no_write(tmp_path: Path) -> None:
    """Binds, patches and deletions stay here, however they would travel; reads go on."""
    fence = Fence(FakeTime().now)
    async with serving(tmp_path) as (server, client):
        server.will("GET", PATH, says({}))
        pool = ConnectionPool(client, fence=fence)
        await pool.request("GET", PATH)
        for method, body in (
            ("POST", b"{}"),
            ("PATCH", b"{}"),
            ("PUT", b"{}"),
            ("DELETE", b"{}"),
            ("DELETE", None),
        ):
            with pytest.raises(Fenced):
                await pool.request(method, PATH, body, content_type=MERGE_PATCH)
        assert [request.method for request in server.seen] == ["GET"]
        pool.close()


async def test_a_connection_that_opens_too_late_carries_nothing(tmp_path: Path) -> None:
    """The fence is looked at when the connection is there, not when the write was asked for; both
    ways of sending.
    """
    time = FakeTime()
    fence = Fence(time.now)
    async with serving(tmp_path) as (server, client):
        server.will("POST", PATH, says({}))
        pool = ConnectionPool(client, fence=fence)
        opens = pool._open

        async def late(deadline_s: float) -> object:
            connection = await opens(deadline_s)
            fence.close()
            return connection

        pool._open = late  # type: ignore[method-assign, assignment]
        fence.open_until(9999.0)
        with pytest.raises(Fenced):
            await pool.request("POST", PATH, b"{}")
        with pytest.raises(Fenced):
            await client.request("POST", PATH, b"{}", fence=fence)
        fence.open_until(9999.0)
        await pool.request("POST", PATH, b"{}")
        await client.request("POST", PATH, b"{}", fence=fence)
        assert len(server.seen) == 2
        assert len(server.connections) == 2  # what was refused here cost no connection
        pool.close()


async def test_a_write_that_is_sent_again_after_401_passes_the_fence_again(tmp_path: Path) -> None:
    """New credentials are no way around it."""
    fence = Fence(FakeTime().now)
    fence.open_until(9999.0)
    async with serving(tmp_path) as (server, client):
        server.will("POST", PATH, closing(fence))
        pool = ConnectionPool(client, fence=fence)
        with pytest.raises(Fenced):
            await pool.request("POST", PATH, b"{}")
        assert len(server.seen) == 1
        pool.close()


def closing(fence: Fence) -> Handler:
    """Answer 401, after the lease is lost."""
    answer = says(status(401, "Unauthorized", "no"), 401)

    async def handle(request: web.Request) -> web.StreamResponse:
        fence.close()
        return await answer(request)

    return handle


async def test_without_a_fence_everything_leaves(tmp_path: Path) -> None:
    """A single instance without leader election has none."""
    async with serving(tmp_path) as (server, client):
        server.will("POST", PATH, says({}))
        pool = ConnectionPool(client)
        await pool.request("POST", PATH, b"{}")
        assert len(server.seen) == 1
        await asyncio.sleep(0)
        pool.close()
