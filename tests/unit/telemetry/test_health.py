"""The health pages: /livez, /readyz and /metrics."""

from __future__ import annotations

import json
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest
from aiohttp import ClientSession
from aiohttp.test_utils import TestClient, TestServer

from gangsched.settings import SettingsError
from gangsched.telemetry.health import health_app, serve_health
from gangsched.telemetry.heartbeat import Heartbeat
from gangsched.telemetry.metrics import Metrics
from tests.unit.telemetry.seen import Clock

Ask = Callable[[str], Awaitable[tuple[int, str]]]


@dataclass
class Watched:
    """What the pages look at."""

    clock: Clock
    metrics: Metrics
    waiting_for: list[str]
    ask: Ask


@pytest.fixture
async def watched() -> Any:
    """The health pages on a free port of 127.0.0.1."""
    clock, metrics, waiting_for = Clock([]), Metrics(), ["pods", "nodes"]
    heartbeat = Heartbeat(metrics, now=clock.now, sleep=clock.sleep)
    app = health_app(metrics=metrics, heartbeat=heartbeat, waiting_for=lambda: waiting_for)
    async with TestClient(TestServer(app)) as client:

        async def ask(path: str) -> tuple[int, str]:
            async with client.get(path) as response:
                return response.status, await response.text()

        yield Watched(clock, metrics, waiting_for, ask)


async def test_livez_follows_the_heartbeat(watched: Watched) -> None:
    """Green while the loop beats, red once it is five seconds late."""
    assert await watched.ask("/livez") == (200, "ok\n")
    watched.clock.now_s += 6.0
    status, text = await watched.ask("/livez")
    assert status == 503
    assert "late by 6.0 s" in text


async def test_readyz_names_what_is_missing(watched: Watched) -> None:
    """Not ready before the caches are synced, and the answer says which are not."""
    status, text = await watched.ask("/readyz")
    assert (status, json.loads(text)) == (503, {"ready": False, "waitingFor": ["pods", "nodes"]})
    watched.waiting_for.clear()
    status, text = await watched.ask("/readyz")
    assert (status, json.loads(text)) == (200, {"ready": True, "waitingFor": []})


@pytest.mark.parametrize("role", ["leader", "standby"])
async def test_readyz_says_who_leads(role: str) -> None:
    """A standby is ready, too: it could take over at any moment."""
    metrics = Metrics()
    app = health_app(
        metrics=metrics, heartbeat=Heartbeat(metrics), waiting_for=list, role=lambda: role
    )
    async with TestClient(TestServer(app)) as client, client.get("/readyz") as response:
        assert (response.status, await response.json()) == (
            200,
            {"ready": True, "waitingFor": [], "role": role},
        )


async def test_metrics_page_is_what_prometheus_reads(watched: Watched) -> None:
    """The page parses and shows the registry's numbers."""
    watched.metrics.cycles.inc()
    status, text = await watched.ask("/metrics")
    assert status == 200
    assert "gangsched_cycles_total 1.0" in text
    assert "gangsched_build_info{" in text


async def test_health_is_served_while_the_block_runs() -> None:
    """The port answers inside the block and is free again after it."""
    metrics = Metrics()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    for _ in range(2):
        async with (
            serve_health(
                health_app(metrics=metrics, heartbeat=Heartbeat(metrics), waiting_for=list),
                "127.0.0.1",
                port,
            ),
            ClientSession() as session,
            session.get(f"http://127.0.0.1:{port}/readyz") as response,
        ):
            assert response.status == 200


async def test_a_port_in_use_is_one_sentence() -> None:
    """Another program on the port ends the start with its name, the cause and the fix."""
    metrics = Metrics()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        health = serve_health(
            health_app(metrics=metrics, heartbeat=Heartbeat(metrics), waiting_for=list),
            "127.0.0.1",
            port,
        )
        with pytest.raises(SettingsError) as caught:
            await health.__aenter__()
    assert (
        str(caught.value)
        == f"Cannot serve health and metrics on 127.0.0.1:{port}: Address already in use; "
        "choose another --health-port, or 0 for none."
    )


async def test_port_zero_serves_nothing() -> None:
    """Health can be switched off; nothing listens and nothing fails."""
    metrics = Metrics()
    async with serve_health(
        health_app(metrics=metrics, heartbeat=Heartbeat(metrics), waiting_for=list),
        "no.such.host.invalid",
        0,
    ):
        pass


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
async def test_without_a_host_every_address_is_served(host: str) -> None:
    """Pods on IPv6-only nodes are probed at their IPv6 address."""
    metrics = Metrics()
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as free:
        port = free.getsockname()[1]
    health = serve_health(
        health_app(metrics=metrics, heartbeat=Heartbeat(metrics), waiting_for=list), "", port
    )
    async with (
        health,
        ClientSession() as session,
        session.get(f"http://{host}:{port}/livez") as answer,
    ):
        assert answer.status == 200
