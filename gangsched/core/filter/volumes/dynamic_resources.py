"""kube-scheduler's DynamicResources: the pod runs where its allocated devices are, or where devices
can be allocated to it.

Invariant: nothing is allocated here. Devices are chosen by `core.devices`, for all pods of a plan
together.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gangsched.core.filter.node_selector import any_term
from gangsched.core.filter.plugin import ClaimFilter, Occupancy
from gangsched.core.filter.volumes.claim_devices import WantedDevices, without_devices
from gangsched.core.filter.volumes.claim_needs import RESERVATIONS_MAX
from gangsched.model.gang import Refusal
from gangsched.model.objects import Pod
from gangsched.model.reasons import Reason
from gangsched.model.snapshot import Bools, Ints, RefusedNodes
from gangsched.model.verdict_facts import Worded

REFUSED = "resourceclaim not available on the node"
EXTENDED = "for extended resources"
"""Stands for the name of a claim that does not exist yet."""


class DynamicResources(ClaimFilter):
    """Nodes where the devices of all the pod's claims are available or can be allocated."""

    lasting = True

    def fault(
        self,
        pod: Pod,
        occupancy: Occupancy,
    ) -> Refusal | None:
        for key, left in occupancy.storage.places_left(pod).items():
            if not left:
                name = key.rpartition("/")[2]
                text = f'resourceclaim "{name}" has {RESERVATIONS_MAX} consumers, the maximum'
                return Refusal(Reason.WAITING_FOR_VOLUMES, Worded(text))

        wanted = occupancy.storage.wanted(pod)
        devices = occupancy.storage.devices

        for on_nodes in wanted.on:
            fault = (
                devices.fault(on_nodes.kind)
                if devices is not None and on_nodes.kind is not None
                else None
            )
            if fault is not None and on_nodes.kind is not None:
                names = []
                for claim in on_nodes.claims:
                    names.append(f"{claim.namespace or pod.namespace}/{claim.name or EXTENDED}")

                reason = Reason.UNSUPPORTED if fault.unsupported else Reason.INVALID_CLAIM
                return Refusal(reason, Worded(on_nodes.kind.named(fault.fault, names)))

        return None

    def refusals(
        self,
        pod: Pod,
        occupancy: Occupancy,
    ) -> Iterator[RefusedNodes]:
        needs = occupancy.storage.needs(pod) if pod.claims else None
        if needs is None:
            return

        allowed = occupancy.table.everywhere()
        # Claims of one allocation mostly have the same selector, which is evaluated once.
        for required in {claim.required for claim in needs.devices} - {None}:
            allowed &= any_term(required or (), occupancy.table)

        wanted = occupancy.storage.wanted(pod)
        devices = occupancy.storage.devices

        if wanted.at is not None:
            allowed &= _only(wanted.at, len(allowed))

        for terms in wanted.required:
            allowed &= any_term(terms, occupancy.table)

        if needs.extended is not None:
            has_claim = np.zeros_like(allowed)
            for on_nodes in wanted.on:
                has_claim |= True if on_nodes.nodes is None else on_nodes.nodes

            # Where no claim can be formed, an earlier attempt created one for nodes of another
            # kind.
            allowed &= has_claim

        if not allowed.all():
            yield RefusedNodes(
                REFUSED,
                ~allowed,
            )

        if devices is None:
            return

        lacking = _lacking(wanted, occupancy)
        if lacking is None:
            return

        yield from without_devices(lacking, devices)

    def narrowed(
        self,
        pod: Pod,
        room: Ints,
        occupancy: Occupancy,
    ) -> Ints:
        room = occupancy.storage.with_devices(pod, room)
        if self.fault(pod, occupancy) is None:
            return room

        return np.zeros_like(room)

    def stays(
        self,
        pod: Pod,
        node: int,
        occupancy: Occupancy,
    ) -> bool:
        wanted = occupancy.storage.wanted(pod)
        devices = occupancy.storage.devices

        # The pod is not counted itself, so one more such pod must fit where it is.
        kind = next((asked.kind for asked in wanted.on if asked.includes(node)), None)
        if not super().stays(pod, node, occupancy):
            return False
        if kind is None or devices is None:
            return True

        return devices.fits(kind, node)


def _lacking(wanted: WantedDevices, occupancy: Occupancy) -> Bools | None:
    """`lacking[n]`: no choice of devices of node `n` satisfies these claims; None if they need no
    devices.

    Nodes that were not searched are closed for another reason, which is the one that is given.
    """
    devices = occupancy.storage.devices
    if devices is None or all(on_nodes.kind is None for on_nodes in wanted.on):
        return None

    lacking = np.zeros(len(occupancy.table), dtype=np.bool_)
    for on_nodes in wanted.on:
        if on_nodes.kind is None:
            continue

        here = devices.known(on_nodes.kind) == 0
        # `narrowed` finds the fault again, in whatever plan it was found
        here[devices.faulty(on_nodes.kind)] = False

        if wanted.other:
            here |= devices.lacking(wanted.other, on_nodes.kind)

        lacking |= here if on_nodes.nodes is None else here & on_nodes.nodes

    return lacking


def places_left(pod: Pod, occupancy: Occupancy) -> int | None:
    """How many further pods can share the claims of this one; None if its claims set no limit."""
    if pod.claims:
        return min(occupancy.storage.places_left(pod).values(), default=None)

    return None


def room_for_sharers(
    pod: Pod,
    count: int,
    room: Ints,
    occupancy: Occupancy,
) -> Ints:
    """`room`, reduced to the nodes with room for most of the next `count` pods. These are equal to
    this pod and may share its claims.

    The first of these pods determines the node of all others, or the nodes that can use the same
    devices.
    """
    wanted = occupancy.storage.wanted(pod)
    sharers = min(count, occupancy.storage.shares(pod))
    # The node is determined already.
    if sharers < 2 or wanted.at is not None or wanted.required or wanted.other:
        return room

    devices = occupancy.storage.devices
    together = room

    for on_nodes in wanted.on:
        if devices is not None and on_nodes.kind is not None:
            together = np.maximum(together, devices.room_together(on_nodes.kind, room))

    most = int(together.max(initial=0))
    return np.where(together >= min(sharers, most), room, 0)


def _only(node: int, nodes: int) -> Bools:
    """`only[n]`: `n` is this node; no node for -1."""
    mask = np.zeros(nodes, dtype=np.bool_)
    # A slice beyond the end is empty: -1 selects no node without a branch.
    mask[node if node >= 0 else nodes :][:1] = True
    return mask
