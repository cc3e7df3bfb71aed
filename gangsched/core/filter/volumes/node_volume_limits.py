"""kube-scheduler's NodeVolumeLimits: the maximum number of volumes per CSI driver, from the
CSINode.

A volume used by several pods of a node counts once. Volumes attached without a pod (lingering
VolumeAttachments) are not counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from gangsched.core.filter.plugin import ClaimFilter, Occupancy
from gangsched.model.objects import Pod
from gangsched.model.snapshot import Ints, RefusedNodes

REFUSED = "node(s) exceed max volume count"
NO_LIMIT = np.iinfo(np.int64).max
"""Room on nodes to which all disks of a driver are attached already."""


class NodeVolumeLimits(ClaimFilter):
    """Nodes to which the pod's volumes can be attached."""

    def refusals(self, pod: Pod, occupancy: Occupancy) -> Iterator[RefusedNodes]:
        room = self.room(pod, occupancy)
        if room is not None:
            yield RefusedNodes(REFUSED, room < 1)

    def room(self, pod: Pod, occupancy: Occupancy) -> Ints | None:
        """`room[node]`: number of further pods with volumes like these that fit; None if no node
        declares a limit.

        Exact for one pod; for several pods only if they share no volume.
        """
        storage = occupancy.storage
        if not pod.claims:
            return None

        disks = storage.needs(pod).disks
        least: Ints | None = None

        by_driver = Counter(driver for driver, _ in disks)
        for driver, count in by_driver.items():
            limits = storage.limits(driver)
            if limits is None:
                continue

            new = np.full(len(limits), count, dtype=np.int64)
            for disk in disks:
                if disk[0] == driver:
                    # A disk that is attached there already takes no further place.
                    new[storage.attached_on(disk)] -= 1

            left = limits - storage.attached(driver)
            # The divisor is at least 1 even where the result is not used: numpy evaluates both
            # branches.
            divisor = np.maximum(new, 1)
            fits = np.where(new > 0, left // divisor, NO_LIMIT)
            least = fits if least is None else np.minimum(least, fits)

        if least is None:
            return None

        return np.maximum(least, 0)
