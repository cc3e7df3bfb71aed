"""Health: /livez, /readyz and /metrics on one port, for the kubelet and Prometheus.

Invariant: an answer is cheap and never waits. The pages are served by plain HTTP and contain only
numbers and names of caches, so that the port may be reachable in the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager

from aiohttp import web
from prometheus_client.exposition import choose_encoder

from gangsched.telemetry.heartbeat import Heartbeat
from gangsched.telemetry.metrics import Metrics
from gangsched.telemetry.serving import serve

REMEDY = "choose another --health-port, or 0 for none"


def health_app(
    *,
    metrics: Metrics,
    heartbeat: Heartbeat,
    waiting_for: Callable[[], Sequence[str]],
    is_hopeless: Callable[[], bool] = lambda: False,
    role: Callable[[], str] | None = None,
) -> web.Application:
    """The three pages. `waiting_for` lists what has not been read yet ("pods", "nodes"); empty
    means ready.

    `is_hopeless` returns whether the process must be restarted. `role` is "leader" or "standby",
    None without leader election.
    """

    async def livez(request: web.Request) -> web.Response:
        if is_hopeless():
            return web.Response(
                status=503,
                text="no plan can be made because of an internal error\n",
            )
        if heartbeat.alive:
            return web.Response(text="ok\n")

        return web.Response(
            status=503,
            text=f"the event loop is late by {heartbeat.late_s:.1f} s\n",
        )

    async def readyz(request: web.Request) -> web.Response:
        missing = list(waiting_for())
        answer = {
            "ready": not missing,
            "waitingFor": missing,
            **({"role": role()} if role is not None else {}),
        }
        return web.json_response(answer, status=503 if missing else 200)

    async def show_metrics(request: web.Request) -> web.Response:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encode(metrics.registry), headers={"Content-Type": content_type})

    app = web.Application(client_max_size=1024)
    app.add_routes(
        [web.get("/livez", livez), web.get("/readyz", readyz), web.get("/metrics", show_metrics)]
    )
    return app


def starting_app(waiting_for: str) -> web.Application:
    """/livez and /readyz of a process that is still starting."""
    answer = {"ready": False, "waitingFor": [waiting_for]}

    async def livez(request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(request: web.Request) -> web.Response:
        return web.json_response(answer, status=503)

    app = web.Application(client_max_size=1024)
    app.add_routes([web.get("/livez", livez), web.get("/readyz", readyz)])
    return app


def serve_health(app: web.Application, host: str, port: int) -> AbstractAsyncContextManager[None]:
    """Serve the pages inside the context; port 0 disables them. Raises SettingsError if the port is
    not available.
    """
    return serve(app, host, port, what="health and metrics", remedy=REMEDY)
