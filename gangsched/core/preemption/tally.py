"""Totals of room in plain integers, while victims are spared one by one (V9).

Invariant: a unit that is not spared leaves no trace. Slices are counted by domain, as in `sums`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import sub
from typing import TypeAlias

import numpy as np

from gangsched.core.preemption.numbers import NONE, ints, lookup
from gangsched.core.preemption.sums import NeededSums, SliceSum
from gangsched.model.snapshot import Bools, Ints

Column: TypeAlias = tuple[int, ...]
"""Amounts by resource: what is free on a node, or what a pod requests."""
FitsOn: TypeAlias = Callable[[Column], int]
"""How many members of an ask fit into what is free on a node."""


class Tally:
    """Totals in plain integers, updated when victims are spared one by one. `spare[k]`: number of
    places for members of kind k beyond those needed.

    Sparing one of a thousand victims costs a few additions instead of new sums over all nodes.
    """

    def __init__(self, sums: NeededSums, free: Ints) -> None:
        """`free[r][n]` is the free room once all chosen victims are gone. Raises OutOfWork."""
        sums.charge(free)
        self._sums = sums
        self.free = free
        self._columns: dict[int, Column] = {}

        self._fits: list[FitsOn] = []
        self._masks = []
        self.spare = []
        rooms = []
        for ask in sums.asks:
            asked = tuple((row, amount) for row, amount in enumerate(ask.amounts) if amount)
            room = ask.rooms(free)
            members = int(room.sum())

            self._fits.append(partial(_fits, asked))
            self._masks.append(ask.mask.tolist())
            self.spare.append(members - ask.count)
            rooms.append(room)

        self._rest = []
        for total in sums.totals:
            self._rest.append(total.free(free) - total.amount)

        self._slices = []
        for slice_sum in sums.slices:
            self._slices.append(_Slices(sums, slice_sum, free, rooms))

    def give_back(self, pods: Sequence[tuple[int, Column]]) -> bool:
        """Spare these pods, given as (node, requests), if enough room is free without their
        eviction; return whether they were spared.
        """
        after: dict[int, Column] = {}
        for node, requests in pods:
            have = after.get(node) or self._column(node)
            after[node] = tuple(map(sub, have, requests))

        spare = list(self.spare)
        rest = list(self._rest)

        for node, column in after.items():
            before = self._column(node)
            for ask, fits in enumerate(self._fits):
                if self._masks[ask][node]:
                    spare[ask] -= fits(before) - fits(column)

            for number, total in enumerate(self._sums.totals):
                if total.mask[node]:
                    row = total.row
                    rest[number] -= max(0, before[row]) - max(0, column[row])

        if min(spare) < 0 or min(rest, default=0) < 0:
            return False

        if self._slices and not self._give_back_slices(after):
            return False

        self.spare = spare
        self._rest = rest
        self._columns.update(after)  # only now: a unit that is not spared must leave no trace
        return True

    def _give_back_slices(self, after: Mapping[int, Column]) -> bool:
        """Take the columns into the sums of all slices, if enough slices fit with each."""
        changed = []
        for node, column in after.items():
            changed.append((node, self._column(node), column))

        reduced = []
        for slices in self._slices:
            quantities = slices.without(changed, self._fits, self._masks)
            if quantities is None:
                return False

            reduced.append(quantities)

        for slices, quantities in zip(self._slices, reduced, strict=True):
            slices.take(quantities)

        return True

    def breaks_slices(
        self,
        ask: int,
        nodes: Ints,
        lost: Ints,
    ) -> Bools:
        """For each pod on node `nodes[i]`, whether too few slices would fit if there were room for
        `lost[i]` fewer members of the ask number `ask`.
        """
        is_broken = np.zeros(nodes.size, dtype=np.bool_)
        for slices in self._slices:
            is_broken |= slices.breaks(ask, nodes, lost)

        return is_broken

    def _column(self, node: int) -> Column:
        column = self._columns.get(node)
        if column is None:
            column = tuple(self.free[:, node].tolist())
            self._columns[node] = column

        return column


class _Slices:
    """Running sums of the slices of a layer: by domain what there is of each quantity, and how many
    are to spare.
    """

    def __init__(
        self,
        sums: NeededSums,
        slice_sum: SliceSum,
        free: Ints,
        rooms: Sequence[Ints],
    ) -> None:
        level = slice_sum.level
        self._sum = slice_sum
        self._domains = level.codes.tolist()
        self._divisors = slice_sum.divisors

        have = []
        for quantity in sums.quantities(slice_sum, free, rooms):
            have.append(level.sums(quantity))

        columns = [by_domain.tolist() for by_domain in have]
        self._have = list(zip(*columns, strict=True))

        copies = slice_sum.copies(have)
        self._copies = copies.tolist()
        self._spare = int(copies.sum()) - slice_sum.number
        self._mask = sums.mask.tolist() if slice_sum.amounts else []

    def without(
        self,
        changed: Sequence[tuple[int, Column, Column]],
        fits: Sequence[FitsOn],
        masks: Sequence[Sequence[bool]],
    ) -> dict[int, Column] | None:
        """The quantities in the domains of these nodes, whose free column changes; None if too few
        slices would fit.
        """
        reduced: dict[int, Column] = {}
        for node, before, after in changed:
            domain = self._domains[node]
            if domain == NONE:
                continue

            less = []
            for ask, _ in self._sum.parts:
                taken = 0
                if masks[ask][node]:
                    taken = fits[ask](before) - fits[ask](after)

                less.append(taken)

            for row, _ in self._sum.amounts:
                taken = 0
                if self._mask[node]:
                    taken = max(0, before[row]) - max(0, after[row])

                less.append(taken)

            have = reduced.get(domain) or self._have[domain]
            reduced[domain] = tuple(map(sub, have, less))

        lost = 0
        for domain, have in reduced.items():
            lost += self._copies[domain] - self._fit(have)

        if lost > self._spare:
            return None

        return reduced

    def take(self, quantities: Mapping[int, Column]) -> None:
        """Set the quantities that `without` returned."""
        for domain, have in quantities.items():
            copies = self._fit(have)
            self._spare -= self._copies[domain] - copies
            self._have[domain] = have
            self._copies[domain] = copies

    def breaks(
        self,
        ask: int,
        nodes: Ints,
        lost: Ints,
    ) -> Bools:
        """As `Tally.breaks_slices`, but only before any pod was spared."""
        is_broken = np.zeros(nodes.size, dtype=np.bool_)
        domain = self._sum.level.codes[nodes]

        for number, (part, size) in enumerate(self._sum.parts):
            if part != ask:
                continue

            members = ints([have[number] for have in self._have])
            room = lookup(members, domain, none=0)
            copies = lookup(ints(self._copies), domain, none=0)
            copies_left = (room - lost) // size
            is_too_few = copies - copies_left > self._spare
            is_broken |= is_too_few & (domain != NONE)

        return is_broken

    def _fit(self, have: Column) -> int:
        amounts = zip(have, self._divisors, strict=True)
        return min(amount // divisor for amount, divisor in amounts)


def _fits(
    amounts: Sequence[tuple[int, int]],
    column: Column,
) -> int:
    """How many members of these amounts, each of a row, fit into what is free on a node."""
    fits = [column[row] // amount for row, amount in amounts]
    return max(0, min(fits))
