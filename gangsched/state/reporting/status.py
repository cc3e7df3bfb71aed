"""The status of a PodGroup, computed from its members (semantics E3).

Invariant: pure functions; the same members and stored status give the same result, so that a write
without a change is detected. `wall` (RFC 3339) is the transition time of new conditions.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Set

from msgspec import structs

from gangsched.api import keys
from gangsched.api.dialects import DIALECTS
from gangsched.api.podgroup import (
    NATIVE_INITIALLY_SCHEDULED,
    NATIVE_SATISFIED,
    Condition,
    PodGroupPhase,
    PodGroupStatus,
    scheduled_condition,
    stored_conditions,
    with_condition,
)
from gangsched.core import findings
from gangsched.model.disruption import DISRUPTION_TARGET, PREEMPTED_BY_SCHEDULER, VICTIM_MESSAGE
from gangsched.model.gang import Gang, MatchPolicy, Refusal
from gangsched.model.objects import Phase, PodGroup
from gangsched.model.plan import Verdict
from gangsched.model.reasons import GangReason, Reason
from gangsched.model.text import counted, cut, is_or_are, named
from gangsched.model.verdict_facts import HomeFull
from gangsched.sentences import capital, say
from gangsched.state.gangs import GangRecord
from gangsched.state.members import STARTED, UNDER_WAY, State
from gangsched.state.reporting.conditions import shown_reason
from gangsched.state.reporting.gang_phase import Counts, Life, phase
from gangsched.state.reporting.reservation_reports import Fact
from gangsched.state.reporting.reserved import RESERVED

DEGRADED = "Degraded"
TIMED_OUT = "TimedOut"
INVALID_GANG = "InvalidGang"


LIVE = frozenset(
    {
        State.GATED,
        State.FOREIGN,
        State.PENDING,
        State.HELD,
        State.WAITING_FOR_CLAIMS,
        State.BINDING,
        State.BOUND,
        State.KEPT,
        State.RETRY,
    }
)
"""The states of members that have neither ended nor are going.

