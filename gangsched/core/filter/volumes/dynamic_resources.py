"""kube-scheduler's DynamicResources: the pod runs where its allocated devices are, or where others can be allocated.

Invariant: nothing is allocated here. Devices are chosen by `core.devices`, for all pods of a plan together.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gangsched.core.filter.node_selector import any_term
from gangsched.core.filter.occupancy import Occupancy
from gangsched.core.filter.plugin import ClaimFilter
from gangsched.model.gang import Refusal
from gangsched.model.objects import Pod
from gangsched.model.reasons import Reason
from gangsched.model.snapshot import Ints, RefusedNodes

REFUSED = "resourceclaim not available on the node"
NO_DEVICES = "cannot allocate all claims"


class DynamicResources(ClaimFilter):
    """Nodes where the devices of all the pod's claims are, or can be, available."""

    lasting = True

    def fault(self, pod: Pod, occupancy: Occupancy) -> Refusal | None:
        needs, devices = occupancy.storage.needs(pod) if pod.claims else None, occupancy.storage.devices
        if needs is None or needs.kind is None or devices is None:
            return None
        fault = devices.fault(needs.kind)
        if fault is None:
            return None
        names = [f"{each.namespace}/{each.name}" for each in needs.unallocated]
        reason = Reason.UNSUPPORTED if fault.unsupported else Reason.INVALID_CLAIM
        return Refusal(reason, needs.kind.named(fault.fault, names))

    def refusals(self, pod: Pod, occupancy: Occupancy) -> Iterator[RefusedNodes]:
        needs = occupancy.storage.needs(pod) if pod.claims else None
        if needs is None:
            return
        allowed = occupancy.table.everywhere()
        for required in {claim.required for claim in needs.devices} - {None}:
            allowed &= any_term(required or (), occupancy.table)
        if not allowed.all():
            yield RefusedNodes(REFUSED, ~allowed)
        devices = occupancy.storage.devices
        if needs.kind is not None and devices is not None:
            # Nodes that were not searched are closed for another reason, which is the one that is given.
            lacking = devices.known(needs.kind) == 0
            lacking[devices.faulty(needs.kind)] = (
                False  # `narrowed` finds the fault again, in whatever plan it was found
            )
            yield RefusedNodes(NO_DEVICES, lacking)

    def narrowed(self, pod: Pod, room: Ints, occupancy: Occupancy) -> Ints:
        needs, devices = occupancy.storage.needs(pod) if pod.claims else None, occupancy.storage.devices
        if needs is None or needs.kind is None or devices is None:
            return room
        found: Ints = np.minimum(room, devices.room(needs.kind, room))
        return found if devices.fault(needs.kind) is None else np.zeros_like(room)

    def stays(self, pod: Pod, node: int, occupancy: Occupancy) -> bool:
        needs, devices = occupancy.storage.needs(pod) if pod.claims else None, occupancy.storage.devices
        if needs is None or needs.kind is None or devices is None:
            return super().stays(pod, node, occupancy)
        return super().stays(pod, node, occupancy) and devices.fits(needs.kind, node)
