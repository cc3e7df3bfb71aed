"""Reports: what has changed since the last report, and when the next one is due (semantics E1-E4).

Invariant: a verdict is reported once it has not changed for `settle_s`, or at once if it nominates
pods, and only if it differs from the last report. If only counts change, the report is written no
more often than its text allows. Reports never change a decision. The texts come from `conditions`,
`status` and `gang_events`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gangsched.api.timestamps import parse_timestamp
from gangsched.model.fault import not_planned
from gangsched.model.gang import Gang, Refusal
from gangsched.model.objects import Pod, PodGroup
from gangsched.model.plan import Verdict
from gangsched.model.protocol import (
    Bound,
    Outcome,
    RecordEvent,
    Report,
    SetPodCondition,
    SetPodGroupStatus,
)
from gangsched.model.reasons import EventReason, Reason
from gangsched.model.reservation import Reservations
from gangsched.model.wait_facts import SchedulingPaused
from gangsched.sentences import say
from gangsched.state.gangs import GangRecord
from gangsched.state.group_record import GroupRecord
from gangsched.state.groups import Registry
from gangsched.state.members import UNDER_WAY, Member, State
from gangsched.state.reporting import composites
from gangsched.state.reporting.conditions import FACTS_S, PodCondition, pod_conditions, progress
from gangsched.state.reporting.current_waits import ClaimLookup, CurrentWaits
from gangsched.state.reporting.gang_events import LASTING, gang_ref, lasting, pod_ref
from gangsched.state.reporting.gang_phase import QUIET_S, Life
from gangsched.state.reporting.reported import Start, WrittenStatus
from gangsched.state.reporting.reservation_reports import ReservationReports
from gangsched.state.reporting.reserved import RESERVED
from gangsched.state.reporting.status import has_started, life_of, status
from gangsched.state.reporting.stored import (
    condition_types,
    facts_aside,
    has_ended,
    is_finished,
    stored_condition,
    unchanged,
    written_on,
)
from gangsched.state.rule_set import Rules
from gangsched.state.timers import Timers

RESTORE_S = 60.0
"""How long after our own write a status that somebody else overwrote is restored, at the earliest:
so each other writer causes one write a minute at most.
"""
LOOKS_PER_TURN = 2_000
LOOKS_AFTER_A_PLAN = 500
LOOKS_PER_GANG = 12
"""Pods that one turn looks at for its reports, also after a plan, which has taken most of the
turn's time; and what a gang counts for beside its pods: 10,000 gangs that wait for another reason
took 0.4 s of one turn. Groups that are left are due in the next turn.
"""


@dataclass(frozen=True, slots=True)
class _Moment:
    """When is told: `wall` in RFC 3339, `wall_s` since the epoch; in a `hurry`, nothing waits for
    its time.
    """

    now_s: float
    wall: str
    wall_s: int
    hurry: bool


class Reports:
    """When the next report of each group is due; the last reports are in the gang's record."""

    def __init__(
        self,
        groups: Mapping[str, GroupRecord],
        rules: Rules,
        claims: ClaimLookup,
    ) -> None:
        self._groups = groups
        self._settle_s = rules.settle_s
        self.waits = CurrentWaits(claims)
        self._due = Timers()
        self.reservations = ReservationReports(rules.reservations, groups)

        #: Receives the group whose report raised, the exception and the time.
        self.fails: Callable[[str, Exception, float], None] = _raise

    def reserved(self, reservations: Reservations, *, now_s: float, wall_s: float) -> None:
        """Record the reservations after a plan; changes are reported once they have lasted for a
        while.
        """
        for group_id in self.reservations.update(reservations, wall_s=wall_s):
            self.note(group_id, now_s)

    def note(self, group_id: str, now_s: float, *, at_once: bool = False) -> None:
        """Report a changed group once it no longer changes, or `at_once`."""
        self._look_at(group_id, now_s if at_once else now_s + self._settle_s)

    def pause(self, reason: str, now_s: float) -> None:
        """Report that an administrator paused scheduling for this reason, "" if it goes on."""
        paused = Refusal(Reason.PAUSED, SchedulingPaused(reason)) if reason else None
        if paused != self.waits.paused:
            self.waits.paused = paused
            self.note_all(self._groups, now_s)

    def note_all(self, groups: Iterable[str], now_s: float) -> None:
        """Report changed groups once they no longer change."""
        for group_id in groups:
            self.note(group_id, now_s)

    def answered(self, record: GangRecord, member: Member, outcome: Outcome) -> None:
        """Record that the bind of one of the gang's members was answered."""
        start = record.reported.start = record.reported.start or Start()
        if isinstance(outcome, Bound):
            start.bound += 1
        else:
            where = f" on node {outcome.node}" if outcome.node else ""
            start.refused.append(f"pod {member.pod.key}{where}: {outcome.message}")

    def next_deadline_s(self) -> float:
        """Time at which the next report is due."""
        return self._due.next_s()

    def take(
        self,
        registry: Registry,
        *,
        now_s: float,
        wall: str,
        everything: bool = False,
        is_after_plan: bool = False,
    ) -> list[Report]:
        """Reports that are due, the earliest first: as many as one turn has time for, which are
        fewer after a plan, or all pending ones with `everything`.
        """
        until_s = math.inf if everything else now_s
        left = math.inf if everything else LOOKS_PER_TURN
        if is_after_plan:
            left = LOOKS_AFTER_A_PLAN

        if self._due.next_s() > until_s:
            return []

        reports: list[Report] = []
        moment = _Moment(now_s, wall, parse_timestamp(wall) or 0, hurry=everything)
        taken: set[str] = set()
        while left > 0 and (group_id := self._due.take_next(until_s)) is not None:
            # A report may ask for a later look, which `everything` would take at once, and again.
            if everything and group_id in taken:
                continue

            taken.add(group_id)
            group = registry.groups.get(group_id)
            if group is not None:
                try:
                    reports += list(self._group(group, registry, moment))
                except Exception as error:  # of this group (I10)
                    self.fails(group_id, error, now_s)
                    reports += _plain_reports(group, registry)

                # Charged afterwards, so that a gang of more pods than one turn looks at is
                # reported, too.
                left -= LOOKS_PER_GANG * (len(group.gangs) + len(group.accused))
                left -= sum(len(registry.gangs[gang_id].members) for gang_id in group.gangs)

        return reports

    def announce(self, record: GangRecord, verdict: Verdict) -> list[RecordEvent]:
        """The Events about a verdict that are written even if the verdict changes at once
        (semantics T2, D1).
        """
        refusal = verdict.told.told_in(record.namespace)
        sentences = say(refusal)
        return list(
            self._event(
                record, refusal.reason.value, sentences.stable, text=sentences.text, once=True
            )
        )

    def _look_at(self, group_id: str, at_s: float) -> None:
        self._due.set_sooner(group_id, at_s)

    def _too_soon(self, group_id: str, at_s: float, moment: _Moment) -> bool:
        """Whether something is not to be written before `at_s`; it is looked at again then."""
        if moment.hurry or moment.now_s >= at_s:
            return False

        self._look_at(group_id, at_s)
        return True

    def _group(self, group: GroupRecord, registry: Registry, moment: _Moment) -> Iterator[Report]:
        faults = _told_faults(registry.gangs[gang_id] for gang_id in group.gangs)

        for gang_id in group.gangs:
            record = registry.gangs[gang_id]
            gang = registry.view(gang_id)
            verdict = self._verdict(group, record, moment)
            told = record.reported.pods
            conditions = [*progress(self.waits.of_members(record, moment.now_s, moment.wall_s))]

            if verdict is not None:
                conditions += pod_conditions(
                    record,
                    gang,
                    verdict,
                    faults.get(record.namespace, ()),
                    has_conditions=registry.definitions.has_conditions(record.pod_group),
                )

            if conditions:
                for pod, wanted in conditions:
                    yield from self._tell_pod(group.id, gang, pod, wanted, told, moment)

                # Pods come and go under a gang that stays: without this its record would grow with
                # each replacement.
                if len(told) > 2 * len(record.members):
                    record.reported.pods = {
                        uid: said for uid, said in told.items() if uid in record.members
                    }

            if record.plain or not record.ours:
                continue

            yield from self._tell_gang(
                record,
                gang,
                verdict,
                self._wrong(record, gang, registry),
            )
            yield from self._tell_status(
                group,
                *_spoken_for(record, gang, group, registry),
                verdict,
                registry,
                moment,
            )

        yield from self._tell_composites(group, registry, moment)
        for accused in group.accused:  # the other side of a mismatch (semantics I4)
            assert group.refusal is not None
            if group not in registry.accusers(accused):
                continue

            yield from self._event(
                registry.gangs[accused],
                Reason.INVALID_GANG.value,
                say(group.refusal).stable,
            )

    def _wrong(
        self,
        record: GangRecord,
        gang: Gang,
        registry: Registry,
    ) -> Iterator[tuple[str, str]]:
        """What is wrong with a gang for as long as it is."""
        # Of a PodGroup whose pods are gone an earlier process has told: a restart is no news.
        if record.members or record.reported.events:
            yield from lasting(record, gang, registry.accusers(gang.id))

    def _verdict(
        self,
        group: GroupRecord,
        record: GangRecord,
        moment: _Moment,
    ) -> Verdict | None:
        """The group's verdict as it is reported of one of its gangs; None if there is none."""
        waits = self.waits.of_gang(record, moment.now_s, moment.wall_s)
        if waits is not None and waits.reason is Reason.PAUSED:
            return Verdict(group=group.id, generation=group.generation, told=waits)
        if group.verdict is None:
            return None

        completed = self.reservations.completed(group.verdict, record.namespace)
        if group.not_asking is None:
            return completed

        return completed.while_not_asking(group.not_asking)

    def _tell_composites(
        self,
        group: GroupRecord,
        registry: Registry,
        moment: _Moment,
    ) -> Iterator[Report]:
        """The status of CompositePodGroups of the tree, and, once for each, what they ask for
        without effect.
        """
        if not any(registry.gangs[gang_id].ours for gang_id in group.gangs):
            return

        for name, composite in composites.composites(group, registry):
            record = registry.gangs[name]
            pod_group = record.pod_group
            if pod_group is None:
                continue

            for text in {*pod_group.not_used} - {text for _, text in record.reported.events}:
                record.reported.events |= {(EventReason.NOT_USED.value, text)}
                if (ref := gang_ref(record)) is not None:
                    yield RecordEvent(ref, EventReason.NOT_USED.value, text, warning=True)

            wanted = composites.status(pod_group, composite, group, registry, moment.wall)
            if wanted is not None:
                yield from self._write_status(
                    group.id,
                    record,
                    pod_group,
                    wanted,
                    moment,
                    urgent=True,
                )

    def _tell_pod(
        self,
        group_id: str,
        gang: Gang,
        pod: Pod,
        wanted: PodCondition,
        told: dict[str, tuple[PodCondition, float]],
        moment: _Moment,
    ) -> Iterator[Report]:
        """The pod's condition, if it is new."""
        # After a restart the stored condition is what was reported last: 10,000 waiting pods cause
        # no write.
        before, at_s = told.get(pod.uid) or (_stored(pod, wanted), -math.inf)
        if before is not None and (before.reason, before.text) == (wanted.reason, wanted.text):
            # A report that stands keeps its time; one found stored after a restart counts as made
            # now.
            told.setdefault(pod.uid, (wanted, moment.now_s))
            return

        is_same = before is not None and (before.reason, before.message) == (
            wanted.reason,
            wanted.message,
        )
        if is_same and self._too_soon(group_id, at_s + wanted.repeat_s, moment):
            return

        told[pod.uid] = (wanted, moment.now_s)
        yield SetPodCondition(pod.uid, pod.namespace, pod.name, wanted.reason.value, wanted.text)

        # kube-scheduler has an Event for each failed attempt. For members that would be thousands
        # with every changed count; the gang has its own.
        is_other = before is None or before.reason is not wanted.reason
        if (gang.plain or is_other) and not wanted.progress:
            yield RecordEvent(
                pod_ref(pod),
                EventReason.FAILED_SCHEDULING,
                wanted.text,
                warning=True,
            )

    def _tell_gang(
        self,
        record: GangRecord,
        gang: Gang,
        verdict: Verdict | None,
        wrong: Iterator[tuple[str, str]],
    ) -> Iterator[Report]:
        """Events on the PodGroup (or the oldest pod): what is wrong for as long as it is, starts,
        changed verdicts.
        """
        refusal = verdict.of_gang(gang.id) if verdict is not None else None
        problems = list(wrong)
        is_lasting = refusal is not None and refusal.reason is Reason.INVALID_GANG
        true = (
            {*problems, (refusal.reason.value, say(refusal).stable)}
            if refusal and is_lasting
            else set(problems)
        )
        over = [said for said in record.reported.events if said[0] in LASTING and said not in true]

        # A problem that comes back after it was gone is reported again.
        record.reported.events = record.reported.events.difference(over)
        for reason, text in problems:
            yield from self._event(record, reason, text)

        start = record.reported.start
        # One Event for the whole start, once the last of its binds is answered, and not one for
        # each pod.
        if start is not None and not record.of(*UNDER_WAY):
            record.reported.start = None
            if start.text:
                yield from self._event(
                    record,
                    EventReason.GANG_SCHEDULED,
                    start.text,
                    warning=False,
                    once=True,
                )

        if refusal is not None and refusal.reason is not Reason.SCHEDULED:
            warning = refusal.reason is not Reason.PREEMPTING
            said = say(refusal)
            yield from self._event(
                record,
                refusal.reason.value,
                said.stable,
                text=said.text,
                warning=warning,
                once=True,
            )

    def _event(
        self,
        record: GangRecord,
        reason: str,
        message: str,
        *,
        text: str = "",
        warning: bool = True,
        once: bool = False,
    ) -> Iterator[RecordEvent]:
        """An Event on the gang that says `text`, unless one with this `message`, the part that does
        not move, was told.

        `once` things replace each other, so a return to them is news.
        """
        told = record.reported.events
        if (reason, message) in told or not record.ours:
            return

        if once:
            told = frozenset(said for said in told if said[0] in LASTING)

        record.reported.events = told | {(reason, message)}
        ref = gang_ref(record)
        if ref is not None:
            yield RecordEvent(ref, reason, text or message, warning=warning)

    def _tell_status(
        self,
        group: GroupRecord,
        writer: GangRecord,
        record: GangRecord,
        gang: Gang,
        verdict: Verdict | None,
        registry: Registry,
        moment: _Moment,
    ) -> Iterator[SetPodGroupStatus]:
        pod_group = writer.pod_group
        if pod_group is None or not pod_group.speaks:
            return

        reported = record.reported
        reported.first = reported.first or (pod_group.uid, moment.now_s)

        written = written_on(writer, pod_group)
        if written is None and _is_of_unknown_start(record, pod_group):
            return

        life = self._life(group, record, gang, pod_group, moment)
        told = condition_types(written.status) if written else frozenset[str]()
        reserved = self.reservations.condition(
            group,
            record,
            verdict,
            stored_condition(pod_group.status, RESERVED),
        )
        wanted = status(
            record,
            pod_group,
            gang,
            verdict,
            life,
            wall=moment.wall,
            told=told,
            reserved=reserved,
            waits=self.waits.of_gang(record, moment.now_s, moment.wall_s),
        )

        # Its controller may be about to create the next members: one write tells of the end, unless
        # pods are gone already, which only the status remembers.
        stored = written.status if written is not None else pod_group.status
        is_remembered = wanted.get("start") == stored.get("start")
        if life.is_done and life.may_go_on and is_remembered and not moment.hurry:
            return

        # Conditions that are dropped are no reason to write. They go along with other changes,
        # which shows whether a new definition stores them.
        if not registry.definitions.has_conditions(pod_group):
            rest = {name: value for name, value in wanted.items() if name != "conditions"}
            if unchanged(rest, written.status if written else pod_group.status):
                return

        # To the API server a status costs as much as 1.5 to 2 binds. That of a gang at rest waits
        # for a pause between binds, so that a gang that starts and ends meanwhile is told once.
        urgent = gang.waiting or 0 < gang.quorum < gang.min_member
        yield from self._write_status(group.id, writer, pod_group, wanted, moment, urgent=urgent)

    def _life(
        self,
        group: GroupRecord,
        record: GangRecord,
        gang: Gang,
        pod_group: PodGroup,
        moment: _Moment,
    ) -> Life:
        """What the phase of the gang depends on; a gang that may have ended is looked at again."""
        reported = record.reported
        if not life_of(record, gang).is_over:
            reported.quiet_since_s = None
        elif reported.quiet_since_s is None:
            # Of a gang that an earlier process reported as finished nothing new is awaited.
            was_finished = is_finished(pod_group)
            reported.quiet_since_s = -math.inf if was_finished else moment.now_s

        life = life_of(record, gang, moment.now_s)
        if life.is_done and life.may_go_on and reported.quiet_since_s is not None:
            self._look_at(group.id, reported.quiet_since_s + QUIET_S)

        return life

    def _write_status(
        self,
        group_id: str,
        writer: GangRecord,
        of: PodGroup,
        wanted: dict[str, object],
        moment: _Moment,
        *,
        urgent: bool,
    ) -> Iterator[SetPodGroupStatus]:
        """The status of the object, unless it is stored, only counts differ from one that was just
        written, or another writer changed it after we had just written it.
        """
        written = written_on(writer, of)
        restores = False

        if written is None:
            if unchanged(wanted, of.status):
                return
        elif written.is_shown and unchanged(written.kept, of.status):
            # What is stored is ours, and perhaps conditions of others.
            if unchanged(_without(wanted, written.dropped), of.status):
                return
        elif unchanged(wanted, written.status):
            if not written.is_shown and not written.is_contested:
                return

            # Two writers that each correct the other at once would never end.
            if self._too_soon(group_id, written.at_s + RESTORE_S, moment):
                return

            restores = True

        only_facts = written is not None and unchanged(
            facts_aside(wanted),
            facts_aside(written.status),
        )
        if (
            written is not None
            and only_facts
            and not restores
            and self._too_soon(group_id, written.at_s + FACTS_S, moment)
        ):
            return

        writer.reported.status = WrittenStatus(of.uid, wanted, moment.now_s)
        yield SetPodGroupStatus(
            of.api_group,
            of.version,
            of.namespace,
            of.object_name,
            of.uid,
            wanted,
            urgent=urgent,
            restores=restores,
        )


