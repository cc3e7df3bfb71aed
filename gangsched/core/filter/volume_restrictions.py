"""kube-scheduler's VolumeRestrictions: a ReadWriteOncePod claim is used by one pod at a time, whichever the node.

In-line disks of clouds (GCE, EBS, RBD, iSCSI in the pod's own spec) are not looked at: their plugins are gone.
"""

from __future__ import annotations

from gangsched.core.filter.volume_binding import Asked
from gangsched.core.filter.volumes import Volumes

REFUSED = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
)


def in_use(asked: Asked, volumes: Volumes) -> bool:
    """Whether a pod that has a node uses a claim that no second pod may use."""
    return any(volumes.in_use(key) for key in asked.exclusive)
