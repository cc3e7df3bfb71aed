"""Where room is made: in a required domain or anywhere, and on single nodes if one can hold all missing members (V9).

Invariant: every choice suffices by sums and uses the lowest sufficient priority; the cheapest by V8 comes first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from gangsched.core.preemption.columns import highest
from gangsched.core.preemption.needed_sums import NeededSums
from gangsched.core.preemption.preemptor import Preemptor
from gangsched.core.preemption.selection import Choice, Region, choice
from gangsched.core.preemption.units import Units
from gangsched.core.reserve import Ledger
from gangsched.core.scope import Scope
from gangsched.core.search.domains import regions
from gangsched.model.snapshot import Bools

SINGLE_NODES = 8
"""Nodes that are looked at one by one, the cheapest first."""
COMPARED = 8
"""Regions whose choices are compared; regions without any are not counted."""
RECHECKED = 64
"""Units of a choice in one of several domains that are looked at again with all domains in mind."""


@dataclass(frozen=True, slots=True, eq=False)
class Regions:
    """The required domains as `parts`; the whole cluster if nothing is required."""

    parts: Sequence[Region]

    @classmethod
    def of(cls, preemptor: Preemptor, sums: NeededSums, units: Units, ledger: Ledger) -> Regions:
        """All regions for a preemptor, on a ledger without the pods that leave anyway."""
        everywhere = Region(units, sums, sums.free(ledger), units.columns.requests(sums.names))
        return cls([everywhere.within(scope) for scope in regions(preemptor.group, ledger)])

    def least_victims(self) -> int:
        """Lower bound of the number of victims, if each frees as much as the largest."""
        found = [_least_victims(part) for part in self.parts]
        return min(found, default=0)

    def lowest_level(self) -> tuple[int, list[int]] | None:
        """The lowest priority at which any region could have room, and the levels from there on; None if none does.

        A bisection; each step scans the columns once.
        """
        if not self.parts:
            return None
        mask = np.logical_or.reduce([part.mask for part in self.parts])
        levels = self.parts[0].units.levels(mask)
        if not levels or not self.could(levels[-1]):
            return None
        low, high = 0, len(levels) - 1
        while low < high:
            middle = (low + high) // 2
            if self.could(levels[middle]):
                high = middle
            else:
                low = middle + 1
        return levels[low], levels[low:]

    def could(self, level: int) -> bool:
        """Whether any region has room without all pods that could be evicted at `level`, ignoring
        surplus and budgets.
        """
        return bool(self.parts) and self.have_room(self.parts[0].units.could_go(level))

    def have_room(self, gone: Bools) -> bool:
        """Whether, by sums, any region has room without the pods with `gone[i]`."""
        free = self.parts[0].without(gone)  # of the whole cluster, and so the same for every region
        return any(part.sums.enough(free) for part in self.parts)

    def choices(self, level: int, *, breaking: bool = False) -> list[Choice]:
        """Sets of units of at most priority `level`, cheapest first; `breaking`: budgets may be violated.

        Among equals the first one found stays first, so eviction order within a gang decides before node order.
        """
        found: dict[tuple[int, ...], Choice] = {}
        for each in chain(self._choices(level, breaking), () if breaking else self._by_chance(level)):
            needed = self._wholly_needed(each)
            found.setdefault(needed.pods, needed)
        return sorted(found.values(), key=lambda each: each.harm)

    def tried(self, level: int) -> list[Region]:
        """Regions that could hold the members, those with the most free room first."""
        if not self.parts:
            return []
        free = self.parts[0].without(self.parts[0].units.could_go(level))
        could = [part for part in self.parts if part.sums.enough(free)]
        return sorted(could, key=lambda part: -part.sums.room(part.free))

    def _choices(self, level: int, breaking: bool) -> Iterator[Choice]:
        with_choice = 0
        for part in self.tried(level):
            is_one = False
            for by_node in (False, True):
                if (found := part.cheapest(level, by_node=by_node, breaking=breaking)) is not None:
                    is_one = True
                    yield found
                    if self._is_least(found, level):
                        return
            for node in _single_nodes(part, level):
                single = part.within(_only(node, part.mask))
                if (found := single.cheapest(level, breaking=breaking, outer=part)) is not None:
                    is_one = True
                    yield found
            with_choice += is_one
            if with_choice == COMPARED:
                return

    def _is_least(self, found: Choice, level: int) -> bool:
        """Whether no choice can be better: it has the fewest pods that may do, and those with which least is lost."""
        harm, number = found.harm, self.least_victims()
        if harm.gangs_stopped or harm.budgets_broken or harm.victims != number or not number:
            return False
        units, columns = self.parts[0].units, self.parts[0].units.columns
        inside = np.logical_or.reduce([units.inside(part.mask) for part in self.parts])
        could = np.flatnonzero(units.could_go(level) & inside)
        if harm.highest_priority > int(np.partition(columns.priority[could], number - 1)[number - 1]):
            return False
        wait = columns.wait[could]
        if harm.wait_steps > int(wait.min()):
            return False
        first = could[np.lexsort((-columns.start[could], wait, columns.work[could]))[:number]]
        return (harm.work_lost, harm.started_s) == (int(columns.work[first].sum()), -int(columns.start[first].sum()))

    def _by_chance(self, level: int) -> Iterator[Choice]:
        """Choices made as if there were no budgets, which break none all the same."""
        if self.parts and self.parts[0].units.columns.budgets.covering:
            yield from (each for each in self._choices(level, True) if not each.harm.budgets_broken)

    def _wholly_needed(self, chosen: Choice) -> Choice:
        """The choice without what another required domain makes needless; a group's core may free room in several."""
        if len(self.parts) < 2 or len(chosen.units) > RECHECKED:
            return chosen
        units, needed = self.parts[0].units, list(chosen.units)
        for unit in reversed(chosen.units):
            less = [each for each in needed if each != unit]
            if self.have_room(units.columns.mask(units.pods_of(less))):
                needed = less
        return choice(needed, units)


