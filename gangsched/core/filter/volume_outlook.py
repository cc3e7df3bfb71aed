"""The filters of claims together: what they say of one pod, while pods are placed around it.

Law: order and codes are kube-scheduler's: VolumeRestrictions, NodeVolumeLimits, VolumeBinding, VolumeZone, and last of
all DynamicResources; the first that refuses a node ends it, but VolumeBinding may give two reasons for one node. All
come after resources.
"""

from __future__ import annotations

import numpy as np

from gangsched.core.filter import dynamic_resources, node_volume_limits, volume_restrictions, volume_zone
from gangsched.core.filter.volume_binding import NO_VOLUME, NODE_CONFLICT, NOTHING_TO_BIND, Asked
from gangsched.core.filter.volumes import Volumes
from gangsched.model.objects import Pod
from gangsched.model.reasons import Reason
from gangsched.model.snapshot import Codes, Ints

TEXTS: tuple[tuple[str, ...], ...] = (
    (volume_restrictions.REFUSED,),
    (node_volume_limits.REFUSED,),
    (NODE_CONFLICT,),
    (NOTHING_TO_BIND,),
    (NODE_CONFLICT, NOTHING_TO_BIND),
    (NO_VOLUME,),
    (NO_VOLUME, NOTHING_TO_BIND),
    (volume_zone.REFUSED,),
    (dynamic_resources.REFUSED,),
)
"""What `refusals` counts, from code 1 on."""
LAST = len(TEXTS)
"""The code of what comes after every other filter."""
_CODES = {texts: code for code, texts in enumerate(TEXTS, start=1)}


def problem(pod: Pod, volumes: Volumes) -> str:
    """Why the pod's claims allow no node at all; "" if they may allow one."""
    return volumes.asked(pod).problem if pod.claims else ""


def reason_of(pod: Pod, volumes: Volumes) -> Reason:
    """The reason of a refusal by any filter: claims come before nodes."""
    if not problem(pod, volumes):
        return Reason.UNSCHEDULABLE
    return Reason.UNSUPPORTED if volumes.asked(pod).unsupported else Reason.WAITING_FOR_VOLUMES


def refusals(pod: Pod, volumes: Volumes) -> Codes:
    """`refused[node]`: 0, or the code of what refuses a pod that has claims."""
    asked = volumes.asked(pod)
    if volume_restrictions.in_use(asked, volumes):
        return np.full(len(volumes.table), _CODES[volume_restrictions.REFUSED,], dtype=np.int32)
    refused = np.zeros(len(volumes.table), dtype=np.int32)
    room = node_volume_limits.room(asked, volumes)
    if room is not None:
        refused[room < 1] = _CODES[node_volume_limits.REFUSED,]
    binding = _binding(asked, volumes)
    refused = np.where(refused == 0, binding, refused)
    if asked.zoned:
        refused[(refused == 0) & ~volume_zone.allowed(asked.zoned, volumes.table)] = _CODES[volume_zone.REFUSED,]
    if asked.devices:
        usable = dynamic_resources.allowed(asked.devices, volumes.table)
        refused[(refused == 0) & ~usable] = _CODES[dynamic_resources.REFUSED,]
    return refused


def narrow(pod: Pod, room: Ints, volumes: Volumes) -> Ints:
    """`room`, which lacks what `refusals` refuses, for pods with claims like this one: no more than can be attached."""
    asked = volumes.asked(pod)
    if asked.problem:
        return np.zeros_like(room)
    attachable = node_volume_limits.room(asked, volumes)
    return room if attachable is None else np.minimum(room, attachable)


def _binding(asked: Asked, volumes: Volumes) -> Codes:
    """VolumeBinding's codes."""
    bound = np.ones(len(volumes.table), dtype=np.bool_)
    for volume in asked.bound:
        bound &= volumes.reachable(volume.required)
    served = volumes.matching(asked).allowed if asked.unbound else np.ones_like(bound)
    codes = np.zeros(len(volumes.table), dtype=np.int32)
    if asked.volume_missing:  # it is the only thing said of bound claims
        codes[:] = _CODES[NO_VOLUME,]
        codes[~served] = _CODES[NO_VOLUME, NOTHING_TO_BIND]
        return codes
    codes[~bound] = _CODES[NODE_CONFLICT,]
    codes[~served] = _CODES[NOTHING_TO_BIND,]
    codes[~bound & ~served] = _CODES[NODE_CONFLICT, NOTHING_TO_BIND]
    return codes
