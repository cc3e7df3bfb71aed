"""Evictions that were sent for a nomination and are not answered when it ends (semantics V12, V22).

Invariant: each pod that is evicted gets one Event, and what is told of a lost nomination counts the
evictions, not the answers that happened to come before its end. Evictions that were ordered and not
sent are never answered: after `ANSWERS_S` only those count that the watch shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gangsched.model.protocol import Evicted, EvictionResult, RecordEvent
from gangsched.sentences import preempting
from gangsched.state.group_record import GroupRecord
from gangsched.state.groups import Registry
from gangsched.state.member_store import MemberStore
from gangsched.state.preemption.journal import Journal
from gangsched.state.preemption.nomination import Fate, NominationRecord, Result
from gangsched.state.timers import Timers

ANSWERS_S = 5.0
"""How long answers are waited for: an eviction takes milliseconds, or is sent again."""


@dataclass(frozen=True, slots=True)
class EndedNomination:
    """A nomination that has ended, with its result."""

    record: NominationRecord
    result: Result


class LastAnswers:
    """Ended nominations, by id, until their evictions are answered."""

    def __init__(self, members: MemberStore, registry: Registry, journal: Journal) -> None:
        self._members = members
        self._registry = registry
        self._journal = journal
        self._ended: dict[str, EndedNomination] = {}
        self._until = Timers()

    def next_deadline_s(self) -> float:
        """Time at which `due` must be called even without a message."""
        return self._until.next_s()

    def end(self, record: NominationRecord, result: Result, now_s: float) -> list[RecordEvent]:
        """Record the end of a nomination; returns what is told of it if all is answered."""
        ended = EndedNomination(record, result)
        if not record.of(Fate.ORDERED):
            return self._close(ended)

        self._ended[record.id] = ended
        self._until.set(record.id, now_s + ANSWERS_S)
        return []

    def answered(self, answer: Evicted) -> list[RecordEvent]:
        """Apply an answer that came after the end; nothing if it is of no such nomination."""
        ended = self._ended.get(answer.id)
        if ended is None:
            return []

        fate = ended.record.fates.get(answer.uid)
        if fate is not Fate.ORDERED:
            return []

        events = self._settle(ended.record, answer)
        if not ended.record.of(Fate.ORDERED):
            events += self._close(ended)

        return events

    def due(self, now_s: float) -> list[RecordEvent]:
        """What is told of nominations whose last answers did not come."""
        events: list[RecordEvent] = []
        for id_ in self._until.take_due(now_s):
            ended = self._ended.get(id_)
            if ended is None:
                continue

            record = ended.record
            for uid in record.of(Fate.ORDERED):
                answer = self._seen(record, uid)
                events += self._settle(record, answer)

            events += self._close(ended)

        return events

    def _seen(self, record: NominationRecord, uid: str) -> Evicted:
        """The answer that the watch shows."""
        member = self._members.get(uid)
        is_going = member is not None and member.pod.deleting
        result = EvictionResult.DONE if is_going else EvictionResult.FAILED
        return Evicted(record.id, uid, result, "")

    def _settle(self, record: NominationRecord, answer: Evicted) -> list[RecordEvent]:
        record.settle(answer.uid, answer.result)
        return list(self._journal.answered(record, answer))

    def _close(self, ended: EndedNomination) -> list[RecordEvent]:
        """Forget the nomination, and tell how many pods were evicted for nothing."""
        record = ended.record
        self._ended.pop(record.id, None)
        self._until.drop(record.id)

        in_vain = 0
        if ended.result is not Result.STARTED:
            in_vain = len(record.of(Fate.EVICTED))

        self._journal.closed(record, in_vain)
        group = self._registry.groups.get(record.group)
        if group is None or ended.result is Result.STARTED:
            return []

        return list(self._lost(group, record, in_vain))

    def _lost(
        self,
        group: GroupRecord,
        record: NominationRecord,
        in_vain: int,
    ) -> Iterator[RecordEvent]:
        return self._journal.lost(group, preempting.lost(record.lost, in_vain))
