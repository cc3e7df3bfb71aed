"""Choosing the least harm within one region: the shortest prefix of the cheapest, and what can be given back (V8, V9).

Law: what is chosen is enough by sums, and no unit of it can be given back by sums. Units that stop no gang come first;
what is given back is tried from the dearest down. Equal snapshots give equal choices.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np

from gangsched.core.preemption.columns import Columns
from gangsched.core.preemption.sums import Sums, Tally
from gangsched.core.preemption.units import Core, Units
from gangsched.core.reserve import Scope
from gangsched.model.preemption import Harm
from gangsched.model.snapshot import Bools, Codes, Ints

Unit: TypeAlias = int | Core
"""What is taken together: a pod that goes by itself, as its number, or a core."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Units to take: pods that go by themselves, as `singles`, and `cores`; `harm` is what that costs."""

    singles: tuple[int, ...]
    cores: tuple[Core, ...]
    harm: Harm
    ids: tuple[str, ...]

    @property
    def units(self) -> list[Unit]:
        """Both, the dearest last."""
        return [*self.singles, *self.cores]

    @property
    def pods(self) -> list[int]:
        """All victims."""
        return pods_of(self.units)


def choice(units: Sequence[Unit], columns: Columns) -> Choice:
    """These units; pods that go with a core do not go by themselves as well."""
    cores = tuple(unit for unit in units if isinstance(unit, Core))
    singles = [unit for unit in units if isinstance(unit, int)]
    with_core = {i for core in cores for i in core.pods}
    alone = tuple(sorted(i for i in singles if i not in with_core))
    pods = sorted({*alone, *with_core})
    harm = Harm(
        budgets_broken=len(columns.budgets.broken(pods)),
        highest_priority=int(columns.priority[pods].max()) if pods else 0,
        gangs_stopped=sum(len(core.stopped) for core in cores),
        work_lost=int(columns.work[pods].sum()),
        victims=len(pods),
        started_s=-int(columns.start[pods].sum()),
    )
    return Choice(alone, cores, harm, tuple(sorted(columns.pods[i].uid for i in pods)))


def pods_of(units: Iterable[Unit]) -> list[int]:
    """The pods of units, each once."""
    return sorted({i for unit in units for i in _pods(unit)})


def _pods(unit: Unit) -> Sequence[int]:
    return (unit,) if isinstance(unit, int) else unit.pods


