"""The debug pages: /debug/gangs and /debug/gangs/{ns}/{name} show the scheduler's state and last
decisions as JSON.

/debug/internal-errors/{reference} returns the file that is kept about one, for `kubectl gangsched
replay`. /debug/reservations lists the reservations in order, and /debug/topology the levels of node
labels. /debug/validate recounts the state, which blocks the event loop for about 4 µs per pod.

Invariant: read-only, from memory. The pages name pods of every namespace, so they have a separate
port, which listens on the loopback address only (`kubectl port-forward` reaches it).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from http import HTTPStatus
from pathlib import Path

from aiohttp import web

from gangsched.state.debug_view import describe_gang, list_gangs, list_levels, list_reservations
from gangsched.state.scheduling import SchedulingState
from gangsched.state.validate import validate
from gangsched.telemetry.serving import serve

HOST = "127.0.0.1"
PAGES = (
    "/debug/gangs, /debug/gangs/NAMESPACE/NAME, /debug/reservations, /debug/topology or"
    " /debug/validate"
)


def debug_app(
    state: SchedulingState,
    now: Callable[[], float],
    file_of: Callable[[str], Path | None] = lambda reference: None,
) -> web.Application:
    """The web application with the debug pages; `now` is in monotonic seconds, and `file_of`
    returns the file about an internal error.
    """

    async def all_gangs(request: web.Request) -> web.Response:
        gangs = list_gangs(state)
        return _json({"count": len(gangs), "gangs": gangs})

    async def one_gang(request: web.Request) -> web.Response:
        gang_id = request.match_info["id"]
        described = describe_gang(state, gang_id, now_s=now())
        if described is None:
            return _json({"error": f"no gang {gang_id} is known"}, HTTPStatus.NOT_FOUND)

        return _json(described)

    async def all_reservations(request: web.Request) -> web.Response:
        return _json({"reservations": list_reservations(state)})

    async def topology(request: web.Request) -> web.Response:
        return _json({"levels": list_levels(state)})

    async def complaints(request: web.Request) -> web.Response:
        return _json({"complaints": validate(state)})

    async def internal_error(request: web.Request) -> web.StreamResponse:
        path = file_of(request.match_info["reference"])
        if path is None or not path.is_file():
            return _json(
                {"error": "no file is kept about this internal error"},
                HTTPStatus.NOT_FOUND,
            )

        return web.FileResponse(path)

    async def nothing(request: web.Request) -> web.Response:
        return _json({"error": f"try {PAGES}"}, HTTPStatus.NOT_FOUND)

    app = web.Application(client_max_size=1024)
    app.add_routes(
        [
            web.get("/debug/gangs", all_gangs),
            web.get("/debug/gangs/{id:[^/]+/[^/]+}", one_gang),
            web.get("/debug/internal-errors/{reference:[0-9a-f]{4}}", internal_error),
            web.get("/debug/reservations", all_reservations),
            web.get("/debug/topology", topology),
            web.get("/debug/validate", complaints),
            web.get("/{rest:.*}", nothing),
        ]
    )
    return app


def serve_debug(app: web.Application, port: int) -> AbstractAsyncContextManager[None]:
    """Serve the pages inside the context; port 0 disables them. Raises SettingsError if the port is
    not available.
    """
    remedy = "choose another GANGSCHED_DEBUG_PORT, or 0 for none"
    return serve(app, HOST, port, what="the debug pages", remedy=remedy)


def _json(body: object, status: HTTPStatus = HTTPStatus.OK) -> web.Response:
    text = json.dumps(body, indent=2, ensure_ascii=False) + "\n"
    return web.Response(text=text, status=status, content_type="application/json")