Terminating members do not count, as in P1, because a pod on a dead node stays terminating as long
as the node is dead.
"""
WAITS = LIVE - STARTED
"""Those of them that wait for a node."""


def counts(record: GangRecord, by_state: Counter[State] | None = None) -> Counts:
    """Count the members of the gang's start by what became of them (semantics E8), given
    `record.by_state()` if that is known.
    """
    if by_state is None:
        by_state = record.by_state()

    running = 0
    if State.BOUND in by_state:
        phases = [member.pod.phase for member in record.of(State.BOUND)]
        running = phases.count(Phase.RUNNING)

    members = Counts(
        live=_number(by_state, LIVE),
        bound=by_state[State.BOUND],
        running=running,
    )
    # What became of an earlier start is none of this one's business.
    if _begins_anew(record, by_state):
        return members

    start = record.start
    return structs.replace(
        members,
        succeeded=start.succeeded,
        failed=start.failed,
        deleted=start.deleted,
    )


def _number(by_state: Counter[State], states: Set[State]) -> int:
    """The members in any of these states."""
    return sum([number for state, number in by_state.items() if state in states])


def _begins_anew(record: GangRecord, by_state: Counter[State]) -> bool:
    """Whether the members that wait begin another start than the one that is remembered."""
    waits = not WAITS.isdisjoint(by_state)
    return waits and STARTED.isdisjoint(by_state) and record.permit is None


def life_of(record: GangRecord, gang: Gang, now_s: float = math.inf) -> Life:
    """What the phase of a gang depends on at a monotonic second."""
    since_s = record.reported.quiet_since_s
    by_state = record.by_state()
    is_exempt = gang.match_policy is MatchPolicy.ONLY_WAITING
    return Life(
        count=counts(record, by_state),
        min_member=gang.min_member,
        is_binding=not UNDER_WAY.isdisjoint(by_state),
        started=_number(by_state, STARTED),
        is_waiting=not WAITS.isdisjoint(by_state),
        has_controller=bool(record.start.controllers),
        quiet_s=now_s - since_s if since_s is not None else 0.0,
        # Members that run are no part of the next start of an only-waiting gang (B1): none of them
        # is missed.
        has_started=gang.satisfied and not gang.plain and not is_exempt,
        started_with=gang.permitted_min,
    )


def status(
    record: GangRecord,
    pod_group: PodGroup,
    gang: Gang,
    verdict: Verdict | None,
    life: Life,
    *,
    wall: str,
    told: frozenset[str] = frozenset(),
    reserved: Fact | None = None,
    waits: Refusal | None = None,
) -> dict[str, object]:
    """The whole status to store, as JSON of a merge patch.

    A native PodGroup has no counts, and other components write conditions to it (kube-scheduler's
    DisruptionTarget), so the strategic merge patch for it includes only gangsched's own condition
    types. `told` are condition types written since `pod_group` was read. `reserved` is the
    condition `Reserved`; if it is None, the stored one stays. `waits` is what the gang waits for
    where its verdict no longer says it.
    """
    conditions = stored_conditions(pod_group.status)
    facts = _facts(record, pod_group, gang, verdict, life, waits)
    if reserved is not None:
        facts[RESERVED] = reserved

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
    now = phase(life)

    phases = dialect.phases
    if dialect.conditions_only and phases is not None:
        has_phase = "phase" in pod_group.status
        return ({} if has_phase else {"phase": phases[now]}) | PodGroupStatus(
            conditions=conditions
        ).to_dict()

    if phases is not None:
        return with_phase(life.count, phases[now], conditions)

    started = pod_group.status.get("scheduleStartTime")
    # Once set it stays, whichever process set it.
    if started is None and now is not PodGroupPhase.PENDING:
        started = wall

    return _whole(record, pod_group, life, str(started) if started else None, conditions)


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
    pod_group: PodGroup,
    life: Life,
    started: str | None,
    conditions: tuple[Condition, ...],
) -> dict[str, object]:
    # Sorted, so that a status without a change is equal to the stored one and is not written.
    owners = sorted({f"{pod.namespace}/{pod.owner}" for pod in record.pods if pod.owner})
    occupied_by = ",".join(owners)
    # Whose pods are cleaned away is still whose work the counts are about.
    if not record.members:
        occupied_by = str(pod_group.status.get("occupiedBy") or "")

    count = life.count
    return PodGroupStatus(
        phase=phase(life),
        occupied_by=occupied_by,
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
    life: Life,
    waits: Refusal | None,
) -> dict[str, Fact]:
    kind = scheduled_condition(pod_group.api_group, pod_group.version)
    facts = {
        kind: _scheduled(record, gang, verdict, life, waits),
        DEGRADED: _degraded(record, gang, verdict, life),
        TIMED_OUT: _timed_out(gang),
        INVALID_GANG: _invalid(record, gang, verdict),
    }
    # A PodGroup with the policy `basic` has no minimum.
    if pod_group.api_group == keys.NATIVE and gang.min_member:
        facts[NATIVE_SATISFIED] = _satisfied(gang, verdict, life)

    return facts


def _satisfied(gang: Gang, verdict: Verdict | None, life: Life) -> Fact:
    """Whether a native PodGroup has its minimum now, in the words of KEP-6413, and which room it
    waits for (semantics E8, L6).
    """
    text = f"{life.count.done} of {life.needed} members scheduled"
    if life.is_scheduled:
        return True, "MinCountSatisfied", text

    waits = _waits_at_home(gang, verdict) if verdict is not None else None
    if waits is not None:
        text = f"{text}; {say(waits).text}"

    return False, "BelowMinCount", text


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
    return gang.min_member == 0 or life_of(record, gang).is_scheduled


def _scheduled(
    record: GangRecord,
    gang: Gang,
    verdict: Verdict | None,
    life: Life,
    waits: Refusal | None,
) -> Fact:
    """Whether the minimum is bound; why not, and which binds failed (semantics R4, E1)."""
    refusal = waits if waits is not None else _refusal(gang, verdict, life)
    scheduled = life.is_scheduled
    reason, message = _why(record, gang, refusal, life)

    if scheduled and refusal is not None and not gang.free_running:
        message += f"; {say(refusal).text}"

    if faults := record.faults:
        more = f". {counted(len(faults) - 1, 'more bind')} failed" if len(faults) > 1 else ""
        message += f". {capital(faults[0])}{more}"

    return scheduled, reason, message


def _refusal(gang: Gang, verdict: Verdict | None, life: Life) -> Refusal | None:
    """Why members of the gang wait; None if none does, whatever was decided before."""
    # A verdict stays after the last member that it was about, and for a gang beside whose siblings
    # wait.
    if verdict is None or (life.count.scheduled and not life.is_waiting):
        return None

    refusal = verdict.of_gang(gang.id)
    return None if refusal.reason is Reason.SCHEDULED else refusal


def _why(
    record: GangRecord,
    gang: Gang,
    refusal: Refusal | None,
    life: Life,
) -> tuple[str, str]:
    """Reason and sentence of the condition `Scheduled`."""
    if (ended := _ended(life)) is not None:
        return ended

    there = _bound(life)
    if life.is_scheduled:
        return Reason.SCHEDULED.value, there
    if refusal is not None:
        return shown_reason(refusal).value, say(refusal).text
    if life.is_binding:
        return GangReason.BINDING.value, there
    if record.of(State.KEPT, State.RETRY):
        return Reason.BACK_OFF.value, there

    if gang.satisfied and not life.is_waiting:
        return Reason.WAITING_FOR_MEMBERS.value, f"{there}{_not_replaced(life)}"

    lack = findings.waiting_for_members(gang)
    return lack.reason.value, say(lack).text


def _ended(life: Life) -> tuple[str, str] | None:
    """Reason and sentence of a gang whose members have ended or are gone; None for any other."""
    now = phase(life)
    count = life.count
    deleted = f"{counted(count.deleted, 'member')} {_was(count.deleted)} deleted"

    if now is PodGroupPhase.FINISHED:
        return Reason.SCHEDULED.value, _of(count.succeeded, life.needed, "succeeded")

    if now is PodGroupPhase.FAILED:
        parts = [_of(count.failed, life.needed, "failed")]
        parts += [f"{count.succeeded} succeeded"] if count.succeeded else []
        parts += [f"{count.deleted} {_was(count.deleted)} deleted"] if count.deleted else []
        return GangReason.MEMBERS_FAILED.value, "; ".join(parts)

    if now is not PodGroupPhase.UNKNOWN:
        return None

    if not count.deleted:
        missing = life.needed - count.succeeded
        succeeded = _of(count.succeeded, life.needed, "succeeded")
        text = f"{succeeded}; {missing} {is_or_are(missing)} missing"
        return Reason.WAITING_FOR_MEMBERS.value, text

    return GangReason.MEMBERS_DELETED.value, f"{deleted}; {count.succeeded} succeeded"


def _degraded(
    record: GangRecord,
    gang: Gang,
    verdict: Verdict | None,
    life: Life,
) -> Fact:
    if not life.is_degraded:
        return False, "Complete", ""

    text = loss(record, gang)
    waits = _waits_at_home(gang, verdict) if verdict is not None else None
    if waits is not None and not record.deadlock:
        have = gang.bound + gang.succeeded
        text = f"{have} of {gang.min_member} members run; {say(waits).text}"

    return True, "BelowMinimum", text


def _waits_at_home(gang: Gang, verdict: Verdict) -> Refusal | None:
    """The refusal of a member that waits for room at the gang's home (semantics L6)."""
    notes = dict(verdict.notes)
    for pod in (*gang.retry, *gang.pending):
        refusal = notes.get(pod.uid)
        if refusal is not None and isinstance(refusal.fact, HomeFull):
            return refusal

    return None


