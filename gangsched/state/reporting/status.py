"""The status of a PodGroup, computed from its members (semantics E3).

Invariant: pure functions; the same members and stored status give the same result, so that a write
without a change is detected. `wall` (RFC 3339) is the transition time of new conditions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from gangsched.api import keys
from gangsched.api.dialects import DIALECTS
from gangsched.api.podgroup import (
    COMPOSITE_INITIALLY_SCHEDULED,
    NATIVE_INITIALLY_SCHEDULED,
    NATIVE_SCHEDULED,
    SCHEDULED,
    Condition,
    PodGroupPhase,
    PodGroupStatus,
    scheduled_condition,
    stored_conditions,
    with_condition,
)
from gangsched.core import findings
from gangsched.model.disruption import DISRUPTION_TARGET, PREEMPTED_BY_SCHEDULER, VICTIM_MESSAGE
from gangsched.model.gang import Gang
from gangsched.model.objects import Phase, PodGroup
from gangsched.model.plan import Verdict
from gangsched.model.reasons import Reason
from gangsched.model.text import counted, cut, named
from gangsched.sentences import say
from gangsched.state.broken_groups import below_minimum
from gangsched.state.gangs import GangRecord
from gangsched.state.members import UNDER_WAY
from gangsched.state.reporting.reservation_reports import Fact
from gangsched.state.reporting.reserved import RESERVED

FACTUAL_TYPES = frozenset(
    {
        SCHEDULED,
        NATIVE_SCHEDULED,
        NATIVE_INITIALLY_SCHEDULED,
        COMPOSITE_INITIALLY_SCHEDULED,
        RESERVED,
    }
)
DEGRADED = "Degraded"
TIMED_OUT = "TimedOut"
INVALID_GANG = "InvalidGang"


@dataclass(frozen=True, slots=True)
class Counts:
    """Members by phase."""

    live: int
    scheduled: int
    running: int
    succeeded: int
    failed: int


def counts(record: GangRecord) -> Counts:
    """Count the members; `scheduled` is the number of members that were bound, including ended
    ones.

    Terminating members do not count, as in P1, because a pod on a dead node stays terminating as
    long as the node is dead.
    """
    pods = [pod for pod in record.pods if not (pod.deleting and pod.live)]
    return Counts(
        live=sum(pod.live for pod in pods),
        scheduled=sum(bool(pod.node_name) for pod in pods),
        running=sum(pod.phase is Phase.RUNNING for pod in pods),
        succeeded=sum(pod.phase is Phase.SUCCEEDED for pod in pods),
        failed=sum(pod.phase is Phase.FAILED for pod in pods),
    )


def phase(count: Counts, min_member: int) -> PodGroupPhase:
    """Phase of the gang; `Failed` only if its minimum can no longer be reached."""
    needed = max(1, min_member)
    if count.succeeded >= needed and count.live == 0:
        return PodGroupPhase.FINISHED
    if count.running + count.succeeded >= needed:
        return PodGroupPhase.RUNNING
    if count.failed and not count.live:
        return PodGroupPhase.FAILED
    if count.scheduled - count.failed >= needed:
        return PodGroupPhase.SCHEDULED
    if count.scheduled - count.failed > 0:
        return PodGroupPhase.SCHEDULING
    if count.live >= needed:
        return PodGroupPhase.PRE_SCHEDULING

    return PodGroupPhase.PENDING


def status(
    record: GangRecord,
    pod_group: PodGroup,
    gang: Gang,
    verdict: Verdict | None,
    *,
    wall: str,
    told: frozenset[str] = frozenset(),
    reserved: Fact | None = None,
) -> dict[str, object]:
    """The whole status to store, as JSON of a merge patch.

    A native PodGroup has no counts, and other components write conditions to it (kube-scheduler's
    DisruptionTarget), so the strategic merge patch for it includes only gangsched's own condition
    types. `told` are condition types written since `pod_group` was read. `reserved` is the
    condition `Reserved`; if it is None, the stored one stays.
    """
    count = counts(record)
    conditions = stored_conditions(pod_group.status)
    facts = _facts(record, pod_group, gang, verdict, count) | (
        {RESERVED: reserved} if reserved is not None else {}
    )

    if (preempted := _preempted(record, gang, conditions, told)) is not None:
        facts[DISRUPTION_TARGET] = preempted

    ours = as_conditions(facts, pod_group, wall)
    for condition in ours:
        old = next((old for old in conditions if old.type == condition.type), None)
        # It says that the gang was scheduled once, which a later loss does not take back.
        if old is not None and old.status == "True" and old.type == NATIVE_INITIALLY_SCHEDULED:
            continue

        # "False" only where "True" may have been read: a PodGroup does not list everything that is
        # not wrong with it.
        if (
            condition.status == "True"
            or condition is ours[0]
            or old is not None
            or condition.type in told
        ):
            conditions = with_condition(conditions, condition)

    # Types that are left out stay as they are under a strategic merge patch.
    if pod_group.api_group == keys.NATIVE:
        types = {condition.type for condition in ours}
        return PodGroupStatus(
            conditions=tuple(condition for condition in conditions if condition.type in types)
        ).to_dict()

    dialect = DIALECTS[pod_group.api_group]
    now = phase(count, gang.min_member)

    phases = dialect.phases
    if dialect.conditions_only and phases is not None:
        has_phase = "phase" in pod_group.status
        return ({} if has_phase else {"phase": phases[now]}) | PodGroupStatus(
            conditions=conditions
        ).to_dict()

    if phases is not None:
        return with_phase(count, phases[now], conditions)

    started = pod_group.status.get("scheduleStartTime")
    # Once set it stays, whichever process set it.
    if started is None and now is not PodGroupPhase.PENDING:
        started = wall

    return _whole(record, count, now, str(started) if started else None, conditions)


def with_phase(count: Counts, phase: str, conditions: tuple[Condition, ...]) -> dict[str, object]:
    """The status of another project's kind: phase, counts and conditions without a generation."""
    told = tuple(
        condition.model_copy(update={"observed_generation": None}) for condition in conditions
    )
    counted = PodGroupStatus(
        running=count.running,
        succeeded=count.succeeded,
        failed=count.failed,
        conditions=told,
    )
    return {"phase": phase, **counted.to_dict()}


