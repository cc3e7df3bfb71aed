"""Sums of room: whether the free amounts could hold the needed members, without placing them.

Invariant: a "no" is final. A "yes" is exact if the members have one shape, no filter reads more than room, and no room
is reserved against the group (H8); otherwise a round decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import sub

import numpy as np

from gangsched.core.filter import static_fit
from gangsched.core.filter.plugin import static_cost
from gangsched.core.preemption.preemptor import Preemptor
from gangsched.core.preemption.slice_sums import SliceSum, slices_of
from gangsched.core.reserve import Ledger
from gangsched.core.scope import Scope
from gangsched.core.scopes import closed
from gangsched.core.search.slices import is_sliced
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
        """`rooms[n]`: number of the members that fit into `free[r][n]`, on node `n` or on `nodes[n]`."""
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
        is_kept = ledger.kept is not None and ledger.kept.standing(preemptor.group) is not None
        exact = len(asks) == 1 and not is_kept and ledger.only_room_counts(preemptor.pods)
        exact = exact and not is_sliced(preemptor.group.gangs)
        kept = totals if len(asks) > 1 or limits else []
        return cls(names, asks, tuple(kept), exact, ledger.work, slices_of(preemptor, ledger))

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
        """The same requests, limited to a scope. Raises OutOfWork: there may be hundreds of scopes."""
        self.work.charge(len(self.asks) * (2 + self.asks[0].mask.size // 2_000))
        asks = tuple(ask.within(scope) for ask in self.asks)
        anywhere = np.logical_or.reduce([ask.mask for ask in asks])
        totals = tuple(replace(each, mask=anywhere) if each.kept else each for each in self.totals)
        return replace(self, asks=asks, totals=totals)

    def charge(self, free: Ints) -> None:
        """Charge one comparison with the free room. Raises OutOfWork."""
        self.work.charge(len(self.asks) * (10 + free.size // 200) + len(self.slices) * (10 + free.shape[1] // 200))

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
        return all(int(each.copies(rooms[0]).sum()) >= each.number for each in self.slices)

    def more_slices(self, before: Ints, after: Ints) -> Bools:
        """Nodes of the domains, of the finest level of slices, that take more slices with `after[r][n]` free.

        All nodes if the slices of these domains alone are not enough by sums.
        """
        (ask,), inner = self.asks, self.slices[-1]
        rooms = ask.rooms(after)
        more = inner.copies(rooms) > inner.copies(ask.rooms(before))
        found: Bools = np.append(more, False)[inner.level.codes]
        without = np.where(found, after, before)
        return found if self.enough(without) else np.ones_like(found)

    def room(self, free: Ints) -> int:
        """Number of members that fit, each shape by itself. Raises OutOfWork."""
        self.charge(free)
        return sum(min(ask.count, int(ask.rooms(free).sum())) for ask in self.asks)

    def on_one_node(self, free: Ints) -> Bools:
        """`on_one_node[n]`: node `n` could hold all members."""
        fits = np.logical_and.reduce([ask.rooms(free) >= ask.count for ask in self.asks])
        for row in range(len(self.names)):
            fits &= free[row] >= sum(ask.amounts[row] * ask.count for ask in self.asks)
        return np.asarray(fits, dtype=np.bool_)


class Tally:
    """Running sums in plain integers while pods are spared one by one; `spare` of each kind of member may be lost."""

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
        # By layer of slices: the domain of each node, the room of each domain, and how many slices are to spare.
        rooms = sums.asks[0].rooms(free) if sums.slices else None
        of = [(each, each.level.sums(rooms)) for each in sums.slices] if rooms is not None else []
        self._domains = [each.level.codes.tolist() for each, _ in of]
        self._room_in = [room.tolist() for _, room in of]
        self._copies = [int((room // each.size).sum()) - each.number for each, room in of]

    def give_back(self, pods: Sequence[tuple[int, tuple[int, ...]]]) -> bool:
        """Spare these pods, as (node, requests), if enough is free without evicting them; report whether it was."""
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
        left = [self._without(layer, after) for layer in range(len(self._sums.slices))]
        copies = [have + more for have, (more, _) in zip(self._copies, left, strict=True)]
        if min(copies, default=0) < 0:
            return False
        self.spare, self._rest, self._copies = spare, rest, copies
        for room_in, (_, room) in zip(self._room_in, left, strict=True):
            for domain, amount in room.items():
                room_in[domain] = amount
        self._columns.update(after)
        return True

    def breaks_slices(self, nodes: Ints, lost: Ints) -> Bools:
        """By pod on `nodes[i]` whether too few slices are left if there is room for `lost[i]` members less."""
        found = np.zeros(nodes.size, dtype=np.bool_)
        for each, room_in, spare in zip(self._sums.slices, self._room_in, self._copies, strict=True):
            domain = each.level.codes[nodes]
            room = np.array([*room_in, 0], dtype=np.int64)[domain]
            found |= room // each.size - (room - lost) // each.size > spare
        return found

    def _without(self, layer: int, after: Mapping[int, tuple[int, ...]]) -> tuple[int, dict[int, int]]:
        """By how many slices fewer fit with these columns, below 0, and the room of the domains that they change."""
        size, domains, fits = self._sums.slices[layer].size, self._domains[layer], self._fits[0]
        room: dict[int, int] = {}
        for node, column in after.items():
            if self._masks[0][node] and (domain := domains[node]) >= 0:
                have = room.get(domain, self._room_in[layer][domain])
                room[domain] = have - fits(self._column(node)) + fits(column)
        return sum(amount // size - self._room_in[layer][domain] // size for domain, amount in room.items()), room

    def _column(self, node: int) -> tuple[int, ...]:
        column = self._columns.get(node)
        if column is None:
            column = self._columns[node] = tuple(self.free[:, node].tolist())
        return column


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
