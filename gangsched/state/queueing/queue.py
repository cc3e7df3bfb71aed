"""The queue of groups: active, parked (refused) or backing off; and which events wake up which
group (semantics Q3).

Invariant: a refused group is planned again as soon as a change could help it, and otherwise only
after `SAFETY_NET_S`. `parked` decides which groups an event helps, `core.queue_sort` their order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Set
from hashlib import blake2b
from itertools import islice, takewhile

from gangsched.model.plan import Need
from gangsched.model.snapshot import Snapshot
from gangsched.state.group_record import (
    NO_STAY,
    GroupRecord,
    NeededRoom,
    QueueCause,
    QueueState,
    Rank,
    Stay,
    next_state,
)
from gangsched.state.queueing.parked import Parked, VisibleRoom
from gangsched.state.queueing.preemptors import Preemptors
from gangsched.state.timers import Timers

SAFETY_NET_S = 60.0
SWEPT_AT_ONCE = 100
"""Groups that are looked at again in one turn for no other reason, so that thousands do not stall
the loop.
"""
FIRST_BACK_OFF_S = 1.0
LONGEST_BACK_OFF_S = 10.0
SPREAD = 0.4
"""By how much of itself a delay is shorter at most; how much depends on the group, so that no dice
are needed.
"""
REVIEW_AFTER_S = 1.0
REVIEW_EVERY_S = 4.0
"""How often it is looked whether what parked groups were told is still true; with the rest of the
way, 5 s (E1).
"""
REVIEW_GOES_ON_AFTER_S = 0.05
"""Where thousands of shapes are waited for, a review takes several turns."""
REVIEWED_GROUPS = 500
"""Groups of which this is told anew at a time; where more wait, they take turns."""


class Queue:
    """The groups to plan; `passed` are shapes whose woken groups have been decided."""

    def __init__(self, groups: Mapping[str, GroupRecord], *, unattended: bool = False) -> None:
        """`groups` are the records of all groups.

        `unattended`: nobody reads messages and no event is ever missed, as in a simulation. Then a
        group is evaluated again only after a change that could help it.
        """
        self._groups = groups
        self._unattended = unattended
        self._sweep_every_s = math.inf if unattended else SAFETY_NET_S
        self._active: set[str] = set()
        self.parked = Parked(groups)
        self.preemptors = Preemptors(groups)
        self.passed: set[NeededRoom] = set()
        self._review_s = math.inf
        self._reviewed_s = -math.inf
        self._back_off = Timers()
        self._wake_at = Timers()
        self._now_s = -math.inf

    def _become(self, group: GroupRecord, cause: QueueCause) -> None:
        """Change the state of a group, here only."""
        group.queue = next_state(group, cause)
        group.cause = cause
        (self._active.add if group.queue is QueueState.ACTIVE else self._active.discard)(group.id)

    def activate(self, group: str, cause: QueueCause) -> None:
        """Make a group ready, unless it backs off; no effect if it is gone."""
        record = self._groups.get(group)
        if record is not None:
            self._become(record, cause)
            self.parked.remove(record)
            self.preemptors.remove(record)

    def park(
        self,
        group: str,
        needs: tuple[Need, ...],
        *,
        rank: Rank = (),
        snapshot: Snapshot | None = None,
        stay: Stay | None = None,
        kept: bool = False,
        cause: QueueCause = QueueCause.DECIDED,
    ) -> None:
        """Park a group that was refused (or needs nothing more). Only room for `needs` can help it;
        if `needs` is empty, no room can.

        The group was refused on `snapshot`, and `rank` is its place in the order. `kept`: only
        reservations refused it; they also refuse any group that needs as many pods of the same
        shape and passes no more reservations.
        """
        record = self._groups[group]
        self._become(record, cause)
        record.parked_s = self._now_s
        exact = kept and len(needs) == 1 and needs[0].count > 0
        kept_from = (needs[0].count, stay or NO_STAY) if exact else None
        self.passed.update(self.parked.tried(record, kept_from=kept_from))
        self.parked.add(record, needs, rank, snapshot, stay=stay)

    def back_off(self, group: str, now_s: float) -> None:
        """Back off after a failed bind: retry after 1 s, doubling up to 10 s until `succeeded`,
        each delay shortened by a part of up to `SPREAD`.

        Failures during the back-off belong to the same fault and change nothing.
        """
        record = self._groups[group]
        delay_s = self._longer(
            record,
            QueueCause.BIND_FAILED,
            now_s,
            FIRST_BACK_OFF_S,
            LONGEST_BACK_OFF_S,
        )
        if delay_s:
            # Two schedulers that took each other's devices fail together, and otherwise would at
            # every retry.
            part = (
                int.from_bytes(blake2b(f"{group}/{delay_s:g}".encode(), digest_size=4).digest())
                / 2**32
            )
            self._back_off_until(record, now_s + delay_s * (1 - SPREAD * part))

    def rest(self, group: str, now_s: float, *, first_s: float, longest_s: float) -> None:
        """Leave a group's room to others for `first_s`, doubling up to `longest_s` until
        `succeeded`.
        """
        record = self._groups[group]
        delay_s = self._longer(record, QueueCause.CLAIMS_LATE, now_s, first_s, longest_s)
        if delay_s:
            self._back_off_until(record, now_s + delay_s)

    def set_aside(self, group: str, until_s: float) -> None:
        """Plan a group whose plan failed no more before `until_s`, or before it is forgiven."""
        record = self._groups[group]
        # First, so that no plan gets it whatever the rest raises.
        self._become(record, QueueCause.INTERNAL_ERROR)
        self._back_off_until(record, until_s)
        self._wake_at.drop(group)
        self.parked.remove(record)
        self.preemptors.remove(record)

    def wake_all(self) -> None:
        """Activate every parked group, because events that would have woken some of them may be
        lost.
        """
        for group in list(self.parked.groups):
            self.activate(group, QueueCause.SAFETY_NET)

    def _longer(
        self,
        group: GroupRecord,
        cause: QueueCause,
        now_s: float,
        first_s: float,
        longest_s: float,
    ) -> float:
        """The next delay of a group; 0 if it backs off already."""
        self.activate(group.id, cause)
        if self.backs_off(group.id, now_s):
            return 0.0

        delay_s = min(max(first_s, group.back_off_s), longest_s)
        group.back_off_s = delay_s * 2
        return delay_s

    def _back_off_until(self, group: GroupRecord, at_s: float) -> None:
        group.back_off_until_s = at_s
        self._back_off.set(group.id, at_s)

    def forgive(self, group: str) -> None:
        """Plan a regrouped group once more before it backs off again."""
        self._back_off.drop(group)
        self._end_back_off(self._groups[group], QueueCause.REGROUPED)

    def _end_back_off(self, group: GroupRecord, cause: QueueCause) -> None:
        group.back_off_until_s = None
        if group.queue is QueueState.BACKING_OFF:
            self._become(group, cause)

    def backs_off(self, group: str, now_s: float) -> bool:
        """Whether the group is backing off."""
        until_s = self._groups[group].back_off_until_s
        return until_s is not None and until_s > now_s

    def wake_at(self, group: str, at_s: float) -> None:
        """Plan the group again at `at_s` at the latest."""
        self._wake_at.set_sooner(group, at_s)

    def succeeded(self, group: str) -> None:
        """A bind of the group succeeded: reset its back-off."""
        record = self._groups.get(group)
        if record is not None:
            record.back_off_s = 0.0

    def drop(self, group: GroupRecord) -> None:
        """Remove a group that is gone."""
        self._active.discard(group.id)
        self.passed.update(self.parked.tried(group))
        self.parked.remove(group)
        self.preemptors.left(group)

        for timers in (self._back_off, self._wake_at):
            timers.drop(group.id)

    def ready(self, now_s: float) -> set[str]:
        """The groups to plan now, including groups that have been parked for `SAFETY_NET_S`."""
        self._now_s = now_s
        # The sum of `next_deadline_s`: a difference is rounded otherwise, and nothing might be due
        # then.
        if now_s >= self._oldest_parked_s() + self._sweep_every_s:
            # With it those that would be next, so that there are two sweeps a minute however many
            # groups wait.
            parked = ((group, self._groups[group].parked_s) for group in self.parked.groups)
            overdue = takewhile(lambda each: now_s - each[1] >= self._sweep_every_s / 2, parked)
            for group in [group for group, _ in islice(overdue, SWEPT_AT_ONCE)]:
                self.activate(group, QueueCause.SAFETY_NET)

        for group in self._back_off.take_due(now_s):
            self._end_back_off(self._groups[group], QueueCause.BACK_OFF_OVER)

        for group in self._wake_at.take_due(now_s):
            self.activate(group, QueueCause.DUE)

        # The copy stays, because a set from which thousands of groups were taken is still read as
        # if they were there.
        self._active = self._active.copy()
        return self._active.copy()

    def _oldest_parked_s(self) -> float:
        """When the group was parked that is parked for longest."""
        first = next(iter(self.parked.groups), None)
        if first is not None:
            return self._groups[first].parked_s

        return math.inf

    def minds_pods(self) -> bool:
        """Whether a change of pods or of their labels on any node may help a parked group."""
        return self.parked.minds_pods

    def wake(
        self,
        visible_room: VisibleRoom,
        freed: set[str],
        *,
        pods_changed: bool = False,
        heads: Set[str] = frozenset(),
    ) -> None:
        """Activate parked groups that freed room on these nodes may help, as many as fit.

        `pods_changed`: pods moved, or nodes changed labels. `heads` may use reserved room.
        """
        self.preemptors.note(freed)
        for group in self.parked.helped(
            visible_room, freed, pods_changed=pods_changed, heads=heads
        ):
            self.activate(group, QueueCause.ROOM_FREED)

    def wake_pending(self, visible_room: VisibleRoom) -> None:
        """Activate the next groups that room freed in earlier turns may help, if it is
        still there.
        """
        for group in self.parked.next_to_wake(visible_room):
            self.activate(group, QueueCause.ROOM_FREED)

    def wake_behind(
        self,
        visible_room: VisibleRoom,
        heads: Set[str] = frozenset(),
    ) -> None:
        """Activate the groups behind groups that were woken up and decided since the last call.

        Room that was refused to the decided groups may be reserved for one of the `heads`.
        """
        passed = self.passed
        self.passed = set()
        for group in self.parked.behind(passed, visible_room, heads=heads):
            self.activate(group, QueueCause.NEXT_IN_LINE)

    def rerank(self, rank_of: Callable[[str], Rank]) -> None:
        """Update the order of groups that wait for room."""
        self.parked.rerank(rank_of, self._active | self._back_off.keys())

    def room_changed(self, now_s: float) -> None:
        """Record that messages of parked groups about room may be outdated."""
        if self._review_s == math.inf and len(self.parked) and not self._unattended:
            self._review_s = max(now_s + REVIEW_AFTER_S, self._reviewed_s + REVIEW_EVERY_S)

    def review_is_due(self, now_s: float) -> bool:
        """Whether `review` must be called now."""
        return now_s >= self._review_s

    def review(self, snapshot: Snapshot, now_s: float) -> None:
        """Activate groups whose message is outdated, so that it is rewritten (semantics E1)."""
        self._reviewed_s = now_s
        self._review_s = math.inf

        stale = self.parked.told_falsely(snapshot, REVIEWED_GROUPS)
        for group in stale:
            self.activate(group, QueueCause.TOLD_FALSELY)

        if not self.parked.is_reviewed:
            self._review_s = now_s + REVIEW_GOES_ON_AFTER_S
        elif len(stale) == REVIEWED_GROUPS:
            self.room_changed(now_s)

    def next_deadline_s(self) -> float:
        """Time at which `ready` may return more groups without an event."""
        if self.parked.has_pending:
            return -math.inf

        sweep_s = math.inf
        if len(self.parked) and not self._unattended:
            sweep_s = self._oldest_parked_s() + self._sweep_every_s

        return min(
            self._back_off.next_s(),
            self._wake_at.next_s(),
            self._review_s,
            self.preemptors.next_deadline_s(),
            sweep_s,
        )

    def part(self, group: str) -> str:
        """The part of the queue that contains the group; "" for an unknown group."""
        record = self._groups.get(group)
        if record is None:
            return ""

        return record.queue.value

    def sizes(self) -> dict[str, int]:
        """Number of groups in each part, for metrics."""
        back_off = self._back_off.keys()
        return {
            "active": len(self._active),
            "backoff": sum(
                self._groups[group].queue is QueueState.BACKING_OFF for group in back_off
            ),
            "parked": len(self.parked),
        }

    def indexes(self) -> Iterator[tuple[str, Set[str], Callable[[GroupRecord], bool]]]:
        """For validation: each index with its groups, and a predicate for the groups that should be
        in it.
        """
        yield "active", self._active, lambda group: group.queue is QueueState.ACTIVE
        yield "parked", self.parked.groups.keys(), lambda group: group.queue is QueueState.PARKED
        yield "parked by room", self.parked.by_room(), lambda group: bool(group.needs)
        yield "preemptors", self.preemptors.groups(), lambda group: group.preempts_as is not None
        yield "back-off", self._back_off.keys(), lambda group: group.back_off_until_s is not None
