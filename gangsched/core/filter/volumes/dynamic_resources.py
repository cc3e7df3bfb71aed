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
from gangsched.model.snapshot import Bools, Ints, RefusedNodes

REFUSED = "resourceclaim not available on the node"
NO_DEVICES = "cannot allocate all claims"
INVALID_POOLS = "invalid resource pools were encountered"


class DynamicResources(ClaimFilter):
    """Nodes where the devices of all the pod's claims are, or can be, available."""

    lasting = True

    def fault(self, pod: Pod, occupancy: Occupancy) -> Refusal | None:
        wanted, devices = occupancy.storage.wanted(pod), occupancy.storage.devices
        if wanted.kind is None or devices is None:
            return None
        fault = devices.fault(wanted.kind)
        if fault is None:
            return None
        names = [f"{each.namespace}/{each.name}" for each in wanted.claims]
        reason = Reason.UNSUPPORTED if fault.unsupported else Reason.INVALID_CLAIM
        return Refusal(reason, wanted.kind.named(fault.fault, names))

    def refusals(self, pod: Pod, occupancy: Occupancy) -> Iterator[RefusedNodes]:
        needs = occupancy.storage.needs(pod) if pod.claims else None
        if needs is None:
            return
        allowed = occupancy.table.everywhere()
        for required in {claim.required for claim in needs.devices} - {None}:
            allowed &= any_term(required or (), occupancy.table)
        wanted, devices = occupancy.storage.wanted(pod), occupancy.storage.devices
        if wanted.at is not None:
            allowed &= _only(wanted.at, len(allowed))
        if not allowed.all():
            yield RefusedNodes(REFUSED, ~allowed)
        if wanted.kind is not None and devices is not None:
            # Nodes that were not searched are closed for another reason, which is the one that is given.
            lacking = devices.known(wanted.kind) == 0
            lacking[devices.faulty(wanted.kind)] = (
                False  # `narrowed` finds the fault again, in whatever plan it was found
            )
            if invalid := devices.invalid:
                wrong = np.zeros_like(lacking)
                wrong[list(invalid)] = True
                yield RefusedNodes(INVALID_POOLS, lacking & wrong)
                lacking &= ~wrong
            yield RefusedNodes(NO_DEVICES, lacking)

    def narrowed(self, pod: Pod, room: Ints, occupancy: Occupancy) -> Ints:
        wanted, devices = occupancy.storage.wanted(pod), occupancy.storage.devices
        if wanted.kind is None or devices is None:
            return room
        found = devices.room(wanted.kind, room)
        if devices.fault(wanted.kind) is not None:
            return np.zeros_like(room)
        if occupancy.storage.shares(pod):  # pods placed after it use some of the same devices
            return np.where(found > 0, room, 0)
        return np.minimum(room, found)

    def stays(self, pod: Pod, node: int, occupancy: Occupancy) -> bool:
        wanted, devices = occupancy.storage.wanted(pod), occupancy.storage.devices
        if wanted.kind is None or devices is None:
            return super().stays(pod, node, occupancy)
        return super().stays(pod, node, occupancy) and devices.fits(wanted.kind, node)


def room_for_sharers(pod: Pod, count: int, room: Ints, occupancy: Occupancy) -> Ints:
    """`room` on the nodes where most of the next `count` pods fit, which are alike and may share a claim with the pod.

    Devices of a claim are of one node, so whoever is placed first decides for all.
    """
    sharers = min(count, occupancy.storage.shares(pod))
    if sharers < 2 or occupancy.storage.wanted(pod).at is not None:
        return room
    return np.where(room >= min(sharers, int(room.max(initial=0))), room, 0)


def _only(node: int, nodes: int) -> Bools:
    """`only[n]`: `n` is this node; no node for -1."""
    found = np.zeros(nodes, dtype=np.bool_)
    found[node if node >= 0 else nodes :][:1] = True
    return found