def _whole(
    record: GangRecord,
    count: Counts,
    now: PodGroupPhase,
    started: str | None,
    conditions: tuple[Condition, ...],
) -> dict[str, object]:
    # Sorted, so that a status without a change is equal to the stored one and is not written.
    owners = sorted({f"{pod.namespace}/{pod.owner}" for pod in record.pods if pod.owner})
    return PodGroupStatus(
        phase=now,
        occupied_by=",".join(owners),
        scheduled=count.scheduled,
        running=count.running,
        succeeded=count.succeeded,
        failed=count.failed,
        schedule_start_time=started,
        start=record.start.to_dict(),
        conditions=conditions,
    ).to_dict()


def _facts(
    record: GangRecord,
    pod_group: PodGroup,
    gang: Gang,
    verdict: Verdict | None,
    count: Counts,
) -> dict[str, Fact]:
    return {
        scheduled_condition(pod_group.api_group, pod_group.version): _scheduled(
            record,
            gang,
            verdict,
            count,
        ),
        DEGRADED: _degraded(record, gang),
        TIMED_OUT: _timed_out(gang),
        INVALID_GANG: _invalid(record, gang, verdict),
    }


def as_conditions(facts: Mapping[str, Fact], pod_group: PodGroup, wall: str) -> list[Condition]:
    """The conditions of an object, one for each of these facts, which are keyed by type."""
    result: list[Condition] = []
    for kind, (is_true, reason, message) in facts.items():
        result.append(
            Condition(
                type=kind,
                status="True" if is_true else "False",
                reason=reason,
                message=cut(message),
                last_transition_time=wall,
                observed_generation=pod_group.generation or None,
            )
        )

    return result


def has_started(record: GangRecord, gang: Gang) -> bool:
    """Whether one of an object's several gangs is scheduled, or needs no pods."""
    return gang.min_member == 0 or _has_minimum(gang, counts(record))


def _has_minimum(gang: Gang, count: Counts) -> bool:
    return count.scheduled >= max(1, gang.min_member) and count.scheduled > count.failed


def _scheduled(record: GangRecord, gang: Gang, verdict: Verdict | None, count: Counts) -> Fact:
    """Whether the minimum is bound; why not, which binds failed, and what the last round did
    (semantics R4, E1).
    """
    needed = max(1, gang.min_member)
    scheduled = _has_minimum(gang, count)

    refusal = verdict.of_gang(gang.id) if verdict else None
    if refusal is not None and refusal.reason is Reason.SCHEDULED:
        refusal = None

    reason = Reason.SCHEDULED.value
    message = _bound(count, needed)

    if scheduled:
        if refusal is not None and not gang.free_running:
            message += f"; {say(refusal).text}"
    elif refusal is not None:
        reason = refusal.reason.value
        message = say(refusal).text
    elif gang.satisfied and not gang.waiting and not record.of(*UNDER_WAY):
        reason = Reason.WAITING_FOR_MEMBERS.value
        message += (
            f"; {counted(needed - count.scheduled + count.failed, 'member')} lost and not"
            " replaced yet"
        )
    elif count.scheduled or (verdict is not None and verdict.sent):
        reason = "Binding"  # the members are on their way, or some were lost on it
    else:
        lack = findings.waiting_for_members(gang)
        reason = lack.reason.value
        message = say(lack).text

    if faults := record.faults:
        message += f"; {named(faults)}"

    if not scheduled and verdict is not None and verdict.round is not None:
        message += (
            f" (round {verdict.round.number}: {verdict.round.placed} of {verdict.round.present}"
            " placed)"
        )

    return scheduled, reason, message


