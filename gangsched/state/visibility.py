"""A gang as its users see it: the `Gang` of visibility.gangsched.dev (docs/visibility.md), as plain
JSON values.

Invariant: read-only, one gang per call, so that a caller can yield between calls. It shows the
gang's own pods and PodGroup; about other gangs it shows only how many are ahead in the queue.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple, TypeAlias
from uuid import NAMESPACE_URL, uuid5

from gangsched.api import keys
from gangsched.api.dialects import api_version
from gangsched.api.podgroup import scheduled_condition
from gangsched.api.timestamps import format_timestamp
from gangsched.core import findings
from gangsched.core.queue_sort import group_key
from gangsched.core.reservations.heads import head_of
from gangsched.model.gang import Group, Rank, Refusal
from gangsched.model.objects import Shape
from gangsched.model.reasons import EventReason, GangReason, Reason
from gangsched.model.text import counted, is_or_are, named
from gangsched.model.wait_facts import GangAwaitsBinds
from gangsched.sentences import say
from gangsched.sentences.fields import fields
from gangsched.sentences.next_steps import next_step
from gangsched.sentences.waits import worded_wait
from gangsched.state.broken_groups import broken
from gangsched.state.debug_view import MEMBER_STATES, members_by_state
from gangsched.state.gangs import GangRecord
from gangsched.state.group_record import GroupRecord, QueueState
from gangsched.state.members import State
from gangsched.state.reporting.conditions import shown_reason
from gangsched.state.reporting.gang_phase import phase
from gangsched.state.reporting.status import life_of, loss
from gangsched.state.reporting.stored import stored_condition
from gangsched.state.reporting.troubles import troubles
from gangsched.state.scheduling import SchedulingState
from gangsched.state.visible_gang import declared, reserved_room

Json: TypeAlias = dict[str, object]
NOT_LOOKED_AT = "New"
"""The reason of a gang that no plan has looked at yet."""
BOUND_STATES = ("binding", "bound", "waiting for claims")
PLANNED_STATES = ("pending", "held", "kept", "retry")
WAITING_STATES = (*PLANNED_STATES, "gated")


@dataclass(frozen=True, slots=True)
class Moment:
    """The current time, in monotonic seconds and in seconds since the epoch."""

    now_s: float
    wall_s: float


class _Told(NamedTuple):
    """What is told of a gang: reason, sentence, and the facts of the sentence."""

    reason: str = ""
    message: str = ""
    facts: Mapping[str, object] = MappingProxyType({})


def _told(refusal: Refusal) -> _Told:
    return _Told(shown_reason(refusal).value, say(refusal).text, fields(refusal))


def visible_gangs(state: SchedulingState) -> list[tuple[str, str]]:
    """(namespace, name) of every gang of this scheduler, sorted; without plain pods."""
    return sorted(
        split(record.id)
        for record in state.registry.gangs.values()
        if record.ours and not record.plain and record.id
    )


def split(gang_id: str) -> tuple[str, str]:
    """Namespace and name in a gang's id; the name may contain a slash."""
    namespace, _, name = gang_id.partition("/")
    return namespace, name


def queue_rank(state: SchedulingState, group_id: str, moment: Moment) -> Rank | None:
    """Key of a group's position in the queue (Q1, Q2); None if none of its pods waits."""
    if group_id not in state.registry.groups:
        return None

    group = state.registry.group(group_id, moment.now_s)
    if any(gang.waiting for gang in group.gangs):
        return group_key(group)

    return None


def lacking_shapes(state: SchedulingState, gang_id: str) -> dict[Shape, int]:
    """Number of waiting pods by shape, if the last verdict refused the gang for room;
    else empty.
    """
    group = _group(state, gang_id)
    verdict = group.verdict if group is not None else None
    if (
        verdict is None
        or not verdict.needs
        or verdict.of_gang(gang_id).reason is not Reason.UNSCHEDULABLE
        or verdict.of_gang(gang_id).is_of_a_sibling()
    ):
        return {}

    waiting: dict[Shape, int] = {}
    gang = state.registry.view(gang_id)
    for pod in (*gang.pending, *gang.retry):
        waiting[pod.shape] = waiting.get(pod.shape, 0) + 1

    return waiting


