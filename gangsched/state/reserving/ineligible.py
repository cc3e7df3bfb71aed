"""Groups that cannot be heads because they are too young, or larger than the empty cluster
(semantics H3).

Invariant: the reasons do not depend on reservations or running pods. A group that is too young
becomes eligible at a known time; a group that is too large, once a node that takes one of its pods
is added, replaced or offers more. Groups that are too large are compared with nodes at most twice a
minute, because koordlet and device plugins write `allocatable` frequently.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Set
from functools import cache
from typing import Final

import numpy as np
from msgspec import structs

from gangsched.model.objects import Shape
from gangsched.model.pods_by_node import Ints
from gangsched.model.reservation import NotEntitled, NotReserved
from gangsched.model.snapshot import NodeTable, Snapshot
from gangsched.state.cluster import Cluster
from gangsched.state.group_record import EntitlementCause, GroupRecord, Ineligibility
from gangsched.state.reserving.news import takes_one_empty
from gangsched.state.timers import JUMP_S, Timers

COMPARED_EVERY_S: Final = 30.0
UNTIL_A_NODE_CHANGES: Final = frozenset({NotEntitled.IMPOSSIBLE, NotEntitled.REFUSED})
OF_A_FENCE: Final = frozenset({NotEntitled.REFUSED, NotEntitled.FENCE_OVER})
"""Causes that a change of the group does not end: else whoever edits a pod each minute would have
an endless fence.
"""
REASONS: Final = UNTIL_A_NODE_CHANGES | OF_A_FENCE | {NotEntitled.TOO_YOUNG, NotEntitled.ORDERED}


class Ineligible:
    """Index of the groups that may not become heads. Times are epoch seconds (`wall_s`) or
    monotonic seconds (`now_s`).
    """

    def __init__(self, cluster: Cluster, groups: Mapping[str, GroupRecord]) -> None:
        self._cluster = cluster
        self._records = groups
        self._ineligible: set[GroupRecord] = set()
        self._due = Timers()  # in epoch seconds
        self._offset_s = 0.0  # what to add to monotonic seconds for those since the epoch
        self._compared: NodeTable | None = None
        self._compared_s = -math.inf
        self._waits = False

    def __len__(self) -> int:
        return len(self._ineligible)

    def ids(self) -> set[str]:
        """Ids of all groups, for validation."""
        return {group.id for group in self._ineligible}

    def put(self, group: GroupRecord, why: NotReserved, shapes: frozenset[Shape]) -> None:
        """Record why a group is no longer eligible as a head."""
        group.ineligible = Ineligibility(why, shapes)
        self._ineligible.add(group)
        self._due.set(group.id, why.until_s)

    def remove(self, group: GroupRecord) -> None:
        """Remove a group that no longer waits for room."""
        if group.ineligible is not None:
            self.end(group)
            group.entitle(EntitlementCause.CHANGED)

    def end(self, group: GroupRecord) -> None:
        """Drop the reason why the group cannot be a head; the caller changes its entitlement."""
        self._due.drop(group.id)
        self._ineligible.discard(group)
        group.ineligible = None

    def changed(self, group: GroupRecord) -> None:
        """Evaluate a changed group again, since it may now be small or old enough."""
        if group.ineligible is not None and group.ineligible.why.why not in OF_A_FENCE:
            self.remove(group)

    def over(self, snapshot: Snapshot, now_s: float, wall_s: float) -> set[GroupRecord]:
        """Groups whose ineligibility ended, because its time is over or a node changed."""
        self._follow_clock(wall_s - now_s)
        found: set[GroupRecord] = set()
        if snapshot.table is not self._compared or self._cluster.offers_more:
            found |= self._compare(snapshot, now_s)

        found.update(self._records[group] for group in self._due.take_due(wall_s))
        return found

    def _follow_clock(self, offset_s: float) -> None:
        """Where the clock was set, times that were counted from a moment of this process move with
        it; those of creations do not.
        """
        moved_s = offset_s - self._offset_s
        if abs(moved_s) < JUMP_S:
            return

        self._offset_s = offset_s
        for group in tuple(self._ineligible):
            known = group.ineligible
            if known is not None and known.why.why is NotEntitled.FENCE_OVER:
                until_s = known.why.until_s + moved_s
                self.put(group, structs.replace(known.why, until_s=until_s), known.shapes)

    def next_s(self, behind_s: float) -> float:
        """Monotonic time at which the ineligibility of the next group ends without an event; adding
        `behind_s` converts epoch seconds to monotonic seconds.
        """
        ends_s = self._due.next_s() - behind_s
        if not self._waits or not self._ineligible:
            return ends_s

        compares_s = self._compared_s + COMPARED_EVERY_S
        return min(ends_s, compares_s)

    def _compare(self, snapshot: Snapshot, now_s: float) -> set[GroupRecord]:
        self._waits = bool(self._ineligible) and now_s < self._compared_s + COMPARED_EVERY_S
        # With 10,000 gangs that are too large, an `allocatable` that flapped each second took more
        # than a core.
        if self._waits:
            return set()

        before = self._compared
        self._compared = snapshot.table
        offers = self._cluster.take_offers()
        asked = {}

        for record in self._ineligible:
            known = record.ineligible
            if known is None:
                continue
            if known.why.why in UNTIL_A_NODE_CHANGES:
                asked[record] = known.shapes

        if not asked:
            return set()

        self._compared_s = now_s
        shapes_asked = frozenset[Shape]().union(*asked.values())
        helped = _helped(shapes_asked, before, offers, snapshot)
        result: set[GroupRecord] = set()
        for group, shapes in asked.items():
            if not helped.isdisjoint(shapes):
                result.add(group)

        return result


def _helped(
    shapes: Iterable[Shape],
    before: NodeTable | None,
    offers: Mapping[str, Set[str]],
    snapshot: Snapshot,
) -> set[Shape]:
    """The shapes that a node takes which is new or another one since `before`, or offers more of
    what they ask for.
    """
    table = snapshot.table
    old = dict(zip(before.names, before.nodes, strict=True)) if before is not None else {}

    # By identity: `Cluster` keeps the object of a node for as long as nothing about it changes.
    changed = set()
    for n, node in enumerate(table.nodes):
        if old.get(node.name) is not node:
            changed.add(n)

    @cache
    def may_help(resources: frozenset[str]) -> Ints:
        freed = set()
        for name, more in offers.items():
            if not resources.isdisjoint(more):
                freed.add(table.index[name])

        return np.array(sorted(changed | freed), dtype=np.int64)

    helped: set[Shape] = set()
    for shape in shapes:
        if takes_one_empty(
            shape,
            may_help(frozenset(name for name, _ in shape.requests)),
            snapshot,
        ):
            helped.add(shape)

    return helped
