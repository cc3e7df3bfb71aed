"""Choosing victims within one region: the shortest sufficient prefix of the cheapest units, from
which redundant units are then spared (V8, V9).

Invariant: by resource totals the victims suffice and none is redundant. Units that stop no gang are
chosen first, and the most expensive units are spared first. Equal snapshots give equal choices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from gangsched.core.preemption.admissible import AdmissibleSets, Trials
from gangsched.core.preemption.numbers import NONE, highest, ints, lookup, padded
from gangsched.core.preemption.sums import NeededSums
from gangsched.core.preemption.tally import Column, Tally
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
ORDERING = 150
GIVING_BACK = 120
ADMITTING = 150
"""Work of ordering units and of what is then chosen of them, of sparing those that are not needed,
and of looking for a set within budgets, however few units and nodes there are. An attempt orders
about ten times: uncharged, eight attempts on 20 nodes took 60 ms.
"""


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
    #: Those of the attempt, which all of its regions share.
    trials: Trials = field(default_factory=Trials)

    def within(self, scope: Scope) -> Region:
        """The part of the region that is inside a scope."""
        sums = self.sums.within(scope)
        return Region(
            self.units,
            sums,
            self.free,
            self.requests,
            scope.name,
            trials=self.trials,
        )

    def without(self, gone: Bools) -> Ints:
        """`free[r][n]` as if the pods with `gone[i]` True were gone."""
        columns = self.units.columns
        nodes = self.free.shape[1]
        pods = np.flatnonzero(gone & columns.on_node)
        where = columns.node[pods]
        freed = []
        for row in self.requests:
            freed.append(np.bincount(where, weights=row[pods], minlength=nodes))

        freed_by_row = np.array(freed, dtype=np.int64)
        return self.free + freed_by_row

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
        # What a part of a region has is found in the whole of it.
        if length is None and not (by_node or breaking or outer):
            ordered = self.admissible(level)
            length = self.shortest(ordered)

        if length is None:
            return None

        region = outer or self
        taken = ordered[:length]
        # The only one of the shortest prefix is needed; there is nothing to spare.
        if length == 1 and not region._has_room:
            candidate = self.units.candidate(taken.tolist())
        else:
            candidate = region._give_back(taken)

        return region._exchanged(candidate, ordered)

    def ordered(
        self,
        level: int,
        *,
        by_node: bool,
        breaking: bool,
    ) -> Ints:
        """Units to evict within the budgets, cheapest first."""
        self.sums.work.charge(ORDERING)
        units = self.units
        price = self._node_prices(level) if by_node else None
        singles, cores = units.upto(level, self.sums.mask, price)

        core_units = self._order_cores(cores) + units.first_core
        single_units = self._order(singles, price)
        ordered = np.concatenate((single_units, core_units))

        budgets = units.columns.budgets
        if breaking or not budgets.covering:
            return ordered

        admitted = budgets.admit(
            ordered.tolist(),
            units.pods_of,
            units.first_core,
            self.sums.work,
        )
        return ints(admitted)

    def admissible(self, level: int) -> Ints:
        """Units that go together within the budgets and minimums and free enough room by totals,
        cheapest first, where those of `ordered` do not; none if no such set is found.
        """
        units = self.units
        nothing = ints([])
        if self.trials.left <= 0:
            return nothing

        self.sums.work.charge(ADMITTING)

        def enough(gone: Bools) -> bool:
            return self.sums.enough(self.without(gone))

        singles, cores = units.all_upto(level, self.sums.mask)
        core_units = self._order_cores(cores) + units.first_core
        ordered = np.concatenate((self._order(singles, None), core_units))

        sets = AdmissibleSets(units, enough, self.trials)
        going = sets.first(ordered)
        return going if going is not None else nothing

    def shortest(self, ordered: Ints) -> int | None:
        """Length of the shortest prefix of `ordered` whose eviction frees enough room; None if even
        all units do not suffice.
        """
        # A longer prefix frees at least as much, so the shortest one is found by bisection.
        rank = self._ranks(ordered)
        low = 0
        high = ordered.size
        with_all_gone = self.without(rank < high)
        if not self.sums.enough(with_all_gone):
            return None

        while low < high:
            middle = (low + high) // 2
            free = self.without(rank < middle)
            if self.sums.enough(free):
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
        own = position[:pods]
        of_core = position[pods:]
        by_core = of_core[cores.of]
        by_outer_core = of_core[cores.within[cores.of]]

        first = np.minimum(own, by_core)
        ranks: Ints = np.minimum(first, by_outer_core)
        return ranks

    def _give_back(self, taken: Ints) -> PreemptionCandidate:
        """The candidate `taken` without the units that can be spared."""
        self.sums.work.charge(GIVING_BACK)
        units = self.units
        cores = units.cores
        free = self.without(self._ranks(taken) < taken.size)

        if self.sums.slices or not self.sums.totals:
            # Units without a pod on a node where it helps are spared at once, not one by one.
            useful_nodes = self.sums.useful(self.free, free)
            helps = units.columns.inside(useful_nodes)
            no_core = np.zeros(len(cores.groups), dtype=np.bool_)
            useful = np.append(helps, no_core)  # by unit
            useful[cores.among(helps) + units.first_core] = True

            taken = taken[useful[taken]]
            free = self.without(self._ranks(taken) < taken.size)

        tally = Tally(self.sums, free)
        return self._needed(taken.tolist(), tally)

    def _needed(
        self,
        taken: Sequence[int],
        tally: Tally,
    ) -> PreemptionCandidate:
        """Give back from the most expensive down; a pod comes back when no unit that has it is
        left.
        """
        needed_alone = self._needed_alone(taken, tally)
        units = self.units
        to_spare = len(taken) - len(needed_alone)
        self.sums.work.charge(len(taken) + 8 * to_spare)

        singles, cores = map(set, units.split(taken))
        pods = units.pods_of(taken)
        asked = dict(zip(pods, self._asked(pods), strict=True))
        cores_of = self._cores_of(pods)
        needed: list[int] = []

        # From the most expensive down, so that of two units that could replace each other the
        # cheaper one goes.
        for unit in reversed(taken):
            if unit in needed_alone and cores.isdisjoint(cores_of[unit]):
                needed.append(unit)
                continue

            core = unit - units.first_core
            back = []
            if core >= 0:
                others = cores - {core}
                for pod in units.cores.members(core):
                    if pod not in singles and others.isdisjoint(cores_of[pod]):
                        back.append(pod)

            elif cores.isdisjoint(cores_of[unit]):
                back.append(unit)

            if tally.give_back([asked[pod] for pod in back]):
                cores.discard(core)  # of a pod by itself, this is below 0 and no core
            else:
                needed.append(unit)

        return units.candidate(needed[::-1])

    def _cores_of(self, pods: Sequence[int]) -> dict[int, set[int]]:
        """The core that each pod is in, and the one around it."""
        cores = self.units.cores
        own = cores.of[pods]
        outer = cores.within[own]

        cores_of = {}
        both = zip(own.tolist(), outer.tolist(), strict=True)
        for pod, around in zip(pods, both, strict=True):
            cores_of[pod] = {*around} - {NONE}

        return cores_of

    def exchanged(self, ordered: Ints) -> PreemptionCandidate | None:
        """The cheapest candidate by totals, if a core of it was exchanged; None if that makes no
        difference.
        """
        length = self.shortest(ordered)
        if not length:
            return None

        last = ordered[length - 1]
        if last < self.units.first_core:
            return None

        candidate = self._give_back(ordered[:length])
        better = self._exchanged(candidate, ordered)
        if better.units != candidate.units:
            return better

        return None

    def _exchanged(
        self,
        candidate: PreemptionCandidate,
        ordered: Ints,
    ) -> PreemptionCandidate:
        """The candidate with cores exchanged for those of `ordered` that free enough in their place
        and do less harm (V8).

        Cores are taken in the order of harm for what they free, so that few of them go; but a large
        one frees more than is needed.
        """
        for _ in range(EXCHANGES):
            better = self._once_exchanged(candidate, ordered)
            if better is None or better.harm >= candidate.harm:
                break

            candidate = better

        return candidate

    def _once_exchanged(
        self,
        candidate: PreemptionCandidate,
        ordered: Ints,
    ) -> PreemptionCandidate | None:
        """The candidate with one core exchanged, the one that does most harm first; None if no
        exchange frees enough.
        """
        first = self.units.first_core
        cores = ordered[ordered >= first] - first
        inside = ints(candidate.cores)
        outside = np.setdiff1d(cores, inside)
        if not inside.size or not outside.size:
            return None

        harm = self._harm_of_cores()
        by_harm = inside[_sorted(harm[inside])]
        most_harmful = by_harm[::-1][:EXCHANGES]

        for core in most_harmful.tolist():
            cheaper = outside[_below(harm[outside], harm[core])]
            if not cheaper.size:
                return None  # nor is any less than those that do less harm
            if self.sums.work.left < 2 * (LOOK + len(ordered)):
                return None  # a plan that ends here has no candidate at all

            cheaper = cheaper[_sorted(harm[cheaper])]
            better = self._in_place_of(core, cheaper, candidate)
            if better is not None:
                return better

        return None

    def _in_place_of(
        self,
        core: int,
        others: Ints,
        candidate: PreemptionCandidate,
    ) -> PreemptionCandidate | None:
        """The candidate with the first of the cores `others` that frees enough in the place of
        `core`, without what is redundant then.
        """
        units = self.units
        first = units.first_core
        tally = Tally(self.sums, self._free_without(candidate.pods))
        amount = self.sums.asks[0].amounts[self.scarce]

        inside = units.columns.inside(self.sums.mask)
        requests = np.where(inside, self.requests[self.scarce], 0)
        freed = units.cores.totals(requests)
        lack = freed[core] - tally.spare[0] * amount
        kept = [unit for unit in candidate.units if unit != core + first]

        self.sums.work.charge(LOOK + others.size)
        sufficient = others[freed[others] >= lack]

        for other in sufficient[:TRIED].tolist():
            exchanged = [*kept, other + first]
            pods = units.pods_of(exchanged)
            back = sorted(set(candidate.pods) - set(pods))
            gone = sorted(set(pods) - set(candidate.pods))
            self.sums.work.charge(len(back) + len(gone))

            # Pods that go count as pods that come back with less than nothing.
            changes = self._asked(back) + self._asked(gone, sign=-1)
            if tally.give_back(changes):
                free = self._free_without(pods)
                return self._needed(exchanged, Tally(self.sums, free))

        return None

    def _harm_of_cores(self) -> Ints:
        """By core what is compared of its harm (V8): stopped gangs, lost work, number of pods."""
        cores = self.units.cores
        work = cores.totals(self.units.columns.work)
        pods = np.diff(cores.first)
        harm: Ints = np.stack([cores.stops, work, pods], axis=1)
        return harm

    def _free_without(self, pods: Sequence[int]) -> Ints:
        gone = self.units.columns.mask(pods)
        return self.without(gone)

    def _asked(
        self,
        pods: Sequence[int],
        *,
        sign: int = 1,
    ) -> list[tuple[int, Column]]:
        """Pods as (node, requests) for `Tally.give_back`."""
        rows = list(pods)
        requests = self.requests[:, rows] * sign
        nodes = self.units.columns.node[rows]
        by_pod = map(tuple, requests.T.tolist())
        return list(zip(nodes.tolist(), by_pod, strict=True))

    def _needed_alone(
        self,
        taken: Sequence[int],
        tally: Tally,
    ) -> set[int]:
        """The single pods among these of which each takes more room, coming back by itself, than
        there is to spare.

        What others take of its node beside it makes that no less, so no order of giving back spares
        it.
        """
        columns = self.units.columns
        singles, _ = self.units.split(taken)
        pods = ints(singles)
        nodes = columns.node[pods]
        left = tally.free[:, nodes] - self.requests[:, pods]
        needed = np.zeros(pods.size, dtype=np.bool_)

        for number, ask in enumerate(self.sums.asks):
            room = ask.rooms(tally.free)[nodes]
            lost = room - ask.rooms(left, nodes)
            is_missed = lost > tally.spare[number]
            if self.sums.slices:
                is_missed |= tally.breaks_slices(number, nodes, lost)

            needed |= is_missed & columns.on_node[pods]

        return set(pods[needed].tolist())

    def _order(
        self,
        singles: Ints,
        price: Ints | None,
    ) -> Ints:
        """Pods that go by themselves: least work for what they free, the larger first, the sooner
        gone, the younger.

        Members of a gang keep their order among each other; of all else that is equal, the order is
        that of `key`.
        """
        columns = self.units.columns
        wait = columns.wait[singles]
        work = columns.work[singles]
        in_gang = columns.in_gang[singles]
        size = self.requests[self.scarce][singles]
        # np.lexsort takes the most important key last.
        start = columns.start[singles]
        work_a_unit = work // np.maximum(size, 1)
        keys = [-start, wait, -size, work_a_unit]

        if price is None:
            gang = columns.gang[singles]
            keys = [_never_falling(key, gang, in_gang) for key in keys]
        else:
            nodes = columns.node[singles]
            longest_wait = highest(wait, nodes, self.free.shape[1])
            keys += [nodes, longest_wait[nodes], price[singles]]

        # Members keep the order in which they come; their ties are above any `key`, which has 32
        # bits.
        as_given = 2**32 + np.arange(singles.size)
        by_key = columns.table.rows.key[singles]
        tie = np.where(in_gang, as_given, by_key)

        order = np.lexsort([tie, *keys])
        ordered: Ints = singles[order]
        return ordered

    @cached_property
    def _has_room(self) -> bool:
        """Whether the members have room by totals as it is."""
        return self.sums.enough(self.free)

    @cached_property
    def scarce(self) -> int:
        """The resource that currently limits the number of members the most."""
        ask = self.sums.asks[0]
        fits = []
        for row, amount in enumerate(ask.amounts):
            if amount:
                free = np.maximum(self.free[row][ask.mask], 0)
                members = int(free.sum()) // amount
                fits.append((members, row))

        _, row = min(fits)
        return row

    def _order_cores(self, chosen: Ints) -> Ints:
        """Cores: fewest gangs stopped, then least work lost, for what the group frees here; then
        the shortest wait.
        """
        columns = self.units.columns
        cores = self.units.cores
        number = len(cores.groups)
        pods = np.flatnonzero(cores.of != NONE)
        core_of = cores.of[pods]

        work = np.bincount(core_of, weights=columns.work[pods], minlength=number)
        wait = highest(columns.wait[pods], core_of, number)

        here = columns.inside(self.sums.mask)[pods]
        requests = self.requests[self.scarce][pods[here]]
        size = np.bincount(core_of[here], weights=requests, minlength=number)
        size = np.maximum(size, 1)

        # np.lexsort takes the most important key last.
        work_a_unit = work / size
        stops_a_unit = cores.stops / size
        keys = [chosen, wait[chosen], work_a_unit[chosen], stops_a_unit[chosen]]
        order = np.lexsort(keys)

        ordered: Ints = chosen[order]
        return ordered

    def _node_prices(self, level: int) -> Ints:
        """`price[i]`: work lost for each member that gets room on the node of pod `i`, all that may
        go gone.
        """
        columns = self.units.columns
        is_low = columns.priority <= level
        may_go = self.units.single & is_low & columns.on_node
        free = self.without(may_go)
        nodes = free.shape[1]

        gained = np.zeros(nodes, dtype=np.int64)
        for ask in self.sums.asks:
            after = np.minimum(ask.rooms(free), ask.count)
            before = np.minimum(ask.rooms(self.free), ask.count)
            more = after - before
            gained = np.maximum(gained, more)

        pods = np.flatnonzero(may_go)
        # + 1, so that of nodes without work to lose the one with fewer pods is cheaper.
        pod_work = columns.work[pods] + 1
        work = np.bincount(columns.node[pods], weights=pod_work, minlength=nodes)

        for_each = work / np.maximum(gained, 1)
        affordable = np.minimum(for_each, NEVER / 2)
        price = np.where(gained > 0, affordable, NEVER)
        return lookup(price.astype(np.int64), columns.node, none=NEVER)


def _sorted(rows: Ints) -> Ints:
    """Numbers of the rows in lexicographic order."""
    order: Ints = np.lexsort(rows.T[::-1])
    return order


def _below(
    rows: Ints,
    bound: Ints,
) -> Bools:
    """Whether each row comes before `bound` in lexicographic order."""
    equal = np.ones(len(rows), dtype=np.bool_)
    below = np.zeros(len(rows), dtype=np.bool_)
    for column, limit in zip(rows.T, bound.tolist(), strict=True):
        below |= equal & (column < limit)
        equal &= column == limit

    return below


def _never_falling(
    key: Ints,
    gang: Ints,
    in_gang: Bools,
) -> Ints:
    """`key[i]` raised to the highest before it of the same gang, so that sorting by it keeps a
    gang's own order.
    """
    raised = key.copy()
    members = np.flatnonzero(in_gang)
    if not members.size:
        return raised

    own = key[members]
    gangs = gang[members]
    differs = gangs[1:] != gangs[:-1]
    is_first = np.concatenate(([True], differs))
    rises = own[1:] >= own[:-1]

    # Mostly the key falls in no gang, and then the loop over all gangs is not needed.
    if not (is_first[1:] | rises).all():
        starts = np.flatnonzero(is_first)
        places = np.arange(members.size)
        for part in np.split(places, starts[1:]):
            own[part] = np.maximum.accumulate(own[part])

    raised[members] = own
    return raised
