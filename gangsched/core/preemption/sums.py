"""Totals of room: whether the free amounts could hold the needed members, without placing them.

Invariant: a "no" is final. A "yes" is exact if the members have one shape, no filter reads more
than room, and no room is reserved for other groups (H8); otherwise a round decides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from operator import and_

import numpy as np

from gangsched.core.filter import static_fit
from gangsched.core.filter.plugin import static_cost
from gangsched.core.preemption.numbers import NONE, lookup
from gangsched.core.preemption.preemptor import Preemptor
from gangsched.core.reserve import Ledger
from gangsched.core.scope import Scope
from gangsched.core.scopes import closed
from gangsched.core.search.demand import needed_units
from gangsched.core.search.domains import free_domains, regions
from gangsched.core.search.slices import Slice, is_sliced
from gangsched.core.topology import TopologyLevel, level
from gangsched.core.work import Work
from gangsched.model.gang import Gang, Group
from gangsched.model.objects import Shape
from gangsched.model.snapshot import Bools, Ints


@dataclass(frozen=True, slots=True, eq=False)
class Ask:
    """`count` members that each request `amounts[r]`, on the nodes of `mask`. `accelerated`: they
    use accelerators.
    """

    amounts: tuple[int, ...]
    count: int
    mask: Bools
    accelerated: bool

    def rooms(self, free: Ints, nodes: Ints | None = None) -> Ints:
        """`rooms[n]`: number of these members that fit into `free[r][n]`; with `nodes`,
        `free[r][i]` is the room of node `nodes[i]`.
        """
        # A shape requests at least `pods`, so there is an amount.
        fits = reduce(
            np.minimum, (free[row] // amount for row, amount in enumerate(self.amounts) if amount)
        )
        return np.where(self.mask if nodes is None else self.mask[nodes], np.maximum(fits, 0), 0)


@dataclass(frozen=True, slots=True, eq=False)
class Total:
    """`amount` of resource `row` must be free in total on the nodes of `mask`. `kept`: only nodes
    of the current scope count.
    """

    row: int
    amount: int
    mask: Bools
    kept: bool = True

    def free(self, free: Ints) -> int:
        """Amount of the resource that is free in `free[r][n]`."""
        return int(np.maximum(free[self.row][self.mask], 0).sum())


@dataclass(frozen=True, slots=True, eq=False)
class SliceSum:
    """`number` slices of one layer, each in one domain of `level`. Only slices that may still start
    in any domain are counted, all with the requests of the smallest slice of the layer.
    """

    level: TopologyLevel
    number: int
    #: By number of an ask, how many of its members a slice has.
    parts: tuple[tuple[int, int], ...]
    #: The total requests of a slice, by row, if its members differ.
    amounts: tuple[tuple[int, int], ...]
    #: Whether the slices contain no smaller ones.
    finest: bool

    @property
    def divisors(self) -> list[int]:
        """The amount that one slice uses of each quantity: room for its members, and resources."""
        divisors: list[int] = []
        for _, number in (*self.parts, *self.amounts):
            divisors.append(number)

        return divisors

    def copies(self, quantities: Sequence[Ints]) -> Ints:
        """By domain, the number of slices that fit into its `quantities`."""
        found: Ints = np.minimum.reduce(
            [have // of for have, of in zip(quantities, self.divisors, strict=True)]
        )
        return found

    def within(self, outer: TopologyLevel) -> TopologyLevel:
        """The domains of the level, split so that each is inside one domain of `outer`."""
        there = (outer.codes != NONE) & (self.level.codes != NONE)
        codes = np.full(there.size, NONE, dtype=np.int32)

        # One number for each pair of an outer and an inner domain, then renumbered without gaps.
        around = outer.codes[there].astype(np.int64)
        joint = around * self.level.size + self.level.codes[there]
        found, codes[there] = np.unique(joint, return_inverse=True)
        return TopologyLevel(
            (*outer.keys, *self.level.keys),
            codes,
            found.size,
            (*outer.columns, *self.level.columns),
            (*outer.labels, *self.level.labels),
        )


@dataclass(frozen=True, slots=True, eq=False)
class NeededSums:
    """Requests of the needed members for the resources `names`; `mask` are the nodes eligible for
    any of them.

    `exact`: sums alone decide. Each comparison with the free room is charged to `work`, since a
    gang may have as many shapes as members.
    """

    names: tuple[str, ...]
    asks: tuple[Ask, ...]
    mask: Bools
    totals: tuple[Total, ...]
    exact: bool
    work: Work
    slices: tuple[SliceSum, ...] = ()

    @classmethod
    def of(cls, preemptor: Preemptor, ledger: Ledger) -> NeededSums | None:
        """Requests of the preemptor; None if no node offers one of the requested resources."""
        counts = preemptor.counts
        limits = [
            (gang, name, amount) for gang in preemptor.gangs for name, amount in gang.min_resources
        ]

        asked = {name for shape in counts for name, _ in shape.requests} | {
            name for _, name, _ in limits
        }
        if not asked <= ledger.resources.keys():
            return None

        names = tuple(sorted(asked))
        ledger.work.charge(len(counts) * (20 + len(ledger.table) // 200))
        asks = tuple(
            [_ask(shape, count, names, preemptor, ledger) for shape, count in counts.items()]
        )
        sliced = is_sliced(preemptor.group.gangs)
        exact = len(asks) == 1 and not sliced and not ledger.promises.keeps_from(preemptor.group)
        exact = exact and ledger.only_room_counts(preemptor.pods)
        layers = slices_of(preemptor, names, ledger) if sliced else ()
        sums = cls(
            names,
            asks,
            np.logical_or.reduce([ask.mask for ask in asks]),
            (),
            exact,
            ledger.work,
            layers,
        )

        if len(asks) == 1 and not limits:
            return sums  # the room for members of one shape says all that a total would

        totals = []
        for row in range(len(names)):
            totals.append(Total(row, sums.needed(row), sums.mask))

        for gang, name, amount in limits:
            held = 0
            for placement in gang.held:
                held += dict(placement.pod.shape.requests).get(name, 0)

            shapes = {pod.shape for pod in gang.pending}
            usable = np.logical_or.reduce(
                [static_fit(shape, ledger.table).mask for shape in shapes]
            )
            totals.append(Total(names.index(name), amount - held, usable, kept=False))

        return replace(sums, totals=tuple(totals))

    def needed(self, row: int) -> int:
        """Amount of the resource that all members request."""
        return sum(ask.amounts[row] * ask.count for ask in self.asks)

    def within(self, scope: Scope) -> NeededSums:
        """The same requests, limited to a scope. Raises OutOfWork, because there may be hundreds of
        scopes.
        """
        self.work.charge(len(self.asks) * (2 + self.asks[0].mask.size // 2_000))
        inside = []
        for ask in self.asks:
            inside.append(scope.of(accelerated=ask.accelerated))

        limited = zip(self.asks, inside, strict=True)
        asks = [
            ask if mask is None else replace(ask, mask=ask.mask & mask) for ask, mask in limited
        ]
        anywhere = np.logical_or.reduce([ask.mask for ask in asks])
        totals = tuple(
            replace(total, mask=anywhere) if total.kept else total for total in self.totals
        )

        return replace(self, asks=tuple(asks), mask=anywhere, totals=totals)

    def charge(self, free: Ints) -> None:
        """Charge one comparison with the free room. Raises OutOfWork."""
        quantities = sum(len(slice_sum.divisors) for slice_sum in self.slices)
        self.work.charge(
            len(self.asks) * (10 + free.size // 200) + quantities * (10 + free.shape[1] // 200)
        )

    def free(self, ledger: Ledger) -> Ints:
        """Copy of the ledger's `free[r][n]`."""
        return ledger.free[[ledger.resources[name] for name in self.names]]

    def enough(self, free: Ints) -> bool:
        """Whether `free[r][n]` could hold all members. Raises OutOfWork."""
        self.charge(free)
        if any(total.free(free) < total.amount for total in self.totals):
            return False

        rooms = [ask.rooms(free) for ask in self.asks]
        if not all(
            int(room.sum()) >= ask.count for ask, room in zip(self.asks, rooms, strict=True)
        ):
            return False

        return all(
            int(self.copies(slice_sum, free, rooms).sum()) >= slice_sum.number
            for slice_sum in self.slices
        )

    def copies(
        self,
        slices: SliceSum,
        free: Ints,
        rooms: Sequence[Ints],
        inner: TopologyLevel | None = None,
    ) -> Ints:
        """Number of slices that fit into `free[r][n]`, by domain of their level or, if given, of
        `inner`; `rooms` are the rooms of the asks.
        """
        return slices.copies(
            [
                (inner or slices.level).sums(quantity)
                for quantity in self.quantities(slices, free, rooms)
            ]
        )

    def quantities(self, slices: SliceSum, free: Ints, rooms: Sequence[Ints]) -> list[Ints]:
        """The quantities that slices use, by node: room for the members of each `Ask`, and free
        amounts.
        """
        amounts = []
        for row, _ in slices.amounts:
            amounts.append(np.where(self.mask, np.maximum(free[row], 0), 0))

        return [*(rooms[ask] for ask, _ in slices.parts), *amounts]

    def useful(self, before: Ints, after: Ints) -> Bools:
        """Nodes that have room for more members, or for more slices, with `after[r][n]` free
        instead of `before[r][n]`.

        All eligible nodes if totals matter, since any additional amount may help then.
        """
        rooms = []
        for free in (before, after):
            rooms.append([ask.rooms(free) for ask in self.asks])

        more = []
        for was, now in zip(*rooms, strict=True):
            more.append(now > was)

        found: Bools = np.logical_or.reduce([np.full(before.shape[1], bool(self.totals)), *more])

        if not self.slices:
            return found

        # Where no further slice of the finest level fits, most of a thousand pods are in no slice.
        domains = np.zeros_like(found)
        for slice_sum in self.slices:
            if slice_sum.finest:
                gained = self.copies(slice_sum, after, rooms[1]) > self.copies(
                    slice_sum,
                    before,
                    rooms[0],
                )
                domains |= lookup(gained, slice_sum.level.codes, none=False)

        # By totals, coarser layers may need other domains as well.
        if self.enough(np.where(domains, after, before)):
            return found & domains

        return found

    def on_one_node(self, free: Ints) -> Bools:
        """`on_one_node[n]`: node `n` alone could hold all members."""
        fits = []
        for ask in self.asks:
            fits.append(ask.rooms(free) >= ask.count)

        for row in range(len(self.names)):
            fits.append(free[row] >= self.needed(row))

        found: Bools = np.logical_and.reduce(fits)

        return found


