"""Totals of room: whether the free amounts could hold the needed members, without placing them.

Invariant: a "no" is final. A "yes" is exact if the members have one shape, no filter reads more than room, and no room
is reserved for other groups (H8); otherwise a round decides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import sub

import numpy as np

from gangsched.core.filter import static_fit
from gangsched.core.filter.plugin import static_cost
from gangsched.core.preemption.numbers import NONE, ints, lookup
from gangsched.core.preemption.preemptor import Preemptor
from gangsched.core.preemption.slice_sums import SliceSum, slices_of
from gangsched.core.reserve import Ledger
from gangsched.core.scope import Scope
from gangsched.core.scopes import closed
from gangsched.core.search.slices import is_sliced
from gangsched.core.topology import TopologyLevel
from gangsched.core.work import Work
from gangsched.model.objects import Shape
from gangsched.model.snapshot import Bools, Ints


@dataclass(frozen=True, slots=True, eq=False)
class Ask:
    """`count` members that each request `amounts[r]`, on the nodes of `mask`; `accelerated`: they use accelerators."""

    amounts: tuple[int, ...]
    count: int
    mask: Bools
    accelerated: bool

    def within(self, scope: Scope) -> Ask:
        """The same request, limited to a scope."""
        inside = scope.accelerated if self.accelerated else scope.others
        return self if inside is None else Ask(self.amounts, self.count, self.mask & inside, self.accelerated)

    def rooms(self, free: Ints, nodes: Ints | None = None) -> Ints:
        """`rooms[n]`: number of the members that fit into `free[r][n]`, on node `n` or, if `nodes` are given, on
        `nodes[n]`.
        """
        found: Ints | None = None
        for row, amount in enumerate(self.amounts):
            if amount:
                fits = free[row] // amount
                found = fits if found is None else np.minimum(found, fits)
        assert found is not None, "a shape always requests at least `pods`"
        return np.where(self.mask if nodes is None else self.mask[nodes], np.maximum(found, 0), 0)


@dataclass(frozen=True, slots=True, eq=False)
class Total:
    """`amount` of resource `row` must be free in total on the nodes of `mask`; `kept`: limited to the scope tried."""

    row: int
    amount: int
    mask: Bools
    kept: bool = True

    def free(self, free: Ints) -> int:
        """Amount of the resource that is free in `free[r][n]`."""
        return int(np.maximum(free[self.row][self.mask], 0).sum())


@dataclass(frozen=True, slots=True, eq=False)
class NeededSums:
    """Requests of the needed members over the resources `names`; `exact`: sums decide.

    Each comparison with the free room is charged to `work`, since a gang may have as many shapes as members.
    """

    names: tuple[str, ...]
    asks: tuple[Ask, ...]
    totals: tuple[Total, ...]
    exact: bool
    work: Work
    slices: tuple[SliceSum, ...] = ()

    @classmethod
    def of(cls, preemptor: Preemptor, ledger: Ledger) -> NeededSums | None:
        """Requests of the preemptor; None if no node offers one of the resources."""
        counts = preemptor.counts
        limits = [(gang, name, amount) for gang in preemptor.gangs for name, amount in gang.min_resources]
        asked = {name for shape in counts for name, _ in shape.requests} | {name for _, name, _ in limits}
        if not all(name in ledger.resources for name in asked):
            return None
        names = tuple(sorted(asked))
        ledger.work.charge(len(counts) * (20 + len(ledger.table) // 200))
        asks = tuple([_ask(shape, count, names, preemptor, ledger) for shape, count in counts.items()])
        anywhere = np.logical_or.reduce([ask.mask for ask in asks])
        totals = []
        for row in range(len(names)):
            needed = sum(ask.amounts[row] * ask.count for ask in asks)
            totals.append(Total(row, needed, anywhere))
        for gang, name, amount in limits:
            held = sum(dict(placement.pod.shape.requests).get(name, 0) for placement in gang.held)
            shapes = {pod.shape for pod in gang.pending}
            usable = np.logical_or.reduce([static_fit(shape, ledger.table).mask for shape in shapes])
            totals.append(Total(names.index(name), amount - held, usable, kept=False))
        is_kept = ledger.promises.keeps_from(preemptor.group) or is_sliced(preemptor.group.gangs)
        exact = len(asks) == 1 and not is_kept and ledger.only_room_counts(preemptor.pods)
        kept = totals if len(asks) > 1 or limits else []
        return cls(names, asks, tuple(kept), exact, ledger.work, slices_of(preemptor, names, ledger))

    @property
    def mask(self) -> Bools:
        """Nodes eligible for any of the members."""
        found: Bools = np.logical_or.reduce([ask.mask for ask in self.asks])
        return found

    @property
    def needed(self) -> int:
        """Number of members."""
        return sum(ask.count for ask in self.asks)

    def within(self, scope: Scope) -> NeededSums:
        """The same requests, limited to a scope. Raises OutOfWork, because there may be hundreds of scopes."""
        self.work.charge(len(self.asks) * (2 + self.asks[0].mask.size // 2_000))
        asks = tuple(ask.within(scope) for ask in self.asks)
        anywhere = np.logical_or.reduce([ask.mask for ask in asks])
        totals = tuple(replace(each, mask=anywhere) if each.kept else each for each in self.totals)
        return replace(self, asks=asks, totals=totals)

    def charge(self, free: Ints) -> None:
        """Charge one comparison with the free room. Raises OutOfWork."""
        quantities = sum(len(each.divisors) for each in self.slices)
        self.work.charge(len(self.asks) * (10 + free.size // 200) + quantities * (10 + free.shape[1] // 200))

    def free(self, ledger: Ledger) -> Ints:
        """Copy of the ledger's `free[r][n]`."""
        return ledger.free[[ledger.resources[name] for name in self.names]]

    def enough(self, free: Ints) -> bool:
        """Whether `free[r][n]` could hold all members. Raises OutOfWork."""
        self.charge(free)
        if any(total.free(free) < total.amount for total in self.totals):
            return False
        rooms = [ask.rooms(free) for ask in self.asks]
        if not all(int(room.sum()) >= ask.count for ask, room in zip(self.asks, rooms, strict=True)):
            return False
        return all(int(self.copies(each, free, rooms).sum()) >= each.number for each in self.slices)

    def copies(self, slices: SliceSum, free: Ints, rooms: Sequence[Ints], inner: TopologyLevel | None = None) -> Ints:
        """How many slices fit into `free[r][n]`, by domain of their level or of `inner`; `rooms` are those of the
        asks.
        """
        return slices.copies([(inner or slices.level).sums(each) for each in self.quantities(slices, free, rooms)])

    def quantities(self, slices: SliceSum, free: Ints, rooms: Sequence[Ints]) -> list[Ints]:
        """By node, the quantities that slices use: room for members of each ask, and free amounts."""
        amounts = [np.where(self.mask, np.maximum(free[row], 0), 0) for row, _ in slices.amounts]
        return [*(rooms[ask] for ask, _ in slices.parts), *amounts]

    def more_slices(self, before: Ints, after: Ints) -> Bools:
        """Nodes in the domains, of the finest level of slices, in which more slices fit with `after[r][n]` free.

        All nodes if, by totals, these domains alone do not suffice.
        """
        found: Bools = np.zeros(before.shape[1], dtype=np.bool_)
        rooms = [[ask.rooms(free) for ask in self.asks] for free in (before, after)]
        for each in self.slices:
            if each.finest:
                more = self.copies(each, after, rooms[1]) > self.copies(each, before, rooms[0])
                found |= lookup(more, each.level.codes, none=False)
        return found if self.enough(np.where(found, after, before)) else np.ones_like(found)

    def on_one_node(self, free: Ints) -> Bools:
        """`on_one_node[n]`: node `n` could hold all members."""
        fits = np.logical_and.reduce([ask.rooms(free) >= ask.count for ask in self.asks])
        for row in range(len(self.names)):
            fits &= free[row] >= sum(ask.amounts[row] * ask.count for ask in self.asks)
        return np.asarray(fits, dtype=np.bool_)