def describe(
    state: SchedulingState,
    namespace: str,
    name: str,
    moment: Moment,
    *,
    position: int | None = None,
    lacks: Mapping[str, str] | None = None,
) -> Json | None:
    """`metadata`, `spec` and `status` of a gang; None if there is no such gang.

    `position` is its place in the queue, starting at 1; `lacks` are the missing resources, in the
    format of the API. If this process has made no decision (on a standby), reason and message are
    copied from what the leader wrote on the PodGroup or pod.
    """
    record = state.registry.gangs.get(f"{namespace}/{name}")
    if record is None or not record.ours or record.plain:
        return None

    group = _group(state, record.id)
    view = state.registry.group(group.id, moment.now_s) if group is not None else None
    by_state = {kind: len(found) for kind, found in members_by_state(record).items() if found}
    decision = _decision(state, record, group, by_state, moment)
    status: Json = {
        "phase": phase(life_of(record, state.registry.view(record.id))).value,
        "members": {
            "total": sum(by_state.values()),
            "byState": {k: by_state[k] for k in MEMBER_STATES if k in by_state},
        },
        "reason": decision.reason,
        "message": decision.message,
        **({"facts": decision.facts} if decision.facts else {}),
        **declared(record, view),
        **_waiting(group, view, moment, position),
        **({"lacks": dict(lacks)} if lacks else {}),
        **_next(record, group, decision.reason, position, moment),
        **reserved_room(record, group),
        "nodes": sorted({member.node for member in record.members.values() if member.node}),
        "yields": group.yields if group is not None else 0,
        "preemptions": record.preemptions,
        "problems": [
            *(problem.text for problem in record.problems),
            *troubles(record, group, state.cluster.nodes),
        ],
    }

    if view is not None and any(broken(gang) for gang in view.gangs if gang.id == record.id):
        status["broken"] = True

    return {"metadata": _metadata(record), "spec": _spec(record, group), "status": status}


def bound_and_pending(status: Mapping[str, object]) -> tuple[int, int]:
    """Number of bound or binding members, and of waiting members."""
    members = status["members"]
    by_state = members["byState"] if isinstance(members, Mapping) else {}
    return (
        sum(by_state.get(kind, 0) for kind in BOUND_STATES),
        sum(by_state.get(kind, 0) for kind in WAITING_STATES),
    )


def _group(state: SchedulingState, gang_id: str) -> GroupRecord | None:
    return state.registry.groups.get(state.registry.group_of.get(gang_id, ""))


def _metadata(record: GangRecord) -> Json:
    namespace, name = split(record.id)
    pod_group = record.pod_group
    uid = (
        pod_group.uid
        if pod_group is not None
        else str(uuid5(NAMESPACE_URL, f"gangs.visibility/{record.id}"))
    )
    created: Json = (
        {"creationTimestamp": format_timestamp(record.creation_s)} if record.creation_s else {}
    )

    return {"namespace": namespace, "name": name, "uid": uid, **created}


def _min(record: GangRecord) -> int | None:
    if record.spec is not None:
        return record.spec.min_member

    return None


def _spec(record: GangRecord, group: GroupRecord | None) -> Json:
    found: Json = {"declaredBy": _declared_by(record)}
    if (spec := record.spec) is not None:
        found |= {"mode": spec.mode.value, "waitTimeSeconds": spec.wait_time_s}
        if spec.min_member is not None:
            found["min"] = spec.min_member

    return found | {
        "group": list(group.gangs) if group is not None and len(group.gangs) > 1 else []
    }


def _declared_by(record: GangRecord) -> str:
    """The PodGroup, else the key by which its oldest pod names it (semantics I2)."""
    if (pod_group := record.pod_group) is not None:
        return f"PodGroup {api_version(pod_group.api_group, pod_group.version)}"

    oldest = record.oldest()
    stated = dict(oldest.gang_metadata) if oldest is not None else {}

    for identity in keys.IDENTITIES:
        if stated.get(identity.key):
            return f"{'label' if identity.label else 'annotation'} {identity.key}"

    if oldest is not None and oldest.native_group:
        return "spec.schedulingGroup"

    return ""


