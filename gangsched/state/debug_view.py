"""The state of a gang as plain JSON values, for debugging.

Invariant: read-only. It shows names, counts and messages of gangs and members, but no other data of
pods. Times are seconds relative to `now_s`, because values of a monotonic clock are meaningless
outside the process.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TypeAlias

from msgspec import structs

from gangsched.api.dialects import api_version
from gangsched.api.slice_layers import format_slices
from gangsched.api.timestamps import format_timestamp
from gangsched.core.search.domains import best_domains
from gangsched.core.topology import level_summaries
from gangsched.model.gang import Refusal
from gangsched.model.objects import Phase
from gangsched.model.preemption import NotHelpful
from gangsched.model.resources import format_quantity
from gangsched.sentences import say
from gangsched.state.avoided import not_over
from gangsched.state.broken_groups import broken
from gangsched.state.gangs import GangRecord
from gangsched.state.glance import glance_ledger
from gangsched.state.group_record import GroupRecord, QueueState
from gangsched.state.members import Member, State
from gangsched.state.scheduling import SchedulingState

Json: TypeAlias = dict[str, object]

MEMBER_STATES = (
    "pending",
    "held",
    "waiting for claims",
    "binding",
    "bound",
    "kept",
    "retry",
    "gated",
    "terminating",
    "foreign",
    "succeeded",
    "failed",
)
GOING = frozenset({State.WITHDRAWN, State.TERMINATING, State.DELETED})


def list_gangs(state: SchedulingState) -> list[Json]:
    """One entry for each gang of this scheduler and each waiting plain pod, by name."""
    result: list[Json] = []
    for gang_id in sorted(state.registry.gangs):
        if state.registry.gangs[gang_id].ours:
            result.append(_line(state, state.registry.gangs[gang_id]))

    return result


def describe_gang(state: SchedulingState, gang_id: str, *, now_s: float) -> Json | None:
    """State of one gang ("ns/name"; a plain pod is "pod:ns/name"); None for an unknown id."""
    record = state.registry.gangs.get(gang_id)
    if record is None:
        return None

    group = state.registry.groups.get(state.registry.group_of.get(gang_id, ""))
    return {
        **_line(state, record),
        "ours": record.ours,
        "satisfied": record.permit is not None,
        "podGroup": _pod_group(record),
        "spec": _spec(record),
        "problems": [problem.text for problem in record.problems],
        "members": _members(record),
        "roomForMembersToCome": Counter(
            placement.node for placement in state.coming.shown().get(gang_id, ())
        ),
        "domains": _domains(state, group, now_s),
        **_of_group(state, group, now_s),
    }


def list_levels(state: SchedulingState) -> list[Json]:
    """The levels that nodes have, the finest first; nodes without the label are in no domain."""
    keys = ("kubernetes.io/hostname", *state.registry.policy.topology_keys)
    result: list[Json] = []

    for level_summary in level_summaries(keys, state.snapshot().table):
        result.append(level_summary._asdict())

    return result


def list_reservations(state: SchedulingState) -> list[Json]:
    """Current reservations, in the order of heads (semantics H15)."""
    result: list[Json] = []
    for reservation in state.reports.reservations.standing:
        result.append(
            {
                "group": reservation.group,
                "kind": "fence" if reservation.is_fence else "timed",
                "first": reservation.first,
                "at": _time(reservation.at_s),
                "promised": _time(reservation.promised_s),
                "waitingSince": _time(reservation.since_s),
                "runTimeS": reservation.run_time_s if reservation.run_time_s < math.inf else None,
                "nodes": list(reservation.nodes),
                "empty": reservation.empty if reservation.is_fence else None,
                "waitsFor": [blocker.id for blocker in reservation.waits_for],
            }
        )

    return result


def _time(at_s: float) -> str | None:
    if at_s < math.inf:
        return format_timestamp(int(at_s))

    return None


def _line(state: SchedulingState, record: GangRecord) -> Json:
    """The summary; a gang that came since the last turn of the loop has no verdict, minimum or
    group yet.
    """
    group_id = state.registry.group_of.get(record.id, "")
    group = state.registry.groups.get(group_id)
    verdict = _verdict(record, group)

    return {
        "gang": record.id,
        "group": group_id,
        "plain": record.plain,
        "min": record.spec.min_member if record.spec else (1 if record.plain else None),
        "counts": {kind: len(found) for kind, found in members_by_state(record).items() if found},
        "reason": verdict.reason.value if verdict else "",
        "message": say(verdict).text if verdict else "",
        "queue": state.queue.part(group_id),
    }


def _verdict(record: GangRecord, group: GroupRecord | None) -> Refusal | None:
    """The last decision about this gang of the group."""
    verdict = group.told_verdict if group is not None else None
    if verdict is None:
        return None

    return verdict.of_gang(record.id)


def _pod_group(record: GangRecord) -> Json | None:
    pod_group = record.pod_group
    if pod_group is None:
        return None

    version = api_version(pod_group.api_group, pod_group.version)
    return {
        "apiVersion": version,
        "uid": pod_group.uid,
        "generation": pod_group.generation,
        "deleting": pod_group.deleting,
    }


def _spec(record: GangRecord) -> Json | None:
    """Each value and its source (semantics I3), under the names of `GangSpec.sources`."""
    spec = record.spec
    if spec is None or record.plain:
        return None

    values: Json = {
        "min": spec.min_member,
        "total": spec.total,
        "mode": spec.mode.value,
        "wait time": spec.wait_time_s,
        "groups": list(spec.group),
        "match policy": spec.match_policy.value,
        "minResources": {
            name: format_quantity(name, amount) for name, amount in spec.min_resources
        },
        "shared GPUs": spec.constraints.allow_shared,
        "GPU product": "same" if spec.constraints.same_product else "any",
        "topology": ",".join(spec.constraints.topology),
        # all that is required, whoever asks for it
        "topology for Kueue": ",".join(spec.constraints.topology),
        "preferred topology": spec.constraints.preferred,
        "slices": format_slices(spec.constraints.slices),
        "preemption delay": spec.preemption_delay_s,
        "parent": spec.parent,
        "min children": "all" if spec.min_children is None else spec.min_children,
        **dict(spec.rare),
    }
    return {name: {"value": values.get(name), "source": source} for name, source in spec.sources}


def members_by_state(record: GangRecord) -> dict[str, list[Member]]:
    """Names of members by state."""
    found: dict[str, list[Member]] = {kind: [] for kind in MEMBER_STATES}
    for member in sorted(record.members.values(), key=lambda member: member.pod.key):
        found[_kind(member)].append(member)

    return found


def _kind(member: Member) -> str:
    """The state as users know it."""
    if member.state is State.ENDED:
        if member.pod.phase is Phase.SUCCEEDED:
            return "succeeded"

        return "failed"

    if member.state in GOING:
        return "terminating"

    return member.state.value


def _members(record: GangRecord) -> Json:
    return {
        kind: [_member(member, kind) for member in members]
        for kind, members in members_by_state(record).items()
        if members
    }


def _member(member: Member, kind: str) -> Json:
    pod = member.pod
    told: Json = {"pod": pod.key, "uid": pod.uid}

    if node := member.node or pod.node_name:
        told["node"] = node

    if kind == "foreign":
        told["schedulerName"] = pod.scheduler_name

    if pod.status_reason:
        told["status"] = pod.status_reason

    if pod.timed_out or member.marking:
        told["timedOut"] = True

    return told


def _domains(state: SchedulingState, group: GroupRecord | None, now_s: float) -> list[Json]:
    """The best domains of the levels that a waiting group requires, by the room that is
    free now.
    """
    if group is None:
        return []

    ledger = glance_ledger(state, state.snapshot(), now_s)
    domains: list[Json] = []

    for domain_room in best_domains(state.registry.group(group.id, now_s), ledger):
        domains.append(domain_room._asdict())

    return domains


def _of_group(state: SchedulingState, group: GroupRecord | None, now_s: float) -> Json:
    """Round, clock and other values that the gangs of a group share (semantics R4, T1, D1, B6)."""
    if group is None:
        nothing = dict.fromkeys(("lastRound", "clock", "nomination", "preemption"))
        return {"broken": False, "rounds": 0, **nothing, "yieldedTo": "", "avoid": {}}

    verdict = group.verdict
    round_ = verdict.round if verdict else None
    view = state.registry.group(group.id, now_s)
    clock: Json | None = None

    if group.clock_s is not None:
        ran_s = now_s - group.clock_s
        clock = {
            "ranS": round(ran_s, 1),
            "waitTimeS": view.wait_time_s,
            "leftS": round(view.wait_time_s - ran_s, 1),
        }

    return {
        "gangsOfGroup": list(group.gangs),
        "state": _state(group, now_s),
        "broken": any(broken(gang) for gang in view.gangs),
        "rounds": group.rounds,
        "lastRound": structs.asdict(round_) if round_ is not None else None,
        "notes": _notes(state, group),
        "clock": clock,
        "nomination": _nomination(state, group, now_s),
        "preemption": _not_helpful(group),
        "yieldedTo": group.yielded_to,
        "avoid": {
            node: {"cause": row.cause.value, "seconds": round(row.until_s - now_s, 1)}
            for node, row in sorted(not_over(group.avoid, now_s).items())
        },
    }


def _state(group: GroupRecord, now_s: float) -> Json:
    """The states of the group, and what brought it there (Q3, H3)."""
    until_s = group.back_off_until_s
    why = (
        group.ineligible.why
        if group.ineligible is not None
        else group.not_reserved or group.told_not_reserved
    )
    return {
        "queue": group.queue.value,
        "cause": group.cause.value if group.cause is not None else "",
        "parkedS": round(now_s - group.parked_s, 1) if group.queue is QueueState.PARKED else None,
        "backOffS": round(until_s - now_s, 1) if until_s is not None and until_s > now_s else None,
        "needs": [{"pods": need.count, "within": list(need.within)} for need in group.needs],
        "beingPreempted": group.taken is not None,
        "entitlement": group.entitlement.value,
        "notReserved": (
            {"why": why.why.value, "until": _time(why.until_s)} if why is not None else None
        ),
    }


def _nomination(state: SchedulingState, group: GroupRecord, now_s: float) -> Json | None:
    """How far room is made for the group: nodes, what becomes of each victim, and the harm
    (semantics V8, V23).
    """
    record = group.nomination
    if record is None:
        return None

    harm = record.decision.harm
    return {
        "stage": record.stage.value,
        "nodes": {nominee.pod.key: nominee.node for nominee in record.nominees.values()},
        "victims": [
            {
                "pod": f"{each.namespace}/{each.name}",
                "node": each.node,
                "unit": each.kind,
                "fate": record.fates[uid],
            }
            for uid, each in record.victims.items()
        ],
        "awaited": len(record.awaited),
        "deadlineS": round(state.preemptions.nominations.deadline_s(record) - now_s, 1),
        "harm": harm._asdict() if harm is not None else None,
        "lost": record.lost,
    }


def _not_helpful(group: GroupRecord) -> Json | None:
    """Why preemption could not help the group, with the amounts that were found (semantics V21)."""
    found = group.verdict.preemption if group.verdict is not None else None
    if not isinstance(found, NotHelpful):
        return None

    amounts = ("pods", "room", "needed", "allowed", "amount", "seconds", "name")
    return {
        "why": found.why.value,
        **{name: value for name in amounts if (value := getattr(found, name))},
    }


def _notes(state: SchedulingState, group: GroupRecord) -> list[Json]:
    """The last verdict's messages about single members."""
    pods = {pod.uid: pod for gang_id in group.gangs for pod in state.registry.gangs[gang_id].pods}
    notes = group.verdict.notes if group.verdict else ()
    result: list[Json] = []

    for uid, refusal in notes:
        if uid in pods:
            result.append(
                {"pod": pods[uid].key, "reason": refusal.reason.value, "message": say(refusal).text}
            )

    return result
