"""kube-scheduler's NodeResourcesFit: free = allocatable - requested, in exact integers.

Only non-zero requests are compared, so a resource that is not requested is never insufficient. The
pod itself requests one unit of the resource `pods`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from gangsched.core.filter.plugin import Occupancy, StatefulFilter
from gangsched.core.filter.volumes.claim_devices import without_devices
from gangsched.model.objects import Pod, Shape
from gangsched.model.resources import PODS
from gangsched.model.snapshot import Ints, RefusedNodes


class NodeResourcesFit(StatefulFilter):
    """Nodes with room for the pod. The ledger caches the room per shape (`Ledger.room`)."""

    several_reasons = True

    def applies(self, pod: Pod, occupancy: Occupancy) -> bool:
        return False

    def refusals(self, pod: Pod, occupancy: Occupancy) -> Iterator[RefusedNodes]:
        # Two masks: a node that lacks CPU as well is refused for the CPU, which devices would not
        # cure.
        full = np.zeros(len(occupancy.table), dtype=np.bool_)
        lacks_devices = np.zeros_like(full)
        for name, amount in pod.shape.requests:
            row = occupancy.resources.get(name)
            reason = "Too many pods" if name == PODS else f"Insufficient {name}"

            # No row: no node of the cluster offers the resource.
            lacking = occupancy.table.everywhere()
            if row is not None:
                lacking = occupancy.free[row] < amount

            served = occupancy.storage.served.get(name) if pod.claims else None
            if served is not None:
                # The column of a served resource is the number of devices: an upper limit, so
                # DynamicResources gives the reason.
                lacks_devices |= lacking & served
                lacking = lacking & ~served

            full |= lacking
            yield RefusedNodes(reason, lacking)

        devices = occupancy.storage.devices
        lacks_devices = lacks_devices & ~full
        if devices is not None and lacks_devices.any():
            # DynamicResources has not searched nodes where not even the number of the devices
            # suffices.
            devices.places.read_pools(lacks_devices)
            yield from without_devices(lacks_devices, devices)


def room(shape: Shape, free: Ints, resources: Mapping[str, int]) -> Ints:
    """`room[node]`: number of pods of `shape` that fit into `free[r][node]`; 0 if a resource is
    unknown or overused.
    """
    fits: Ints | None = None
    for name, amount in shape.requests:
        row = resources.get(name)
        if row is None:
            return np.zeros(free.shape[1], dtype=np.int64)

        # Floor division also of negative free room (overcommitted nodes); the maximum with 0 below
        # handles it.
        count = free[row] // amount
        if fits is None:
            fits = count
        else:
            np.minimum(fits, count, out=fits)

    if fits is None:
        raise AssertionError("a shape always requests at least `pods`")

    return np.maximum(fits, 0, out=fits)
