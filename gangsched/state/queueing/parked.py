"""Parked groups, indexed by the room that they need: its shape, and the labels of its domain
(semantics Q3).

Invariant: an event costs a few column comparisons, and one evaluation per shape that fits on a node
with freed room. Groups are woken up in queue order while the room suffices for them, a few shapes
at a time. Once these were decided and left some room, the groups behind them are woken up in
growing batches, so that no group is missed. For each shape the amounts last reported to its groups
are stored, so that outdated messages are rewritten (semantics E1).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from functools import cached_property
from heapq import heapify, heappop, heappush
from typing import TypeAlias

import numpy as np

from gangsched.core.filter import static_fit
from gangsched.core.filter.node_resources_fit import room
from gangsched.core.topology import level
from gangsched.model.objects import Shape
from gangsched.model.plan import Need
from gangsched.model.snapshot import Bools, Ints, Snapshot
from gangsched.state.group_record import NO_STAY, Entry, GroupRecord, NeededRoom, Rank, Stay
from gangsched.state.queueing.shape_rows import ShapeRows
from gangsched.state.queueing.watched import watched

FIRST_AT_ONCE = 4
"""Groups of different shapes that are woken together for the same room; twice as many each time
after that.
"""
LOOKS_AT_ONCE = 200
"""Shapes that are looked at in one turn, while those with thousands of shapes wait."""
MOST_FREED = 500
"""Freed nodes that are looked up for each shape; where more are, its groups are woken for all."""
REVIEWED_NODES = 250_000
"""Nodes of all shapes that are reviewed in one turn: each costs a comparison for each resource of
the shape.
"""

Facts: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class VisibleRoom:
    """The cluster with the room that groups may use, which is not the same for all of them: lower
    priorities yield to higher ones.

    No group sees more than `most`; `of` takes the id of a group.
    """

    most: Snapshot
    of: Callable[[str], Snapshot]

    @classmethod
    def alike(cls, snapshot: Snapshot) -> VisibleRoom:
        """The same room for all groups."""
        return cls(snapshot, lambda _: snapshot)


@dataclass(frozen=True, eq=False)
class _Kind:
    """Needs that groups have in common: of each room a number of pods, at least 1, and those that
    all must fit.
    """

    counts: Mapping[NeededRoom, int]
    required: tuple[Need, ...]

    @classmethod
    def of(cls, needs: tuple[Need, ...]) -> _Kind:
        """The need; a count of 0 means any room at all, also outside of one domain (V11)."""
        counts = {
            NeededRoom(need.shape, need.within if need.count else ()): max(need.count, 1)
            for need in needs
        }
        return cls(counts, tuple(need for need in needs if need.count))

    @cached_property
    def rows(self) -> Mapping[tuple[str, ...], tuple[tuple[str, int, int], ...]]:
        """By labels `within`, the sum of ⌊free/a⌋ of each resource that one domain must reach. With
        `a` of 1 this is the free amount; with a shape's request as `a`, fragments that are too
        small do not count.

        Only for groups with several needs: for a single need, the room for its shape is more
        precise.
        """
        found = {}
        for within in {need.within for need in self.required if need.within}:
            asks = [
                (dict(need.shape.requests), need.count)
                for need in self.required
                if need.within == within
            ]
            amounts = {
                (name, a)
                for ask, _ in asks
                for name, amount in ask.items()
                for a in {1, amount} - {0}
            }
            rows = (
                (name, a, sum(ask.get(name, 0) // a * count for ask, count in asks))
                for name, a in amounts
            )
            found[within] = tuple(sorted(rows)) if len(asks) > 1 else ()

        return found


@dataclass(slots=True)
class _Waiting:
    """The groups that need one room: (rank, group) in order, by their kinds of needs.

    `batch` is how many are woken at a time, at least; `tried` the last one that was woken and had
    its turn; `skipped` the first of each kind that was not woken, because those before it may need
    the room; `freed` the nodes for which they are woken. Reservations keep the room from all that
    need as many pods as one in `kept_from` and pass no more. `told` are the facts that groups were
    parked with, by group.
    """

    room: NeededRoom
    by_kind: dict[_Kind, list[Entry]] = field(default_factory=dict)
    batch: int = 1
    tried: Entry | None = None
    skipped: dict[_Kind, Entry] = field(default_factory=dict)
    freed: set[str] = field(default_factory=set)
    kept_from: list[tuple[int, Stay]] = field(default_factory=list)
    told: dict[str, Facts] = field(default_factory=dict)

    @property
    def least(self) -> int:
        """The fewest pods that any group needs room for."""
        return min(kind.counts[self.room] for kind in self.by_kind)

    @property
    def is_loose(self) -> bool:
        """Whether any kind of room may help some group, even if no pod of the shape fits."""
        return any(not kind.required for kind in self.by_kind)

    def is_kept_from(self, count: int, stay: Stay) -> bool:
        """Whether reservations are known to leave no room for so many pods of a group of this
        class.
        """
        return any(
            count >= least and stay.passes_no_more_than(other) for least, other in self.kept_from
        )

    @property
    def first(self) -> Entry:
        """The first group in queue order."""
        return min(entries[0] for entries in self.by_kind.values())

    def start_over(self) -> None:
        """Forget whose turn it was: the next to wake is the first."""
        self.tried = None
        self.skipped = {}

    @property
    def first_behind(self) -> str | None:
        """The first group that has not had its turn; None if all had."""
        firsts: list[Entry] = []
        for kind, entries in self.by_kind.items():
            place = self._next_place(kind, entries)
            firsts += entries[place : place + 1]

        if not firsts:
            return None

        _, group = min(firsts)
        return group

    def _next_place(self, kind: _Kind, entries: list[Entry]) -> int:
        """Where those of a kind begin that have not had their turn."""
        if kind in self.skipped:
            return bisect_left(entries, self.skipped[kind])
        if self.tried is None:
            return 0

        place = bisect_left(entries, self.tried)
        is_there = entries[place : place + 1] == [self.tried]

        # If it is gone, those behind begin where it would be.
        return place + is_there

    def next(
        self,
        rooms: int,
        groups: Mapping[str, GroupRecord],
        most: Callable[[_Kind], int],
        heads: Set[str],
    ) -> Iterator[str]:
        """The groups to wake up if there is room for `rooms` pods, of those that have not had their
        turn.

        `most` is the number of groups, by kind, that have all required room, or any room if they
        require none: the freed node may only have changed what the empty cluster holds. Room that
        is reserved against all other groups may be reserved for one of the `heads`.
        """
        heap = []
        for number, (kind, entries) in enumerate(self.by_kind.items()):
            place = self._next_place(kind, entries)
            is_enough = not kind.required or kind.counts[self.room] <= rooms
            if place < len(entries) and is_enough and (fit := most(kind)):
                heap.append((entries[place], number, place, kind, fit))

        heapify(heap)
        self.skipped = {}
        left = rooms
        woken = 0

        while heap:
            entry, number, place, kind, fit = heappop(heap)
            _, group = entry
            count = kind.counts[self.room]
            if group in heads or not self.is_kept_from(count, groups[group].stay):
                if (count > left or fit < 1) and woken >= self.batch:
                    # Those before it may leave the room, when others behind it were tried already.
                    self.skipped[kind] = entry
                    continue

                left = left - count
                woken = woken + 1
                fit = fit - 1
                yield group

            if place + 1 < len(entries := self.by_kind[kind]):
                heappush(heap, (entries[place + 1], number, place + 1, kind, fit))


class Parked:
    """Indexes of the parked groups; `looks` counts evaluated shapes, for tests."""

    def __init__(self, groups: Mapping[str, GroupRecord]) -> None:
        self.looks = 0
        self._records = groups

        #: In the order in which they were parked.
        self.groups: dict[str, None] = {}
        self._kinds: dict[tuple[Need, ...], _Kind] = {}
        self._by_room: dict[NeededRoom, _Waiting] = {}
        self._rows = ShapeRows()
        self._loose: dict[NeededRoom, None] = {}
        self._freed: set[str] = set()
        self._at_once = FIRST_AT_ONCE
        self._unreviewed: list[NeededRoom] = []
        self._facts: tuple[Snapshot | None, dict[Shape, Facts]] = (None, {})
        self._of_domains: tuple[Snapshot | None, dict[Hashable, Ints]] = (None, {})

    def __len__(self) -> int:
        return len(self.groups)

    @property
    def minds_pods(self) -> bool:
        """Whether a change of pods or their labels on any node may help a parked group."""
        return any(minds_pods(needed_room.shape) for needed_room in self._loose)

    @property
    def has_pending(self) -> bool:
        """Whether there are shapes with freed room that still have to be evaluated."""
        return self._rows.any_pending

    @property
    def is_reviewed(self) -> bool:
        """Whether the last `told_falsely` has completed a pass over all shapes."""
        return not self._unreviewed

    def add(
        self,
        group: GroupRecord,
        needs: tuple[Need, ...],
        rank: Rank,
        snapshot: Snapshot | None,
        *,
        stay: Stay | None = None,
    ) -> None:
        """Park a group that was refused on `snapshot`, or on what earlier groups left of it."""
        self.remove(group)
        if snapshot is not None:
            needs = watched(needs, lambda shape: self._room_facts(shape, snapshot)[0])

        self.groups[group.id] = None
        group.needs = needs
        group.rank = rank
        group.stay = stay or NO_STAY

        kind = self._kinds.setdefault(needs, _Kind.of(needs))
        for needed_room in kind.counts:
            waiting = self._by_room.setdefault(needed_room, _Waiting(needed_room))
            insort(waiting.by_kind.setdefault(kind, []), (rank, group.id))
            self._index(waiting)

            if snapshot is not None:
                waiting.told[group.id] = self._room_facts(needed_room.shape, snapshot)

    def remove(self, group: GroupRecord) -> None:
        """Remove a group that no longer waits for room."""
        self.groups.pop(group.id, None)
        needs = group.needs
        rank = group.rank
        group.needs = ()
        group.rank = ()
        group.stay = NO_STAY

        if not needs:
            return

        kind = self._kinds[needs]
        for needed_room in kind.counts:
            waiting = self._by_room[needed_room]
            entries = waiting.by_kind[kind]
            del entries[bisect_left(entries, (rank, group.id))]
            waiting.told.pop(group.id, None)

            if not entries:
                del waiting.by_kind[kind]

            self._index(waiting)

        # of one shape as of all: hashing thousands of needs for each of as many shapes took 0.5 s
        if not entries:
            del self._kinds[needs]

    def by_room(self) -> set[str]:
        """Ids of the groups that need room, for validation."""
        result: set[str] = set()
        for waiting in self._by_room.values():
            for entries in waiting.by_kind.values():
                for _, group in entries:
                    result.add(group)

        return result

    def _index(self, waiting: _Waiting) -> None:
        """The groups that need a room have changed, or their order."""
        room = waiting.room
        if not waiting.by_kind:
            del self._by_room[room]
            self._rows.remove(room)
            self._loose.pop(room, None)

            return

        self._rows.put(room, waiting.least, waiting.first)
        if waiting.is_loose or minds_pods(room.shape):
            self._loose[room] = None
        else:
            self._loose.pop(room, None)

    def rerank(self, rank_of: Callable[[str], Rank], woken: Iterable[str]) -> None:
        """Update the order of groups, including groups that were `woken` up and not
        decided since.
        """
        for group in self.groups:
            record = self._records[group]
            record.rank = rank_of(group) if record.needs else ()

        firsts = []
        for needed_room, waiting in self._by_room.items():
            waiting.start_over()
            of_kinds = []
            for entries in waiting.by_kind.values():
                ranked = [(self._records[group].rank, group) for _, group in entries]
                ranked.sort()
                entries[:] = ranked
                of_kinds.append(ranked[0])

            first = of_kinds[0] if len(of_kinds) == 1 else min(of_kinds)
            firsts.append((needed_room, first))

        # At once: to move 10,000 rooms one by one took half of a turn's 0.1 s.
        self._rows.reorder(firsts)

        for group in woken:
            record = self._records[group]
            if record.woken_for:
                record.woken_for = [(each, (rank_of(group), group)) for each, _ in record.woken_for]

    def helped(
        self,
        visible_room: VisibleRoom,
        freed: set[str],
        *,
        pods_changed: bool,
        heads: Set[str] = frozenset(),
    ) -> set[str]:
        """The first groups to wake up after room was freed on these nodes; `next_to_wake` returns
        the following ones.

        `pods_changed`: pods moved, or nodes changed labels. A shape is helped if one of its pods
        fits on a freed node, or if it depends on other pods and these changed. `heads` are woken up
        if there is room for them, because reserved room counts for them.
        """
        # Shapes of the last event may still be pending, and their nodes are freed as well.
        self._freed = freed | self._freed if self.has_pending else set(freed)
        snapshot = visible_room.most
        nodes = _indices(snapshot, freed)
        helped = self._rows.fitting(snapshot, nodes)
        self.looks += len(self._loose)
        helped[
            self._rows.rows_of(
                needed_room
                for needed_room in self._loose
                if self._is_helped(needed_room.shape, snapshot, nodes, pods_changed)
            )
        ] = True
        self._rows.mark_pending(helped)
        self._at_once = FIRST_AT_ONCE

        # Beside the order: room is kept from all others for them.
        woken = set()
        for group in heads:
            if group in self.groups and self._fits(group, helped, visible_room.of(group)):
                woken.add(group)

        return woken | self._wake_pending(visible_room)

    def _is_helped(self, shape: Shape, snapshot: Snapshot, nodes: Ints, pods_changed: bool) -> bool:
        """Whether a shape may be helped for which there need not be room for a pod of it."""
        if self._may_use(shape, snapshot, nodes):
            return True

        return pods_changed and minds_pods(shape)

    def next_to_wake(self, visible_room: VisibleRoom) -> set[str]:
        """The next groups to wake up of shapes with freed room, if that room is still free."""
        there = self._rows.fitting(visible_room.most, _indices(visible_room.most, self._freed))
        there[self._rows.rows_of(self._loose)] = True
        self._rows.keep_pending(there)

        # Room is left; groups are woken in growing numbers, so that few steps reach all.
        self._at_once *= 2
        return self._wake_pending(visible_room)

    def _wake_pending(self, visible_room: VisibleRoom) -> set[str]:
        """Wake groups of pending shapes, the first shapes by their first groups."""
        woken: set[str] = set()
        snapshot = visible_room.most
        nodes = _indices(snapshot, self._freed)

        for needed_room in self._rows.first_pending(
            min(2 * self._at_once, looks_at_once(snapshot))
        ):
            if len(woken) >= self._at_once:
                break

            self._rows.looked_at(needed_room)
            self.looks += 1
            waiting = self._by_room[needed_room]
            waiting.batch = 1
            waiting.start_over()
            waiting.kept_from = []
            # Shared by all of them, so that all nodes for each of thousands take no time.
            waiting.freed = waiting.freed | self._freed if waiting.freed else self._freed

            if minds_pods(needed_room.shape) or self._may_use(needed_room.shape, snapshot, nodes):
                _, first = waiting.first
                woken |= self._wake(waiting, visible_room.of(first))

        return woken

    def _may_use(self, shape: Shape, snapshot: Snapshot, nodes: Ints) -> bool:
        """Whether the shape may use one of these nodes, as far as their attributes say."""
        return bool(static_fit(shape, snapshot.table).mask[nodes].any())

    def _fits(self, group: str, helped: Bools, snapshot: Snapshot) -> bool:
        """Whether there is room for a pod of one of the shapes in these rows, and for all that the
        group requires.
        """
        if not (needs := self._records[group].needs):
            return False

        kind = self._kinds[needs]
        rooms = (
            needed_room
            for needed_room in kind.counts
            if self._room_facts(needed_room.shape, snapshot)[0]
        )
        may_be = bool(helped[self._rows.rows_of(rooms)].any())

        if not may_be:
            return False

        return not kind.required or self._copies(kind, snapshot) > 0

    def tried(
        self,
        group: GroupRecord,
        *,
        kept_from: tuple[int, Stay] | None = None,
    ) -> list[NeededRoom]:
        """Record that a group was decided or is gone; return the rooms whose next groups may use
        what this group left.

        The group may have used less room than it was woken up for, or other room, such as room
        promised to it alone. `kept_from`: (pods, Stay) of a group that only reservations refused.
        They also refuse groups that need at least as many pods and whose class passes no more
        reservations.
        """
        passed = []
        woken = group.woken_for
        group.woken_for = []

        for woken_for, entry in woken:
            waiting = self._by_room.get(woken_for)
            if waiting is not None:
                # Groups of one batch may be decided in any order.
                waiting.tried = max(waiting.tried or entry, entry)
                if kept_from is not None and not waiting.is_kept_from(*kept_from):
                    waiting.kept_from.append(kept_from)

                passed.append(woken_for)

        return passed

    def behind(
        self,
        rooms: set[NeededRoom],
        visible_room: VisibleRoom,
        *,
        heads: Set[str] = frozenset(),
    ) -> set[str]:
        """The next groups to wake of rooms whose earlier groups were woken and decided."""
        woken: set[str] = set()
        for each in (
            needed_room
            for needed_room in rooms & self._by_room.keys()
            if not self._rows.is_pending(needed_room)
        ):
            waiting = self._by_room[each]
            waiting.batch *= 2
            first = waiting.first_behind

            if first is None:
                waiting.freed = set()  # all had their turn
            else:
                woken |= self._wake(waiting, visible_room.of(first), heads)

        return woken

    def told_falsely(self, snapshot: Snapshot, most: int) -> list[str]:
        """At most `most` groups whose reported room is outdated.

        Each call evaluates a few shapes, in rotation; after the last ones `is_reviewed` is true.
        """
        found: list[str] = []
        if not self._unreviewed:
            self._unreviewed = list(self._by_room)

        number = min(len(self._unreviewed), looks_at_once(snapshot))
        for _ in range(number):
            waiting = self._by_room.get(self._unreviewed.pop())
            if waiting is None:
                continue

            self.looks += 1
            facts = self._room_facts(waiting.room.shape, snapshot)

            # Mostly the same object, since groups that were parked on one snapshot share it.
            for group, told_facts in waiting.told.items():
                if told_facts is facts or told_facts == facts:
                    continue

                found.append(group)
                if len(found) == most:
                    return found

        return found

    def _wake(
        self,
        waiting: _Waiting,
        snapshot: Snapshot,
        heads: Set[str] = frozenset(),
    ) -> set[str]:
        shape = waiting.room.shape
        rooms = self._room_facts(shape, snapshot)[0]

        # A pod that moved may help on nodes where no room was freed; and of so many nodes any may
        # be.
        freed = None
        if not minds_pods(shape) and len(waiting.freed) <= MOST_FREED:
            freed = _indices(snapshot, waiting.freed)

        def most(kind: _Kind) -> int:
            if kind.required:
                return self._copies(kind, snapshot, freed)

            return rooms or max(
                self._room_facts(needed_room.shape, snapshot)[0] for needed_room in kind.counts
            )

        groups = list(waiting.next(rooms, self._records, most, heads))
        if not groups:
            waiting.freed = set()  # all groups behind it had their turn

        for group in groups:
            record = self._records[group]
            record.woken_for.append((waiting.room, (record.rank, group)))

        return set(groups)

    def _copies(self, kind: _Kind, snapshot: Snapshot, freed: Ints | None = None) -> int:
        """For how many groups of a kind sums leave room, in required domains those with nodes that
        were `freed`.
        """
        found = min(
            self._room_facts(need.shape, snapshot)[0] // need.count for need in kind.required
        )
        for within, rows in kind.rows.items() if found else ():
            inside = level(within, snapshot.table)
            copies = np.full(inside.size, found, dtype=np.int64)

            for need in kind.required:
                if need.within == within:
                    copies = np.minimum(
                        copies,
                        self._rooms_in(within, need.shape, snapshot) // need.count,
                    )

            for name, amount, asked in rows:
                copies = np.minimum(copies, self._sums_in(within, name, amount, snapshot) // asked)

            found = min(found, int((copies if freed is None else copies[inside.of(freed)]).sum()))

        return found

    def _rooms_in(self, within: tuple[str, ...], shape: Shape, snapshot: Snapshot) -> Ints:
        """How many pods of a shape each domain of these labels takes."""
        mask = static_fit(shape, snapshot.table).mask
        return self._known(
            (within, shape),
            snapshot,
            lambda: level(within, snapshot.table).sums(
                room(shape, snapshot.free, snapshot.resources) * mask
            ),
        )

    def _sums_in(self, within: tuple[str, ...], name: str, amount: int, snapshot: Snapshot) -> Ints:
        """How many pieces of an amount each domain of these labels has free of a resource."""
        row = snapshot.resources.get(name)
        free = (
            np.zeros(len(snapshot.table), dtype=np.int64)
            if row is None
            else np.maximum(snapshot.free[row], 0)
        )
        return self._known(
            (within, name, amount),
            snapshot,
            lambda: level(within, snapshot.table).sums(free // amount),
        )

    def _known(self, key: Hashable, snapshot: Snapshot, make: Callable[[], Ints]) -> Ints:
        """The result of `make`, computed once per snapshot."""
        if self._of_domains[0] is not snapshot:
            self._of_domains = snapshot, {}

        known = self._of_domains[1]
        if key not in known:
            known[key] = make()

        return known[key]

    def _room_facts(self, shape: Shape, snapshot: Snapshot) -> Facts:
        """(pods of the shape that fit in all, nodes, usable nodes, and of each resource the most
        and the sum free).
        """
        if self._facts[0] is not snapshot:
            self._facts = snapshot, {}

        known = self._facts[1].get(shape)
        if known is None:
            mask = static_fit(shape, snapshot.table).mask
            rows = []

            for name, _ in shape.requests:
                if name in snapshot.resources:
                    rows.append(snapshot.resources[name])

            free = np.maximum(snapshot.free[rows][:, mask], 0)
            largest = free.max(axis=1, initial=0)
            totals = free.sum(axis=1)
            rooms = room(shape, snapshot.free, snapshot.resources)

            known = (
                int(rooms[mask].sum()),
                len(snapshot.table),
                int(mask.sum()),
                *largest.tolist(),
                *totals.tolist(),
            )
            self._facts[1][shape] = known

        return known


def looks_at_once(snapshot: Snapshot) -> int:
    """How many shapes are looked at in one turn."""
    return min(LOOKS_AT_ONCE, max(1, REVIEWED_NODES // max(1, len(snapshot.table))))


def _indices(snapshot: Snapshot, nodes: set[str]) -> Ints:
    index = snapshot.table.index
    return np.array([index[name] for name in nodes if name in index], dtype=np.int64)


def minds_pods(shape: Shape) -> bool:
    """Whether the shape's filters depend on other pods."""
    return shape.inter_pod is not None and shape.inter_pod.hard
