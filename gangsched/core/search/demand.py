"""Requests of a group as numbers: its pods by gang and shape, and how many of these fit on which
node.

Invariant: totals can only refute a demand; if they do, no packing exists.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf

import numpy as np

from gangsched.core.filter import narrow
from gangsched.core.permit import missing
from gangsched.core.queue_sort import size_key
from gangsched.core.reserve import Ledger
from gangsched.core.scope import Scope
from gangsched.core.scopes import usable
from gangsched.core.search.kinds import UNITS_AN_ITEM, Item, Kinds, Slices, layers_of
from gangsched.core.search.packing import PackingProblem, Piece
from gangsched.core.search.part_kinds import PackedPart, entries_of, layers_in, signature
from gangsched.core.search.region import problem
from gangsched.core.search.slices import NeededUnits, Slice, is_sliced, needed, units
from gangsched.core.search.terms import terms_of
from gangsched.core.topology import TopologyLevel, level
from gangsched.model.gang import Gang, Group
from gangsched.model.gpu_policy import SliceLayer
from gangsched.model.objects import Pod, Shape
from gangsched.model.resources import ResourceVector
from gangsched.model.snapshot import Bools, Ints

NO_LIMIT = 2**31
MAX_NODES = 6_000
"""Nodes in which slices are packed: more are more than the work of one plan, and the next one would
begin again.
"""
TREE_STEPS = 100_000
"""Choices in all plans after which the search for different children with domains of their own is
given up: a second's work. Their orders are many, and unlike a gang in one domain they are mostly
found in the usual order.
"""
MAX_CELLS = 40_000
"""Nodes times kinds in which children of a tree are packed, for the same reason: the domains with
most room first.
"""
UNITS_A_POD = 3
"""Units of finding out with which others a member belongs together."""


@dataclass(frozen=True, eq=False)
class Demand:
    """`items` on the nodes that are open to the group; each gang needs `needs[gang]` pods
    in total.
    """

    group: Group
    gangs: Sequence[Gang]
    ledger: Ledger
    items: tuple[Item, ...]
    needs: tuple[int, ...]
    slices: Slices | None = None

    @classmethod
    def of(cls, group: Group, gangs: Sequence[Gang], ledger: Ledger) -> Demand:
        """The demand of the pending members that the gangs need."""
        if group.apart or is_sliced(gangs):
            return _sliced(group, gangs, ledger, [missing(gang, 0) for gang in gangs])

        made = cls.of_all(group, gangs, ledger).minimum()
        # Members whose affinity makes several parts are slices: the packing then keeps the parts
        # apart (decision 0065).
        return _parted(made) or made

    @classmethod
    def of_all(cls, group: Group, gangs: Sequence[Gang], ledger: Ledger) -> Demand:
        """The demand of all pending members of the gangs, needed or not."""
        needs = tuple(len(gang.pending) for gang in gangs)
        if group.apart or is_sliced(gangs):
            return _sliced(group, gangs, ledger, needs)

        return cls(group, gangs, ledger, tuple(_items(gangs, ledger)), needs)

    def minimum(self) -> Demand:
        """The part of the demand that the minimums need; the demand itself if they need all
        of it.
        """
        needs = tuple(missing(gang, 0) for gang in self.gangs)
        if needs == self.needs:
            return self
        if self.slices is None:
            return replace(self, needs=needs)

        return Demand.of(self.group, self.gangs, self.ledger)

    @cached_property
    def is_exact(self) -> bool:
        """Whether an exact packing decides, because only room and properties of each
        node matter.
        """
        # Blocks of levels that cross cannot be walked one inside the other.
        if self.slices is not None and not self.slices.nested:
            return False
        if any(item.shape.unsupported for item in self.items):
            return False

        return self.only_room or self.by_terms

    @cached_property
    def shares_devices(self) -> bool:
        """Whether the node of one member affects other nodes: members share claims, or pools of
        several nodes.
        """
        storage = self.ledger.occupancy.storage
        if any(storage.is_joint(item.pods[0]) for item in self.items):
            return True

        return any(storage.shares(pod) for item in self.items for pod in item.pods)

    @cached_property
    def only_room(self) -> bool:
        """Whether only room matters for every member, and not other pods, ports, volumes
        or claims.
        """
        return all(self.ledger.only_room_counts(item.pods) for item in self.items)

    @cached_property
    def by_terms(self) -> bool:
        """Whether only room and topology constraints, some of them expressed as terms, matter for
        the members.
        """
        firsts = [item.pods[0] for item in self.items]
        if (
            is_sliced(self.gangs)
            or self.ledger.occupancy.pods.label_keys(firsts) is None
            or self.only_room
        ):
            # most gangs state no terms where no pod does, so that their members are not compared
            return False
        if self.slices is not None:
            return True
        if len({item.shape.constraints.affinity for item in self.items} - {()}) > 1:
            return False  # of several parts only a demand in slices is packed

        found = terms_of(self.gangs, self.ledger)
        return found is not None and (found.is_one_part or not found.parts)

    @property
    def most_steps(self) -> float:
        """Number of choices, over all plans together, after which an exact search is given up."""
        return TREE_STEPS if self.group.apart else inf

    @property
    def is_searched(self) -> bool:
        """Whether an exact search may decide where totals do not."""
        return any(self.needs) and (self.slices is not None or len(self.items) > 1)

    @cached_property
    def room(self) -> Ints:
        """`room[item][n]`: number of pods of the item that fit on node `n`, without pods of other
        items.
        """
        found = np.array([usable(item.shape, self.group, self.ledger) for item in self.items])
        storage = self.ledger.occupancy.storage

        for number, item in enumerate(self.items):
            for label, code in item.pins:
                # A mask: members of a slice that runs in part may only join its domain.
                found[number] *= level((label,), self.ledger.table).codes == code

            if item.devices is not None:
                found[number] = storage.with_devices(item.pods[0], found[number])

            if self.by_terms:
                found[number] = narrow(item.pods[0], found[number], self.ledger.occupancy)

        return found

    @cached_property
    def _names(self) -> list[str]:
        asked = {name for item in self.items for name, _ in item.shape.requests}
        return sorted(name for name in asked if name in self.ledger.resources)

    @cached_property
    def asks(self) -> list[tuple[int, ...]]:
        """`asks[item][r]` for the resources that are requested."""
        amounts = [dict(item.shape.requests) for item in self.items]
        return [tuple(amount.get(name, 0) for name in self._names) for amount in amounts]

    @cached_property
    def free(self) -> Ints:
        """`free[r][n]` for the resources that are requested, as a copy."""
        # Overcommitted nodes have negative room, which would reduce sums of other nodes.
        found: Ints = np.maximum(
            self.ledger.free[[self.ledger.resources[name] for name in self._names]],
            0,
        )
        return found

    @cached_property
    def wanted(self) -> tuple[int, ...]:
        """By need, the number of pods or slices that must be placed."""
        return tuple(self.needs if self.slices is None else self.slices.wanted)

    @cached_property
    def pieces(self) -> tuple[int, ...]:
        """By kind, the number of pods or slices that a packing can use."""
        # More pieces than are needed would only multiply the choices; pods inside slices come with
        # their slice.
        counts = []
        for item in self.items:
            counts.append(min(len(item.pods), self.wanted[item.need]) if item.home < 0 else 0)

        return (*counts, *(map(len, self.slices.at_hand) if self.slices is not None else ()))

    def problem(self, nodes: Ints | None = None, scope: Scope | None = None) -> PackingProblem:
        """The packing problem of the minimum on these `nodes`, limited to the `scope`."""
        work = self.ledger.work
        room = self.room
        where = np.flatnonzero(self._anywhere) if nodes is None else nodes

        if self.slices is not None:
            most = MAX_NODES if nodes is None else len(self.ledger.table)
            if self.group.apart:
                # Building the problem costs nodes times kinds; random hostile trees took 120 ms
                # before this limit.
                most = min(most, MAX_CELLS // (len(self.items) + len(self.slices.pieces)))

            where = where[self._useful(most)[where]]

        size = where.size * (12 + len(self.items) + len(self._names)) // 8
        work.charge(150 + size + len(self.items) * len(self.ledger.table) // 200)
        room = room[:, where]

        for number, item in enumerate(self.items):
            inside = (
                None if scope is None else scope.of(accelerated=self.ledger.accelerated(item.shape))
            )
            if inside is not None:
                room[number] *= inside[where]

        kinds = [
            Piece(item.need, asks, item.home)
            for item, asks in zip(self.items, self.asks, strict=True)
        ]
        blocks = []

        if self.slices is not None:
            number = len(self.items) + len(self.slices.pieces)
            # The square of the kinds: each is compared with all others when the steps are made.
            work.charge(where.size * len(self.slices.layers) // 8 + number * number // 2)
            levels = (level((label,), self.ledger.table) for label in self.slices.layers)
            blocks = [topology_level.codes[where].astype(np.int64) for topology_level in levels]
            kinds += self.slices.pieces

        rows = np.array([self.ledger.resources[name] for name in self._names], dtype=np.int64)
        free = np.maximum(self.ledger.free[rows[:, None], where], 0)
        return problem(kinds, self.pieces, self.wanted, where, free, room, blocks)

    def problem_on(self, nodes: Ints, free: Ints, is_open: Bools) -> PackingProblem:
        """The packing problem of a minimum without slices, limited to `nodes`.

        `free[r][n]` and `is_open[item][n]` are for these nodes.
        """
        self.ledger.work.charge(120 + nodes.size * (12 + len(self.items) + len(self._names)) // 8)
        free = np.maximum(free[[self.ledger.resources[name] for name in self._names]], 0)
        fits = [
            np.minimum.reduce([free[r] // a for r, a in enumerate(asks) if a]) for asks in self.asks
        ]
        room = np.where(is_open, np.array(fits), 0)
        counts = [min(len(item.pods), self.needs[item.gang]) for item in self.items]
        kinds = [Piece(item.gang, asks) for item, asks in zip(self.items, self.asks, strict=True)]

        return problem(kinds, tuple(counts), self.needs, nodes, free, room)

    @cached_property
    def rows(self) -> list[tuple[Ints, dict[int, int]]]:
        """The result of `rows_on` for all nodes."""
        return self.rows_on()

    def rows_on(self, nodes: Ints | None = None) -> list[tuple[Ints, dict[int, int]]]:
        """Rows that limit what fits on these nodes (None: all nodes): ⌊free/a⌋ by node, and ⌊ask/a⌋
        by item, for items that request `a`.

        Rows that cannot refute anything are left out: if only one item requests the resource, its
        room is more precise; if every node has enough for all pods, the total suffices.
        """
        where = slice(None) if nodes is None else nodes
        free = self.free[:, where]
        room = self.room[:, where]
        anywhere = room.any(axis=0)
        found = []

        for r in range(len(free)):
            amounts = [asks[r] for asks in self.asks]
            most = sum(
                min(len(i.pods), self.needs[i.gang]) * a
                for i, a in zip(self.items, amounts, strict=True)
            )
            if not (free[r][anywhere] < most).any():
                continue

            # ⌊free/a⌋ for each requested amount: the sum of free room alone misses that 3 and 3 do
            # not hold a pod of 4.
            for a in sorted({1, *amounts} - {0}):
                asked = {i: amount // a for i, amount in enumerate(amounts) if amount >= a}
                if len(asked) == 1:
                    continue

                self.ledger.work.charge(8 + len(asked) + free.shape[1] // 50)
                fits = np.logical_or.reduce([room[i] > 0 for i in asked])
                found.append((np.where(fits, free[r] // a, 0), asked))

        return found

    # --- slices ----------------------------------------------------------------------------------

    def few(self) -> Ints | None:
        """Nodes of the smallest number of domains that could hold the slices by totals; the last of
        these domains is as tight as possible.

        Most often these domains suffice, and packing them is much faster than packing all nodes of
        a large cluster. A slice that lacks members gets a domain with room for the missing members,
        if there is one. None if there is no choice, or if pods without slices may be placed
        anywhere.
        """
        if self.slices is None or any(item.home < 0 and not item.pins for item in self.items):
            return None

        mask = np.zeros(len(self.ledger.table), dtype=np.bool_)
        for number, item in enumerate(self.items):
            if item.home < 0:
                mask |= self.room[number] > 0

        for first, inside, copies, order, count in self._copies:
            # The fewest domains, those with most copies first; `number` is the index of the last of
            # them.
            number = int(np.searchsorted(np.cumsum(copies[order]), count))
            if number >= len(order):
                return None

            enough = copies[order] >= count - int(copies[order[:number]].sum())
            room = inside.sums(self.room[self.slices.item_of[first.pods[0].uid]])[order]
            for_all = np.flatnonzero(enough & (room >= first.size))

            # The last in descending order is the tightest domain that is still large enough.
            last = for_all[-1] if for_all.size else number
            mask |= np.isin(inside.codes, [*order[:number], order[last]])

        return np.flatnonzero(mask & self._anywhere)

    def _useful(self, most: int) -> Bools:
        """The nodes of domains that could hold a slice by sums, `most` of them, those of domains
        with most room first.

        All others are of no use, but to pods without slices.
        """
        found: Bools = np.zeros(len(self.ledger.table), dtype=np.bool_)
        for number, item in enumerate(self.items):
            if item.home < 0:
                found |= self.room[number] > 0

        for _, inside, _, order, _ in self._copies:
            sizes = inside.sums(self._anywhere.astype(np.int64))[order]
            found |= np.isin(inside.codes, order[np.cumsum(sizes) <= most])

        return found

    @cached_property
    def _copies(self) -> list[tuple[Slice, TopologyLevel, Ints, Ints, int]]:
        """Of each kind of slices that may open anywhere, what domains take by sums, and how many
        are needed.

        That is the first one, its level, the copies by domain, and the domains that take any, those
        with most first.
        """
        assert self.slices is not None
        self.ledger.work.charge(20 + len(self.items) * len(self.ledger.table) // 60)
        found = []

        for piece, slices in zip(self.slices.pieces, self.slices.at_hand, strict=True):
            if slices:
                count = min(len(slices), self.slices.wanted[piece.gang])
                inside, copies = self._copies_of(slices[0], ())

                # Stable: domains with equal room keep the order of their names, so that the plan is
                # deterministic.
                order = np.argsort(-copies, kind="stable")
                found.append((slices[0], inside, copies, order[copies[order] > 0], count))

        return found

    def _copies_of(self, slice_: Slice, outer: tuple[str, ...]) -> tuple[TopologyLevel, Ints]:
        """By domain how many copies of a slice it takes by sums; of inner ones by domain inside the
        outer levels.
        """
        assert self.slices is not None
        inside = level((*outer, slice_.key), self.ledger.table)

        # NO_LIMIT and not int64's maximum: these numbers are summed over domains.
        most = np.full(inside.size, NO_LIMIT, dtype=np.int64)
        for number, count in Counter(self.slices.item_of[pod.uid] for pod in slice_.own).items():
            most = np.minimum(most, inside.sums(self.room[number]) // count)

        kinds = {self.slices.kind_of[id(part)]: part for part in slice_.parts}
        for number, count in Counter(
            self.slices.kind_of[id(part)] for part in slice_.parts
        ).items():
            finer, copies = self._copies_of(kinds[number], (*outer, slice_.key))
            summed = np.bincount(
                finer.inside(inside),
                weights=copies,
                minlength=inside.size,
            ).astype(np.int64)
            most = np.minimum(most, summed // count)

        return inside, most

    @cached_property
    def _anywhere(self) -> Bools:
        found: Bools = np.any(self.room, axis=0)
        return found


def _items(gangs: Sequence[Gang], ledger: Ledger) -> list[Item]:
    """Members by gang, shape and whether they are pinned, the largest shapes first, and pinned ones
    before others.
    """
    items = []
    storage = ledger.occupancy.storage

    for index, gang in enumerate(gangs):
        pods: dict[tuple[Shape, bool, Hashable], list[Pod]] = {}
        last = None
        own = list[Pod]()

        for pod in gang.pending:
            if pod.shape is not last or pod.claims:  # of a thousand alike, one is looked up
                own = pods.setdefault(
                    (pod.shape, storage.pinned(pod), storage.device_kind(pod)),
                    [],
                )
                last = None if pod.claims else pod.shape

            own.append(pod)

        ledger.work.charge(
            len(gang.pending) // (2 if last is None else 8) + UNITS_AN_ITEM * len(pods)
        )
        items += [
            Item(index, shape, tuple(members), pinned, index, devices=devices)
            for (shape, pinned, devices), members in pods.items()
        ]

    # Pinned members first among their shape: others would take the only nodes that have their
    # volumes.
    return sorted(items, key=lambda item: (size_key(item.shape, ledger.policy), not item.pinned))


def _parted(demand: Demand) -> Demand | None:
    """The demand of members that are several parts, or of which some are, as slices; None for any
    other.
    """
    if not any(item.shape.constraints.affinity for item in demand.items) or sum(demand.needs) < sum(
        len(item.pods) for item in demand.items
    ):
        return None

    found = terms_of(demand.gangs, demand.ledger)
    gangs = demand.gangs
    ledger = demand.ledger

    if found is None or found.is_one_part or not found.parts:
        return None

    keys = dict.fromkeys(part.keys[0] for part in found.parts)
    layers, is_nested = layers_of([(SliceLayer(1, key),) for key in keys], ledger.table)

    # Shapes differ by terms that name one part each: what asks for the same and may go to the same
    # nodes is one kind.
    like: dict[Shape, Shape] = {}
    kinds: dict[tuple[ResourceVector, bytes], Shape] = {}

    for item, room in zip(demand.items, demand.room, strict=True):
        # Without this, every permutation of equal jobs would be tried: 12 racks for 12 children in
        # all their orders.
        name = item.shape.requests, narrow(item.pods[0], room, ledger.occupancy).tobytes()
        like[item.shape] = kinds.setdefault(name, item.shape)

    made = Kinds(ledger, layers, [len(loose) for loose in found.loose], like=like)
    for g, loose in enumerate(found.loose):
        made.add_pods(g, g, loose)

    for part in found.parts:
        made.wanted[part.gang] += 1
        whole = Slice(part.keys[0], len(part.pods), part.pods, alone=part.alone)
        made.tops.append((part.gang, part.gang, whole, ()))

    items, slices = made.finished((None,) * len(gangs), is_nested=is_nested)
    return Demand(demand.group, gangs, ledger, items, demand.needs, slices)


def needed_units(gang: Gang, lack: int, ledger: Ledger) -> NeededUnits:
    """The slices, or parts of slices, that a gang needs if it lacks `lack` members. Computed once
    per plan; does not depend on free room.
    """

    def found() -> tuple[Gang, NeededUnits]:
        ledger.work.charge(20 + UNITS_A_POD * len(gang.pending))
        return gang, needed(units(gang, gang.pending, ledger.table), lack)

    # The gang is kept beside its units, so that no other has its id.
    kept: tuple[Gang, NeededUnits] = ledger.recall(("units", id(gang), lack), found, lasting=True)
    return kept[1]


def _sliced(group: Group, gangs: Sequence[Gang], ledger: Ledger, lacks: Sequence[int]) -> Demand:
    """The demand of gangs of which some have slices, each of which lacks so many members; once for
    all scopes.
    """
    key = ("sliced", group.apart, *map(id, gangs), *lacks)  # of gangs that the demand keeps alive
    made: Demand = ledger.recall(key, lambda: _collected(group, gangs, ledger, lacks))
    return replace(made, group=group)  # its own room: that is of this scope


def _collected(group: Group, gangs: Sequence[Gang], ledger: Ledger, lacks: Sequence[int]) -> Demand:
    table = ledger.table
    number_of = {gang.id: number for number, gang in enumerate(gangs)}
    entries = [PackedPart((gang.id,)) for gang in gangs]

    if group.apart:
        ledger.work.charge(sum(20 + UNITS_A_POD * len(gang.pending) for gang in gangs))
        by_id = {gang.id: gang for gang in gangs}
        entries = (
            entries_of(group.apart, by_id, dict(zip(by_id, lacks, strict=True)), table) or entries
        )

    units_of: list[NeededUnits | None] = [NeededUnits() for _ in gangs]
    for entry in entries:
        number = number_of[entry.gangs[0]]
        gang = gangs[number]
        own = entry.units
        units_of[number] = (
            needed_units(gang, lacks[number], ledger)
            if own is None and gang.constraints.slices
            else own
        )

    both = zip(gangs, units_of, strict=True)
    layers, is_nested = layers_of(
        [labels for gang, own in both for labels in _labels(gang, own)],
        table,
    )
    made = Kinds(ledger, layers, [0] * len(gangs))
    firsts: dict[Hashable, int] = {}
    needs = [0] * len(gangs)

    for entry in entries:
        number = number_of[entry.gangs[0]]
        gang = gangs[number]
        lack = lacks[number]
        found = units_of[number]

        # Identical parts are one kind with a number, else each order of them would be tried.
        members = [(gangs[number_of[gang]], lacks[number_of[gang]]) for gang in entry.gangs]
        g = firsts.setdefault(_alike(members, found), number) if group.apart else number
        needs[g] += lack if found is None else found.pods

        if found is None:
            ledger.work.charge(20 + UNITS_A_POD * len(gang.pending))
            made.wanted[g] += lack
            made.add_pods(g, g, gang.pending)
            continue

        made.wanted[g] += found.number
        made.tops += [(g, g, slice_, ()) for slice_ in found.of]

        for unit, count in found.fixed:
            made.wanted.append(count if unit.whole is None else 1)
            if unit.whole is None:
                made.add_pods(g, len(made.wanted) - 1, unit.alone, pins=unit.pins)
            else:
                made.tops.append((g, len(made.wanted) - 1, unit.whole, unit.pins))

    items, slices = made.finished(tuple(units_of), is_nested=is_nested)
    return Demand(group, gangs, ledger, items, tuple(needs), slices)


def _labels(gang: Gang, own: NeededUnits | None) -> Iterator[tuple[SliceLayer, ...]]:
    """The layers of what belongs together of a gang, or of the part that it is the first
    gang of.
    """
    if own is None or gang.constraints.slices:
        yield gang.constraints.slices
        return

    for labels in dict.fromkeys(labels for slice_ in own.of for labels in layers_in(slice_)):
        yield tuple([SliceLayer(1, label) for label in labels])


def _alike(members: Sequence[tuple[Gang, int]], found: NeededUnits | None) -> Hashable:
    """Equal for parts of which a packing may take one for the other: all that waits is needed,
    anywhere.
    """
    first = members[0][0]
    is_one = found is None or (
        len(found.of) == 1 and not found.fixed and not first.constraints.slices
    )
    if not is_one or any(
        lack < len(gang.pending) or any(pod.claims for pod in gang.pending)
        for gang, lack in members
    ):
        return first.id
    if found is None:
        return frozenset(Counter(pod.shape for pod in first.pending).items())

    return signature(found.of[0])
