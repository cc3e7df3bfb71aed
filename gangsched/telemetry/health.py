"""Health: /livez, /readyz and /metrics on one port, for the kubelet and Prometheus.

Law: an answer costs the loop little and never waits for anything. It speaks plain HTTP and tells numbers and the names
of caches only, so that the port may be open to the cluster.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client.exposition import choose_encoder

from gangsched.settings import SettingsError
from gangsched.telemetry.heartbeat import Heartbeat
from gangsched.telemetry.metrics import Metrics


def health_app(*, metrics: Metrics, heartbeat: Heartbeat, waiting_for: Callable[[], Sequence[str]]) -> web.Application:
    """The three pages. `waiting_for` names what is not there yet ("pods", "nodes"); nothing left means ready."""

    async def livez(request: web.Request) -> web.Response:
        if heartbeat.alive:
            return web.Response(text="ok\n")
        return web.Response(status=503, text=f"the event loop is late by {heartbeat.late_s:.1f} s\n")

    async def readyz(request: web.Request) -> web.Response:
        missing = list(waiting_for())
        return web.json_response({"ready": not missing, "waitingFor": missing}, status=503 if missing else 200)

    async def show_metrics(request: web.Request) -> web.Response:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encode(metrics.registry), headers={"Content-Type": content_type})

    app = web.Application(client_max_size=1024)
    app.add_routes([web.get("/livez", livez), web.get("/readyz", readyz), web.get("/metrics", show_metrics)])
    return app


@asynccontextmanager
async def serve_health(
    host: str, port: int, *, metrics: Metrics, heartbeat: Heartbeat, waiting_for: Callable[[], Sequence[str]]
) -> AsyncIterator[None]:
    """Serve the pages while the block runs; port 0 serves nothing.

    Raises SettingsError with one sentence when the port cannot be had.
    """
    if port == 0:
        yield
        return
    app = health_app(metrics=metrics, heartbeat=heartbeat, waiting_for=waiting_for)
    runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=1.0)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            raise SettingsError(
                f"Cannot serve health and metrics on {host}:{port}: {_said(error)}; "
                "choose another --health-port, or 0 for none."
            ) from error
        yield
    finally:
        await runner.cleanup()


def _said(error: OSError) -> str:
    """The system's own words: asyncio wraps them in its own, and name look-ups have negative numbers."""
    known = error.errno is not None and error.errno > 0
    return os.strerror(error.errno) if known and error.errno else error.strerror or str(error)
