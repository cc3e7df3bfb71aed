"""Choosing victims within one region: the shortest sufficient prefix of the cheapest units, then sparing units (V8,
V9).

Invariant: by resource totals the victims suffice and none is redundant. Units that stop no gang are chosen first; the
most expensive units are the first to be spared. Equal snapshots give equal choices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gangsched.core.preemption.needed_sums import NeededSums, Tally
from gangsched.core.preemption.numbers import NONE, highest, ints, lookup, padded
from gangsched.core.preemption.units import Units
from gangsched.core.scope import Scope
from gangsched.model.preemption import Harm, UnitKind
from gangsched.model.snapshot import Bools, Ints

NEVER = 2**62
"""The price of a node on which nothing is gained."""


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """`units` to evict, the most expensive last, and their `pods`; `harm` is the preemption cost."""

    of: Units
    units: tuple[int, ...]
    pods: tuple[int, ...]
    harm: Harm

    @property
    def with_core(self) -> set[int]:
        """Pods that are evicted with their group."""
        return {i for core in self.of.numbers.cores(self.units) for i in self.of.cores.members(core).tolist()}

    def kinds(self) -> dict[int, UnitKind]:
        """The kind of unit in which each pod is evicted: by itself, as surplus, with its group, or with a child of a
        tree that stays.
        """
        columns, cores = self.of.columns, self.of.cores
        chosen = [core for core in self.of.numbers.cores(self.units) if cores.within[core] != NONE]
        children, with_core = set(np.flatnonzero(np.isin(cores.unit_of, chosen)).tolist()), self.with_core
        found = {}
        pods = list(self.pods)
        for i, g, in_gang in zip(pods, columns.gang[pods].tolist(), columns.in_gang[pods].tolist(), strict=True):
            whole = UnitKind.CHILD if g in children else UnitKind.CORE
            alone = not in_gang or columns.gangs[g].disrupted_singly
            found[i] = UnitKind.POD if alone else whole if i in with_core else UnitKind.SURPLUS
        return found

    def part(self, gang: int) -> str:
        """The child as which a gang, given by index, may be evicted whole while its tree stays."""
        cores = self.of.cores
        return cores.groups[int(cores.unit_of[gang])].removeprefix(f"{cores.groups[int(cores.group_of[gang])]} ")

    @property
    def stopped(self) -> list[str]:
        """Gangs that fall below their minimum."""
        return self.of.stopped(self.units)


def choice(units: Sequence[int], of: Units) -> Choice:
    """Build the choice of these units; pods that are evicted with their group are not counted twice."""
    columns, numbers, within = of.columns, of.numbers, of.cores.within
    cores = set(numbers.cores(units))
    covered = {i for core in cores for i in of.cores.members(core).tolist()}
    covered |= {*numbers.of_cores(ints([core for core in cores if int(within[core]) in cores])).tolist()}
    kept = tuple(unit for unit in units if unit not in covered)
    pods = of.pods_of(kept)
    harm = Harm(
        budgets_broken=len(columns.budgets.broken(pods)),
        highest_priority=int(columns.priority[pods].max()) if pods else 0,
        gangs_stopped=int(of.cores.stops[numbers.cores(kept)].sum()) + len(of.stopped_singly(kept)),
        work_lost=int(columns.work[pods].sum()),
        victims=len(pods),
        wait_steps=int(columns.wait[pods].max()) if pods else 0,
        started_s=-int(columns.start[pods].sum()),
    )
    return Choice(of, kept, tuple(pods), harm)


@dataclass(eq=False)
class Region:
    """A part of the cluster in which members that request `sums` need room; `free[r][n]` is the current free room.

    `requests[r][i]` are the requests of the running pods. A region that `is_extra` is tried in addition to a larger one
    that contains it.
    """

    units: Units
    sums: NeededSums
    free: Ints
    requests: Ints
    name: str = ""
    is_extra: bool = False

    @cached_property
    def mask(self) -> Bools:
        """Nodes of the region that are eligible for the members."""
        return self.sums.mask

    def within(self, scope: Scope) -> Region:
        """The part of the region inside a scope."""
        return Region(self.units, self.sums.within(scope), self.free, self.requests, scope.name)

    def without(self, gone: Bools) -> Ints:
        """`free[r][n]` as if the pods for which `gone[i]` is true were gone."""
        columns, nodes = self.units.columns, self.free.shape[1]
        pods = np.flatnonzero(gone & columns.on_node)
        where = columns.node[pods]
        freed = [np.bincount(where, weights=row[pods], minlength=nodes) for row in self.requests]
        return self.free + np.array(freed, dtype=np.int64)

    def cheapest(
        self, level: int, *, by_node: bool = False, breaking: bool = False, outer: Region | None = None
    ) -> Choice | None:
        """The cheapest sufficient choice of units of at most priority `level`; None if there is none.

        Cost is per pod or, with `by_node`, per node, for members that need nearly a whole node each. `breaking`:
        budgets may be violated. The result is minimal: if any victim were spared, there would be too little room, even
        if members could use all of `outer`.
        """
        ordered = self.ordered(level, by_node=by_node, breaking=breaking)
        length = self.shortest(ordered)
        return None if length is None else (outer or self).give_back(ordered[:length])

    def ordered(self, level: int, *, by_node: bool, breaking: bool) -> Ints:
        """Units to evict, cheapest first, as far as budgets allow."""
        price = self._node_prices(level) if by_node else None
        singles, cores = self.units.upto(level, self.mask, price)
        numbers, budgets = self.units.numbers, self.units.columns.budgets
        found = np.concatenate((self._order(singles, price), numbers.of_cores(self._order_cores(cores))))
        if breaking or not budgets.covering:
            return found
        return np.array(budgets.admit(found.tolist(), self.units.pods, numbers, self.sums.work), dtype=np.int64)

    def shortest(self, ordered: Ints) -> int | None:
        """Length of the shortest prefix of `ordered` whose eviction frees enough room; None if even all units do not
        suffice.
        """
        # A longer prefix frees at least as much, so the shortest one is found by bisection.
        rank = self._ranks(ordered)
        low, high = 0, ordered.size
        if not self.sums.enough(self.without(rank < high)):
            return None
        while low < high:
            middle = (low + high) // 2
            if self.sums.enough(self.without(rank < middle)):
                high = middle
            else:
                low = middle + 1
        return low

    def give_back(self, taken: Ints) -> Choice:
        """The choice `taken` without the units that can be spared."""
        gone = self._ranks(taken) < taken.size
        if self.sums.slices or not self.sums.totals:
            helps = self.units.columns.inside(self._useful(self.without(gone)))
            useful = np.append(helps, np.zeros(len(self.units.cores.groups), dtype=np.bool_))  # by unit
            useful[self.units.numbers.of_cores(self.units.cores.among(helps))] = True
            taken = taken[useful[taken]]
        return self._needed(taken.tolist(), Tally(self.sums, self.without(self._ranks(taken) < taken.size)))

    def _useful(self, free: Ints) -> Bools:
        """Nodes on which `free[r][n]`, with all chosen pods gone, has room for more members, or for more slices."""
        found = np.full(free.shape[1], bool(self.sums.totals), dtype=np.bool_)
        for ask in () if self.sums.totals else self.sums.asks:
            found |= ask.rooms(free) > ask.rooms(self.free)
        if self.sums.slices:  # where no further slice fits, of a thousand pods most are in no slice
            found &= self.sums.more_slices(self.free, free)
        return found

    def _ranks(self, ordered: Ints) -> Ints:
        """`rank[i]`: the position in `ordered` at which pod `i` goes, its length if it does not."""
        cores, pods = self.units.cores, len(self.units.columns)
        position = padded(pods + len(cores.groups), ordered.size)  # by unit
        position[ordered] = np.arange(ordered.size)
        rank, of_core = position[:pods], position[pods:]  # by pod, and by core; NONE reads the last one
        found: Ints = np.minimum(np.minimum(rank, of_core[cores.of]), of_core[cores.within[cores.of]])
        return found

    def _needed(self, taken: Sequence[int], tally: Tally) -> Choice:
        """Give back from the most expensive down; a pod comes back when no unit that has it is left."""
        needed_alone = self._needed_alone(taken, tally)
        self.sums.work.charge(len(taken) + 8 * (len(taken) - len(needed_alone)))
        nodes, cores, numbers = self.units.columns.node, self.units.cores.of, self.units.numbers
        cored, alone = set(numbers.cores(taken)), set(numbers.singles(taken))
        pods = self.units.pods_of(taken)
        requests = map(tuple, self.requests[:, pods].T.tolist())
        asked = dict(zip(pods, zip(nodes[pods].tolist(), requests, strict=True), strict=True))
        own = cores[pods]
        both = zip(own.tolist(), self.units.cores.within[own].tolist(), strict=True)
        cores_of = {i: {*each} - {NONE} for i, each in zip(pods, both, strict=True)}
        needed: list[int] = []
        # From the most expensive down, so that of two units that could replace each other the cheaper one goes.
        for unit in reversed(taken):
            if unit in needed_alone and cored.isdisjoint(cores_of[unit]):
                needed.append(unit)
                continue
            if numbers.is_core(unit):
                others = cored - {numbers.core(unit)}
                back = [i for i in self.units.pods(unit) if i not in alone and others.isdisjoint(cores_of[i])]
            else:
                back = [unit] if cored.isdisjoint(cores_of[unit]) else []
            if tally.give_back([asked[i] for i in back]):
                cored.discard(numbers.core(unit))
            else:
                needed.append(unit)
        return choice(needed[::-1], self.units)

    def _needed_alone(self, taken: Sequence[int], tally: Tally) -> set[int]:
        """The single pods among these of which each takes more room, coming back by itself, than there is to spare.

        What others take of its node beside it makes that no less, so no order of giving back spares it.
        """
        pods = np.array(self.units.numbers.singles(taken), dtype=np.int64)
        nodes, needed = self.units.columns.node[pods], np.zeros(pods.size, dtype=np.bool_)
        for number, (ask, spare) in enumerate(zip(self.sums.asks, tally.spare, strict=True)):
            left = tally.free[:, nodes] - self.requests[:, pods]
            lost = ask.rooms(tally.free)[nodes] - ask.rooms(left, nodes)
            needed |= ((lost > spare) | tally.breaks_slices(number, nodes, lost)) & self.units.columns.on_node[pods]
        return set(pods[needed].tolist())

    def _order(self, singles: Ints, price: Ints | None) -> Ints:
        """Pods that go by themselves: least work for what they free, the larger first, the sooner gone, the younger.

        Members of a gang keep their order among each other; of all else that is equal, the order is that of `key`.
        """
        columns = self.units.columns
        size = self.requests[self.scarce][singles]
        keys = [-columns.start[singles], columns.wait[singles], -size, columns.work[singles] // np.maximum(size, 1)]
        if price is None:
            keys = [_never_falling(key, columns.gang[singles], columns.in_gang[singles]) for key in keys]
        else:
            nodes = columns.node[singles]
            keys = [*keys, nodes, highest(columns.wait[singles], nodes, self.free.shape[1])[nodes], price[singles]]
        # Members keep the order in which they come; their ties are above any `key`, which has 32 bits.
        tie = np.where(columns.in_gang[singles], 2**32 + np.arange(singles.size), columns.table.field("key")[singles])
        found: Ints = singles[np.lexsort([tie, *keys])]
        return found

    @cached_property
    def scarce(self) -> int:
        """The resource that currently limits the number of members most."""
        ask = self.sums.asks[0]
        fits = [
            (int(np.maximum(self.free[row][ask.mask], 0).sum()) // amount, row)
            for row, amount in enumerate(ask.amounts)
            if amount
        ]
        return min(fits)[1]

    def _order_cores(self, chosen: Ints) -> Ints:
        """Cores: fewest gangs stopped, then least work lost, for what the group frees here; then the shortest wait."""
        columns, cores = self.units.columns, self.units.cores
        pods, number = np.flatnonzero(cores.of != NONE), len(cores.groups)
        of = cores.of[pods]
        work = np.bincount(of, weights=columns.work[pods], minlength=number)
        here = self.units.columns.inside(self.mask)[pods]
        size = np.bincount(of[here], weights=self.requests[self.scarce][pods[here]], minlength=number)
        size = np.maximum(size, 1)
        wait = highest(columns.wait[pods], of, number)
        keys = [chosen, wait[chosen], (work / size)[chosen], (cores.stops / size)[chosen]]
        found: Ints = chosen[np.lexsort(keys)]
        return found

    def _node_prices(self, level: int) -> Ints:
        """`price[i]`: work lost for each member that gets room on the node of pod `i`, all that may go gone."""
        columns = self.units.columns
        may_go = self.units.single & (columns.priority <= level) & columns.on_node
        free = self.without(may_go)
        gained = np.zeros(free.shape[1], dtype=np.int64)
        for ask in self.sums.asks:
            after, before = np.minimum(ask.rooms(free), ask.count), np.minimum(ask.rooms(self.free), ask.count)
            gained = np.maximum(gained, after - before)
        pods = np.flatnonzero(may_go)
        # + 1, so that of nodes without work to lose the one with fewer pods is cheaper.
        work = np.bincount(columns.node[pods], weights=columns.work[pods] + 1, minlength=free.shape[1])
        price = np.where(gained > 0, np.minimum(work / np.maximum(gained, 1), NEVER / 2), NEVER).astype(np.int64)
        return lookup(price, columns.node, none=NEVER)


def _never_falling(key: Ints, gang: Ints, in_gang: Bools) -> Ints:
    """`key[i]` raised to the highest before it of the same gang, so that sorting by it keeps a gang's own order."""
    raised = key.copy()
    members = np.flatnonzero(in_gang)
    if not members.size:
        return raised
    own, gangs = key[members], gang[members]
    first = np.concatenate(([True], gangs[1:] != gangs[:-1]))
    # Mostly the key falls in no gang, and then the loop over all gangs is not needed.
    if not (first[1:] | (own[1:] >= own[:-1])).all():
        for part in np.split(np.arange(members.size), np.flatnonzero(first)[1:]):
            own[part] = np.maximum.accumulate(own[part])
    raised[members] = own
    return raised
