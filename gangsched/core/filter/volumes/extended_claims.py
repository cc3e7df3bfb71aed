"""Claims for extended resources that a DeviceClass serves: the requests of a pod's claim on each
node.

Invariant: a node that offers an extended resource itself provides it; on other nodes, devices
provide it. So the claim differs by node, and on a node that offers all of the resources the pod
needs no claim. kube-scheduler 1.36 also creates the claim according to the node.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from gangsched.model.devices import DeviceClaim, DeviceRequest, MadeClaim
from gangsched.model.objects import ClaimUse, ExtendedResource, Pod
from gangsched.model.snapshot import Bools, NodeTable
from gangsched.model.storage import ResourceClaim, Storage

Served = tuple[tuple[ExtendedResource, str], ...]
"""Extended resources of a pod, each with the name of the class that serves it."""


class ExtendedNeed(NamedTuple):
    """Extended resources that a pod needs. `claim` is the one that an earlier attempt created, None
    for none.
    """

    namespace: str
    name: str
    served: Served = ()
    claim: ResourceClaim | None = None

    @property
    def like(self) -> ExtendedNeed:
        """A key that is equal for pods with equal needs."""
        if self.claim is None:
            return self._replace(namespace="", name="")

        return self


class OnNodes(NamedTuple):
    """The claim `made` for these nodes, None if the pod needs none there; devices are chosen for
    `claim`.
    """

    nodes: Bools
    claim: ResourceClaim | None = None
    made: MadeClaim | None = None


def extended_need(pod: Pod, use: ClaimUse, storage: Storage) -> ExtendedNeed:
    """The extended resources of a pod that a DeviceClass serves, and the claim for them if it
    already exists.
    """
    classes: Mapping[str, str] = storage.allocator.extended if storage.allocator is not None else {}
    served = tuple(
        (extended_resource, classes[extended_resource.name])
        for extended_resource in pod.shape.extended
        if extended_resource.name in classes
    )
    return ExtendedNeed(
        pod.namespace,
        use.name,
        served,
        storage.devices.get(use.key(pod.namespace)),
    )


@dataclass(slots=True, eq=False)
class ExtendedClaims:
    """Claims by node. `masks[name][n]`: node `n` does not offer the resource `name` itself."""

    table: NodeTable
    masks: Mapping[str, Bools]

    def by_node(self, need: ExtendedNeed) -> Iterator[OnNodes]:
        """Yield disjoint sets of nodes with the claim there; together they cover all nodes where
        the pod can run.
        """
        for nodes, served in self._parted(need.served):
            claim = need.claim
            if not served:
                if claim is None:
                    yield OnNodes(nodes)

                continue

            made = _made(served)
            if claim is None:
                asks = DeviceClaim(
                    namespace=need.namespace,
                    name=need.name,
                    requests=tuple((device_request,) for device_request in made.requests),
                )
                yield OnNodes(
                    nodes,
                    ResourceClaim(namespace=need.namespace, name=need.name, asks=asks),
                    made,
                )
            # A claim of an earlier attempt pins the pod to nodes that need exactly the same; else
            # it is deleted and made anew.
            elif is_as_made(claim, made):
                yield OnNodes(nodes, claim, made)

    def _parted(self, served: Served) -> Iterator[tuple[Bools, Served]]:
        """The nodes by which of the resources they provide through devices."""
        if not served:
            yield self.table.everywhere(), ()
            return

        nowhere = np.zeros(len(self.table), dtype=np.bool_)
        masks = [self.masks.get(each.name, nowhere) for each, _ in served]
        codes = np.zeros(len(self.table), dtype=np.int64)

        # One bit per resource: nodes with equal codes need the same claim.
        for number, mask in enumerate(masks):
            codes |= mask.astype(np.int64) << number

        for code in np.unique(codes).tolist():
            yield (
                codes == code,
                tuple(each for number, each in enumerate(served) if code >> number & 1),
            )


def is_as_made(claim: ResourceClaim, made: MadeClaim) -> bool:
    """Whether the claim requests exactly what gangsched would request."""
    asks = claim.asks
    if asks is None or asks.unknown or asks.constraints:
        return False

    return asks.requests == tuple((device_request,) for device_request in made.requests)


def _made(served: Served) -> MadeClaim:
    requests = (
        DeviceRequest(name=name, class_name=class_name, count=count)
        for each, class_name in served
        for name, count in each.requests
    )
    users = tuple(
        (container, each.name, request) for each, _ in served for container, request in each.users
    )
    # Sorted by name as kube-scheduler writes them, so that a claim that it made is recognised.
    return MadeClaim(tuple(sorted(requests, key=lambda each: each.name)), users)
