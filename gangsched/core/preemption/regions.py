"""Regions for preemption: the required domains or the whole cluster, and single nodes that can hold
all members (V9).

Invariant: every candidate suffices by sums and uses the lowest sufficient priority; the candidate
that is cheapest by V8 comes first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain

import numpy as np

from gangsched.core.preemption.columns import RunningColumns
from gangsched.core.preemption.numbers import NONE, highest
from gangsched.core.preemption.preemptor import Preemptor
from gangsched.core.preemption.selection import Region
from gangsched.core.preemption.sums import DomainSums, NeededSums
from gangsched.core.preemption.units import PreemptionCandidate, Units
from gangsched.core.reserve import Ledger
from gangsched.core.scope import Scope
from gangsched.model.snapshot import Bools, Ints

SINGLE_NODES = 8
"""Nodes that are looked at one by one, the cheapest first."""
COMPARED = 8
"""Regions whose candidates are compared; regions without any are not counted."""
COMPARING = 6_000
"""Units of work after which the candidates of no further region are compared."""
RECHECKED = 64
"""Units of a candidate in one of several domains that are looked at again with all domains
in mind.
"""


@dataclass(frozen=True, eq=False)
class Regions:
    """Regions in which one preemptor may get room, on a ledger without the leaving pods.

    Each required domain becomes a region when it is tried. If no domain is required, the whole
    cluster is the only region.
    """

    preemptor: Preemptor
    columns: RunningColumns
    units: Units
    domains: DomainSums
    everywhere: Region

    @classmethod
    def of(
        cls,
        preemptor: Preemptor,
        sums: NeededSums,
        columns: RunningColumns,
        ledger: Ledger,
        allowed: Bools,
    ) -> Regions:
        """The regions, if only units of the pods that `allowed` selects may be evicted."""
        units = Units.of(preemptor, columns, allowed)
        everywhere = Region(units, sums, sums.free(ledger), columns.requests(sums.names))
        return cls(
            preemptor,
            columns,
            units,
            DomainSums.of(preemptor.group, sums, ledger),
            everywhere,
        )

    def among(self, allowed: Bools) -> Regions:
        """The same regions with other evictable pods (`allowed`); the sums of free and requested
        amounts are shared.
        """
        units = Units.of(self.preemptor, self.columns, allowed)
        return replace(self, units=units, everywhere=replace(self.everywhere, units=units))

    @cached_property
    def least_victims(self) -> int:
        """Lower bound of the number of victims, computed as if each pod freed as much as the
        largest one.
        """
        region = self.everywhere
        domains = self.domains
        most = np.zeros(domains.level.size, dtype=np.int64)

        for row in range(len(region.sums.names)):
            lack = np.maximum(region.sums.needed(row) - domains.free(region.free, row), 0)
            largest = domains.largest(region.requests[row], self.columns.node)

            # -(-a // b) rounds up.
            most = np.maximum(most, np.where(largest > 0, -(-lack // np.maximum(largest, 1)), 0))

        if not most.size:
            return 0

        return int(most.min())

    def levels(self) -> list[int]:
        """The priorities at which some region could have room if all units up to that priority are
        evicted, ascending. Surplus and budgets are ignored.

        A bisection; each step scans the columns once.
        """
        # Whoever could go at one priority could go at every higher one, so room never becomes less:
        # bisect.
        levels = self.units.levels(self.domains.mask)
        if not levels or not self.has_room_without(self.units.could_go(levels[-1])):
            return []

        low = 0
        high = len(levels) - 1
        while low < high:
            middle = (low + high) // 2
            if self.has_room_without(self.units.could_go(levels[middle])):
                high = middle
            else:
                low = middle + 1

        return levels[low:]

    def have_room(self, units: Sequence[int]) -> bool:
        """Whether, by totals, any region has room without these units."""
        return self.has_room_without(self.columns.mask(self.units.pods_of(units)))

    def has_room_without(self, gone: Bools) -> bool:
        """Whether, by totals, any region has room without the pods `gone`."""
        return bool(self.domains.enough(self.everywhere.without(gone)).any())

    def candidates(self, level: int, *, breaking: bool = False) -> list[PreemptionCandidate]:
        """Sets of units of at most priority `level`, cheapest first; `breaking`: budgets may be
        violated.

        Of sets with equal cost, the one that is found first comes first, so the eviction order
        within a gang takes precedence over the node order.
        """
        made = self._candidates(level, breaking)
        if not breaking and self.columns.budgets.covering:
            # A candidate made as if there were no budgets may break none all the same.
            made = chain(
                made,
                (
                    preemption_candidate
                    for preemption_candidate in self._candidates(level, True)
                    if not preemption_candidate.harm.budgets_broken
                ),
            )

        found: dict[tuple[int, ...], PreemptionCandidate] = {}
        # One after the other, since what is charged here ends the comparing of further regions.
        for needed in map(self._wholly_needed, made):
            found.setdefault(needed.pods, needed)

        return sorted(found.values(), key=lambda each: each.harm)

    def tried(self, level: int, *, closely: bool = False) -> Iterator[Region]:
        """The regions that could hold the members, ordered by fewest stopped gangs, then by least
        lost work. With `closely`, each region is followed by its single nodes that could hold all
        members.
        """
        could = np.flatnonzero(
            self.domains.enough(self.everywhere.without(self.units.could_go(level)))
        )
        if could.size > 1:
            room = self.domains.room(self.everywhere.free)
            stopped, work = self._least_harm(level)
            could = could[np.lexsort((-room[could], work[could], stopped[could]))]

        for n in could.tolist():
            region = self.everywhere.within(self.domains.scope(n))
            yield region

            # If filters read other pods, the cheapest victims may be pods near which the members
            # must run. Then no set that contains these helps, but victims on a single node may.
            for node in _single_nodes(region, level) if closely else ():
                if (pods := np.flatnonzero(self.columns.node == node)).size:
                    name = f"{region.name} {self.columns.running[int(pods[0])].node}"
                    yield replace(_only(node, region, name), is_extra=True)

    def _least_harm(self, level: int) -> tuple[Ints, Ints]:
        """By domain the members of cores, and the work, that go at least, by the resource that is
        short first.

        An estimate for the order only: nodes do not count.
        """
        region = self.everywhere
        columns = self.columns
        row = self.everywhere.scarce
        pods = np.flatnonzero(
            self.units.could_go(level) & columns.on_node & (region.requests[row] > 0)
        )
        pods = pods[self.domains.level.codes[columns.node[pods]] != NONE]
        region.sums.work.charge(50 + len(columns.running) // 50 + len(pods) // 20)
        domain = self.domains.level.codes[columns.node[pods]]
        size = region.requests[row][pods]
        order = np.lexsort((columns.work[pods] / size, ~self.units.single[pods], domain))
        pods = pods[order]
        domain = domain[order]
        size = size[order]

        # What the pods before each one free, counted from the first pod of its domain: a running
        # sum over all domains, less its value where the domain begins. A domain without pods begins
        # at the end, where 0 is appended.
        freed = np.cumsum(size) - size
        first = np.searchsorted(domain, np.arange(self.domains.level.size))
        before = np.append(freed, 0)[first][domain]
        lack = region.sums.needed(row) - self.domains.free(region.free, row)
        taken = freed - before < lack[domain]
        stopped, work = (
            np.bincount(
                domain[taken],
                weights=each[pods][taken],
                minlength=self.domains.level.size,
            ).astype(np.int64)
            for each in (~self.units.single, columns.work)
        )

        return stopped, work

    def _candidates(self, level: int, breaking: bool) -> Iterator[PreemptionCandidate]:
        # Regions come cheapest first, so that what work there is compares those that may be best.
        work = self.everywhere.sums.work
        with_candidate = 0
        begun = work.used

        for part in self.tried(level):
            is_one = False
            for by_node in (False, True):
                if is_one and work.used - begun > COMPARING // 2:
                    break

                found = part.cheapest(level, by_node=by_node, breaking=breaking)
                if found is not None:
                    is_one = True
                    yield found

                    if self._is_least(found, level):
                        return

            for node in _single_nodes(part, level):
                found = _only(node, part).cheapest(level, breaking=breaking, outer=part)
                if found is not None:
                    is_one = True
                    yield found

            with_candidate += is_one
            if with_candidate == COMPARED or (with_candidate and work.used - begun > COMPARING):
                return

    def _is_least(self, found: PreemptionCandidate, level: int) -> bool:
        """Whether no candidate can be better: it has the fewest pods that may do, and the least is
        lost with them.
        """
        harm = found.harm
        number = self.least_victims
        if harm.gangs_stopped or harm.budgets_broken or harm.victims != number or not number:
            return False

        units = self.units
        columns = self.columns
        inside = columns.inside(self.domains.mask)

        could = np.flatnonzero(units.could_go(level) & inside)
        if harm.highest_priority > int(
            np.partition(columns.priority[could], number - 1)[number - 1]
        ):
            return False

        wait = columns.wait[could]
        if harm.wait_steps > int(wait.min()):
            return False

        # In the order of `Harm`: if all of it is equal to that of the best pods, no other set is
        # better.
        first = could[np.lexsort((-columns.start[could], wait, columns.work[could]))[:number]]
        return (harm.work_lost, harm.started_s) == (
            int(columns.work[first].sum()),
            -int(columns.start[first].sum()),
        )

    def _wholly_needed(self, chosen: PreemptionCandidate) -> PreemptionCandidate:
        """The candidate without what another required domain makes needless; a core may free room
        in several.
        """
        units = self.units
        needed = list(chosen.units)

        touched = np.unique(self.domains.level.codes[self.columns.node[list(chosen.pods)]])
        if touched.size < 2 or len(chosen.units) > RECHECKED:
            return chosen

        for unit in reversed(chosen.units):
            less = [each for each in needed if each != unit]
            if self.have_room(less):
                needed = less

        return units.candidate(needed)


def _only(node: int, region: Region, name: str = "") -> Region:
    """The node as a region of its own."""
    mask = np.zeros_like(region.sums.mask)
    mask[node] = True
    return region.within(Scope(mask, mask, name=name))


def _single_nodes(region: Region, level: int) -> list[int]:
    """Nodes that could hold all members: those where no gang stops, the least work on them, and
    free the soonest.
    """
    units = region.units
    columns = region.units.columns
    could_go = units.could_go(level)
    fits = region.sums.on_one_node(region.without(could_go)) & region.sums.mask

    nodes = np.flatnonzero(fits)
    if not nodes.size:
        return []

    alone = units.single & (columns.priority <= level)
    gently = region.sums.on_one_node(region.without(alone))[nodes]
    work, wait = np.zeros((2, 2, region.free.shape[1]))

    for row, gone in enumerate((could_go, alone)):
        pods = np.flatnonzero(gone & columns.on_node)
        of = columns.node[pods]
        work[row] = np.bincount(of, weights=columns.work[pods] + 1, minlength=region.free.shape[1])
        wait[row] = highest(columns.wait[pods], of, region.free.shape[1])

    keys = (np.where(gently, each[1][nodes], each[0][nodes]) for each in (wait, work))
    order = np.lexsort((nodes, *keys, ~gently))
    found: list[int] = nodes[order][:SINGLE_NODES].tolist()

    return found
