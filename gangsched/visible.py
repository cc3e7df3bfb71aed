"""The composition root of the gangs API: connects `visibility` with `kube` and the settings.

Invariant: the parts of the gangs API are made and wired here and nowhere else. `daemon` imports
this module only if the API is enabled.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from gangsched.core.cycle import Limits
from gangsched.kube.http.calls import call
from gangsched.kube.http.connection_pool import ConnectionPool
from gangsched.kube.ports import Runtime
from gangsched.kube.read.shapes import ShapeTable
from gangsched.kube.read.templates import template_pod
from gangsched.settings import Settings
from gangsched.state.scheduling import SchedulingState
from gangsched.telemetry.history import History
from gangsched.visibility.gangs.store import GangStore
from gangsched.visibility.ports import ApiAnswer, Clocks, Json
from gangsched.visibility.reviews.review import Reviewer
from gangsched.visibility.server import Server


def visibility_server(
    settings: Settings,
    state: SchedulingState,
    connection_pool: ConnectionPool,
    runtime: Runtime,
    *,
    leads: Callable[[], bool],
    identity: str,
    history: History,
) -> Server:
    """The server of one daemon."""
    clocks = Clocks(now_s=runtime.now, wall_s=lambda: runtime.wall().timestamp())

    async def calls(method: str, path: str, body: Json | None = None) -> ApiAnswer:
        return ApiAnswer(*await call(connection_pool, method, path, body))

    def served_by() -> Json:
        return {"role": "leader" if leads() else "standby", "identity": identity}

    make_pod = partial(template_pod, shapes=ShapeTable())
    return Server(
        settings,
        calls,
        GangStore(state, clocks, served_by=served_by, history=history),
        clocks=clocks,
        leads=leads,
        reviewer=Reviewer(state, calls, clocks, make_pod, Limits()),
    )
