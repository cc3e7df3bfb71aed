"""kube-scheduler's VolumeRestrictions: only one pod at a time uses a ReadWriteOncePod claim, on whichever node.

In-line disks of clouds (GCE, EBS, RBD, iSCSI in the pod's own spec) are ignored: their plugins were removed.
"""

from __future__ import annotations

from collections.abc import Iterator

from gangsched.core.filter.occupancy import Occupancy
from gangsched.core.filter.plugin import ClaimFilter
from gangsched.model.objects import Pod
from gangsched.model.snapshot import RefusedNodes

REFUSED = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
)


class VolumeRestrictions(ClaimFilter):
    """All nodes; none while another pod uses the claim."""

    def refusals(self, pod: Pod, occupancy: Occupancy) -> Iterator[RefusedNodes]:
        if pod.claims and any(map(occupancy.storage.in_use, occupancy.storage.needs(pod).exclusive)):
            yield RefusedNodes(REFUSED, occupancy.table.everywhere())
