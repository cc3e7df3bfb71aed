"""Groups that cannot be heads because they are too young, or larger than the empty cluster
(semantics H3).

Invariant: the reasons do not depend on reservations or running pods. A group that is too young
becomes eligible at a known time; a group that is too large, once a node that takes one of its pods
is added, replaced or offers more. Groups that are too large are compared with nodes at most twice a
minute, because koordlet and device plugins write `allocatable` frequently, and in turns: thousands
may wait, each of another shape.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from msgspec import structs

from gangsched.model.objects import Shape
from gangsched.model.pods_by_node import Ints
from gangsched.model.reservation import NotEntitled, NotReserved
from gangsched.model.snapshot import NodeTable, Snapshot
from gangsched.state.cluster import Cluster
from gangsched.state.group_record import EntitlementCause, GroupRecord, Ineligibility
from gangsched.state.queueing.parked import looks_at_once
from gangsched.state.reserving.news import takes_one_empty
from gangsched.state.timers import JUMP_S, Timers

COMPARED_EVERY_S: Final = 30.0
UNTIL_A_NODE_CHANGES: Final = frozenset({NotEntitled.IMPOSSIBLE, NotEntitled.REFUSED})
OF_A_FENCE: Final = frozenset({NotEntitled.REFUSED, NotEntitled.FENCE_OVER})
"""Causes that a change of the group does not end: else whoever edits a pod each minute would have
an endless fence.
"""
REASONS: Final = UNTIL_A_NODE_CHANGES | OF_A_FENCE | {NotEntitled.TOO_YOUNG, NotEntitled.ORDERED}


@dataclass(slots=True)
class _Comparison:
    """Groups that are compared with nodes that changed, by the shapes of their pods."""

    #: Names of the nodes that are new or other ones.
    changed: Set[str]
    #: By name of the node, the resources of which it offers more.
    offers: Mapping[str, Set[str]]
    left: dict[Shape, list[GroupRecord]] = field(default_factory=dict)

    def add(self, record: GroupRecord, shapes: Set[Shape]) -> None:
        """Compare a group."""
        for shape in shapes:
            of_shape = self.left.setdefault(shape, [])
            of_shape.append(record)

    def helped(self, snapshot: Snapshot) -> set[GroupRecord]:
        """Those of the next groups of which a node takes a pod that is new or another one, or
        offers more of what the pod asks for.
        """
        helped: set[GroupRecord] = set()
        nodes_of: dict[frozenset[str], Ints] = {}
        number = min(looks_at_once(snapshot), len(self.left))

        for _ in range(number):
            shape, groups = self.left.popitem()
            asked = frozenset(name for name, _ in shape.requests)
            if asked not in nodes_of:
                nodes_of[asked] = self._nodes(asked, snapshot.table)

            nodes = nodes_of[asked]
            if takes_one_empty(shape, nodes, snapshot):
                helped.update(groups)

        return helped

    def _nodes(self, asked: Set[str], table: NodeTable) -> Ints:
        """The nodes that may take a pod now which asks for these resources."""
        names = set(self.changed)
        for name, more in self.offers.items():
            if not asked.isdisjoint(more):
                names.add(name)

        is_one = table.having(names)
        return np.flatnonzero(is_one)


class Ineligible:
    """Index of the groups that may not become heads. Times are epoch seconds (`wall_s`) or
    monotonic seconds (`now_s`).
    """

    def __init__(self, cluster: Cluster, groups: Mapping[str, GroupRecord]) -> None:
        self._cluster = cluster
        self._records = groups
        self._ineligible: set[GroupRecord] = set()
        #: Those whose fence is over, which are few: only these move with the clock.
        self._after_fence: set[GroupRecord] = set()
        self._due = Timers()  # in epoch seconds
        self._offset_s = 0.0  # what to add to monotonic seconds for those since the epoch
        self._compared: NodeTable | None = None
        self._compared_s = -math.inf
        self._waits = False
        self._comparison: _Comparison | None = None

    def __len__(self) -> int:
        return len(self._ineligible)

    def ids(self) -> set[str]:
        """Ids of all groups, for validation."""
        return {group.id for group in self._ineligible}

    def put(
        self,
        group: GroupRecord,
        why: NotReserved,
        shapes: frozenset[Shape],
    ) -> None:
        """Record why a group is no longer eligible as a head."""
        group.ineligible = Ineligibility(why, shapes)
        self._ineligible.add(group)
        self._after_fence.discard(group)
        if why.why is NotEntitled.FENCE_OVER:
            self._after_fence.add(group)

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
        self._after_fence.discard(group)
        group.ineligible = None

    def changed(self, group: GroupRecord) -> None:
        """Evaluate a changed group again, since it may now be small or old enough."""
        known = group.ineligible
        if known is not None and known.why.why not in OF_A_FENCE:
            self.remove(group)

    def over(
        self,
        snapshot: Snapshot,
        now_s: float,
        wall_s: float,
    ) -> set[GroupRecord]:
        """Groups whose ineligibility ended, because its time is over or a node changed."""
        self._follow_clock(wall_s - now_s)
        found: set[GroupRecord] = set()
        has_changed = snapshot.table is not self._compared or self._cluster.offers_more
        if self._comparison is None and has_changed:
            self._begin(snapshot, now_s)

        if self._comparison is not None:
            found |= self._go_on(self._comparison, snapshot)

        for group_id in self._due.take_due(wall_s):
            found.add(self._records[group_id])

        return found

    def _follow_clock(self, offset_s: float) -> None:
        """Where the clock was set, times that were counted from a moment of this process move with
        it; those of creations do not.
        """
        moved_s = offset_s - self._offset_s
        if abs(moved_s) < JUMP_S:
            return

        self._offset_s = offset_s
        for group in tuple(self._after_fence):
            known = group.ineligible
            if known is not None:
                until_s = known.why.until_s + moved_s
                self.put(group, structs.replace(known.why, until_s=until_s), known.shapes)

    def next_s(self, behind_s: float) -> float:
        """Monotonic time at which the ineligibility of the next group ends without an event; adding
        `behind_s` converts epoch seconds to monotonic seconds.
        """
        if self._comparison is not None and self._ineligible:
            return -math.inf

        ends_s = self._due.next_s() - behind_s
        if not self._waits or not self._ineligible:
            return ends_s

        compares_s = self._compared_s + COMPARED_EVERY_S
        return min(ends_s, compares_s)

    def _begin(self, snapshot: Snapshot, now_s: float) -> None:
        """Compare all groups with the nodes that have changed since the last time."""
        self._waits = bool(self._ineligible) and now_s < self._compared_s + COMPARED_EVERY_S
        # With 10,000 gangs that are too large, an `allocatable` that flapped each second took more
        # than a core.
        if self._waits:
            return

        before = self._compared
        self._compared = snapshot.table
        comparison = _Comparison(
            changed=_changed(before, snapshot.table),
            offers=self._cluster.take_offers(),
        )

        for record in self._ineligible:
            known = record.ineligible
            if known is None:
                continue
            if known.why.why in UNTIL_A_NODE_CHANGES:
                comparison.add(record, known.shapes)

        if comparison.left:
            self._compared_s = now_s
            self._comparison = comparison

    def _go_on(
        self,
        comparison: _Comparison,
        snapshot: Snapshot,
    ) -> set[GroupRecord]:
        """Those of some of the groups that may be possible now."""
        helped = comparison.helped(snapshot)
        if not comparison.left or not self._ineligible:
            self._comparison = None

        # Others were decided otherwise meanwhile.
        return helped & self._ineligible


def _changed(before: NodeTable | None, now: NodeTable) -> set[str]:
    """Names of the nodes that are new or other ones."""
    old = {}
    if before is not None:
        old = dict(zip(before.names, before.nodes, strict=True))

    # By identity: `Cluster` keeps the object of a node for as long as nothing about it changes.
    changed = set()
    for node in now.nodes:
        if old.get(node.name) is not node:
            changed.add(node.name)

    return changed
