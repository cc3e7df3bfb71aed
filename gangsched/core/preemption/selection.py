"""Choosing victims within one region: the shortest sufficient prefix of the cheapest units, from
which redundant units are then spared (V8, V9).

Invariant: by resource totals the victims suffice and none is redundant. Units that stop no gang are
chosen first, and the most expensive units are spared first. Equal snapshots give equal choices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from operator import sub

import numpy as np

from gangsched.core.preemption.numbers import NONE, highest, ints, lookup, padded
from gangsched.core.preemption.sums import NeededSums, SliceSum
from gangsched.core.preemption.units import PreemptionCandidate, Units
from gangsched.core.scope import Scope
from gangsched.model.snapshot import Bools, Ints

NEVER = 2**62
"""The price of a node on which nothing is gained."""
EXCHANGES = 4
"""Cores of a candidate that are exchanged at most."""
TRIED = 8
"""Cores that are tried in the place of one."""
LOOK = 50
"""Work of looking for an exchange, besides that of the units."""


@dataclass(eq=False)
class Region:
    """A part of the cluster in which members with the requests `sums` need room."""

    units: Units
    sums: NeededSums
    #: Current free room, `free[r][n]`, and the requests of the running pods, `requests[r][i]`, of
    #: the whole cluster.
    free: Ints
    requests: Ints
    name: str = ""
    #: Tried in addition to a larger region that contains this one.
    is_extra: bool = False

    def within(self, scope: Scope) -> Region:
        """The part of the region that is inside a scope."""
        return Region(self.units, self.sums.within(scope), self.free, self.requests, scope.name)

    def without(self, gone: Bools) -> Ints:
        """`free[r][n]` as if the pods with `gone[i]` True were gone."""
        columns = self.units.columns
        nodes = self.free.shape[1]
        pods = np.flatnonzero(gone & columns.on_node)
        where = columns.node[pods]
        freed = []
        for row in self.requests:
            freed.append(np.bincount(where, weights=row[pods], minlength=nodes))

        return self.free + np.array(freed, dtype=np.int64)

    def cheapest(
        self,
        level: int,
        *,
        by_node: bool = False,
        breaking: bool = False,
        outer: Region | None = None,
    ) -> PreemptionCandidate | None:
        """The cheapest sufficient candidate of units of at most priority `level`; None if there is
        none.

        Cost is per pod or, with `by_node`, per node, for members that need nearly a whole node
        each. `breaking`: budgets may be violated. The result is minimal: if any victim were spared,
        there would be too little room, even if the members could use all of `outer`.
        """
        ordered = self.ordered(level, by_node=by_node, breaking=breaking)
        length = self.shortest(ordered)
        if length is None:
            return None

        whole = outer or self
        return whole._exchanged(whole._give_back(ordered[:length]), ordered)

    def ordered(self, level: int, *, by_node: bool, breaking: bool) -> Ints:
        """Units to evict within the budgets, cheapest first."""
        price = self._node_prices(level) if by_node else None
        singles, cores = self.units.upto(level, self.sums.mask, price)
        budgets = self.units.columns.budgets
        first_core = self.units.first_core
        found = np.concatenate((self._order(singles, price), self._order_cores(cores) + first_core))

        if breaking or not budgets.covering:
            return found

        return ints(budgets.admit(found.tolist(), self.units.pods_of, first_core, self.sums.work))

    def shortest(self, ordered: Ints) -> int | None:
        """Length of the shortest prefix of `ordered` whose eviction frees enough room; None if even
        all units do not suffice.
        """
        # A longer prefix frees at least as much, so the shortest one is found by bisection.
        rank = self._ranks(ordered)
        low = 0

        high = ordered.size
        if not self.sums.enough(self.without(rank < high)):
            return None

        while low < high:
            middle = (low + high) // 2
            if self.sums.enough(self.without(rank < middle)):
                high = middle
            else:
                low = middle + 1

        return low

    def _ranks(self, ordered: Ints) -> Ints:
        """`rank[i]`: the position in `ordered` at which pod `i` goes, its length if it does not."""
        cores = self.units.cores
        pods = self.units.first_core
        position = padded(pods + len(cores.groups), ordered.size)  # by unit
        position[ordered] = np.arange(ordered.size)

        # By pod, and by core. NONE reads the padding, and so do pods whose core is within no other.
        alone = position[:pods]
        of_core = position[pods:]
        found: Ints = np.minimum(
            np.minimum(alone, of_core[cores.of]),
            of_core[cores.within[cores.of]],
        )

        return found

    def _give_back(self, taken: Ints) -> PreemptionCandidate:
        """The candidate `taken` without the units that can be spared."""
        free = self.without(self._ranks(taken) < taken.size)
        units = self.units

        if self.sums.slices or not self.sums.totals:
            # Units without a pod on a node where it helps are spared at once, not one by one.
            helps = units.columns.inside(self.sums.useful(self.free, free))
            useful = np.append(helps, np.zeros(len(units.cores.groups), dtype=np.bool_))  # by unit
            useful[units.cores.among(helps) + units.first_core] = True
            taken = taken[useful[taken]]
            free = self.without(self._ranks(taken) < taken.size)

        return self._needed(taken.tolist(), Tally(self.sums, free))

    def _needed(self, taken: Sequence[int], tally: Tally) -> PreemptionCandidate:
        """Give back from the most expensive down; a pod comes back when no unit that has it is
        left.
        """
        needed_alone = self._needed_alone(taken, tally)
        units = self.units
        self.sums.work.charge(len(taken) + 8 * (len(taken) - len(needed_alone)))
        alone, cores = map(set, units.split(taken))
        pods = units.pods_of(taken)
        requests = map(tuple, self.requests[:, pods].T.tolist())
        asked = dict(
            zip(pods, zip(units.columns.node[pods].tolist(), requests, strict=True), strict=True)
        )
        own = units.cores.of[pods]
        both = zip(own.tolist(), units.cores.within[own].tolist(), strict=True)
        cores_of = {}
        for i, each in zip(pods, both, strict=True):
            cores_of[i] = {*each} - {NONE}

        needed: list[int] = []

        # From the most expensive down, so that of two units that could replace each other the
        # cheaper one goes.
        for unit in reversed(taken):
            if unit in needed_alone and cores.isdisjoint(cores_of[unit]):
                needed.append(unit)
                continue

            core = unit - units.first_core
            if core >= 0:
                others = cores - {core}
                back = [
                    i
                    for i in units.cores.members(core)
                    if i not in alone and others.isdisjoint(cores_of[i])
                ]
            else:
                back = []
                if cores.isdisjoint(cores_of[unit]):
                    back = [unit]

            if tally.give_back([asked[i] for i in back]):
                cores.discard(core)  # of a pod by itself, this is below 0 and no core
            else:
                needed.append(unit)

        return units.candidate(needed[::-1])

    def exchanged(self, ordered: Ints) -> PreemptionCandidate | None:
        """The cheapest candidate by totals, if a core of it was exchanged; None if that makes no
        difference.
        """
        length = self.shortest(ordered)
        if not length or ordered[length - 1] < self.units.first_core:
            return None

        found = self._give_back(ordered[:length])
        better = self._exchanged(found, ordered)
        if better.units != found.units:
            return better

        return None

    def _exchanged(self, found: PreemptionCandidate, ordered: Ints) -> PreemptionCandidate:
        """The candidate with cores exchanged for those of `ordered` that free enough in their place
        and do less harm (V8).

        Cores are taken in the order of harm for what they free, so that few of them go; but a large
        one frees more than is needed.
        """
        for _ in range(EXCHANGES):
            better = self._once_exchanged(found, ordered)
            if better is None or better.harm >= found.harm:
                break
            found = better

        return found

    def _once_exchanged(
        self,
        found: PreemptionCandidate,
        ordered: Ints,
    ) -> PreemptionCandidate | None:
        """The candidate with one core exchanged, the one that does most harm first; None if no
        exchange frees enough.
        """
        first = self.units.first_core
        inside = ints(found.cores)
        outside = np.setdiff1d(ordered[ordered >= first] - first, inside)
        if not inside.size or not outside.size:
            return None

        harm = self._harm_of_cores()
        for core in inside[_sorted(harm[inside])][::-1][:EXCHANGES].tolist():
            cheaper = outside[_below(harm[outside], harm[core])]
            if not cheaper.size:
                return None  # nor is any less than those that do less harm
            if self.sums.work.left < 2 * (LOOK + len(ordered)):
                return None  # a plan that ends here has no candidate at all

            better = self._in_place_of(core, cheaper[_sorted(harm[cheaper])], found)
            if better is not None:
                return better

        return None

    def _in_place_of(
        self,
        core: int,
        others: Ints,
        found: PreemptionCandidate,
    ) -> PreemptionCandidate | None:
        """The candidate with the first of the cores `others` that frees enough in the place of
        `core`, without what is redundant then.
        """
        units = self.units
        first = units.first_core
        tally = Tally(self.sums, self._free_without(found.pods))
        ask = self.sums.asks[0]

        inside = units.columns.inside(self.sums.mask)
        freed = units.cores.totals(np.where(inside, self.requests[self.scarce], 0))
        lack = freed[core] - tally.spare[0] * ask.amounts[self.scarce]
        kept = []
        for unit in found.units:
            if unit != core + first:
                kept.append(unit)

        self.sums.work.charge(LOOK + others.size)

        for other in others[freed[others] >= lack][:TRIED].tolist():
            pods = units.pods_of([*kept, other + first])
            back = sorted(set(found.pods) - set(pods))
            gone = sorted(set(pods) - set(found.pods))
            self.sums.work.charge(len(back) + len(gone))

            # Pods that go count as pods that come back with less than nothing.
            if tally.give_back([*self._asked(back), *self._asked(gone, sign=-1)]):
                free = self._free_without(pods)
                return self._needed([*kept, other + first], Tally(self.sums, free))

        return None

    def _harm_of_cores(self) -> Ints:
        """By core what is compared of its harm (V8): stopped gangs, lost work, number of pods."""
        cores = self.units.cores
        work = cores.totals(self.units.columns.work)
        found: Ints = np.stack([cores.stops, work, np.diff(cores.first)], axis=1)
        return found

    def _free_without(self, pods: Sequence[int]) -> Ints:
        return self.without(self.units.columns.mask(pods))

    def _asked(
        self,
        pods: Sequence[int],
        *,
        sign: int = 1,
    ) -> list[tuple[int, tuple[int, ...]]]:
        """Pods as (node, requests) for `Tally.give_back`."""
        requests = self.requests[:, list(pods)] * sign
        nodes = self.units.columns.node[list(pods)].tolist()
        return list(zip(nodes, map(tuple, requests.T.tolist()), strict=True))

    def _needed_alone(self, taken: Sequence[int], tally: Tally) -> set[int]:
        """The single pods among these of which each takes more room, coming back by itself, than
        there is to spare.

        What others take of its node beside it makes that no less, so no order of giving back spares
        it.
        """
        pods = ints(self.units.split(taken)[0])
        nodes = self.units.columns.node[pods]
        needed = np.zeros(pods.size, dtype=np.bool_)

        for number, (ask, spare) in enumerate(zip(self.sums.asks, tally.spare, strict=True)):
            left = tally.free[:, nodes] - self.requests[:, pods]
            lost = ask.rooms(tally.free)[nodes] - ask.rooms(left, nodes)
            is_missed = lost > spare
            if self.sums.slices:
                is_missed |= tally.breaks_slices(number, nodes, lost)

            needed |= is_missed & self.units.columns.on_node[pods]

        return set(pods[needed].tolist())

    def _order(self, singles: Ints, price: Ints | None) -> Ints:
        """Pods that go by themselves: least work for what they free, the larger first, the sooner
        gone, the younger.

        Members of a gang keep their order among each other; of all else that is equal, the order is
        that of `key`.
        """
        columns = self.units.columns
        size = self.requests[self.scarce][singles]
        keys = [
            -columns.start[singles],
            columns.wait[singles],
            -size,
            columns.work[singles] // np.maximum(size, 1),
        ]

        if price is None:
            keys = [
                _never_falling(key, columns.gang[singles], columns.in_gang[singles]) for key in keys
            ]
        else:
            nodes = columns.node[singles]
            keys = [
                *keys,
                nodes,
                highest(columns.wait[singles], nodes, self.free.shape[1])[nodes],
                price[singles],
            ]

        # Members keep the order in which they come; their ties are above any `key`, which has 32
        # bits.
        tie = np.where(
            columns.in_gang[singles],
            2**32 + np.arange(singles.size),
            columns.table.rows.key[singles],
        )
        found: Ints = singles[np.lexsort([tie, *keys])]
        return found

    @cached_property
    def scarce(self) -> int:
        """The resource that currently limits the number of members the most."""
        ask = self.sums.asks[0]
        fits = []

        for row, amount in enumerate(ask.amounts):
            if amount:
                fits.append((int(np.maximum(self.free[row][ask.mask], 0).sum()) // amount, row))

        return min(fits)[1]

    def _order_cores(self, chosen: Ints) -> Ints:
        """Cores: fewest gangs stopped, then least work lost, for what the group frees here; then
        the shortest wait.
        """
        columns = self.units.columns
        cores = self.units.cores
        pods = np.flatnonzero(cores.of != NONE)
        number = len(cores.groups)
        of = cores.of[pods]
        work = np.bincount(of, weights=columns.work[pods], minlength=number)
        here = self.units.columns.inside(self.sums.mask)[pods]
        size = np.bincount(
            of[here],
            weights=self.requests[self.scarce][pods[here]],
            minlength=number,
        )
        size = np.maximum(size, 1)
        wait = highest(columns.wait[pods], of, number)
        keys = [chosen, wait[chosen], (work / size)[chosen], (cores.stops / size)[chosen]]
        found: Ints = chosen[np.lexsort(keys)]

        return found

    def _node_prices(self, level: int) -> Ints:
        """`price[i]`: work lost for each member that gets room on the node of pod `i`, all that may
        go gone.
        """
        columns = self.units.columns
        may_go = self.units.single & (columns.priority <= level) & columns.on_node
        free = self.without(may_go)
        gained = np.zeros(free.shape[1], dtype=np.int64)

        for ask in self.sums.asks:
            after = np.minimum(ask.rooms(free), ask.count)
            before = np.minimum(ask.rooms(self.free), ask.count)
            gained = np.maximum(gained, after - before)

        pods = np.flatnonzero(may_go)
        # + 1, so that of nodes without work to lose the one with fewer pods is cheaper.
        work = np.bincount(
            columns.node[pods],
            weights=columns.work[pods] + 1,
            minlength=free.shape[1],
        )
        price = np.where(
            gained > 0,
            np.minimum(work / np.maximum(gained, 1), NEVER / 2),
            NEVER,
        ).astype(np.int64)

        return lookup(price, columns.node, none=NEVER)


def _sorted(rows: Ints) -> Ints:
    """Numbers of the rows in lexicographic order."""
    found: Ints = np.lexsort(rows.T[::-1])
    return found


def _below(rows: Ints, bound: Ints) -> Bools:
    """Whether each row comes before `bound` in lexicographic order."""
    equal = np.ones(len(rows), dtype=np.bool_)
    below = np.zeros(len(rows), dtype=np.bool_)
    for column, limit in zip(rows.T, bound.tolist(), strict=True):
        below |= equal & (column < limit)
        equal &= column == limit

    return below


def _never_falling(key: Ints, gang: Ints, in_gang: Bools) -> Ints:
    """`key[i]` raised to the highest before it of the same gang, so that sorting by it keeps a
    gang's own order.
    """
    raised = key.copy()
    members = np.flatnonzero(in_gang)
    if not members.size:
        return raised

    own = key[members]
    gangs = gang[members]

    first = np.concatenate(([True], gangs[1:] != gangs[:-1]))
    # Mostly the key falls in no gang, and then the loop over all gangs is not needed.
    if not (first[1:] | (own[1:] >= own[:-1])).all():
        for part in np.split(np.arange(members.size), np.flatnonzero(first)[1:]):
            own[part] = np.maximum.accumulate(own[part])

    raised[members] = own
    return raised


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
        self._columns: dict[int, tuple[int, ...]] = {}
        self._fits = [
            partial(_fits, tuple((r, n) for r, n in enumerate(ask.amounts) if n))
            for ask in sums.asks
        ]
        self._masks = [ask.mask.tolist() for ask in sums.asks]
        self.spare = [int(ask.rooms(free).sum()) - ask.count for ask in sums.asks]
        self._rest = [total.free(free) - total.amount for total in sums.totals]
        rooms = []
        if sums.slices:
            rooms = [ask.rooms(free) for ask in sums.asks]

        self._slices = [_Slices(sums, slice_sum, free, rooms) for slice_sum in sums.slices]

    def give_back(self, pods: Sequence[tuple[int, tuple[int, ...]]]) -> bool:
        """Spare these pods, given as (node, requests), if enough room is free without their
        eviction; return whether they were spared.
        """
        after: dict[int, tuple[int, ...]] = {}
        for node, requests in pods:
            have = after.get(node) or self._column(node)
            after[node] = tuple(map(sub, have, requests))

        spare = list(self.spare)
        rest = list(self._rest)

        for node, column in after.items():
            before = self._column(node)
            for a, fits in enumerate(self._fits):
                if self._masks[a][node]:
                    spare[a] -= fits(before) - fits(column)

            for t, total in enumerate(self._sums.totals):
                if total.mask[node]:
                    rest[t] -= max(0, before[total.row]) - max(0, column[total.row])

        if min(spare) < 0 or min(rest, default=0) < 0:
            return False

        changed = (
            [(node, self._column(node), column) for node, column in after.items()]
            if self._slices
            else []
        )
        fewer = []
        for slices in self._slices:
            fewer.append(slices.without(changed, self._fits, self._masks))

        if any(less is None for less in fewer):
            return False

        self.spare = spare
        self._rest = rest
        for each, less in zip(self._slices, fewer, strict=True):
            each.take(less or {})

        self._columns.update(after)  # only now: a unit that is not spared must leave no trace
        return True

    def breaks_slices(self, ask: int, nodes: Ints, lost: Ints) -> Bools:
        """For each pod on node `nodes[i]`, whether too few slices would fit if there were room for
        `lost[i]` fewer members of the ask number `ask`.
        """
        found = np.zeros(nodes.size, dtype=np.bool_)
        for slices in self._slices:
            found |= slices.breaks(ask, nodes, lost)

        return found

    def _column(self, node: int) -> tuple[int, ...]:
        column = self._columns.get(node)
        if column is None:
            column = self._columns[node] = tuple(self.free[:, node].tolist())

        return column


class _Slices:
    """Running sums of the slices of a layer: by domain what there is of each quantity, and how many
    are to spare.
    """

    def __init__(self, sums: NeededSums, of: SliceSum, free: Ints, rooms: Sequence[Ints]) -> None:
        self._of = of
        self._domains = of.level.codes.tolist()
        self._divisors = of.divisors
        have = []
        for quantity in sums.quantities(of, free, rooms):
            have.append(of.level.sums(quantity))

        self._have = list(zip(*(each.tolist() for each in have), strict=True))
        copies = of.copies(have)
        self._copies = copies.tolist()
        self._spare = int(copies.sum()) - of.number
        self._mask = sums.mask.tolist() if of.amounts else []

    def without(
        self,
        changed: Sequence[tuple[int, tuple[int, ...], tuple[int, ...]]],
        fits: Sequence[Callable[[tuple[int, ...]], int]],
        masks: Sequence[Sequence[bool]],
    ) -> dict[int, tuple[int, ...]] | None:
        """The quantities in the domains of these nodes, whose free column changes; None if too few
        slices would fit.
        """
        found: dict[int, tuple[int, ...]] = {}
        for node, before, after in changed:
            domain = self._domains[node]
            if domain == NONE:
                continue

            less = []
            for a, _ in self._of.parts:
                less.append(fits[a](before) - fits[a](after) if masks[a][node] else 0)

            for row, _ in self._of.amounts:
                less.append(max(0, before[row]) - max(0, after[row]) if self._mask[node] else 0)

            found[domain] = tuple(map(sub, found.get(domain) or self._have[domain], less))

        lost = sum(self._copies[domain] - self._fit(have) for domain, have in found.items())
        return found if lost <= self._spare else None

    def take(self, found: Mapping[int, tuple[int, ...]]) -> None:
        """Set the quantities that `without` returned."""
        for domain, have in found.items():
            copies = self._fit(have)
            self._spare -= self._copies[domain] - copies
            self._have[domain], self._copies[domain] = have, copies

    def breaks(self, ask: int, nodes: Ints, lost: Ints) -> Bools:
        """As `Tally.breaks_slices`, but only before any pod was spared."""
        found = np.zeros(nodes.size, dtype=np.bool_)
        domain = self._of.level.codes[nodes]

        for number, (part, size) in enumerate(self._of.parts):
            if part == ask:
                room = lookup(ints([have[number] for have in self._have]), domain, none=0)
                copies = lookup(ints(self._copies), domain, none=0)
                found |= (copies - (room - lost) // size > self._spare) & (domain != NONE)

        return found

    def _fit(self, have: tuple[int, ...]) -> int:
        return min(amount // of for amount, of in zip(have, self._divisors, strict=True))


def _fits(amounts: Sequence[tuple[int, int]], column: tuple[int, ...]) -> int:
    """How many members of these amounts, each of a row, fit into what is free on a node."""
    fits = [column[row] // amount for row, amount in amounts]
    return max(0, min(fits))
