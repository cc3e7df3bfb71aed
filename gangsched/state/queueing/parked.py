"""Parked groups, indexed by the shapes that they need room for (semantics Q3).

Law: an event costs one look for each shape that is waited for, not one for each group. Groups are woken in queue order
for as long as the room that there is would do for them; those behind them are woken when these are refused again, in
ever larger batches, so that nobody is left asleep wrongly. What the groups of a shape were told about its room is
remembered, so that it can be told anew once it is false (semantics E1).
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Callable, Hashable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from gangsched.core.filter import static_fit
from gangsched.core.filter.node_resources_fit import room
from gangsched.model.objects import Shape
from gangsched.model.plan import Need
from gangsched.model.snapshot import Snapshot

Rank: TypeAlias = tuple[Any, ...]
"""What `core.queue_sort.group_key` gives: smaller goes first."""
Entry: TypeAlias = tuple[Rank, str]
Facts: TypeAlias = tuple[int, ...]


class Stay(NamedTuple):
    """What decides whether a group may pass reservations: run time and priority; those of another kind may more."""

    run_time_s: float = math.inf
    priority: int = 0
    kind: Hashable = None

    def passes_no_more_than(self, other: Stay) -> bool:
        """Whether reservations that keep the other one off keep this one off as well (H8)."""
        longer = self.run_time_s >= other.run_time_s
        return longer and self.priority <= other.priority and self.kind == other.kind


@dataclass(slots=True)
class _Waiting:
    """The groups that need one shape: (rank, group) in order, by how many pods of it they need, at least 1.

    `batch` is how many are woken at a time, at least; `refused` the last one that was woken in vain. Reservations keep
    the room from all that need as many pods as one in `kept_from` and pass no more. `told` are the facts that groups
    were parked with, by group.
    """

    by_count: dict[int, list[Entry]] = field(default_factory=dict)
    batch: int = 1
    refused: Entry | None = None
    kept_from: list[tuple[int, Stay]] = field(default_factory=list)
    told: dict[str, Facts] = field(default_factory=dict)

    def is_kept_from(self, count: int, stay: Stay) -> bool:
        """Whether reservations are known to leave no room to so many pods of such a group."""
        return any(count >= least and stay.passes_no_more_than(other) for least, other in self.kept_from)

    def next(self, rooms: int, stays: Mapping[str, Stay]) -> Iterator[str]:
        """The groups to wake when there is room for `rooms` pods, behind the one that was refused last."""
        heap = []
        for count, entries in self.by_count.items():
            place = bisect_left(entries, self.refused) if self.refused is not None else 0
            place += entries[place : place + 1] == [self.refused]
            if count <= rooms and place < len(entries):
                heap.append((entries[place], count, place))
        heapify(heap)
        left, woken = rooms, 0
        while heap:
            (_, group), count, place = heappop(heap)
            if not self.is_kept_from(count, stays[group]):
                if count > left and woken >= self.batch:
                    continue
                left, woken = left - count, woken + 1
                yield group
            if place + 1 < len(entries := self.by_count[count]):
                heappush(heap, (entries[place + 1], count, place + 1))


class Parked:
    """`looks` counts the shapes looked at, for tests: what an event costs."""

    def __init__(self) -> None:
        self.looks = 0
        self._needs: dict[str, tuple[tuple[Need, ...], Rank]] = {}
        self._by_shape: dict[Shape, _Waiting] = {}
        self._woken: dict[str, list[tuple[Shape, Entry]]] = {}
        self._stays: dict[str, Stay] = {}
        self._facts: tuple[Snapshot | None, dict[Shape, Facts]] = (None, {})

    def __len__(self) -> int:
        return len(self._needs)

    def __contains__(self, group: str) -> bool:
        return group in self._needs

    @property
    def minds_pods(self) -> bool:
        """Whether a group may be helped by pods that come, go or change their labels, wherever they are."""
        return any(map(minds_pods, self._by_shape))

    def add(
        self, group: str, needs: tuple[Need, ...], rank: Rank, snapshot: Snapshot | None, *, stay: Stay | None = None
    ) -> None:
        """Add a group that was refused on the room of `snapshot`, or what was left of it."""
        self.remove(group)
        self._needs[group] = needs, rank
        self._stays[group] = stay or Stay()
        for need in needs:
            waiting = self._by_shape.setdefault(need.shape, _Waiting())
            insort(waiting.by_count.setdefault(max(need.count, 1), []), (rank, group))
            if snapshot is not None:
                waiting.told[group] = self._room_facts(need.shape, snapshot)

    def remove(self, group: str) -> None:
        """Remove a group that no longer waits for room."""
        needs, rank = self._needs.pop(group, ((), ()))
        self._stays.pop(group, None)
        for need in needs:
            waiting, count = self._by_shape[need.shape], max(need.count, 1)
            entries = waiting.by_count[count]
            del entries[bisect_left(entries, (rank, group))]
            waiting.told.pop(group, None)
            if not entries:
                del waiting.by_count[count]
            if not waiting.by_count:
                del self._by_shape[need.shape]

    def rerank(self, rank_of: Callable[[str], Rank]) -> None:
        """The order of groups has changed; also that of groups that were woken and not looked at since."""
        self._needs = {group: (needs, rank_of(group) if needs else ()) for group, (needs, _) in self._needs.items()}
        for waiting in self._by_shape.values():
            waiting.refused = None
            for count, entries in waiting.by_count.items():
                waiting.by_count[count] = sorted((self._needs[group][1], group) for _, group in entries)
        for group, woken in self._woken.items():
            self._woken[group] = [(shape, (rank_of(group), group)) for shape, _ in woken]

    def pop_all(self) -> set[str]:
        """Remove and return all groups."""
        groups = set(self._needs)
        self._needs, self._by_shape, self._woken, self._stays = {}, {}, {}, {}
        return groups

    def helped(self, snapshot: Snapshot, grown: set[str], *, stirred: bool, heads: Set[str] = frozenset()) -> set[str]:
        """The groups to wake when these nodes grew; `stirred`: pods moved somewhere, or nodes changed what they are.

        A shape is helped when it may use a grown node, or looks at other pods and those stirred. With it those of the
        `heads` are woken that there is room for, since reserved room is theirs.
        """
        nodes = np.array([snapshot.table.index[name] for name in grown if name in snapshot.table.index], dtype=np.intp)
        woken: set[str] = set()
        for shape, waiting in list(self._by_shape.items()):
            self.looks += 1
            if static_fit(shape, snapshot.table).mask[nodes].any() or (stirred and minds_pods(shape)):
                waiting.batch, waiting.refused, waiting.kept_from = 1, None, []
                woken |= self._wake(shape, waiting, snapshot)
                rooms = self._room_facts(shape, snapshot)[0]
                woken |= {group for group in heads if rooms and self._fits(group, shape, rooms)}
        return woken

    def _fits(self, group: str, shape: Shape, rooms: int) -> bool:
        """Whether the group needs no more pods of the shape than there is room for; False if it needs none."""
        return any(need.shape is shape and need.count <= rooms for need in self._needs.get(group, ((), ()))[0])

    def tried(self, group: str, *, in_vain: bool, kept_from: tuple[int, Stay] | None = None) -> list[Shape]:
        """A group was looked at, or is gone; the shapes whose next groups are to be woken instead of it.

        `kept_from`: only reservations kept so many of its pods off, and they keep off whoever passes no more.
        """
        passed = []
        for shape, entry in self._woken.pop(group, ()):
            waiting = self._by_shape.get(shape)
            if waiting is not None and in_vain:
                waiting.refused = max(waiting.refused or entry, entry)
                if kept_from is not None and not waiting.is_kept_from(*kept_from):
                    waiting.kept_from.append(kept_from)
                passed.append(shape)
        return passed

    def behind(self, shapes: set[Shape], snapshot: Snapshot) -> set[str]:
        """The next groups to wake of shapes whose room others were woken for in vain."""
        woken: set[str] = set()
        for shape in shapes & self._by_shape.keys():
            waiting = self._by_shape[shape]
            waiting.batch *= 2
            woken |= self._wake(shape, waiting, snapshot)
        return woken

    def told_falsely(self, snapshot: Snapshot, most: int) -> list[str]:
        """At most `most` groups that were told something of the room for them that is true no more."""
        found: list[str] = []
        for shape, waiting in self._by_shape.items():
            self.looks += 1
            facts = self._room_facts(shape, snapshot)
            stale = (group for group, told in waiting.told.items() if told is not facts and told != facts)
            for group in stale:
                found.append(group)
                if len(found) == most:
                    return found
        return found

    def _wake(self, shape: Shape, waiting: _Waiting, snapshot: Snapshot) -> set[str]:
        groups = list(waiting.next(self._room_facts(shape, snapshot)[0], self._stays))
        for group in groups:
            self._woken.setdefault(group, []).append((shape, (self._needs[group][1], group)))
        return set(groups)

    def _room_facts(self, shape: Shape, snapshot: Snapshot) -> Facts:
        """(pods of the shape that fit in all, nodes, usable nodes, and of each resource the most and the sum free)."""
        if self._facts[0] is not snapshot:
            self._facts = snapshot, {}
        known = self._facts[1].get(shape)
        if known is None:
            mask = static_fit(shape, snapshot.table).mask
            rows = [snapshot.resources[name] for name, _ in shape.requests if name in snapshot.resources]
            free = np.maximum(snapshot.free[rows][:, mask], 0)
            amounts = (*free.max(axis=1, initial=0).tolist(), *free.sum(axis=1).tolist())
            total = int(room(shape, snapshot.free, snapshot.resources)[mask].sum())
            known = self._facts[1][shape] = (total, len(snapshot.table), int(mask.sum()), *amounts)
        return known


def minds_pods(shape: Shape) -> bool:
    """Whether the shape's filters look at other pods."""
    return shape.inter_pod is not None and shape.inter_pod.hard
