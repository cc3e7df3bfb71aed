"""kube-scheduler's NodeVolumeLimits: a node takes so many volumes of each CSI driver, as its CSINode says.

A volume that several pods of a node use counts once. Volumes attached without a pod (VolumeAttachments that linger)
are not looked at.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from gangsched.core.filter.volume_binding import Asked
from gangsched.core.filter.volumes import Volumes
from gangsched.model.snapshot import Ints

REFUSED = "node(s) exceed max volume count"


def room(asked: Asked, volumes: Volumes) -> Ints | None:
    """`room[node]` more pods with such volumes of their own may be attached to; None where no limit is stated.

    Right for one pod whatever it shares; for several only if none of their volumes is shared.
    """
    least: Ints | None = None
    for driver, count in Counter(driver for driver, _ in asked.disks).items():
        limits = volumes.limits(driver)
        if limits is None:
            continue
        new = np.full(len(limits), count, dtype=np.int64)
        for disk in asked.disks:
            if disk[0] == driver:
                new[volumes.attached_on(disk)] -= 1
        left = limits - volumes.attached(driver)
        fits = np.where(new > 0, left // np.maximum(new, 1), np.iinfo(np.int64).max)
        least = fits if least is None else np.minimum(least, fits)
    return None if least is None else np.maximum(least, 0)