def _decision(
    state: SchedulingState,
    record: GangRecord,
    group: GroupRecord | None,
    by_state: Mapping[str, int],
    moment: Moment,
) -> _Told:
    """What the gang waits for, or what it has."""
    waits = state.reports.waits.of_gang(record, moment.now_s, moment.wall_s)
    if waits is not None:
        return _told(waits)

    if not any(by_state.get(kind) for kind in PLANNED_STATES):
        return _started(state, record, by_state)
    if record.faults:
        return _Told(Reason.BACK_OFF.value, named(record.faults))

    verdict = group.told_verdict if group is not None else None
    if verdict is not None:
        # With what the condition says of its reservation.
        completed = state.reports.reservations.completed(verdict, record.namespace)
        return _told(completed.of_gang(record.id))

    return _told_by_another(record)


def _started(
    state: SchedulingState,
    record: GangRecord,
    by_state: Mapping[str, int],
) -> _Told:
    """Of a gang of which no member waits."""
    binding = by_state.get(State.BINDING.value, 0)
    if binding:
        text, _ = worded_wait(GangAwaitsBinds(record.id, binding))
        return _Told(GangReason.BINDING.value, text)

    gang = state.registry.view(record.id)
    if life_of(record, gang).is_degraded:
        return _Told(EventReason.DEGRADED.value, loss(record, gang))

    # No plan looks at a gang of which every pod has a gate.
    if gang.gated:
        return _told(findings.waiting_for_members(gang))

    there = by_state.get(State.BOUND.value, 0)
    if there:
        are = is_or_are(there)
        return _Told(Reason.SCHEDULED.value, f"{counted(there, 'member')} {are} bound")

    return _Told()


def _told_by_another(record: GangRecord) -> _Told:
    """The leader's report: on the PodGroup, which has the facts (E1), else on the oldest waiting
    pod.
    """
    pod_group = record.pod_group
    if pod_group is not None:
        kind = scheduled_condition(pod_group.api_group, pod_group.version)
        stored = stored_condition(pod_group.status, kind)
        if stored is not None and stored.get("status") == "False":
            return _Told(str(stored.get("reason", "")), str(stored.get("message", "")))

    waiting = [
        pod for pod in record.pods if pod.condition is not None and pod.condition.status == "False"
    ]
    oldest = min(waiting, key=lambda pod: (pod.creation_s, pod.name, pod.uid), default=None)
    if oldest is not None and oldest.condition is not None:
        return _Told(oldest.condition.reason, oldest.condition.message)

    return _Told(NOT_LOOKED_AT)


def _waiting(
    group: GroupRecord | None,
    view: Group | None,
    moment: Moment,
    position: int | None,
) -> Json:
    found: Json = {}
    if group is None or view is None:
        return found

    if position is not None:
        # Its cause may be about other namespaces.
        if group.queue is not QueueState.NEW:
            found["queue"] = group.queue.value

        found |= {"position": position, "before": position - 1}
        if (head := head_of(view)) is not None:
            found["waitingSince"] = format_timestamp(head.since_s)

    if group.decided_s is not None:
        found["lastDecisionAgeSeconds"] = int(max(0.0, moment.now_s - group.decided_s))

    return found


def _next(
    record: GangRecord,
    group: GroupRecord | None,
    reason: str,
    position: int | None,
    moment: Moment,
) -> Json:
    """What happens next to a gang that waits; nothing on a standby, which decides nothing."""
    if group is None or group.verdict is None or reason not in set(Reason):
        return {}

    reserved = group.told_reserved
    aside = group.aside
    retry_s = None if aside is None else moment.wall_s + aside.retry_s - moment.now_s
    step = next_step(
        Reason(reason),
        never=group.verdict.of_gang(record.id).never,
        reservation=reserved.text(record.namespace) if reserved is not None else "",
        before=position - 1 if position is not None else None,
        retry_s=retry_s,
    )
    return {"next": step} if step else {}
