"""Room of a ledger that is promised to others, so that a group may not use it: reservations and
hold-backs.

Invariant: what is promised is only known here; `core.group_rules` derives from it what a group may
use on a node. Nominations need no question, because the ledger already subtracts their room
(`Ledger.respect_nominations`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol

from gangsched.model.gang import Group
from gangsched.model.objects import Shape
from gangsched.model.provisioning import NodeFence
from gangsched.model.snapshot import Bools, Ints, NodeTable


class RoomKept(Protocol):
    """Protocol of reservations, which restrict the room that some groups may use;
    `core.reservations.passing` implements it.
    """

    def narrow(
        self,
        shape: Shape,
        free: Ints,
        group: Group,
    ) -> Ints:
        """`room[n]`: how many of the `free[n]` places for pods of `shape` on node `n` the `group`
        may use.
        """

    def standing(self, group: Group) -> Hashable:
        """A key that is equal for groups with the same restrictions, until the ledger changes; None
        if none apply.
        """


class HeldBackNodes(NamedTuple):
    """`nodes` where groups with a priority below `right` do not start, because `group` may preempt
    there soon (V27).
    """

    group: str
    right: int
    nodes: Bools


class FencedNodes(NamedTuple):
    """`nodes` that an autoscaler added for `group`: others of its `priority` or lower do not start
    there.
    """

    group: str
    priority: int
    nodes: Bools


class RoomPromises:
    """The promises that restrict the groups of one plan; at most one group holds back
    lower-priority groups (V27).
    """

    def __init__(self) -> None:
        self.reserved: RoomKept | None = None
        self.held_back: HeldBackNodes | None = None
        self.fenced: tuple[FencedNodes, ...] = ()

    def __bool__(self) -> bool:
        others = self.held_back is not None or bool(self.fenced)
        return self.reserved is not None or others

    def fence(self, fences: Sequence[NodeFence], table: NodeTable) -> None:
        """Keep the nodes that were added for one group from others (E10)."""
        self.fenced = tuple(
            FencedNodes(fence.group, fence.priority, table.having(fence.nodes)) for fence in fences
        )

    def fenced_from(self, group: Group) -> tuple[FencedNodes, ...]:
        """The fences that keep the group out."""
        if not self.fenced or group.broken:
            return ()

        return tuple(
            fence
            for fence in self.fenced
            if fence.group != group.id and fence.priority >= group.priority
        )

    def held_back_for(self, group: Group) -> HeldBackNodes | None:
        """The nodes on which the group is held back for another group; None if there are none."""
        held_back = self.held_back
        if held_back is None or held_back.right <= group.priority:
            return None

        return held_back

    def keeps_from(self, group: Group) -> bool:
        """Whether reservations restrict the group on any node, so that it may not be able to use
        all free room.
        """
        return self.reserved is not None and self.reserved.standing(group) is not None

    def end_hold_back(self, group_id: str) -> bool:
        """End the hold-back for this group, which is decided now; False if there is no such
        hold-back.
        """
        if self.held_back is None or self.held_back.group != group_id:
            return False

        self.held_back = None
        return True

    @contextmanager
    def without_reservations(self) -> Iterator[None]:
        """Ignore reservations inside the context."""
        reserved = self.reserved
        self.reserved = None

        try:
            yield
        finally:
            self.reserved = reserved

    @contextmanager
    def none(self) -> Iterator[None]:
        """Ignore all promises inside the context, to compute the room at the start of a
        reservation.

        A hold-back lasts until its group is decided. If it counted here, one plan would make a
        reservation that the next plan drops.
        """
        held_back = self.held_back
        fenced = self.fenced
        self.held_back = None
        self.fenced = ()

        try:
            with self.without_reservations():
                yield
        finally:
            self.held_back = held_back
            self.fenced = fenced
