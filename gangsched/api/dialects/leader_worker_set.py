"""Groups of a LeaderWorkerSet as gangs, declared by a PodGroup of Volcano or by labels of pods that opt in.

Invariant: `keys.pod_gang_metadata` names the gang, and includes the annotation of its size only if the gang is exactly
one group. Not supported: starting a leader and reserving room for workers that do not exist yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from gangsched.api import keys
from gangsched.api.problem import Problem, bad_value
from gangsched.model.objects import Pod, PodGroup

LATER: Final = "and gangsched keeps no room for members to come yet"


def members_to_come(
    stated: Iterable[tuple[str, Mapping[str, str]]], min_member: int | None, pod_group: PodGroup | None
) -> str | None:
    """Why a gang must wait because its other members are created only after the first one runs; None for any other
    gang.

    If the leader started alone, it would keep its node while there may be no room for its workers. `stated` are the
    gang's pods by name, with their keys.
    """
    if min_member is None or min_member < 2:
        return None
    for pod, gang_metadata in stated:
        if keys.LWS_SIZE not in gang_metadata:
            continue
        for key in keys.LEADER_FIRST:
            if gang_metadata.get(key, "false") != "false":
                return f"{key} of pod {pod}: the workers are created once it has a node, {LATER}: remove it"
        if pod_group is not None and (least := pod_group.min_member) is not None and least < min_member:
            return (
                f"minMember {least} of PodGroup {pod_group.id} is below its size {min_member}: the workers are "
                f"created once the leader is ready, {LATER}: set startupPolicy to LeaderCreated"
            )
    return None


def owner_problem(pod: Pod) -> Problem | None:
    """Why a pod with `keys.OWNER_GANG` is in no gang; None for pods without that key."""
    value = dict(pod.gang_metadata).get(keys.OWNER_GANG)
    if value is None:
        return None
    why = f'is not "{keys.OWNER}"' if value != keys.OWNER else "has no effect without the labels of a LeaderWorkerSet"
    return bad_value(key=keys.OWNER_GANG, value=value, why=why, used="no gang", where=f"pod {pod.key}", pod=pod.key)
