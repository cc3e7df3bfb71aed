"""Second starts: pods of another run that come while an earlier run of the gang lives (semantics
I6), as those of a CronJob whose runs overlap and name one PodGroup.

Invariant: pure functions of the members. A controller is another run if it repeats one of the
start: it is of the same kind, has another name, and created its pods after the start.
"""

from __future__ import annotations

from collections.abc import Sequence

from gangsched.api import keys
from gangsched.model.objects import REPLICA_KINDS, Pod
from gangsched.state.members import Member
from gangsched.state.start_memory import StartMemory


def of_another_run(
    start: StartMemory,
    started: Sequence[Member],
    pending: Sequence[Member],
) -> list[Member]:
    """Those of the `pending` members that are of another run than the `started` ones."""
    ours = [member.pod for member in started if member.permit is not None]
    if not ours:
        return []

    others: list[Member] = []
    for member in pending:
        controller = member.pod.controller_uid
        if not controller or controller in start.controllers:
            continue
        if _repeats(member.pod, ours) and not _was_there(member.pod, start):
            others.append(member)

    return others


def _repeats(pod: Pod, started: Sequence[Pod]) -> bool:
    """Whether the controller of a pod is one like those of the start, and none of them."""
    # A ReplicaSet or StatefulSet is replaced pod by pod, as in an update of its Deployment.
    if pod.controller_kind in REPLICA_KINDS:
        return False

    # A launcher, of another kind than the workers' controller, completes their start.
    alike = [other for other in started if other.controller_kind == pod.controller_kind]
    if not alike:
        return False

    # A Job of a JobSet that is created again keeps its name, and all its Jobs are one run.
    return all(other.owner != pod.owner and not _of_one_set(other, pod) for other in alike)


def _of_one_set(one: Pod, other: Pod) -> bool:
    name = one.labels.get(keys.JOBSET_NAME)
    return bool(name) and name == other.labels.get(keys.JOBSET_NAME)


def _was_there(pod: Pod, start: StartMemory) -> bool:
    """Whether the pod existed when the start was decided, which it was not needed for."""
    together = start.stamp.together if start.stamp is not None else None
    return together is not None and pod.creation_s <= together.youngest_s
