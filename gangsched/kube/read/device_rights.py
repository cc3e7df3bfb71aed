"""Whether gangsched may allocate devices: its rights, and whether they are served."""

from __future__ import annotations

from typing import Final

from gangsched.kube.http import permissions
from gangsched.kube.http.faults import NOT_FOUND, ApiFault
from gangsched.kube.read.optional_rights import OptionalRights

SLICES: Final = "/apis/resource.k8s.io/v1/resourceslices?limit=1"


class DeviceRights(OptionalRights):
    """Without `asks` (the setting `devices: all`) the rights are taken for granted."""

    refused = "No devices are allocated to resource claims. {}"
    restored = "Devices are allocated to resource claims from now on."

    async def obstacle(self) -> str:
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
