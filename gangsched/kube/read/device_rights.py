"""Whether gangsched may allocate devices, asked while it runs, so that a role may be bound or taken
away at any time.

Invariant: devices are read only while `granted` is set. A question that the API server does not
answer changes nothing.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from gangsched.kube.http import permissions
from gangsched.kube.http.faults import NOT_FOUND, ApiFault, Fault
from gangsched.kube.ports import RestClient, Runtime

ASK_EVERY_S: Final = 10.0
"""An administrator who has just bound the role waits about as long for a look at the pods."""
SLICES: Final = "/apis/resource.k8s.io/v1/resourceslices?limit=1"
REFUSED: Final = "No devices are allocated to resource claims. {}"


class DeviceRights:
    """`granted` or `denied` is set once it is known which holds; exactly one of them is set from
    then on.
    """

    def __init__(self, client: RestClient, runtime: Runtime, *, asks: bool) -> None:
        """Without `asks` (the setting `devices: all`) the rights are taken for granted."""
        self.granted = asyncio.Event()
        self.denied = asyncio.Event()
        self._client = client
        self._runtime = runtime
        self._asks = asks

        if not asks:
            self.granted.set()

    async def run(self) -> None:
        """Ask again and again until cancelled, and report each change of the answer once."""
        while self._asks:
            # The readers of other resources report an API server that does not answer.
            with suppress(Fault):
                self._answered(await self._obstacle())

            await self._runtime.sleep(ASK_EVERY_S)

    async def _obstacle(self) -> str:
        """Why devices cannot be allocated; "" if they can. Raises Fault."""
        missing = await permissions.missing(self._client, permissions.ALLOCATION)
        if missing:
            return permissions.may_not(missing, "rbac-devices.yaml")

        try:
            await self._client.request("GET", SLICES)
        except ApiFault as fault:
            if fault.status == NOT_FOUND:
                return "The API server does not serve ResourceSlices."

            raise

        return ""

    def _answered(self, obstacle: str) -> None:
        if obstacle and not self.denied.is_set():
            self.granted.clear()
            self.denied.set()
            self._runtime.warn(REFUSED.format(obstacle))
        elif not obstacle and not self.granted.is_set():
            if self.denied.is_set():
                self._runtime.warn("Devices are allocated to resource claims from now on.")

            self.denied.clear()
            self.granted.set()