class Tally:
    """Totals in plain integers, updated while victims are dropped from the set one by one. `spare[k]`: places for
    members of kind k beyond the number needed.
    """

    def __init__(self, sums: NeededSums, free: Ints) -> None:
        """`free[r][n]` is what is free when everything chosen is gone. Raises OutOfWork."""
        sums.charge(free)
        self._sums = sums
        self.free = free
        self._columns: dict[int, tuple[int, ...]] = {}
        self._fits = [partial(_fits, tuple((r, n) for r, n in enumerate(ask.amounts) if n)) for ask in sums.asks]
        self._masks = [ask.mask.tolist() for ask in sums.asks]
        self.spare = [int(ask.rooms(free).sum()) - ask.count for ask in sums.asks]
        self._rest = [total.free(free) - total.amount for total in sums.totals]
        rooms = [ask.rooms(free) for ask in sums.asks] if sums.slices else []
        self._slices = [_Slices(sums, each, free, rooms) for each in sums.slices]

    def give_back(self, pods: Sequence[tuple[int, tuple[int, ...]]]) -> bool:
        """Spare these pods, given as (node, requests), if enough is free without evicting them; return whether it
        is.
        """
        after: dict[int, tuple[int, ...]] = {}
        for node, requests in pods:
            have = after.get(node) or self._column(node)
            after[node] = tuple(map(sub, have, requests))
        spare, rest = list(self.spare), list(self._rest)
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
        changed = [(node, self._column(node), column) for node, column in after.items()] if self._slices else []
        fewer = [each.without(changed, self._fits, self._masks) for each in self._slices]
        if any(less is None for less in fewer):
            return False
        self.spare, self._rest = spare, rest
        for each, less in zip(self._slices, fewer, strict=True):
            each.take(less or {})
        self._columns.update(after)  # only now: a unit that is not spared must leave no trace
        return True

    def breaks_slices(self, ask: int, nodes: Ints, lost: Ints) -> Bools:
        """For each pod on `nodes[i]`, whether too few slices would fit if there were room for `lost[i]` fewer members
        of an ask.
        """
        found = np.zeros(nodes.size, dtype=np.bool_)
        for each in self._slices:
            found |= each.breaks(ask, nodes, lost)
        return found

    def _column(self, node: int) -> tuple[int, ...]:
        column = self._columns.get(node)
        if column is None:
            column = self._columns[node] = tuple(self.free[:, node].tolist())
        return column