@dataclass(eq=False)
class Region:
    """A part of the cluster to make room in, for members that ask `sums` there; `free[r][n]` is what is free now.

    `requests[r][i]` are those of the running pods.
    """

    units: Units
    sums: Sums
    free: Ints
    requests: Ints

    @cached_property
    def mask(self) -> Bools:
        """The nodes that the members may use here."""
        return self.sums.mask

    def without(self, gone: Bools) -> Ints:
        """`free[r][n]` once the pods of `gone[i]` are gone."""
        columns, nodes = self.units.columns, self.free.shape[1]
        pods = np.flatnonzero(gone & (columns.node >= 0))
        where = columns.node[pods]
        freed = [np.bincount(where, weights=row[pods], minlength=nodes) for row in self.requests]
        return self.free + np.array(freed, dtype=np.int64)

    def could(self, level: int) -> bool:
        """Whether there is room once everything of priority `level` or lower that could go is gone."""
        return self.sums.enough(self.without(self.units.could_go(level)))

    def within(self, scope: Scope) -> Region:
        """The part of it in a scope."""
        return Region(self.units, self.sums.within(scope), self.free, self.requests)

    def cheapest(
        self, level: int, *, by_node: bool = False, breaking: bool = False, outer: Region | None = None
    ) -> Choice | None:
        """The choice of units of priority `level` at most that is enough; None if there is none.

        Cheapest first is by the pod or, with `by_node`, by the node, for members that need a node nearly to themselves.
        `breaking`: PodDisruptionBudgets do not count. Nothing can be given back with the members placed anywhere in
        `outer`.
        """
        ordered = self.ordered(level, by_node=by_node, breaking=breaking)
        length = self.shortest(ordered)
        return None if length is None else (outer or self).give_back(ordered[:length])

    def ordered(self, level: int, *, by_node: bool, breaking: bool) -> list[Unit]:
        """The units to take one after the other, the cheapest first, as far as budgets allow."""
        price = self._node_prices(level) if by_node else None
        singles, cores = self.units.upto(level, self.mask, price)
        ordered: list[Unit] = [*self._order(singles, price), *sorted(cores, key=self._core_price)]
        if breaking:
            return ordered
        admitted = self.units.columns.budgets.admit([_pods(unit) for unit in ordered])
        return [ordered[position] for position in admitted]

    def shortest(self, ordered: Sequence[Unit]) -> int | None:
        """How many of the units, taken in this order, are enough; None if all of them are not."""
        rank = np.full(len(self.units.columns.pods), len(ordered), dtype=np.int64)
        for position in range(len(ordered) - 1, -1, -1):
            unit = ordered[position]
            rank[unit if isinstance(unit, int) else list(unit.pods)] = position
        low, high = 0, len(ordered)
        if not self.sums.enough(self.without(rank < high)):
            return None
        while low < high:
            middle = (low + high) // 2
            if self.sums.enough(self.without(rank < middle)):
                high = middle
            else:
                low = middle + 1
        return low

    def give_back(self, taken: Sequence[Unit]) -> Choice:
        """What is left of `taken`, which is enough, when every unit that is not needed is given back."""
        columns = self.units.columns
        free = self.without(columns.mask(pods_of(taken)))
        useful = np.zeros(free.shape[1], dtype=np.bool_)
        for ask in self.sums.asks:
            useful |= ask.rooms(free) > ask.rooms(self.free)
        helps = self.units.inside(useful).tolist()
        if not self.sums.totals:
            taken = [unit for unit in taken if any(helps[i] for i in _pods(unit))]
        return self._needed(taken, Tally(self.sums, self.without(columns.mask(pods_of(taken)))))

    def _needed(self, taken: Sequence[Unit], tally: Tally) -> Choice:
        """Give back from the dearest down; a pod comes back when no unit that has it is left."""
        having: dict[int, int] = {}
        for unit in taken:
            for i in _pods(unit):
                having[i] = having.get(i, 0) + 1
        needed: list[Unit] = []
        for unit in reversed(taken):
            back = [i for i in _pods(unit) if having[i] == 1]
            if tally.give_back([self._place(i) for i in back]):
                for i in _pods(unit):
                    having[i] -= 1
            else:
                needed.append(unit)
        return choice(needed[::-1], self.units.columns)

    def _place(self, i: int) -> tuple[int, tuple[int, ...]]:
        return int(self.units.columns.node[i]), tuple(self.requests[:, i].tolist())

    def _order(self, singles: Ints, price: Ints | None) -> list[int]:
        """Pods that go by themselves: least work for what they free, the larger first, then the latest started.

        Members of a gang keep their order among each other.
        """
        columns = self.units.columns
        size = self._size(singles)
        keys = [-columns.start[singles], -size, columns.work[singles] // np.maximum(size, 1)]
        members = columns.gang[singles]
        if price is None:
            keys = [_never_falling(key, members) for key in keys]
        else:
            keys = [*keys, columns.node[singles], price[singles]]
        order = np.lexsort(keys)
        found: list[int] = singles[order].tolist()
        same = np.logical_and.reduce([key[order][1:] == key[order][:-1] for key in keys])
        if not same.any():
            return found
        runs = np.concatenate(([0], np.cumsum(~same))).tolist()
        names = [
            columns.pods[i].uid if gang < 0 else "" for i, gang in zip(found, members[order].tolist(), strict=True)
        ]
        ties = sorted(zip(runs, names, order.tolist(), found, strict=True))
        return [i for *_, i in ties]

    def _size(self, pods: Ints) -> Ints:
        """How much of what the members need most of is freed by each of `pods`."""
        size: Ints = self.requests[self._scarce][pods]
        return size

    @cached_property
    def _scarce(self) -> int:
        """The resource that stops the members first, as things are."""
        ask = self.sums.asks[0]
        fits = [
            (int(np.maximum(self.free[row][ask.mask], 0).sum()) // amount, row)
            for row, amount in enumerate(ask.amounts)
            if amount
        ]
        return min(fits)[1]

    def _core_price(self, core: Core) -> tuple[float, float, tuple[str, ...]]:
        """Gangs stopped and work lost for what the group frees here."""
        pods = np.array(core.pods, dtype=np.int64)
        columns = self.units.columns
        here = pods[(columns.node[pods] >= 0)]
        here = here[self.mask[columns.node[here]]]
        size = max(1, int(self._size(here).sum()))
        return len(core.stopped) / size, float(columns.work[pods].sum()) / size, (core.group,)

    def _node_prices(self, level: int) -> Ints:
        """`price[i]`: work lost for each member that gets room on the node of pod `i`, all that may go gone."""
        columns = self.units.columns
        may_go = self.units.single & (columns.priority <= level) & (columns.node >= 0)
        free = self.without(may_go)
        gained = np.zeros(free.shape[1], dtype=np.int64)
        for ask in self.sums.asks:
            gained = np.maximum(
                gained, np.minimum(ask.rooms(free), ask.count) - np.minimum(ask.rooms(self.free), ask.count)
            )
        pods = np.flatnonzero(may_go)
        work = np.bincount(columns.node[pods], weights=columns.work[pods] + 1, minlength=free.shape[1])
        price = np.where(gained > 0, work / np.maximum(gained, 1), 2.0**62).astype(np.int64)
        found: Ints = np.where(columns.node >= 0, price[columns.node], 2**62)
        return found


def _never_falling(key: Ints, gang: Codes) -> Ints:
    """`key[i]` raised to the highest before it of the same gang, so that sorting by it keeps a gang's own order."""
    raised = key.copy()
    members = np.flatnonzero(gang >= 0)
    for own in np.split(members, np.flatnonzero(np.diff(gang[members])) + 1):
        raised[own] = np.maximum.accumulate(key[own])
    return raised
