"""Counts of devices for refusals: how many the pods of a gang ask for, and how many are free."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from gangsched.core.reserve import Ledger
from gangsched.model.devices import DeviceClaim, DeviceRequest
from gangsched.model.objects import Pod
from gangsched.model.snapshot import Bools
from gangsched.model.verdict_facts import DevicesShort

EXACT = "ExactCount"


def devices_short(
    pods: Sequence[Pod],
    needed: int,
    open_nodes: Bools,
    ledger: Ledger,
) -> DevicesShort | None:
    """What `pods`, of which `needed` must start, ask for and find free on `open_nodes`.

    None if they do not all ask for the same number of devices of one class in a claim each, or if
    several nodes reach a device, so that numbers by node do not add up.
    """
    storage = ledger.occupancy.storage
    devices = storage.devices
    if devices is None or not pods:
        return None

    kinds = set()
    asks: tuple[DeviceClaim, DeviceRequest] | None = None
    for pod in pods:
        needs = storage.needs(pod)
        if len(needs.unallocated) != 1 or needs.sharing or needs.extended is not None:
            return None

        kinds.add(needs.kind)
        asks = _single(needs.unallocated[0].asks)

    if len(kinds) != 1 or asks is None:
        return None

    claim, request = asks
    one = replace(claim, requests=((replace(request, count=1),),), constraints=())
    kind = devices.index.kind((one,))
    if devices.places.is_shared(kind):
        return None

    room = devices.room(kind, np.where(open_nodes, 1, 0))
    return DevicesShort(
        device_class=request.class_name,
        by_pod=request.count,
        needed=request.count * needed,
        free=int(room[open_nodes].sum()),
        on_one=int(room[open_nodes].max(initial=0)),
    )


def _single(claim: DeviceClaim | None) -> tuple[DeviceClaim, DeviceRequest] | None:
    """The claim with its only request, if that is for a number of devices of one class."""
    if claim is None or len(claim.requests) != 1 or len(claim.requests[0]) != 1:
        return None

    request = claim.requests[0][0]
    is_plain = request.mode == EXACT and not (request.admin or request.amounts or request.unknown)
    return (claim, request) if is_plain else None
