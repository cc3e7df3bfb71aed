"""Catching up: nothing is planned before every bind of the predecessor has been seen."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gangsched.kube.http.client import ApiClient
from gangsched.kube.http.faults import Malformed
from gangsched.kube.ports import silent
from gangsched.kube.read.catch_up import METADATA_ONLY, catch_up
from gangsched.kube.read.resources import pods
from gangsched.kube.read.shapes import ShapeTable
from gangsched.kube.read.store import Store
from tests.unit.kube.fakes import FakeServer, compact, line, page, pod, says, serving, settle

PODS = "/api/v1/pods"


class Desk:
    """A store of pods with two that wait, read at version 20, and a server."""

    def __init__(self, server: FakeServer, client: ApiClient) -> None:
        self.server, self.client = server, client
        self.store = Store(pods(ShapeTable()), lambda message: None, silent)
        self.store.add_page(
            compact(page(pod("a"), pod("b", rv="12"), pod("other", node="n"), rv="20"))
        )
        self.looks = 0

    def shows(self, *found: dict[str, Any], rv: str) -> None:
        """The server's list of waiting pods."""
        self.server.will("GET", PODS, says(page(*found, rv=rv)))

    def hears(self, kind: str, body: dict[str, Any]) -> None:
        """The watch shows a change."""
        self.store.take_line(json.dumps(line(kind, body)).encode())

    def start(self) -> asyncio.Task[None]:
        async def sleep(seconds: float) -> None:
            self.looks += 1
            await asyncio.sleep(0)

        return asyncio.create_task(catch_up(self.client, self.store, ["gangsched"], sleep=sleep))

    async def looked(self, times: int = 3) -> None:
        """Until it has looked a few times more."""
        until = self.looks + times
        async with asyncio.timeout(5):
            while self.looks < until:  # noqa: ASYNC110
                await asyncio.sleep(0.001)


@asynccontextmanager
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    async with serving(tmp_path) as (server, client):
        yield Desk(server, client)


async def test_a_quiet_cluster_has_nothing_to_wait_for(tmp_path: Path) -> None:
    """All pods that we think wait are waiting, as we know them: the list's own version, much later,
    does not matter.
    """
    async with desk(tmp_path) as it:
        it.shows(pod("a"), pod("b", rv="12"), rv="9999")
        await asyncio.wait_for(it.start(), 5)
        (request,) = it.server.seen
        assert request.headers["Accept"] == METADATA_ONLY
        assert dict(request.query) == {
            "fieldSelector": "spec.nodeName=,spec.schedulerName=gangsched"
        }


async def test_a_bind_that_the_watch_has_not_shown_is_waited_for(tmp_path: Path) -> None:
    """The pod is not in the list: planning begins when the watch shows it on its node."""
    async with desk(tmp_path) as it:
        it.shows(pod("b", rv="12"), rv="30")
        task = it.start()
        await it.looked()
        assert not task.done()
        it.hears("MODIFIED", pod("b", rv="22", labels={"x": "y"}))
        await it.looked()
        assert not task.done()
        it.hears("MODIFIED", pod("a", rv="29", node="n"))
        await asyncio.wait_for(task, 5)


async def test_a_nomination_that_the_watch_has_not_shown_is_waited_for(tmp_path: Path) -> None:
    """A pod in the list is newer than what we know."""
    async with desk(tmp_path) as it:
        it.shows(pod("a", rv="25"), pod("b", rv="12"), rv="30")
        task = it.start()
        await it.looked()
        assert not task.done()
        it.hears("MODIFIED", pod("a", rv="25", status={"nominatedNodeName": "n"}))
        await asyncio.wait_for(task, 5)


async def test_a_watch_that_is_beyond_the_list_has_caught_up(tmp_path: Path) -> None:
    """Whatever the list says."""
    async with desk(tmp_path) as it:
        it.shows(rv="18")
        await asyncio.wait_for(it.start(), 5)


async def test_a_deleted_pod_is_waited_for(tmp_path: Path) -> None:
    """It is gone from the list; the watch will say so."""
    async with desk(tmp_path) as it:
        it.shows(pod("b", rv="12"), rv="30")
        task = it.start()
        await it.looked()
        assert not task.done()
        it.hears("DELETED", pod("a", rv="28"))
        await asyncio.wait_for(task, 5)


async def test_what_is_no_list_is_a_fault(tmp_path: Path) -> None:
    """Its caller asks again."""
    async with desk(tmp_path) as it:
        it.server.will("GET", PODS, says([1, 2]))
        with pytest.raises(Malformed):
            await it.start()
    await settle()