class _Slices:
    """Running sums of the slices of a layer: by domain what there is of each quantity, and how many are to spare."""

    def __init__(self, sums: NeededSums, of: SliceSum, free: Ints, rooms: Sequence[Ints]) -> None:
        self._of = of
        self._domains, self._divisors = of.level.codes.tolist(), of.divisors
        have = [of.level.sums(each) for each in sums.quantities(of, free, rooms)]
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
        """The quantities in the domains of these nodes, whose free column changes; None if too few slices would fit."""
        found: dict[int, tuple[int, ...]] = {}
        for node, before, after in changed:
            if (domain := self._domains[node]) == NONE:
                continue
            less = [fits[a](before) - fits[a](after) if masks[a][node] else 0 for a, _ in self._of.parts]
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


def _ask(shape: Shape, count: int, names: Sequence[str], preemptor: Preemptor, ledger: Ledger) -> Ask:
    if shape not in ledger.table.static_fits:
        ledger.work.charge(static_cost(shape, ledger.table))
    mask = static_fit(shape, ledger.table).mask
    for _, shut in closed(preemptor.group, shape, ledger):
        mask = mask & ~shut
    amounts: Mapping[str, int] = dict(shape.requests)
    return Ask(tuple(amounts.get(name, 0) for name in names), count, mask, ledger.accelerated(shape))