def _least_victims(region: Region) -> int:
    sums, anywhere = region.sums, region.units.inside(region.mask)
    most = 0
    for row in range(len(sums.names)):
        needed = sum(ask.amounts[row] * ask.count for ask in sums.asks)
        lack = needed - int(np.maximum(region.free[row][region.mask], 0).sum())
        largest = int(region.requests[row][anywhere].max(initial=0))
        if lack > 0 and largest:
            most = max(most, -(-lack // largest))
    return most


def _only(node: int, like: Bools) -> Scope:
    mask = np.zeros_like(like)
    mask[node] = True
    return Scope(mask, mask)


def _single_nodes(region: Region, level: int) -> list[int]:
    """Nodes that could hold all members: those where no gang stops, the least work on them, and free the soonest."""
    units, columns = region.units, region.units.columns
    could_go = units.could_go(level)
    fits = region.sums.on_one_node(region.without(could_go)) & region.mask
    nodes = np.flatnonzero(fits)
    if not nodes.size:
        return []
    alone = units.single & (columns.priority <= level)
    gently = region.sums.on_one_node(region.without(alone))[nodes]
    work, wait = np.zeros((2, 2, region.free.shape[1]))
    for row, gone in enumerate((could_go, alone)):
        pods = np.flatnonzero(gone & (columns.node >= 0))
        of = columns.node[pods]
        work[row] = np.bincount(of, weights=columns.work[pods] + 1, minlength=region.free.shape[1])
        wait[row] = highest(columns.wait[pods], of, region.free.shape[1])
    keys = (np.where(gently, each[1][nodes], each[0][nodes]) for each in (wait, work))
    order = np.lexsort((nodes, *keys, ~gently))
    found: list[int] = nodes[order][:SINGLE_NODES].tolist()
    return found
