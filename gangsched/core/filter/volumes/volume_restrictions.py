"""kube-scheduler's VolumeRestrictions: only one pod in the cluster uses a ReadWriteOncePod claim at
a time.

Inline disks in a pod's spec (GCE, EBS, RBD, iSCSI) are ignored, because Kubernetes has removed
their plugins.
"""

from __future__ import annotations

from collections.abc import Iterator

from gangsched.core.filter.plugin import ClaimFilter, Occupancy
from gangsched.model.objects import Pod
from gangsched.model.snapshot import RefusedNodes

REFUSED = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already"
    " in-use by another pod"
)


class VolumeRestrictions(ClaimFilter):
    """All nodes, or none while another pod uses the claim."""

    def refusals(self, pod: Pod, occupancy: Occupancy) -> Iterator[RefusedNodes]:
        if pod.claims and any(
            map(occupancy.storage.in_use, occupancy.storage.needs(pod).exclusive)
        ):
            yield RefusedNodes(REFUSED, occupancy.table.everywhere())
