"""Groups of a LeaderWorkerSet as gangs, declared by a PodGroup of Volcano or by labels of pods that
opt in.

Invariant: `keys.pod_gang_metadata` names the gang; it reads annotations of the pods only if the
gang is exactly one group. Workers that are created after their leader runs are members to come
(`api.later_members`).
"""

from __future__ import annotations

from gangsched.api import keys
from gangsched.api.problem import Problem, bad_value
from gangsched.model.objects import Pod


def owner_problem(pod: Pod) -> Problem | None:
    """Why a pod with the key `keys.OWNER_GANG` is in no gang; None for pods without that key."""
    value = dict(pod.gang_metadata).get(keys.OWNER_GANG)
    if value is None:
        return None

    why = (
        f'is not "{keys.OWNER}"'
        if value != keys.OWNER
        else "has no effect without the labels of a LeaderWorkerSet"
    )
    return bad_value(
        key=keys.OWNER_GANG,
        value=value,
        why=why,
        used="no gang",
        where=f"pod {pod.key}",
        pod=pod.key,
    )
