"""The debug pages: JSON on the loopback address."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from aiohttp import ClientSession
from aiohttp.test_utils import TestClient, TestServer

from gangsched.settings import SettingsError
from gangsched.telemetry.debug import PAGES, debug_app, serve_debug
from tests.builders import members, node, pod
from tests.world import World


@pytest.fixture
async def pages() -> Any:
    """The debug pages of a world with one gang, on a free port."""
    world = World(node("a", 1, labels={"topology.kubernetes.io/zone": "z"}), node("b", 1))
    world.create(members("g", 2), [pod("lonely", gpus=9)])
    world.settle()
    app = debug_app(world.state, lambda: world.now_s)
    async with TestClient(TestServer(app)) as client:
        yield client


async def test_the_pages_are_json_and_so_is_a_404(pages: Any) -> None:
    """The list, a gang, a plain pod, the recount; an unknown gang and other paths answer 404 with
    what to do.
    """
    expected = {
        "/debug/gangs": (200, "count", 2),
        "/debug/gangs/ns/g": (200, "gang", "ns/g"),
        "/debug/gangs/pod:ns/lonely": (200, "gang", "pod:ns/lonely"),
        "/debug/gangs/ns/none": (404, "error", "no gang ns/none is known"),
        "/debug": (404, "error", f"try {PAGES}"),
        "/debug/reservations": (200, "reservations", []),
        "/debug/topology": (
            200,
            "levels",
            [
                {"label": "kubernetes.io/hostname", "domains": 2, "outside": 0, "within": []},
                {"label": "topology.kubernetes.io/zone", "domains": 1, "outside": 1, "within": []},
            ],
        ),
        "/debug/validate": (200, "complaints", []),
    }
    for path, (status, key, value) in expected.items():
        async with pages.get(path) as answer:
            body = await answer.json()
            assert (answer.status, body[key]) == (status, value), path


async def test_it_listens_where_it_is_told_and_says_when_it_cannot() -> None:
    """The pages answer while the block runs, port 0 serves nothing, and a taken port is one
    sentence.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    async with serve_debug(debug_app(World().state, lambda: 0.0), port):
        async with (
            ClientSession() as session,
            session.get(f"http://127.0.0.1:{port}/debug/gangs") as answer,
        ):
            assert answer.status == 200
        with socket.socket(
            socket.AF_INET6
        ) as elsewhere:  # the loopback address of IPv6, which `all addresses` includes
            assert elsewhere.connect_ex(("::1", port)) != 0
        with pytest.raises(
            SettingsError, match=r"debug pages on 127\.0\.0\.1.*GANGSCHED_DEBUG_PORT"
        ):
            await serve_debug(debug_app(World().state, lambda: 0.0), port).__aenter__()
    async with serve_debug(debug_app(World().state, lambda: 0.0), 0):
        pass