def _degraded(record: GangRecord, gang: Gang) -> Fact:
    if not below_minimum(gang):
        return False, "Complete", ""

    return True, "BelowMinimum", loss(record, gang)


def loss(record: GangRecord, gang: Gang) -> str:
    """State how many members of a gang below its minimum are left, and where replacements come from
    (semantics B5).
    """
    left = f"{gang.bound + gang.succeeded} of {gang.min_member} members are bound"
    if gang.waiting:
        return (
            f"{left}; the others {'are placed first' if gang.replaces else 'wait in queue order'}"
        )

    owners = sorted(
        {f"{pod.controller_kind} {pod.namespace}/{pod.owner}" for pod in record.pods if pod.owner}
    )
    if not owners:
        return f"{left}; no controller replaces the missing members: create them"

    return f"{left}; {named(owners)} has not replaced the missing members yet"


def _preempted(
    record: GangRecord,
    gang: Gang,
    stored: Iterable[Condition],
    told: frozenset[str],
) -> Fact | None:
    """Whether the gang was evicted whole and has not started again (semantics V22); None if we said
    nothing of it.
    """
    if record.preempted:
        return True, PREEMPTED_BY_SCHEDULER, record.preempted

    # Other components write this type, too, and theirs is not ours to take back.
    ours = any(
        condition.type == DISRUPTION_TARGET and condition.message.startswith(VICTIM_MESSAGE)
        for condition in stored
    )
    if gang.satisfied and (ours or DISRUPTION_TARGET in told):
        return False, "Started", f"{VICTIM_MESSAGE}; it has started again"

    return None


def _timed_out(gang: Gang) -> Fact:
    if not gang.timed_out:
        return False, "NotTimedOut", ""

    return True, Reason.TIMED_OUT.value, "the wait time of the gang has expired"


def _invalid(record: GangRecord, gang: Gang, verdict: Verdict | None) -> Fact:
    problems = [problem.text for problem in record.problems]
    for gang_id, refusal in verdict.gangs if verdict is not None else ():
        if gang_id == gang.id and refusal.reason is Reason.INVALID_GANG:
            problems.append(say(refusal).stable)

    return bool(problems), Reason.INVALID_GANG.value if problems else "Valid", " ".join(problems)


def _bound(count: Counts, needed: int) -> str:
    """Members that are bound or have succeeded; those above the minimum too, once a job has
    outgrown it.
    """
    there = count.scheduled - count.failed
    if there > needed:
        return f"{there} members are bound; the gang needs {needed}"

    failed = (
        f"; {count.failed} {'has' if count.failed == 1 else 'have'} failed" if count.failed else ""
    )
    return f"{there} of {needed} members are bound{failed}"


# --- what is written is compared with what is wanted --------------------------------------------

_ABSENT: dict[str, object] = {
    "occupiedBy": "",
    "scheduled": 0,
    "running": 0,
    "succeeded": 0,
    "failed": 0,
}


def unchanged(wanted: Mapping[str, object], stored: object) -> bool:
    """Whether every field to write is already stored, ignoring transition times and the
    start time.
    """
    if not isinstance(stored, Mapping):
        return False

    return all(
        _bare(key, value) == _bare(key, stored.get(key, _ABSENT.get(key)))
        for key, value in wanted.items()
    )


def facts_aside(status: Mapping[str, object]) -> dict[str, object]:
    """The status without the messages of the conditions `Scheduled` and `Reserved`, whose counts
    and times change often.
    """
    entries = (
        entry | {"message": ""} if entry["type"] in FACTUAL_TYPES else entry
        for entry in _entries(status)
    )
    return {**status, "conditions": list(entries)}


def stored_condition(status: Mapping[str, object], kind: str) -> Mapping[str, object] | None:
    """Stored condition of a type; None if there is none."""
    return next((entry for entry in _entries(status) if entry.get("type") == kind), None)


def condition_types(status: Mapping[str, object]) -> frozenset[str]:
    """Types of the conditions in a status."""
    return frozenset(str(entry["type"]) for entry in _entries(status))


def _entries(status: Mapping[str, object]) -> Iterator[dict[str, object]]:
    conditions = status.get("conditions")
    return (
        dict(entry)
        for entry in (conditions if isinstance(conditions, list) else ())
        if isinstance(entry, Mapping)
    )


def _bare(key: str, value: object) -> object:
    # Set once, and in another second by each process that looks: only whether it is there counts.
    if key == "scheduleStartTime":
        return value is not None

    if key == "conditions" and isinstance(value, list):
        entries = _entries({key: value})
        # It is the time of this look where nothing changed.
        return [
            {name: field for name, field in entry.items() if name != "lastTransitionTime"}
            for entry in entries
        ]

    return value
