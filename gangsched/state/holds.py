"""Groups that hold room, and groups that yielded to another one and wait for it (semantics R3, T1,
D1).

Invariant: the clock of a group runs while one of its members is held. A group that has yielded
waits until the other one has started, no longer waits, or is gone.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass

from msgspec import structs

from gangsched.core.reserve import Ledger
from gangsched.model.gang import Group, Placement
from gangsched.model.snapshot import Snapshot
from gangsched.state.cluster import Cluster
from gangsched.state.group_record import GroupRecord, QueueCause
from gangsched.state.groups import Registry
from gangsched.state.member_store import MemberStore
from gangsched.state.members import State
from gangsched.state.queueing.parked import LOOKS_AT_ONCE, VisibleRoom, minds_pods
from gangsched.state.queueing.queue import Queue


@dataclass(frozen=True, slots=True)
class _OwnRoom:
    """The room of a group's members that are not bound, and may yield it: that of holds, and by uid
    that of others.
    """

    priority: int
    held: tuple[Placement, ...]
    unbound: Mapping[str, Placement]

    @property
    def placements(self) -> tuple[Placement, ...]:
        """All of it."""
        return (*self.held, *self.unbound.values())

    def yields_since(self, before: _OwnRoom | None) -> Iterable[Placement]:
        """What did not yield as the room was `before`: holds did, to those above them."""
        if before is None:
            return self.unbound.values()
        # None of it yielded while it was kept for the rest of a start.
        if self.priority < before.priority or not before.placements:
            return self.placements

        return [self.unbound[uid] for uid in self.unbound.keys() - before.unbound.keys()]


class Holds:
    """Indexes of groups whose clock runs, and of groups that have yielded."""

    def __init__(
        self,
        members: MemberStore,
        cluster: Cluster,
        registry: Registry,
        queue: Queue,
    ) -> None:
        self._members = members
        self._cluster = cluster
        self._registry = registry
        self._queue = queue
        self._holding: set[GroupRecord] = set()
        #: Groups with other members that have room and are not bound.
        self._unbound: set[GroupRecord] = set()
        #: The room of all of these, and how many of them there are of each priority.
        self._rooms: dict[GroupRecord, _OwnRoom] = {}
        self._priorities = Counter[int]()
        self._yielded: set[GroupRecord] = set()
        #: Groups that may have lost held room, in the order in which they are looked at.
        self._unlooked: dict[GroupRecord, None] = {}

    def follow(self, group: GroupRecord, now_s: float) -> None:
        """Start or stop the clock of a changed group."""
        # From the members and not from the verdict: a hold also ends with its pod, its node or a
        # changed shape.
        holds = any(self._registry.gangs[gang].of(State.HELD) for gang in group.gangs)
        if holds is not (group.clock_s is not None):
            group.clock_s = now_s if holds else None
            group.view = None

        self._holding.discard(group)
        if holds:
            self._holding.add(group)
        else:
            self._unlooked.pop(group, None)

        self._unbound.discard(group)
        if self._has_unbound(group):
            self._unbound.add(group)

        self._follow_room(group, now_s)
        if not group.yielded_to:
            self._yielded.discard(group)  # it was formed anew

    def _follow_room(self, group: GroupRecord, now_s: float) -> None:
        """Keep the room of a changed group; what did not yield before, such as while claims were
        written or at a higher priority, is freed room to those above it.
        """
        before = self._drop_room(group)
        if group not in self._holding and group not in self._unbound:
            return

        view = self._registry.group(group.id, now_s)
        held: list[Placement] = []
        unbound = {}
        # What is left of a start yields to nobody.
        for gang in () if view.rest else view.gangs:
            held += gang.held
            for placement in (*gang.refused, *gang.unbound):
                unbound[placement.pod.uid] = placement

        room = _OwnRoom(view.priority, tuple(held), unbound)
        self._rooms[group] = room
        self._priorities[view.priority] += 1

        if view.priority < self._highest_priority():
            new = room.yields_since(before)
            self._cluster.open(placement.node for placement in new)

    def _drop_room(self, group: GroupRecord) -> _OwnRoom | None:
        """Forget the room of a group, and return it."""
        room = self._rooms.pop(group, None)
        if room is None:
            return None

        self._priorities[room.priority] -= 1
        if not self._priorities[room.priority]:
            del self._priorities[room.priority]

        return room

    def gone(self, group: GroupRecord) -> None:
        """Remove a group that is gone."""
        self._holding.discard(group)
        self._unlooked.pop(group, None)
        self._unbound.discard(group)
        self._drop_room(group)
        self._yielded.discard(group)

    def expiries(self, now_s: float) -> Iterator[tuple[str, float]]:
        """Yield each group and the time at which its clock runs out, infinity during a nomination
        (V16).
        """
        for group in self._holding:
            assert group.clock_s is not None
            wait_s = (
                self._registry.group(group.id, now_s).wait_time_s
                if group.nomination is None
                else math.inf
            )
            yield group.id, group.clock_s + wait_s

    def beside(
        self,
        planned: Set[str],
        now_s: float,
    ) -> Iterator[Group]:
        """The groups with holds that are neither `planned` nor backing off, and those with other
        unbound members and a lower priority than a planned one, for a plan that decides only the
        `planned` groups.
        """
        for group in self._holding:
            if group.id not in planned and not self._queue.backs_off(group.id, now_s):
                yield structs.replace(self._registry.group(group.id, now_s), unchanged=True)

        # Thousands of pods may wait for claims, of which a plan of their equals needs none.
        others = self._unbound - self._holding
        if not others:
            return

        priorities = [self._registry.group(group_id, now_s).priority for group_id in planned]
        highest = max(priorities, default=0)

        for group in others:
            view = self._registry.group(group.id, now_s)
            if group.id not in planned and view.priority < highest:
                yield structs.replace(view, unchanged=True)

    def visible_to_first(self, open_room: Snapshot, now_s: float) -> VisibleRoom:
        """The open room as the first in line see it: without any holds, since these may yield to
        them, and without other unbound members of lower priority, which do (D1).
        """
        held: list[Placement] = []
        for group in self._holding:
            held += self._rooms[group].held

        return self._visible(_with_room_of(open_room, held), _unbound_of, now_s)

    def visible_to_next(self, open_room: Snapshot, now_s: float) -> VisibleRoom:
        """The open room as the next in line see it: without unbound members of lower priority.

        These may have been asked before, with other needs, and have taken the room; they yield it
        (D1). Not without the holds of their equals: those yield to nobody who holds nothing, and
        all who wait would be woken for room that stays taken.
        """
        return self._visible(open_room, _all_of, now_s)

    def _highest_priority(self) -> float:
        """No group that waits has a higher priority than this."""
        waiting = self._members.highest_waiting
        highest = -math.inf if waiting is None else waiting

        # The pods that wait may have a lower priority than those of their group that have room.
        return max((highest, *self._priorities))

    def _visible(
        self,
        room: Snapshot,
        yields: Callable[[_OwnRoom], Iterable[Placement]],
        now_s: float,
    ) -> VisibleRoom:
        """This room, and what `yields` of the rooms of lower priorities."""
        highest = self._highest_priority()
        # Mostly, and then thousands that wait for claims are not looked through.
        if min(self._priorities, default=highest) >= highest:
            return VisibleRoom.alike(room)

        lower: dict[int, list[Placement]] = {}
        for other in self._rooms.values():
            if other.priority < highest:
                lower.setdefault(other.priority, []).extend(yields(other))

        # Each adds to the one before, so that as many priorities as groups cost no more.
        views = [room]
        priorities = sorted(lower)
        for priority in priorities:
            views.append(_with_room_of(views[-1], lower[priority]))

        def visible_to(group_id: str) -> Snapshot:
            own = self._registry.group(group_id, now_s).priority
            return views[bisect_left(priorities, own)]

        return VisibleRoom(views[-1], visible_to)

    def look(
        self,
        freed: set[str],
        moved: set[str],
        now_s: float,
    ) -> None:
        """Plan groups again that hold room on `freed` nodes, or whose held room other pods have
        taken (R3, F1), on `moved` nodes or by terms about pods of a whole domain.
        """
        came_with_terms = self._cluster.take_came_with_terms()
        for record in self._holding if freed or moved else ():
            held = self._rooms[record].held
            if any(placement.node in freed for placement in held):
                self._queue.activate(record.id, QueueCause.HOLDS_CHANGED)
            elif came_with_terms or _may_be_lost(held, moved):
                self._unlooked[record] = None

        if self._unlooked:
            self._look_at_some(now_s)

    @property
    def is_behind(self) -> bool:
        """Whether it is still to be found out of some groups whether they have lost room."""
        return bool(self._unlooked)

    def _look_at_some(self, now_s: float) -> None:
        """Find out whether groups have lost held room; those of a few hundred pods in a turn."""
        ledger = Ledger(self._cluster.snapshot(), counts=self._cluster.counts)
        looks = 0
        while self._unlooked and looks < LOOKS_AT_ONCE:
            record = next(iter(self._unlooked))
            del self._unlooked[record]

            held = self._rooms[record].held
            looks += len(held)
            if len(held) > LOOKS_AT_ONCE or self._has_lost(record, held, ledger, now_s):
                self._queue.activate(record.id, QueueCause.HOLDS_CHANGED)

    def _has_lost(
        self,
        record: GroupRecord,
        held: Iterable[Placement],
        ledger: Ledger,
        now_s: float,
    ) -> bool:
        group = self._registry.group(record.id, now_s)
        ledger.respect_nominations(group.lowest_priority, but=group.id)
        fits = (ledger.fits_still(placement.pod, placement.node) for placement in held)
        return not all(fits)

    # --- yields ----------------------------------------------------------------------------------

    @property
    def any_yielded(self) -> bool:
        """Whether any group has yielded to another one and waits for it."""
        return bool(self._yielded)

    def yields(self, group: GroupRecord, to: str) -> None:
        """Record that the group gave up its holds for another one."""
        group.yielded_to = to
        group.yields += 1
        self._yielded.add(group)

    def idle(
        self,
        groups: Set[str],
        now_s: float,
    ) -> set[str]:
        """The groups without waiting members, of those given."""
        idle = set()
        for group_id in groups:
            if not self._registry.group(group_id, now_s).waits:
                idle.add(group_id)

        return idle

    def end_yields(self, beneficiaries: Set[str]) -> None:
        """Let groups that yielded to one of `beneficiaries` try again, since this group was
        permitted or is gone.
        """
        ended = [group for group in self._yielded if group.yielded_to in beneficiaries]
        for group in ended:
            group.yielded_to = ""
            self._yielded.remove(group)
            self._registry.changed(group.id)
            self._queue.activate(group.id, QueueCause.YIELD_OVER)

    def indexes(self) -> Iterator[tuple[str, Set[str], Callable[[GroupRecord], bool]]]:
        """For validation: each index with its groups, and a predicate for the groups that should be
        in it.
        """
        holding = {group.id for group in self._holding}
        unbound = {group.id for group in self._unbound}
        with_room = {group.id for group in self._rooms}
        yielded = {group.id for group in self._yielded}

        yield "holding", holding, lambda group: group.clock_s is not None
        yield "unbound", unbound, self._has_unbound
        yield "with room", with_room, self._has_room
        yield "yielded", yielded, lambda group: bool(group.yielded_to)

    def _has_room(self, group: GroupRecord) -> bool:
        return group.clock_s is not None or self._has_unbound(group)

    def _has_unbound(self, group: GroupRecord) -> bool:
        """Whether the group has members with room that are neither bound nor held."""
        for gang in group.gangs:
            view = self._registry.view(gang)
            if view.unbound or view.refused or view.kept:
                return True

        return False


def _may_be_lost(held: Iterable[Placement], moved: Set[str]) -> bool:
    """Whether pods that came to `moved` nodes may have taken held room, there or in a domain."""
    for placement in held:
        if placement.node in moved or (moved and minds_pods(placement.pod.shape)):
            return True

    return False


def _unbound_of(room: _OwnRoom) -> Iterable[Placement]:
    return room.unbound.values()


def _all_of(room: _OwnRoom) -> Iterable[Placement]:
    return room.placements


def _with_room_of(snapshot: Snapshot, placements: Collection[Placement]) -> Snapshot:
    """The snapshot as if these pods used no room; the same one if there are none."""
    if not placements:
        return snapshot

    return snapshot.with_room_of((placement.pod, placement.node) for placement in placements)