def _raise(group_id: str, error: Exception, now_s: float) -> None:
    raise error


def _plain_reports(group: GroupRecord, registry: Registry) -> Iterator[Report]:
    """What is told of a group whose report cannot be made: that it is set aside, from its pods
    alone (I10).
    """
    if group.aside is None:
        return

    told = not_planned(group.aside.reference)
    for record in (registry.gangs[gang] for gang in group.gangs if gang in registry.gangs):
        for pod in (member.pod for member in record.of(State.PENDING, State.RETRY, State.KEPT)):
            yield SetPodCondition(
                pod.uid, pod.namespace, pod.name, told.reason.value, say(told).text
            )

        ref = gang_ref(record)
        if ref is not None:
            yield RecordEvent(ref, told.reason.value, say(told).text, warning=True)


def _without(status: Mapping[str, object], fields: frozenset[str]) -> dict[str, object]:
    return {key: value for key, value in status.items() if key not in fields}


def _is_of_unknown_start(record: GangRecord, pod_group: PodGroup) -> bool:
    """Whether an ended gang without pods was reported by an earlier process, whose PodGroup cannot
    store what a start is remembered by: what is reported is all that is known.
    """
    return not record.members and record.start.stamp is None and has_ended(pod_group)


def _spoken_for(
    record: GangRecord,
    gang: Gang,
    group: GroupRecord,
    registry: Registry,
) -> tuple[GangRecord, GangRecord, Gang]:
    """Who writes the status of a gang's object, and the gang of which it tells.

    Of several gangs of one object the first writes, and tells of the first that is not scheduled,
    if possible of one that does not just wait for another.
    """
    if record.pod_group is None or not record.pod_group.of_object:
        return record, record, gang

    others = [(registry.gangs[other], registry.view(other)) for other in group.gangs]
    unstarted = [(of, view) for of, view in others if not has_started(of, view)]
    verdict = group.verdict

    def waits_for_another(other: tuple[GangRecord, Gang]) -> bool:
        refusal = verdict.of_gang(other[1].id) if verdict is not None else None
        if refusal is None:
            return False

        return refusal.is_of_a_sibling() or refusal.reason is Reason.WAITING_FOR_GANG

    return record, *min(unstarted, key=waits_for_another, default=(record, gang))


def _stored(pod: Pod, wanted: PodCondition) -> PodCondition | None:
    """The pod's stored condition, for example after a restart."""
    condition = pod.condition
    # Another scheduler's reasons say nothing about what we reported.
    if condition is None or condition.status != "False" or condition.reason not in set(Reason):
        return None

    return PodCondition(
        Reason(condition.reason),
        condition.message,
        condition.message,
        wanted.repeat_s,
    )


def _told_faults(records: Iterable[GangRecord]) -> Mapping[str, Sequence[str]]:
    """The failures of binds of a group, as they are told in each namespace of its gangs."""
    told: dict[str, list[str]] = {}
    for record in records:
        told.setdefault(record.namespace, []).extend(record.faults)

    if not any(told.values()):
        return {}

    # Its text names pods and claims, which are not for this namespace to know (I4).
    elsewhere = ["a bind of a gang of another namespace failed"]
    return {namespace: texts or elsewhere for namespace, texts in told.items()}
