"""Nominations in progress: how they begin, proceed and end (semantics V10-V14, V16).

Invariant: pods are evicted only after everything that a restart needs is written and a final check
found no change. Every nomination ends: the group starts, the room is lost, or the deadline passes.
`_end` then releases its reserved room.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Set, ValuesView
from itertools import count
from operator import attrgetter

from msgspec import structs

from gangsched.model.gang import Refusal, gang_to_come, is_to_come
from gangsched.model.plan import Verdict
from gangsched.model.preemption import STUCK_S, Preemption
from gangsched.model.protocol import (
    Action,
    CancelPreemption,
    Evict,
    Evicted,
    EvictionDelayed,
    EvictionResult,
    PreemptionPrepared,
    PreparePreemption,
    RecordEvent,
)
from gangsched.model.reasons import Reason
from gangsched.sentences import preempting, say
from gangsched.state.avoided import AvoidCause, AvoidedNode, avoid
from gangsched.state.cluster import Cluster
from gangsched.state.group_record import GroupRecord, QueueCause
from gangsched.state.groups import Registry
from gangsched.state.member_store import MemberStore
from gangsched.state.preemption import awaited, back_off, last_look, nominees
from gangsched.state.preemption.journal import Journal
from gangsched.state.preemption.last_answers import LastAnswers
from gangsched.state.preemption.next_looks import NextLooks
from gangsched.state.preemption.nomination import (
    Fate,
    NominationRecord,
    Nominee,
    Result,
    Stage,
    new_record,
    nominated,
    references,
)
from gangsched.state.preemption.promised import Promised
from gangsched.state.preemption.taken import TakenGroups
from gangsched.state.queueing.queue import Queue
from gangsched.state.reporting.reports import Reports
from gangsched.state.rule_set import Rules

CHANGED = "the group has changed since it was nominated"
HANDED_ON = (Fate.MARKED, Fate.ORDERED, Fate.WITHDRAWN)
"""The fates of victims that another nomination may evict instead."""


class Nominations:
    """Nominations by group and by id. It also updates `cluster`, `registry` and the queue. `looks`
    counts checks.
    """

    def __init__(
        self,
        members: MemberStore,
        cluster: Cluster,
        registry: Registry,
        queue: Queue,
        reports: Reports,
        rules: Rules,
    ) -> None:
        self.looks = 0
        self.journal = Journal(registry)
        self.last_answers = LastAnswers(members, registry, self.journal)
        self.taken = TakenGroups(members, registry, queue)
        self._members = members
        self._registry = registry
        self._queue = queue
        self._reports = reports
        self._avoid_s = rules.avoid_s
        self._max_wait_s = rules.preemption.max_wait_s
        self._of_group: dict[str, NominationRecord] = {}
        self._of_id: dict[str, NominationRecord] = {}
        self._serial = count(1)
        self.promised = Promised(members, cluster)
        self._stale: set[str] = set()
        self._next_looks = NextLooks()

        # What to add to monotonic seconds for those since the epoch. Set by each `look`, since the
        # wall clock may jump.
        self.offset_s = 0.0

    # --- what is asked of them -------------------------------------------------------------------

    def of(self, group_id: str) -> NominationRecord | None:
        """Nomination of a group."""
        return self._of_group.get(group_id)

    def all(self) -> ValuesView[NominationRecord]:
        """All nominations."""
        return self._of_group.values()

    def victims(self) -> Set[str]:
        """Uids of all victims, a live view."""
        return self.promised.victims()

    def wants(self, order: Evict) -> bool:
        """Whether an eviction may be sent (again): its nomination exists and still needs it (V13),
        or a part of its gang was evicted (V12).
        """
        record = self._of_id.get(order.id)
        if record is None or order.uid not in record.victims:
            return False
        if not record.lost or record.may_go(order.uid):
            return True

        return self.promised.heir(record, order.uid) is not None

    def told(self, groups: Iterable[GroupRecord]) -> dict[str, Refusal]:
        """By group, the status to report while a nomination is in progress (semantics V20)."""
        records = (
            record for group in groups if (record := self._of_group.get(group.id)) is not None
        )
        return {record.group: record.told or self._told(record) for record in records}

    def next_deadline_s(self) -> float:
        """Time at which `look` must be called even without a message."""
        return min(self._next_looks.next_s(), self.last_answers.next_deadline_s())

    def obstacle(self, group: str, decision: Preemption, now_s: float) -> str:
        """Why a decision that is not carried out yet is no longer valid, "" if it is valid."""
        # A record of its own, promised only while it is compared with the promises of all others.
        record = self._record(group, decision, now_s)
        self.promised.keep(record)

        try:
            return self.promised.room().obstacle(record, record.placements)
        finally:
            self.promised.drop(record)

    def changed(self, group_id: str) -> None:
        """Check the nomination of a group that has changed."""
        if (record := self._of_group.get(group_id)) is not None:
            self._stale.add(record.id)

    def follow(self) -> None:
        """Update how much of the promised room is in use, before other groups are woken for free
        room.
        """
        self.promised.follow()

    def opened(self, nodes: Set[str]) -> None:
        """Reservations leave more room on these nodes. Nobody who is nominated there is woken for
        it, since that room is promised.
        """
        self.promised.look_at(nodes)

    def waits(self, group: GroupRecord) -> bool:
        """Whether changes of the group need no plan, because the same pods still wait for room."""
        record = self._of_group.get(group.id)
        if record is None or record.lost or group.verdict is None:
            return False

        return record.waiting == nominees.waiting(group, self._registry).keys()

    # --- the life of one -------------------------------------------------------------------------

    def begin(
        self,
        group: GroupRecord,
        decision: Preemption,
        now_s: float,
    ) -> list[Action]:
        """Begin a committed decision: promise its room, and write everything that a restart needs
        (V13).
        """
        record = self._record(group.id, decision, now_s)
        self._of_group[group.id] = self._of_id[record.id] = record
        self._next_looks.timers.set(record.id, now_s)
        record.waiting = frozenset(nominees.waiting(group, self._registry))
        self.promised.keep(record)

        for victim in decision.victims:
            if victim.is_of_whole:
                self.taken.take(victim.group, victim.uid)

        group.nomination = record
        self._registry.changed(group.id)

        # At once, so that one write nominates a pod and says why it waits.
        self._reports.note(group.id, now_s, at_once=True)
        return [PreparePreemption(record.id, record.members, references(record.marked_first))]

    def _record(
        self,
        group: str,
        decision: Preemption,
        now_s: float,
    ) -> NominationRecord:
        """A new one; a victim is that of one nomination, and others only wait for it."""
        serial = next(self._serial)
        planned_s = decision.deadline_s - STUCK_S - self.offset_s - now_s
        wait_s = min(max(0.0, planned_s), self._max_wait_s)
        named = []
        for placement in decision.placements:
            uid = placement.pod.uid
            gang = gang_to_come(uid) or self._members[uid].gang
            named.append(Nominee(placement.pod, placement.node, gang))

        return new_record(
            f"{group}@{int(now_s + self.offset_s)}.{serial}",
            group,
            self._registry.group(group, now_s).priority,
            serial,
            decision,
            named,
            self.promised.victims(),
            began_s=now_s,
            deadline_s=now_s + STUCK_S + wait_s,
        )

    def prepared(self, answer: PreemptionPrepared) -> None:
        """Record the result of the writes that let a nomination survive a restart; evictions begin
        once all succeed.
        """
        record = self._of_id.get(answer.id)
        if record is None:
            return

        record.unwritten -= 1
        if record.stage is Stage.PREPARING and answer.failed:
            others = nominees.nameless(record.victims.values(), record.group, self._registry)
            self._lose(record, preempting.not_nominated(answer.failed, others))
        elif record.stage is Stage.PREPARING and not record.unwritten:
            record.stage = Stage.PREPARED if record.of(Fate.MARKED) else Stage.EVICTING
            self._queue.activate(record.group, QueueCause.NOMINATION_CHANGED)

    def evicted(self, answer: Evicted, now_s: float) -> tuple[RecordEvent, ...]:
        """Apply the API server's answer to an eviction (semantics V14)."""
        record = self._of_id.get(answer.id)
        if record is None:
            return tuple(self.last_answers.answered(answer))

        # Its victim may have been left to another nomination.
        if record.fates.get(answer.uid) is not Fate.ORDERED:
            return ()

        held = record.holds
        victim = record.victims[answer.uid]
        record.settle(answer.uid, answer.result)

        match answer.result:
            case EvictionResult.DONE:
                self._count_from(record, now_s)
            case EvictionResult.FORBIDDEN:
                self._lose(record, f"evictions are forbidden: {answer.message}")
            case EvictionResult.BLOCKED | EvictionResult.FAILED:
                others = nominees.nameless([victim], record.group, self._registry)
                self._lose(record, preempting.not_evicted(victim, answer.message, named=not others))

        self._release(record, held)
        if record.resumable:
            self._stale.add(record.id)

        # Before the last answer it has no earlier end than the longest wait. To search thousands of
        # victims for that at each of as many answers costs a turn's time, so the nomination is
        # checked once a second instead.
        self._next_looks.timers.set_sooner(
            record.id,
            max(now_s, record.counted_s + awaited.RECOUNT_S),
        )
        self._reports.note(victim.group, now_s)

        return tuple(self.journal.answered(record, answer))

    def delayed(self, answer: EvictionDelayed) -> tuple[RecordEvent, ...]:
        """Record that a PodDisruptionBudget blocks an eviction, which is retried
        (semantics V14).
        """
        record = self._of_id.get(answer.id)
        group = self._registry.groups.get(record.group) if record is not None else None
        if record is None or group is None or answer.uid not in record.victims:
            return ()

        return tuple(self.journal.delayed(group, record.victims[answer.uid], answer.message))

    def look(self, now_s: float, wall_s: float) -> list[Action]:
        """Check nominations that are due or affected by changes, some at a time; `wall_s` is in
        epoch seconds.
        """
        self.offset_s, self.promised.wall_s, self.promised.work = wall_s - now_s, wall_s, 0
        self.taken.refresh()
        self.promised.follow()
        whole = self._stale.union(self._next_looks.timers.take_due(now_s))
        self._stale = set()
        stale = {**self.promised.stale(), **{each: set[str]() for each in whole}}
        changed = self._records(each for each, on in stale.items() if not on)

        # One after the other, since each step asks what all have come to in the one before it.
        actions: list[Action] = [*self.last_answers.due(now_s)]
        for record in changed:
            actions += self._follow(record, now_s)

        # The places of those who have room were given up just now.
        self.promised.forget_used_up()
        self._next_looks.now(stale)

        chosen = self._next_looks.take()
        if nodes := set[str]().union(*chosen.values()):
            # All at once: each node by itself takes as long as all of them.
            self.promised.room().keeps(nodes)

        for record in self._records(chosen):
            actions += self._look_at(record, chosen[record.id], now_s)

        return actions

    def _records(self, ids: Iterable[str]) -> list[NominationRecord]:
        """The nominations with these ids, the oldest first."""
        return sorted(filter(None, map(self._of_id.get, ids)), key=attrgetter("serial"))

    def planned(self, group: GroupRecord, verdict: Verdict, now_s: float) -> list[Action]:
        """Begin, continue or end the nomination after a committed verdict on the group."""
        record = self._of_group.get(group.id)
        started = bool(verdict.binds) and nominees.is_whole(group, self._registry)
        if started:
            back_off.reset(group)
            self.journal.started(group)

        if record is None:
            if isinstance(verdict.preemption, Preemption):
                return self.begin(group, verdict.preemption, now_s)

            return []

        if started:
            return self._end(record, Result.STARTED, now_s)

        placed = (*verdict.binds, *verdict.holds)
        if placed:
            self.promised.use_up(record, placed)
        if record.lost and not record.holds:
            return self._end(record, Result.EXPIRED if record.expired else Result.LOST, now_s)
        if record.stage is Stage.PREPARED and not record.lost:
            return self._evict(record, now_s)

        return []

    def give_up(self, group: GroupRecord, verdict: Verdict, now_s: float) -> list[Action]:
        """End the nomination of a group that is set aside (I10)."""
        record = self._of_group.get(group.id)
        if record is None:
            return []

        self._lose(record, say(verdict.told).stable)
        return self.planned(group, verdict, now_s)

    def _follow(self, record: NominationRecord, now_s: float) -> list[Action]:
        """Follow changes of the group, and those who left for it."""
        if resumed := record.resumable:
            return self._order(record, resumed)

        group = self._registry.groups.get(record.group)
        if group is None or not nominees.waiting(group, self._registry):
            if not record.lost:
                self._lose(record, "its pods are gone")

            if record.holds:
                return []

            return self._end(record, Result.LOST, now_s)

        # A group that was formed again, of other gangs, has a new record: what was decided was for
        # other members.
        if group.nomination is not record:
            group.nomination = record
            self._lose(record, CHANGED)

        return self._nominee(record, group, now_s)

    def _look_at(
        self,
        record: NominationRecord,
        nodes: Set[str],
        now_s: float,
    ) -> list[Action]:
        """See whether it can go on, and when to look again; at these nodes only, if any
        are named.
        """
        self.looks += 1
        group = self._registry.groups.get(record.group)
        if group is None or self._of_group.get(record.group) is not record:
            return []

        again_s = record.counted_s + awaited.RECOUNT_S
        if not awaited.counted_recently(record, now_s):
            again_s = math.inf
            record.ends_s = self.deadline_s(record)
            record.counted_s = now_s
            self._tell_anew(record, group, now_s)

        if now_s >= record.ends_s:
            record.expired = record.expired or not record.lost
            self._lose(record, "the victims did not terminate in time")

        self._give_way(record, nodes)
        vacant = (
            nominee.vacant_s + nominees.VACANT_S
            for nominee in record.nominees.values()
            if nominee.vacant_s is not None
        )
        again_s = math.inf if record.lost else min((record.ends_s, again_s, *vacant))
        self._next_looks.timers.set(record.id, again_s)

        if not record.lost and self.promised.has_room(
            record,
            self._registry.group(record.group, now_s),
        ):
            self._queue.activate(record.group, QueueCause.NOMINATION_CHANGED)

        if not record.inherited:
            return []

        inherited = record.inherited
        record.inherited = []
        record.unwritten += 1

        return [PreparePreemption(record.id, (), references(inherited))]

    def _give_way(self, record: NominationRecord, nodes: Set[str]) -> None:
        """Where the room of all promises is not enough any more, one after the other is lost."""
        # Each loss gives others room, so it is asked again; what is lost may be this nomination or
        # one beside it.
        while not record.lost and not (nodes and self.promised.room().keeps(nodes)):
            places = self.promised.unplaced(record, nodes)
            room = self.promised.room()

            cause = room.obstacle(record, places)
            if not cause:
                return

            loser = room.gives_way(record, places)
            assert isinstance(loser, NominationRecord)
            self._lose(loser, cause)

    def _nominee(
        self,
        record: NominationRecord,
        group: GroupRecord,
        now_s: float,
    ) -> list[Action]:
        """Follow changes of the group's members: who replaces one takes over its node (V12)."""
        before = record.nominees
        after = nominees.settled(record.nominees, group, self._registry, now_s)
        priority = self._registry.group(group.id, now_s).priority
        if after != before or priority != record.priority:
            record.nominees = after
            record.priority = priority
            self.promised.keep(record)

        if not after or nominees.is_short(after, group, self._registry, now_s):
            self._lose(record, CHANGED)

        there = nominees.waiting(group, self._registry)
        if before.keys() != after.keys():
            self._queue.activate(group.id, QueueCause.NOMINATION_CHANGED)

        record.waiting = frozenset(there)
        left = [
            nominated(before[uid].placement) for uid in before.keys() - after.keys() if uid in there
        ]
        moved = (
            each
            for uid, each in after.items()
            if uid not in before or before[uid].node != each.node
        )
        new = [nominated(nominee.placement) for nominee in moved if not is_to_come(nominee.pod.uid)]
        actions: list[Action] = [CancelPreemption(f"{record.id}/left", tuple(left))] if left else []

        if new:
            record.unwritten += 1
            actions.append(PreparePreemption(record.id, tuple(new), ()))

        return actions

    def _evict(self, record: NominationRecord, now_s: float) -> list[Action]:
        """The last look, and the evictions (V13, 3 and 4)."""
        # Without all writes a restart would not know whom the room is for; a vacant place waits for
        # its next pod.
        if record.unwritten or len(record.placements) < len(record.nominees):
            return []

        # From here on, evictions are sent: whatever changed since the decision must be seen before.
        places = self.promised.unplaced(record)
        room = self.promised.room()
        cause = (
            last_look.changed(record, self._registry, self.victims())
            or room.obstacle(record, places)
            or room.admits(places)
        )

        if cause:
            self._lose(record, cause)
            if record.holds:
                return []

            return self._end(record, Result.LOST, now_s)

        for uid in last_look.needless(record, self._members, room, places):
            self.taken.give_back(record.victims[uid].group, uid)
            self.promised.stays(uid)
            record.remove(uid)

        record.stage = Stage.EVICTING
        self._count_from(record, now_s)
        self.journal.evicting(record)
        return self._order(record, record.of(Fate.MARKED))

    def _order(
        self,
        record: NominationRecord,
        uids: list[str],
    ) -> list[Action]:
        """Order the evictions of these victims."""
        record.order(uids)
        if record.group in self._registry.groups:
            self._registry.changed(record.group)

        evict: list[Action] = []

        for victim in map(record.victims.__getitem__, uids):
            evict.append(
                Evict(
                    record.id,
                    victim.uid,
                    victim.namespace,
                    victim.name,
                    record.deadline_s,
                    delete=record.breaks_budgets,
                )
            )

        return evict

    def _end(
        self,
        record: NominationRecord,
        result: Result,
        now_s: float,
    ) -> list[Action]:
        """Give back what it took; evictions that are not sent are not sent any more (V12)."""
        # First of all, so that no eviction is sent any more (`wants`) and no other nomination
        # counts on it.
        del self._of_group[record.group], self._of_id[record.id]
        self._next_looks.timers.drop(record.id)
        members = record.members
        self._hand_on(record)
        self.promised.drop(record)
        evicted = {uid for uid in record.victims if self.promised.was_evicted(record, uid)}

        for uid, victim in record.victims.items():
            if uid not in evicted:
                self.taken.give_back(victim.group, uid)

        in_vain = len(evicted) if result is not Result.STARTED else 0
        self.journal.ended(result, now_s - record.began_s)
        told = self.last_answers.end(record, result, now_s)

        # The API server ignores the nominated node of a bound pod, so these need no write.
        unbound = tuple(
            nominated_member
            for nominated_member in members
            if not self._members.node_of(nominated_member.uid)
        )
        actions: list[Action] = [CancelPreemption(record.id, unbound), *told]

        group = self._registry.groups.get(record.group)
        if group is None:
            return actions

        group.nomination = None
        self._registry.changed(group.id)
        self._queue.activate(group.id, QueueCause.NOMINATION_CHANGED)

        if result is not Result.STARTED:
            self._queue.wake_at(group.id, back_off.failed(group, now_s, harmed=in_vain > 0))

        if result is Result.EXPIRED:
            # Where pods do not end in time, it would only wait again.
            for uid in (*record.victims, *record.awaited):
                if node := self._members.node_of(uid):
                    row = AvoidedNode(AvoidCause.STUCK, now_s + self._avoid_s)
                    avoid(group.avoid, node, row)

        return actions

    def lose_all(self, cause: str) -> None:
        """End every nomination: none of them may evict any more."""
        for record in list(self.all()):
            self._lose(record, cause)

    def _lose(self, record: NominationRecord, cause: str) -> None:
        """It cannot succeed; it ends when the group is refused again, for it may fit elsewhere
        (V11).
        """
        if not record.lost:
            record.lost = cause
            held = record.holds
            self._hand_on(record)
            self.promised.changed()
            self._release(record, held)

        self._queue.activate(record.group, QueueCause.NOMINATION_CHANGED)

    def _release(self, record: NominationRecord, held: Refusal | None) -> None:
        """Its group may start, or the nomination end, once the last of the evictions that `held` it
        is answered.
        """
        if held and not record.holds:
            self._stale.add(record.id)
            if record.group in self._registry.groups:
                self._registry.changed(record.group)
                self._queue.activate(record.group, QueueCause.NOMINATION_CHANGED)

    def _hand_on(self, record: NominationRecord) -> None:
        """Who counts on it that a victim goes has it evicted itself, with all that goes with it.

        A unit that is evicted as a whole stays with the nomination that ordered it until all of its
        evictions are answered, and to its end if one was carried out.
        """
        bound_to_it = (*record.unanswered, *record.resumable)
        kept = {record.victims[uid].unit for uid in bound_to_it}
        uids: list[str] = []
        for fate in HANDED_ON:
            uids += record.of(fate)

        for uid in uids:
            # The list was made before a unit moved as a whole; what has moved with it is skipped.
            if uid not in record.fates or record.victims[uid].unit in kept:
                continue

            heir = self.promised.heir(record, uid)
            if heir is None or self.promised.was_evicted(record, uid):
                continue

            of = record.victims[uid]
            for each in [victim for victim in record.victims.values() if victim.unit == of.unit]:
                if not self.promised.was_evicted(record, each.uid):
                    heir.victims[each.uid], heir.fates[each.uid] = (
                        record.remove(each.uid),
                        Fate.MARKED,
                    )
                    heir.inherited.append(each)

            heir.awaited -= heir.victims.keys()
            heir.stage = Stage.PREPARING
            self.promised.keep(heir)
            self.promised.changed()
            self._stale.add(heir.id)

    def monotonic_s(self, wall_s: float) -> float:
        """Convert epoch seconds to monotonic seconds, as of the last `look`."""
        return wall_s - self.offset_s

    def deadline_s(self, record: NominationRecord) -> float:
        """Monotonic second at which the last victim counts as stuck (V12)."""
        return awaited.ends_s(
            record,
            self._members,
            max_wait_s=self._max_wait_s,
            offset_s=self.offset_s,
        )

    def _count_from(self, record: NominationRecord, now_s: float) -> None:
        """Victims have their time from now on: to write to thousands, and to evict them, may take
        longer.
        """
        record.deadline_s = max(record.deadline_s, now_s + record.decision.grace_s + STUCK_S)

    def _told(self, record: NominationRecord) -> Refusal:
        until_s = int(self.deadline_s(record) + self.offset_s)
        return awaited.told(
            record,
            self._members,
            nominees.namespaces(record.group, self._registry),
            until_s=until_s,
        )

    def _tell_anew(
        self,
        record: NominationRecord,
        group: GroupRecord,
        now_s: float,
    ) -> None:
        """The group is told how many it still waits for."""
        record.told = told = self._told(record)
        verdict = group.verdict
        if verdict is not None and verdict.reason is Reason.PREEMPTING and verdict.told != told:
            group.verdict = structs.replace(verdict, told=told)
            self._reports.note(group.id, now_s)
