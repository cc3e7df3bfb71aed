"""kube-scheduler's DynamicResources, for claims that are allocated already: the pod runs where the devices can be used.

Law: nothing is allocated here. A claim that nobody has allocated rules every node out, and that is said as something
that is not supported, since no change to the nodes could help.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from gangsched.core.filter.node_affinity import any_term
from gangsched.model.objects import ClaimUse, Pod
from gangsched.model.snapshot import Bools, NodeTable
from gangsched.model.storage import ResourceClaim, Storage

REFUSED = "resourceclaim not available on the node"
UNREAD = "this scheduler may not read resourceclaims, which pods with resource claims need"
RESERVATIONS_MAX = 256
"""As many consumers as the API lets a ResourceClaim have."""


@dataclass(frozen=True, slots=True, eq=False)
class Devices:
    """The allocated claims of a pod; `problem` is why no node can do, and `unsupported` that it is on our account."""

    claims: tuple[ResourceClaim, ...] = ()
    problem: str = ""
    unsupported: bool = False


def devices_of(pod: Pod, storage: Storage) -> Devices:
    """Look the pod's ResourceClaims up; the first problem is the one that is told."""
    uses = [use for use in pod.claims if use.device]
    if uses and ResourceClaim in storage.unread:
        return Devices(problem=UNREAD)
    claims = []
    for use in uses:
        claim = storage.devices.get(use.key(pod.namespace))
        problem = _problem(pod, use, claim)
        if problem or claim is None:
            return Devices(problem=problem)
        if not claim.allocated:
            said = f'resourceclaim "{claim.name}" is not allocated, and gangsched does not allocate devices'
            return Devices(problem=said, unsupported=True)
        claims.append(claim)
    return Devices(tuple(dict.fromkeys(claims)))


def _problem(pod: Pod, use: ClaimUse, claim: ResourceClaim | None) -> str:
    if not use.name:
        return f'pod "{pod.key}": ResourceClaim not created yet'
    if claim is None:
        return f'could not find ResourceClaim "{pod.namespace}/{use.name}"'
    if claim.deleting:
        return f'resourceclaim "{claim.name}" is being deleted'
    if use.ephemeral and claim.owner_uid != pod.uid:
        return f"ResourceClaim {claim.namespace}/{claim.name} was not created for Pod {pod.key} (Pod is not owner)"
    if claim.allocated and pod.uid not in claim.reserved and len(claim.reserved) >= RESERVATIONS_MAX:
        return f'resourceclaim "{claim.name}" has {len(claim.reserved)} consumers, which is the most there may be'
    return ""


def allowed(claims: Iterable[ResourceClaim], table: NodeTable) -> Bools:
    """`allowed[node]`: the devices of all these claims can be used there."""
    mask = np.ones(len(table), dtype=np.bool_)
    for required in {claim.required for claim in claims}:
        if required is not None:
            mask &= any_term(required, table)
    return mask