def loss(record: GangRecord, gang: Gang) -> str:
    """State how many members of a gang below its minimum are left, and where replacements come from
    (semantics B5).
    """
    left = f"{gang.bound + gang.succeeded} of {gang.min_member} members are bound"
    if gang.waiting and record.deadlock:
        return f"{left}; {record.deadlock}"
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


def _bound(life: Life) -> str:
    """Members that are bound or have succeeded; those above the minimum too, once a job has
    outgrown it.
    """
    count = life.count
    if count.done > life.needed:
        return f"{count.done} members are bound; the gang needs {life.needed}"

    # Once they are replaced they are no news.
    has = "has" if count.failed == 1 else "have"
    failed = f"; {count.failed} {has} failed" if count.failed and not life.is_scheduled else ""
    return f"{count.done} of {life.needed} members are bound{failed}"


def _not_replaced(life: Life) -> str:
    """What follows on the members that are there and that have failed: how many are gone."""
    count = life.count
    gone = life.needed - count.done - count.failed
    if gone > 0:
        return f"; {counted(gone, 'member')} lost and not replaced yet"

    return f" and {is_or_are(count.failed)} not replaced yet"


def _of(number: int, needed: int, did: str) -> str:
    """How many members did something, beside the minimum."""
    has = "has" if number == 1 else "have"
    if number > needed:
        return f"{number} members {has} {did}; the gang needs {needed}"

    return f"{number} of {needed} members {has} {did}"


def _was(number: int) -> str:
    return "was" if number == 1 else "were"
