"""Backfill: where groups may go that come after a reservation (H8 of the backfill design).

Law: a group of equal or lower priority than a head keeps off what the head's reservation needs. It may use other nodes;
what remains of a reserved node both now and at the reservation's time; and reserved room itself, if it is expected to
end by then. Nothing enters a fence. Broken groups and those of higher priority pass freely, and a reservation never
binds its own group.

Not yet called by `core.cycle.plan`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gangsched.core.filter.node_resources_fit import room
from gangsched.core.reservations.reservation import Reservation
from gangsched.core.reserve import Ledger
from gangsched.model.gang import Group
from gangsched.model.objects import Shape
from gangsched.model.reservation import How
from gangsched.model.snapshot import Ints


@dataclass(slots=True)
class _Kept:
    """A reservation, and what is left of its nodes at its time after those who passed since: `spare[r][i]`."""

    reservation: Reservation
    spare: Ints


class Backfill:
    """The reservations of one plan, in their order; `take` counts what passes beside them."""

    def __init__(self, reservations: Sequence[Reservation], ledger: Ledger) -> None:
        """Columns are those of `ledger`, on which the groups behind are placed."""
        self._resources = ledger.resources
        self._kept = [_Kept(each, each.spare.copy()) for each in reservations]

    def narrow(self, shape: Shape, free: Ints, group: Group, *, ends_s: float) -> Ints:
        """`room[n]` left to `group` of the `free[n]` pods of `shape` that node `n` takes now; `free` is not changed.

        `ends_s` is when the group would be expected to end if it started now, `math.inf` for unknown.
        """
        allowed = free
        for kept in self._binding(group, ends_s):
            nodes = kept.reservation.nodes
            then = np.zeros_like(nodes) if kept.reservation.is_fence else room(shape, kept.spare, self._resources)
            allowed = allowed.copy() if allowed is free else allowed
            allowed[nodes] = np.minimum(allowed[nodes], then)
        return allowed

    def take(self, shape: Shape, nodes: Ints, counts: Ints, *, ends_s: float) -> None:
        """Pods were placed, `counts[i]` on `nodes[i]`: what of them is still there at a reservation's time is spare."""
        for kept in self._kept:
            if ends_s <= kept.reservation.at_s and not kept.reservation.is_fence:
                continue
            _, at, placed = np.intersect1d(kept.reservation.nodes, nodes, assume_unique=True, return_indices=True)
            for name, amount in shape.requests:
                if name in self._resources:
                    kept.spare[self._resources[name], at] -= counts[placed] * amount

    def how(self, nodes: Ints, group: Group, *, ends_s: float) -> How | None:
        """What let the group onto these nodes; None where no reservation binds it at all."""
        before = [kept.reservation for kept in self._kept if _binds(kept.reservation, group)]
        if not before:
            return None
        there = [each for each in before if np.isin(each.nodes, nodes).any()]
        if not there:
            return How.BESIDE
        return How.SPARE if any(ends_s > each.at_s for each in there) else How.SHORT

    def _binding(self, group: Group, ends_s: float) -> list[_Kept]:
        return [
            kept
            for kept in self._kept
            if _binds(kept.reservation, group) and (kept.reservation.is_fence or ends_s > kept.reservation.at_s)
        ]


def _binds(reservation: Reservation, group: Group) -> bool:
    """Whether the group comes behind the reservation."""
    head = reservation.head.group
    return head.id != group.id and not group.broken and head.priority >= group.priority