@dataclass(frozen=True, eq=False)
class DomainSums:
    """`sums` in all required domains (the domains of `level`) at once; the result for a domain is
    that of `sums` limited to it.

    If no domain is required, the whole cluster counts as one domain; if members run in a domain, it
    is the only one. Members without an accelerator must be in domain `others_of[d]` of `others`.
    `scope(d)` is a domain as a scope. Each evaluation is charged once, not once per domain.
    """

    sums: NeededSums
    level: TopologyLevel
    others: TopologyLevel
    others_of: Ints
    scope: Callable[[int], Scope]

    @classmethod
    def of(cls, group: Group, sums: NeededSums, ledger: Ledger) -> DomainSums:
        """The sums in the domains that could hold the group."""
        domains = free_domains(group, ledger)
        number = len(ledger.table)

        if domains is None:
            (scope,) = regions(group, ledger)
            own, others = (_one(mask, number) for mask in (scope.accelerated, scope.others))
            return cls(sums, own, others, np.zeros(1, dtype=np.int64), lambda _: scope)

        if domains.outer is None:
            none = np.zeros(domains.level.size, dtype=np.int64)
            return cls(sums, domains.level, _one(None, number), none, domains.scope)

        return cls(sums, domains.level, domains.outer, domains.outer_of, domains.scope)

    @cached_property
    def mask(self) -> Bools:
        """Nodes that some member may use in some domain."""
        kept, free = self._masks
        found: Bools = (kept & (self.level.codes != NONE)) | (free & (self.others.codes != NONE))
        return found

    def enough(self, free: Ints) -> Bools:
        """For each domain, whether `free[r][n]` could hold all members. Raises OutOfWork."""
        self.sums.charge(free)
        found = np.ones(self.level.size, dtype=np.bool_)

        for total in self.sums.totals:
            # The minResources of a gang are compared with all nodes that its members may use,
            # whatever the domain.
            have = self.free(free, total.row) if total.kept else np.array(total.free(free))
            found &= have >= total.amount

        rooms = [ask.rooms(free) for ask in self.sums.asks]
        for ask, room in zip(self.sums.asks, rooms, strict=True):
            found &= self._sum(room, accelerated=ask.accelerated) >= ask.count

        for each, inner, outer_of in self._slices if self.sums.slices else ():
            copies = self.sums.copies(each, free, rooms, inner)
            most = np.bincount(outer_of, weights=copies, minlength=self._outer.size)
            found &= (most if self._outer is self.level else most[self.others_of]) >= each.number

        return found

    def room(self, free: Ints) -> Ints:
        """Number of members that fit in each domain, summed over the shapes, as if each shape were
        alone. Raises OutOfWork.
        """
        self.sums.charge(free)
        found = np.zeros(self.level.size, dtype=np.int64)

        for ask in self.sums.asks:
            found += np.minimum(ask.count, self._sum(ask.rooms(free), accelerated=ask.accelerated))

        return found

    def free(self, free: Ints, row: int) -> Ints:
        """For each domain, the total of `free[row][n]` on nodes that some member may use."""
        # A node on which members without accelerators may run, too, counts once: in the wider
        # domain.
        kept, anywhere = self._masks
        have = np.maximum(free[row], 0)
        return self._sum(have * (kept & ~anywhere), accelerated=True) + self._sum(
            have * anywhere,
            accelerated=False,
        )

    def largest(self, amounts: Ints, nodes: Ints) -> Ints:
        """For each domain, the largest of `amounts[i]`, of pods on nodes `nodes[i]` that any of the
        members may use; 0 if there is none.
        """
        kept, anywhere = self._masks
        found = []

        for domains, mask in ((self.level, kept & ~anywhere), (self.others, anywhere)):
            there = np.flatnonzero((nodes != NONE) & mask[nodes] & (domains.codes[nodes] != NONE))
            most = np.zeros(domains.size, dtype=np.int64)
            np.maximum.at(most, domains.codes[nodes[there]], amounts[there])
            found.append(most)

        return np.maximum(found[0], found[1][self.others_of])

    def usable(self, enough: Bools, free: Ints) -> Bools:
        """The nodes with room for a member in `free[r][n]`, in the domains for which `enough` is
        True.
        """
        found: Bools = np.zeros(free.shape[1], dtype=np.bool_)
        others = np.zeros(self.others.size, dtype=np.bool_)

        others[self.others_of[enough]] = True
        for ask in self.sums.asks:
            domains, chosen = (self.level, enough) if ask.accelerated else (self.others, others)
            found |= (ask.rooms(free) > 0) & lookup(chosen, domains.codes, none=False)

        return found

    @cached_property
    def _outer(self) -> TopologyLevel:
        """The domains that the members of slices are kept in."""
        if any(ask.accelerated for ask in self.sums.asks):
            return self.level

        return self.others

    @cached_property
    def _slices(self) -> list[tuple[SliceSum, TopologyLevel, Ints]]:
        """Each layer of slices, its domains inside the outer ones, and in which of these each is.

        None where some members may go further than others: sums of a domain do not refute those.
        """
        is_mixed = len({ask.accelerated for ask in self.sums.asks}) > 1
        if is_mixed and not np.array_equal(self.level.codes, self.others.codes):
            return []

        inner = []
        for slice_sum in self.sums.slices:
            inner.append((slice_sum, slice_sum.within(self._outer)))

        slices: list[tuple[SliceSum, TopologyLevel, Ints]] = []
        for each, domains in inner:
            slices.append((each, domains, domains.inside(self._outer)))

        return slices

    @cached_property
    def _masks(self) -> tuple[Bools, Bools]:
        """Nodes that members with an accelerator may use, and nodes for the others."""
        kept, anywhere = np.zeros((2, len(self.level.codes)), dtype=np.bool_)
        for ask in self.sums.asks:
            mask = kept if ask.accelerated else anywhere
            mask |= ask.mask

        return kept, anywhere

    def _sum(self, values: Ints, *, accelerated: bool) -> Ints:
        if accelerated:
            return self.level.sums(values)

        return self.others.sums(values)[self.others_of]


