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
from typing import NamedTuple

import numpy as np

from gangsched.core.filter import static_fit
from gangsched.core.filter.plugin import static_cost
from gangsched.core.placement_attempt import PlacementAttempt
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
        by_resource = []
        for row, amount in enumerate(self.amounts):
            if amount:
                by_resource.append(free[row] // amount)

        fits = np.maximum(reduce(np.minimum, by_resource), 0)
        mask = self.mask if nodes is None else self.mask[nodes]
        return np.where(mask, fits, 0)


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
        amounts = free[self.row][self.mask]
        return int(np.maximum(amounts, 0).sum())


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
        divisors = []
        for _, number in (*self.parts, *self.amounts):
            divisors.append(number)

        return divisors

    def copies(self, quantities: Sequence[Ints]) -> Ints:
        """By domain, the number of slices that fit into its `quantities`."""
        by_quantity = []
        for amount, divisor in zip(quantities, self.divisors, strict=True):
            by_quantity.append(amount // divisor)

        copies: Ints = np.minimum.reduce(by_quantity)
        return copies

    def within(self, outer: TopologyLevel) -> TopologyLevel:
        """The domains of the level, split so that each is inside one domain of `outer`."""
        there = (outer.codes != NONE) & (self.level.codes != NONE)
        codes = np.full(there.size, NONE, dtype=np.int32)

        # One number for each pair of an outer and an inner domain, then renumbered without gaps.
        around = outer.codes[there].astype(np.int64)
        pairs = around * self.level.size + self.level.codes[there]
        distinct, codes[there] = np.unique(pairs, return_inverse=True)

        return TopologyLevel(
            keys=outer.keys + self.level.keys,
            codes=codes,
            size=distinct.size,
            columns=outer.columns + self.level.columns,
            labels=outer.labels + self.level.labels,
        )


class _Limit(NamedTuple):
    """An amount of `minResources` of a gang (P4)."""

    gang: Gang
    resource: str
    amount: int

    def total(self, row: int, ledger: Ledger) -> Total:
        """What must be free of it beside what the gang holds, on all nodes that its members may
        use.
        """
        held = 0
        for placement in self.gang.held:
            requests = dict(placement.pod.shape.requests)
            held += requests.get(self.resource, 0)

        shapes = {pod.shape for pod in self.gang.pending}
        masks = [static_fit(shape, ledger.table).mask for shape in shapes]
        usable = np.logical_or.reduce(masks)
        return Total(row, self.amount - held, usable, kept=False)


def _limits(preemptor: Preemptor) -> list[_Limit]:
    limits = []
    for gang in preemptor.gangs:
        for name, amount in gang.min_resources:
            limits.append(_Limit(gang, name, amount))

    return limits


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
        limits = _limits(preemptor)
        asked = {limit.resource for limit in limits}
        for shape in preemptor.counts:
            for name, _ in shape.requests:
                asked.add(name)

        if not asked <= ledger.resources.keys():
            return None

        names = tuple(sorted(asked))
        asks = _asks(preemptor, names, ledger)
        group = preemptor.group
        sliced = is_sliced(group.gangs)

        sums = cls(
            names,
            asks,
            mask=np.logical_or.reduce([ask.mask for ask in asks]),
            totals=(),
            exact=(
                len(asks) == 1
                and not sliced
                and not ledger.promises.keeps_from(group)
                and ledger.only_room_counts(preemptor.pods)
            ),
            work=ledger.work,
            slices=slices_of(preemptor, names, ledger) if sliced else (),
        )
        if len(asks) == 1 and not limits:
            return sums  # the room for members of one shape says all that a total would

        totals = []
        for row in range(len(names)):
            amount = sums.needed(row)
            totals.append(Total(row, amount, sums.mask))

        for limit in limits:
            row = names.index(limit.resource)
            totals.append(limit.total(row, ledger))

        return replace(sums, totals=tuple(totals))

    def needed(self, row: int) -> int:
        """Amount of the resource that all members request."""
        total = 0
        for ask in self.asks:
            total += ask.amounts[row] * ask.count

        return total

    def within(self, scope: Scope) -> NeededSums:
        """The same requests, limited to a scope. Raises OutOfWork, because there may be hundreds of
        scopes.
        """
        self.work.charge(len(self.asks) * (2 + self.asks[0].mask.size // 2_000))
        asks = []
        for ask in self.asks:
            inside = scope.of(accelerated=ask.accelerated)
            if inside is None:
                asks.append(ask)
            else:
                asks.append(replace(ask, mask=ask.mask & inside))

        anywhere = np.logical_or.reduce([ask.mask for ask in asks])
        totals = []
        for total in self.totals:
            if total.kept:
                totals.append(replace(total, mask=anywhere))
            else:
                totals.append(total)

        return replace(self, asks=tuple(asks), mask=anywhere, totals=tuple(totals))

    def charge(self, free: Ints) -> None:
        """Charge one comparison with the free room. Raises OutOfWork."""
        resources, nodes = free.shape
        quantities = sum(len(slice_sum.divisors) for slice_sum in self.slices)
        for_asks = len(self.asks) * (10 + resources * nodes // 200)
        for_slices = quantities * (10 + nodes // 200)
        self.work.charge(for_asks + for_slices)

    def free(self, ledger: Ledger) -> Ints:
        """Copy of the ledger's `free[r][n]`."""
        rows = [ledger.resources[name] for name in self.names]
        return ledger.free[rows]

    def enough(self, free: Ints) -> bool:
        """Whether `free[r][n]` could hold all members. Raises OutOfWork."""
        self.charge(free)
        for total in self.totals:
            if total.free(free) < total.amount:
                return False

        rooms = [ask.rooms(free) for ask in self.asks]
        for ask, room in zip(self.asks, rooms, strict=True):
            if int(room.sum()) < ask.count:
                return False

        for slice_sum in self.slices:
            copies = self.copies(slice_sum, free, rooms)
            if int(copies.sum()) < slice_sum.number:
                return False

        return True

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
        domains = inner or slices.level
        by_domain = []
        for quantity in self.quantities(slices, free, rooms):
            by_domain.append(domains.sums(quantity))

        return slices.copies(by_domain)

    def quantities(
        self,
        slices: SliceSum,
        free: Ints,
        rooms: Sequence[Ints],
    ) -> list[Ints]:
        """The quantities that slices use, by node: room for the members of each `Ask`, and free
        amounts.
        """
        quantities = [rooms[ask] for ask, _ in slices.parts]
        for row, _ in slices.amounts:
            have = np.maximum(free[row], 0)
            quantities.append(np.where(self.mask, have, 0))

        return quantities

    def useful(self, before: Ints, after: Ints) -> Bools:
        """Nodes that have room for more members, or for more slices, with `after[r][n]` free
        instead of `before[r][n]`.

        All eligible nodes if totals matter, since any additional amount may help then.
        """
        rooms_before = [ask.rooms(before) for ask in self.asks]
        rooms_after = [ask.rooms(after) for ask in self.asks]

        useful: Bools = np.full(before.shape[1], bool(self.totals))
        for was, now in zip(rooms_before, rooms_after, strict=True):
            useful |= now > was

        if not self.slices:
            return useful

        # Where no further slice of the finest level fits, most of a thousand pods are in no slice.
        in_domains = np.zeros_like(useful)
        for slice_sum in self.slices:
            if slice_sum.finest:
                copies_before = self.copies(slice_sum, before, rooms_before)
                copies_after = self.copies(slice_sum, after, rooms_after)
                gained = copies_after > copies_before
                in_domains |= lookup(gained, slice_sum.level.codes, none=False)

        # By totals, coarser layers may need other domains as well.
        if self.enough(np.where(in_domains, after, before)):
            return useful & in_domains

        return useful

    def on_one_node(self, free: Ints) -> Bools:
        """`on_one_node[n]`: node `n` alone could hold all members."""
        holds: Bools = np.ones(free.shape[1], dtype=np.bool_)
        for ask in self.asks:
            holds &= ask.rooms(free) >= ask.count

        for row in range(len(self.names)):
            holds &= free[row] >= self.needed(row)

        return holds


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
    def of(
        cls,
        group: Group,
        sums: NeededSums,
        ledger: Ledger,
    ) -> DomainSums:
        """The sums in the domains that could hold the group."""
        domains = free_domains(group, ledger)
        nodes = len(ledger.table)

        if domains is None:
            (scope,) = regions(group, ledger)
            own = _one(scope.accelerated, nodes)
            others = _one(scope.others, nodes)
            only = np.zeros(1, dtype=np.int64)
            return cls(sums, own, others, only, lambda _: scope)

        if domains.outer is None:
            only = np.zeros(domains.level.size, dtype=np.int64)
            return cls(sums, domains.level, _one(None, nodes), only, domains.scope)

        return cls(sums, domains.level, domains.outer, domains.outer_of, domains.scope)

    @cached_property
    def mask(self) -> Bools:
        """Nodes that some member may use in some domain."""
        with_accelerator, others = self._masks
        in_level = self.level.codes != NONE
        in_others = self.others.codes != NONE

        mask: Bools = (with_accelerator & in_level) | (others & in_others)
        return mask

    def enough(self, free: Ints) -> Bools:
        """For each domain, whether `free[r][n]` could hold all members. Raises OutOfWork."""
        self.sums.charge(free)
        enough = np.ones(self.level.size, dtype=np.bool_)

        for total in self.sums.totals:
            # The minResources of a gang are compared with all nodes that its members may use,
            # whatever the domain.
            if total.kept:
                enough &= self.free(free, total.row) >= total.amount
            else:
                enough &= total.free(free) >= total.amount

        rooms = [ask.rooms(free) for ask in self.sums.asks]
        for ask, room in zip(self.sums.asks, rooms, strict=True):
            members = self._sum(room, accelerated=ask.accelerated)
            enough &= members >= ask.count

        if not self.sums.slices:
            return enough

        for slice_sum, inner, outer_of in self._slices:
            copies = self.sums.copies(slice_sum, free, rooms, inner)
            most = np.bincount(outer_of, weights=copies, minlength=self._outer.size)
            if self._outer is not self.level:
                most = most[self.others_of]

            enough &= most >= slice_sum.number

        return enough

    def room(self, free: Ints) -> Ints:
        """Number of members that fit in each domain, summed over the shapes, as if each shape were
        alone. Raises OutOfWork.
        """
        self.sums.charge(free)
        members = np.zeros(self.level.size, dtype=np.int64)

        for ask in self.sums.asks:
            of_ask = self._sum(ask.rooms(free), accelerated=ask.accelerated)
            members += np.minimum(ask.count, of_ask)

        return members

    def free(self, free: Ints, row: int) -> Ints:
        """For each domain, the total of `free[row][n]` on nodes that some member may use."""
        # A node on which members without accelerators may run, too, counts once: in the wider
        # domain.
        with_accelerator, others = self._masks
        have = np.maximum(free[row], 0)
        narrow = self._sum(have * (with_accelerator & ~others), accelerated=True)
        wide = self._sum(have * others, accelerated=False)
        return narrow + wide

    def largest(self, amounts: Ints, nodes: Ints) -> Ints:
        """For each domain, the largest of `amounts[i]`, of pods on nodes `nodes[i]` that any of the
        members may use; 0 if there is none.
        """
        with_accelerator, others = self._masks
        narrow = self._largest_in(self.level, with_accelerator & ~others, amounts, nodes)
        wide = self._largest_in(self.others, others, amounts, nodes)
        return np.maximum(narrow, wide[self.others_of])

    def _largest_in(
        self,
        domains: TopologyLevel,
        mask: Bools,
        amounts: Ints,
        nodes: Ints,
    ) -> Ints:
        codes = domains.codes[nodes]
        is_counted = (nodes != NONE) & mask[nodes] & (codes != NONE)

        most = np.zeros(domains.size, dtype=np.int64)
        np.maximum.at(most, codes[is_counted], amounts[is_counted])
        return most

    def usable(self, enough: Bools, free: Ints) -> Bools:
        """The nodes with room for a member in `free[r][n]`, in the domains for which `enough` is
        True.
        """
        usable: Bools = np.zeros(free.shape[1], dtype=np.bool_)
        enough_of_others = np.zeros(self.others.size, dtype=np.bool_)
        enough_of_others[self.others_of[enough]] = True

        for ask in self.sums.asks:
            if ask.accelerated:
                inside = lookup(enough, self.level.codes, none=False)
            else:
                inside = lookup(enough_of_others, self.others.codes, none=False)

            usable |= (ask.rooms(free) > 0) & inside

        return usable

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

        slices: list[tuple[SliceSum, TopologyLevel, Ints]] = []
        for slice_sum in self.sums.slices:
            inner = slice_sum.within(self._outer)
            outer_of = inner.inside(self._outer)
            slices.append((slice_sum, inner, outer_of))

        return slices

    @cached_property
    def _masks(self) -> tuple[Bools, Bools]:
        """Nodes that members with an accelerator may use, and nodes for the others."""
        with_accelerator = np.zeros(len(self.level.codes), dtype=np.bool_)
        others = np.zeros(len(self.level.codes), dtype=np.bool_)
        for ask in self.sums.asks:
            if ask.accelerated:
                with_accelerator |= ask.mask
            else:
                others |= ask.mask

        return with_accelerator, others

    def _sum(self, values: Ints, *, accelerated: bool) -> Ints:
        if accelerated:
            return self.level.sums(values)

        return self.others.sums(values)[self.others_of]


def _one(mask: Bools | None, nodes: int) -> TopologyLevel:
    """A level of one domain: the nodes of the mask, None for all."""
    codes = np.zeros(nodes, dtype=np.int32)
    if mask is not None:
        codes[~mask] = NONE

    return TopologyLevel((), codes, 1, ())


def _asks(
    preemptor: Preemptor,
    names: Sequence[str],
    ledger: Ledger,
) -> tuple[Ask, ...]:
    ledger.work.charge(len(preemptor.counts) * (20 + len(ledger.table) // 200))
    asks = []
    for shape, count in preemptor.counts.items():
        ask = _ask(shape, count, names, preemptor, ledger)
        asks.append(ask)

    return tuple(asks)


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
    for _, shut in closed(shape, PlacementAttempt(preemptor.group, ledger)):
        mask = mask & ~shut

    amounts: Mapping[str, int] = dict(shape.requests)
    return Ask(
        tuple(amounts.get(name, 0) for name in names),
        count,
        mask,
        ledger.accelerated(shape),
    )


def slices_of(
    preemptor: Preemptor,
    names: Sequence[str],
    ledger: Ledger,
) -> tuple[SliceSum, ...]:
    """The slices of the needed members, as one sum per layer of a gang; `names` are the rows.

    A gang has no sum if it needs members of slices that partly run or lack members.
    """
    ask_of = {shape: number for number, shape in enumerate(preemptor.counts)}
    sums: list[SliceSum] = []
    for gang in preemptor.gangs:
        if gang.constraints.slices:
            sums += _layers(gang, ask_of, names, ledger)

    return tuple(sums)


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
        counts = [Counter(pod.shape for pod in slice_.pods) for slice_ in layer]
        least = reduce(and_, counts)
        parts = [(asks[shape], number) for shape, number in least.items()]

        if parts:
            yield SliceSum(
                level=level((layer[0].key,), ledger.table),
                number=len(layer),
                parts=tuple(parts),
                amounts=_total_amounts(least, names),
                finest=not finer,
            )

        layer = finer


def _total_amounts(
    counts: Counter[Shape],
    names: Sequence[str],
) -> tuple[tuple[int, int], ...]:
    """What pods of several shapes request together, by row; nothing for one shape, whose room says
    as much.
    """
    if len(counts) <= 1:
        return ()

    total = Counter[str]()
    for shape, number in counts.items():
        for name, amount in shape.requests:
            total[name] += amount * number

    return tuple((names.index(name), amount) for name, amount in total.items() if amount)
