"""Events on a gang: lasting problems, and the outcome of its binds (semantics E2, B5, E4).

Invariant: pure; `reports` remembers which were written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gangsched.api.dialects import DIALECTS, api_version
from gangsched.model.gang import Gang
from gangsched.model.objects import Pod
from gangsched.model.protocol import ObjectRef
from gangsched.model.reasons import EventReason, Reason
from gangsched.model.text import named
from gangsched.sentences import say
from gangsched.state.gangs import GangRecord
from gangsched.state.group_record import GroupRecord
from gangsched.state.reporting.status import life_of, loss

LASTING = frozenset(
    reason.value
    for reason in (
        Reason.INVALID_GANG,
        EventReason.MIXED_SCHEDULERS,
        EventReason.DEGRADED,
        EventReason.NOT_USED,
    )
)


def lasting(
    record: GangRecord,
    gang: Gang,
    accusers: Sequence[GroupRecord],
) -> Iterator[tuple[str, str]]:
    """Yield (reason, sentence) for lasting problems: invalid values, fields without effect, gangs
    that do not list each other, members of other schedulers, and a gang below its minimum.
    """
    for problem in record.problems:
        yield Reason.INVALID_GANG.value, problem.text

    # Here and not only in the log: whoever wrote the field reads Events of the object, and no log
    # of a scheduler.
    for text in record.pod_group.not_used if record.pod_group is not None else ():
        yield EventReason.NOT_USED.value, text

    for accuser in accusers:  # reported when it was accused, unless it has become managed since
        if accuser.refusal is not None:
            yield Reason.INVALID_GANG.value, say(accuser.refusal).stable

    if gang.foreign:
        one = len(gang.foreign) == 1
        does = (
            "member has another schedulerName and does"
            if one
            else "members have another schedulerName and do"
        )
        text = f"{len(gang.foreign)} pending {does} not count: {named(gang.foreign)}"
        yield EventReason.MIXED_SCHEDULERS.value, text

    # Most gangs that wait have not started, and none of those is below what it started with.
    if gang.satisfied and life_of(record, gang).is_degraded:
        yield EventReason.DEGRADED.value, loss(record, gang)


def pod_ref(pod: Pod) -> ObjectRef:
    """Reference to a pod, for an Event."""
    return ObjectRef("v1", "Pod", pod.namespace, pod.name, pod.uid)


def gang_ref(record: GangRecord) -> ObjectRef | None:
    """The object of an Event about the gang: its PodGroup, else its oldest pod (semantics E2)."""
    pod_group = record.pod_group
    if pod_group is not None:
        version = api_version(pod_group.api_group, pod_group.version)
        return ObjectRef(
            version,
            DIALECTS[pod_group.api_group].kind,
            pod_group.namespace,
            pod_group.object_name,
            pod_group.uid,
        )

    oldest = record.oldest()
    return pod_ref(oldest) if oldest is not None else None