def _one(mask: Bools | None, nodes: int) -> TopologyLevel:
    """A level of one domain: the nodes of the mask, None for all."""
    codes = (
        np.zeros(nodes, dtype=np.int32)
        if mask is None
        else np.where(mask, 0, NONE).astype(np.int32)
    )
    return TopologyLevel((), codes, 1, ())


def _ask(
    shape: Shape,
    count: int,
    names: Sequence[str],
    preemptor: Preemptor,
    ledger: Ledger,
) -> Ask:
    if shape not in ledger.table.static_fits:
        ledger.work.charge(static_cost(shape, ledger.table))

    mask = static_fit(shape, ledger.table).mask
    for _, shut in closed(preemptor.group, shape, ledger):
        mask = mask & ~shut

    amounts: Mapping[str, int] = dict(shape.requests)
    return Ask(
        tuple(amounts.get(name, 0) for name in names),
        count,
        mask,
        ledger.accelerated(shape),
    )


def slices_of(preemptor: Preemptor, names: Sequence[str], ledger: Ledger) -> tuple[SliceSum, ...]:
    """The slices of the needed members, as one sum per layer of a gang; `names` are the rows.

    A gang has no sum if it needs members of slices that partly run or lack members.
    """
    asks = {shape: number for number, shape in enumerate(preemptor.counts)}
    gangs = []
    for gang in preemptor.gangs:
        if gang.constraints.slices:
            gangs.append(gang)

    result: list[SliceSum] = []
    for gang in gangs:
        result += _layers(gang, asks, names, ledger)

    return tuple(result)


def _layers(
    gang: Gang,
    asks: Mapping[Shape, int],
    names: Sequence[str],
    ledger: Ledger,
) -> Iterator[SliceSum]:
    own = needed_units(gang, len(gang.pending), ledger)
    layer = []
    if not own.fixed:
        layer = own.of[: own.number]

    while layer:
        ledger.work.charge(10 + len(gang.pending) // 8)
        finer: list[Slice] = []
        for slice_ in layer:
            finer += slice_.parts

        # What the smallest slice of the layer requests: `and_` of counters takes the least of each
        # shape.
        least = reduce(and_, (Counter(pod.shape for pod in slice_.pods) for slice_ in layer))
        parts = tuple((asks[shape], number) for shape, number in least.items())
        amounts = Counter[str]()

        for shape, number in least.items() if len(least) > 1 else ():
            amounts.update({name: amount * number for name, amount in shape.requests})

        rows = tuple((names.index(name), amount) for name, amount in amounts.items() if amount)
        if parts:
            yield SliceSum(level((layer[0].key,), ledger.table), len(layer), parts, rows, not finer)

        layer = finer
