"""A proxy that records every write of one client, on the clock of this process."""

from __future__ import annotations

import json
import time
from typing import NamedTuple

from aiohttp import web
from control_plane import ControlPlane

from tests.faults.proxy import FaultProxy
from tests.faults.requests import ApiRequest


class Write(NamedTuple):
    """One write. Times are monotonic seconds; `holder` is what it makes the holder of a Lease, None
    if it is none.
    """

    client: str
    arrived_s: float
    answered_s: float
    asked: ApiRequest
    status: int
    holder: str | None


class RecordingProxy(FaultProxy):
    """`writes` are those that were answered, in the order of their answers. All proxies may share
    one list.
    """

    def __init__(self, plane: ControlPlane, client: str, writes: list[Write]) -> None:
        super().__init__(plane)
        self._client = client
        self._writes = writes

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        arrived_s = time.monotonic()
        answer = await super()._handle(request)
        if request.method != "GET":
            asked = ApiRequest.of(request.method, request.path)
            holder = None
            if asked.resource == "leases":
                holder = json.loads(await request.read())["spec"]["holderIdentity"]
            self._writes.append(
                Write(self._client, arrived_s, time.monotonic(), asked, answer.status, holder)
            )
        return answer


def by_non_holders(writes: list[Write]) -> list[str]:
    """One sentence for each write of a client that reached the API server after another client had
    got the lease.

    What a client asks about its own rights is no write.
    """
    leases = sorted(
        (each for each in writes if each.holder and each.status < 300),
        key=lambda each: each.answered_s,
    )
    found = []
    for write in writes:
        if write.asked.resource in {"leases", "selfsubjectaccessreviews"}:
            continue
        before = [each for each in leases if each.answered_s < write.arrived_s]
        if not before or before[-1].holder != write.client:
            # A renewal of its own may be under way that stands already and is not answered yet.
            own = [
                e
                for e in leases
                if e.holder == write.client and e.arrived_s < write.arrived_s <= e.answered_s
            ]
            if not own:
                holder = before[-1].holder if before else "nobody"
                found.append(f"{write.client} sent {write.asked} while {holder} had the lease")
    return found
