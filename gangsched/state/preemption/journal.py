"""Events and metrics of nominations (semantics V22, V23).

Invariant: no decisions are made here. The Event about a gang is written when the last of its
evictions in a nomination is answered, because the Event contains the final number of evictions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from gangsched.model.disruption import VICTIM_MESSAGE
from gangsched.model.preemption import UnitKind, Victim
from gangsched.model.protocol import Evicted, EvictionResult, ObjectRef, RecordEvent
from gangsched.model.reasons import EventReason
from gangsched.sentences import preempting
from gangsched.state.group_record import GroupRecord
from gangsched.state.groups import Registry
from gangsched.state.preemption.nomination import Fate, NominationRecord, Result
from gangsched.state.reporting.gang_events import gang_ref

ACTION = "Preempting"


@dataclass(slots=True)
class NominationCounts:
    """Counts since the last call. `seconds` are durations of nominations, by result."""

    attempts: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    victims: defaultdict[UnitKind, int] = field(default_factory=lambda: defaultdict(int))
    gangs_stopped: int = 0
    lost_accelerator_seconds: float = 0.0
    evicted_in_vain: int = 0
    seconds: list[tuple[Result, float]] = field(default_factory=list)


class Journal:
    """Writes Events and counts; reads gangs of `registry`."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._counts: NominationCounts | None = None

        # By the ids of a nomination and of a gang: its members before the evictions, a number that
        # an Event names.
        self._bound: dict[tuple[str, str], int] = {}

    def take_counts(self) -> NominationCounts | None:
        """Counts since the last call; None if all are 0."""
        counts = self._counts
        self._counts = None
        return counts

    def _count(self) -> NominationCounts:
        self._counts = self._counts or NominationCounts()
        return self._counts

    def attempt(self, result: str) -> None:
        """Record that preemption was evaluated for a group."""
        self._count().attempts[result] += 1

    def evicting(self, record: NominationRecord) -> None:
        """Record that the evictions of a nomination were requested."""
        gang_ids = {victim.gang for victim in record.victims.values() if victim.gang}
        for gang_id in gang_ids:
            if gang_id in self._registry.gangs:
                view = self._registry.view(gang_id)
                self._bound[record.id, gang_id] = view.bound

        harm = record.decision.harm
        if record.victims and harm is not None:
            counts = self._count()
            counts.gangs_stopped += len(record.decision.stopped)
            counts.lost_accelerator_seconds += harm.work_lost / 1000

    def ended(self, result: Result, seconds: float) -> None:
        """Record the end of a nomination."""
        self._count().seconds.append((result, seconds))

    def closed(self, record: NominationRecord, in_vain: int) -> None:
        """Record that the last eviction of an ended nomination is answered."""
        self._count().evicted_in_vain += in_vain
        own = [key for key in self._bound if key[0] == record.id]
        for key in own:
            del self._bound[key]

    def started(self, group: GroupRecord) -> None:
        """Once all evicted members are replaced, clear the message that gangs of the group were
        preempted.
        """
        for gang_id in group.gangs:
            self._registry.gangs[gang_id].preempted = ""

    def lost(self, group: GroupRecord, text: str) -> Iterator[RecordEvent]:
        """Event of a nomination that ended without a start."""
        for ref in self._refs(group):
            yield RecordEvent(ref, EventReason.NOMINATION_LOST, text, action=ACTION, warning=True)

    def delayed(self, group: GroupRecord, victim: Victim, message: str) -> Iterator[RecordEvent]:
        """Event of an eviction that a PodDisruptionBudget blocks for now."""
        for ref in self._refs(group):
            text = preempting.delayed(victim, ref, message)
            yield RecordEvent(
                ref,
                EventReason.PREEMPTION_DELAYED,
                text,
                action=ACTION,
                warning=True,
            )

    def answered(self, record: NominationRecord, answer: Evicted) -> Iterator[RecordEvent]:
        """Events of an eviction that the API server answered."""
        victim = record.victims[answer.uid]
        by = self._beneficiary(record)
        if by is None:
            return

        if answer.result is EvictionResult.DONE:
            self._count().victims[victim.kind] += 1
            if (
                victim.is_of_whole
                and (evicted_gang := self._registry.gangs.get(victim.gang)) is not None
            ):
                evicted_gang.preemptions += not evicted_gang.preempted
                evicted_gang.preempted = VICTIM_MESSAGE

            ref = ObjectRef("v1", "Pod", victim.namespace, victim.name, victim.uid)
            yield RecordEvent(
                ref,
                EventReason.PREEMPTED,
                preempting.preempted_pod(victim, by),
                action=ACTION,
            )

        gang = self._registry.gangs.get(victim.gang)
        if gang is None:
            return

        # Evictions are answered about as they were ordered, so of thousands the last one tells at
        # once.
        of_gang = (
            record.fates[uid]
            for uid, each in reversed(record.victims.items())
            if each.gang == victim.gang
        )
        if any(fate is Fate.ORDERED for fate in of_gang):
            return

        evicted = sum(
            record.fates[uid] is Fate.EVICTED
            for uid in record.victims
            if record.victims[uid].gang == gang.id
        )
        bound = self._bound.get((record.id, victim.gang), evicted)

        ref_of_gang = gang_ref(gang)
        if not evicted or ref_of_gang is None:
            return

        least = self._registry.view(victim.gang).min_member
        text = preempting.preempted_gang(victim.kind, evicted, bound, least, by, victim.namespace)
        yield RecordEvent(ref_of_gang, EventReason.PREEMPTED, text, action=ACTION)

    def _refs(self, group: GroupRecord) -> Iterator[ObjectRef]:
        """The objects of the group's own gangs, on which its Events are written."""
        for gang_id in group.gangs:
            record = self._registry.gangs[gang_id]
            if not record.ours:
                continue

            ref = gang_ref(record)
            if ref is not None:
                yield ref

    def _beneficiary(self, record: NominationRecord) -> ObjectRef | None:
        """Whom room is made for: the PodGroup of the first gang, else its pod."""
        group = self._registry.groups.get(record.group)
        if group is None:
            return None

        first = group.gangs[0]
        return gang_ref(self._registry.gangs[first])
