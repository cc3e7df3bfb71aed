"""Regions for preemption: the required domains or the whole cluster, and single nodes that can hold
all members (V9).

Invariant: every candidate suffices by sums and uses the lowest sufficient priority; the candidate
that is cheapest by V8 comes first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

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
        requests = columns.requests(sums.names)
        everywhere = Region(units, sums, sums.free(ledger), requests)
        domains = DomainSums.of(preemptor.group, sums, ledger)
        return cls(preemptor, columns, units, domains, everywhere)

    def among(self, allowed: Bools) -> Regions:
        """The same regions with other evictable pods (`allowed`); the sums of free and requested
        amounts are shared.
        """
        units = Units.of(self.preemptor, self.columns, allowed)
        everywhere = replace(self.everywhere, units=units)
        return replace(self, units=units, everywhere=everywhere)

    @cached_property
    def least_victims(self) -> int:
        """Lower bound of the number of victims, computed as if each pod freed as much as the
        largest one.
        """
        region = self.everywhere
        domains = self.domains
        most = np.zeros(domains.level.size, dtype=np.int64)

        for row in range(len(region.sums.names)):
            lack = region.sums.needed(row) - domains.free(region.free, row)
            lack = np.maximum(lack, 0)
            largest = domains.largest(region.requests[row], self.columns.node)

            # -(-a // b) rounds up.
            victims = -(-lack // np.maximum(largest, 1))
            most = np.maximum(most, np.where(largest > 0, victims, 0))

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
        if not levels or not self._have_room_at(levels[-1]):
            return []

        low = 0
        high = len(levels) - 1
        while low < high:
            middle = (low + high) // 2
            if self._have_room_at(levels[middle]):
                high = middle
            else:
                low = middle + 1

        return levels[low:]

    def have_room(self, units: Sequence[int]) -> bool:
        """Whether, by totals, any region has room without these units."""
        pods = self.units.pods_of(units)
        return self.has_room_without(self.columns.mask(pods))

    def has_room_without(self, gone: Bools) -> bool:
        """Whether, by totals, any region has room without the pods `gone`."""
        free = self.everywhere.without(gone)
        return bool(self.domains.enough(free).any())

    def _have_room_at(self, level: int) -> bool:
        could_go = self.units.could_go(level)
        return self.has_room_without(could_go)

    def candidates(
        self,
        level: int,
        *,
        breaking: bool = False,
    ) -> list[PreemptionCandidate]:
        """Sets of units of at most priority `level`, cheapest first; `breaking`: budgets may be
        violated.

        Of sets with equal cost, the one that is found first comes first, so the eviction order
        within a gang takes precedence over the node order.
        """
        by_pods: dict[tuple[int, ...], PreemptionCandidate] = {}
        # One after the other, since what is charged here ends the comparing of further regions.
        for candidate in self._candidates(level, breaking):
            needed = self._wholly_needed(candidate)
            by_pods.setdefault(needed.pods, needed)

        if not breaking and self.columns.budgets.covering:
            # A candidate made as if there were no budgets may break none all the same.
            for candidate in self._candidates(level, True):
                if not candidate.harm.budgets_broken:
                    needed = self._wholly_needed(candidate)
                    by_pods.setdefault(needed.pods, needed)

        return sorted(by_pods.values(), key=lambda candidate: candidate.harm)

    def tried(
        self,
        level: int,
        *,
        closely: bool = False,
    ) -> Iterator[Region]:
        """The regions that could hold the members, ordered by fewest stopped gangs, then by least
        lost work. With `closely`, each region is followed by its single nodes that could hold all
        members.
        """
        for domain in self._could_hold(level):
            scope = self.domains.scope(domain)
            region = self.everywhere.within(scope)
            yield region

            # If filters read other pods, the cheapest victims may be pods near which the members
            # must run. Then no set that contains these helps, but victims on a single node may.
            if closely:
                yield from self._nodes_of(region, level)

    def _could_hold(self, level: int) -> list[int]:
        """The domains that could hold the members, those with least harm first."""
        free = self.everywhere.without(self.units.could_go(level))
        domains = np.flatnonzero(self.domains.enough(free))
        if domains.size > 1:
            room = self.domains.room(self.everywhere.free)
            stopped, work = self._least_harm(level)
            order = np.lexsort((-room[domains], work[domains], stopped[domains]))
            domains = domains[order]

        in_order: list[int] = domains.tolist()
        return in_order

    def _nodes_of(
        self,
        region: Region,
        level: int,
    ) -> Iterator[Region]:
        """The single nodes with pods that could hold all members, each as a region."""
        for node in _single_nodes(region, level):
            pods = np.flatnonzero(self.columns.node == node)
            if pods.size:
                first = self.columns.running[int(pods[0])]
                name = f"{region.name} {first.node}"
                yield replace(_only(node, region, name), is_extra=True)

    def _least_harm(self, level: int) -> tuple[Ints, Ints]:
        """By domain the members of cores, and the work, that go at least, by the resource that is
        short first.

        An estimate for the order only: nodes do not count.
        """
        region = self.everywhere
        columns = self.columns
        codes = self.domains.level.codes
        size = self.domains.level.size
        row = region.scarce
        requests = region.requests[row]

        may_go = self.units.could_go(level) & columns.on_node & (requests > 0)
        pods = np.flatnonzero(may_go)
        pods = pods[codes[columns.node[pods]] != NONE]
        region.sums.work.charge(50 + len(columns.running) // 50 + len(pods) // 20)

        in_core = ~self.units.single
        domain = codes[columns.node[pods]]
        # np.lexsort takes the most important key last.
        work_a_unit = columns.work[pods] / requests[pods]
        order = np.lexsort((work_a_unit, in_core[pods], domain))
        pods = pods[order]
        domain = domain[order]
        amounts = requests[pods]

        # What the pods before each one free, counted from the first pod of its domain: a running
        # sum over all domains, less its value where the domain begins. A domain without pods begins
        # at the end, where 0 is appended.
        freed = np.cumsum(amounts) - amounts
        first = np.searchsorted(domain, np.arange(size))
        before = np.append(freed, 0)[first]
        freed_in_domain = freed - before[domain]

        lack = region.sums.needed(row) - self.domains.free(region.free, row)
        is_taken = freed_in_domain < lack[domain]
        taken = pods[is_taken]
        taken_from = domain[is_taken]

        stopped = np.bincount(taken_from, weights=in_core[taken], minlength=size)
        work = np.bincount(taken_from, weights=columns.work[taken], minlength=size)
        return stopped.astype(np.int64), work.astype(np.int64)

    def _candidates(
        self,
        level: int,
        breaking: bool,
    ) -> Iterator[PreemptionCandidate]:
        # Regions come cheapest first, so that what work there is compares those that may be best.
        work = self.everywhere.sums.work
        begun = work.used
        with_candidate = 0

        for region in self.tried(level):
            has_candidate = False
            for by_node in (False, True):
                if has_candidate and work.used - begun > COMPARING // 2:
                    break

                candidate = region.cheapest(level, by_node=by_node, breaking=breaking)
                if candidate is not None:
                    has_candidate = True
                    yield candidate

                    if self._is_least(candidate, level):
                        return

            for node in _single_nodes(region, level):
                on_node = _only(node, region)
                candidate = on_node.cheapest(level, breaking=breaking, outer=region)
                if candidate is not None:
                    has_candidate = True
                    yield candidate

            with_candidate += has_candidate
            if with_candidate == COMPARED:
                return
            if with_candidate and work.used - begun > COMPARING:
                return

    def _is_least(
        self,
        candidate: PreemptionCandidate,
        level: int,
    ) -> bool:
        """Whether no candidate can be better: it has the fewest pods that may do, and the least is
        lost with them.
        """
        harm = candidate.harm
        number = self.least_victims
        if harm.gangs_stopped or harm.budgets_broken:
            return False
        if harm.victims != number or not number:
            return False

        columns = self.columns
        inside = columns.inside(self.domains.mask)
        could = np.flatnonzero(self.units.could_go(level) & inside)

        priorities = np.partition(columns.priority[could], number - 1)
        if harm.highest_priority > int(priorities[number - 1]):
            return False

        wait = columns.wait[could]
        if harm.wait_steps > int(wait.min()):
            return False

        # In the order of `Harm`: if all of it is equal to that of the best pods, no other set is
        # better.
        order = np.lexsort((-columns.start[could], wait, columns.work[could]))
        best = could[order[:number]]
        least_work = int(columns.work[best].sum())
        latest_start = int(columns.start[best].sum())
        return harm.work_lost == least_work and harm.started_s == -latest_start

    def _wholly_needed(self, candidate: PreemptionCandidate) -> PreemptionCandidate:
        """The candidate without what another required domain makes needless; a core may free room
        in several.
        """
        nodes = self.columns.node[list(candidate.pods)]
        domains = np.unique(self.domains.level.codes[nodes])
        if domains.size < 2 or len(candidate.units) > RECHECKED:
            return candidate

        needed = list(candidate.units)
        for unit in reversed(candidate.units):
            without = [other for other in needed if other != unit]
            if self.have_room(without):
                needed = without

        return self.units.candidate(needed)


def _only(
    node: int,
    region: Region,
    name: str = "",
) -> Region:
    """The node as a region of its own."""
    mask = np.zeros_like(region.sums.mask)
    mask[node] = True
    return region.within(Scope(mask, mask, name=name))


def _single_nodes(
    region: Region,
    level: int,
) -> list[int]:
    """Nodes that could hold all members: those where no gang stops, the least work on them, and
    free the soonest.
    """
    units = region.units
    columns = units.columns
    number = region.free.shape[1]

    could_go = units.could_go(level)
    fits = region.sums.on_one_node(region.without(could_go))
    nodes = np.flatnonzero(fits & region.sums.mask)
    if not nodes.size:
        return []

    # On these nodes no gang need stop.
    singles = units.single & (columns.priority <= level)
    gently = region.sums.on_one_node(region.without(singles))

    works = []
    waits = []
    for gone in (singles, could_go):
        pods = np.flatnonzero(gone & columns.on_node)
        node = columns.node[pods]
        pod_work = columns.work[pods] + 1
        works.append(np.bincount(node, weights=pod_work, minlength=number))
        waits.append(highest(columns.wait[pods], node, number))

    work = np.where(gently, *works)[nodes]
    wait = np.where(gently, *waits)[nodes]
    # np.lexsort takes the most important key last.
    order = np.lexsort((nodes, wait, work, ~gently[nodes]))
    cheapest: list[int] = nodes[order][:SINGLE_NODES].tolist()

    return cheapest
