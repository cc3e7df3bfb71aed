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
from gangsched.core.reserve import Ledger
from gangsched.core.scope import Scope
from gangsched.core.scopes import usable
from gangsched.core.search.kinds import Item, Kinds, Slices, items_of, layers_of
from gangsched.core.search.packing import PackingProblem, Piece
from gangsched.core.search.part_kinds import PackedPart, entries_of, layers_in, signature
from gangsched.core.search.region import problem
from gangsched.core.search.slices import NeededUnits, Slice, is_sliced, needed, units
from gangsched.core.search.terms import terms_of
from gangsched.core.topology import TopologyLevel, level
from gangsched.model.gang import Gang, Group
from gangsched.model.gpu_policy import SliceLayer
from gangsched.model.objects import Shape
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

        minimum = cls.of_all(group, gangs, ledger).minimum()
        # Members whose affinity makes several parts are slices: the packing then keeps the parts
        # apart (decision 0065).
        return _parted(minimum) or minimum

    @classmethod
    def of_all(cls, group: Group, gangs: Sequence[Gang], ledger: Ledger) -> Demand:
        """The demand of all pending members of the gangs, needed or not."""
        needs = tuple(len(gang.pending) for gang in gangs)
        if group.apart or is_sliced(gangs):
            return _sliced(group, gangs, ledger, needs)

        return cls(group, gangs, ledger, tuple(items_of(gangs, ledger)), needs)

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
        term_labels = self.ledger.occupancy.pods.label_keys(firsts)

        if is_sliced(self.gangs) or term_labels is None or self.only_room:
            # most gangs state no terms where no pod does, so that their members are not compared
            return False
        if self.slices is not None:
            return True

        affinities = {item.shape.constraints.affinity for item in self.items}
        if len(affinities - {()}) > 1:
            return False  # of several parts only a demand in slices is packed

        terms = terms_of(self.gangs, self.ledger)
        if terms is None:
            return False

        return terms.is_one_part or not terms.parts

    @property
    def most_steps(self) -> float:
        """Number of choices, over all plans together, after which an exact search is given up."""
        return TREE_STEPS if self.group.apart else inf

    @property
    def is_searched(self) -> bool:
        """Whether an exact search may decide where totals do not."""
        if not any(self.needs):
            return False

        return self.slices is not None or len(self.items) > 1

    @cached_property
    def room(self) -> Ints:
        """`room[item][n]`: number of pods of the item that fit on node `n`, without pods of other
        items.
        """
        rooms = np.array([usable(item.shape, self.group, self.ledger) for item in self.items])
        storage = self.ledger.occupancy.storage

        for number, item in enumerate(self.items):
            first = item.pods[0]

            for label, code in item.pins:
                # A mask: members of a slice that runs in part may only join its domain.
                home = level((label,), self.ledger.table).codes == code
                rooms[number] *= home

            if item.devices is not None:
                rooms[number] = storage.with_devices(first, rooms[number])

            if self.by_terms:
                rooms[number] = narrow(first, rooms[number], self.ledger.occupancy)

        return rooms

    @cached_property
    def _names(self) -> list[str]:
        asked: set[str] = set()
        for item in self.items:
            asked.update(name for name, _ in item.shape.requests)

        return sorted(name for name in asked if name in self.ledger.resources)

    @cached_property
    def _rows_asked(self) -> list[int]:
        """The rows of `Ledger.free` for the resources that are requested."""
        return [self.ledger.resources[name] for name in self._names]

    @cached_property
    def asks(self) -> list[tuple[int, ...]]:
        """`asks[item][r]` for the resources that are requested."""
        result = []
        for item in self.items:
            amounts = dict(item.shape.requests)
            result.append(tuple([amounts.get(name, 0) for name in self._names]))

        return result

    @cached_property
    def free(self) -> Ints:
        """`free[r][n]` for the resources that are requested, as a copy."""
        have = self.ledger.free[self._rows_asked]
        # Overcommitted nodes have negative room, which would reduce sums of other nodes.
        free: Ints = np.maximum(have, 0)
        return free

    @cached_property
    def wanted(self) -> tuple[int, ...]:
        """By need, the number of pods or slices that must be placed."""
        if self.slices is None:
            return tuple(self.needs)

        return tuple(self.slices.wanted)

    @cached_property
    def pieces(self) -> tuple[int, ...]:
        """By kind, the number of pods or slices that a packing can use."""
        # More pieces than are needed would only multiply the choices; pods inside slices come with
        # their slice.
        counts = []
        for item in self.items:
            if item.home < 0:
                counts.append(min(len(item.pods), self.wanted[item.need]))
            else:
                counts.append(0)

        if self.slices is not None:
            counts += map(len, self.slices.at_hand)

        return tuple(counts)

    def problem(self, nodes: Ints | None = None, scope: Scope | None = None) -> PackingProblem:
        """The packing problem of the minimum on these `nodes`, limited to the `scope`."""
        ledger = self.ledger
        work = ledger.work
        where = np.flatnonzero(self._anywhere) if nodes is None else nodes

        if self.slices is not None:
            most = MAX_NODES if nodes is None else len(ledger.table)
            if self.group.apart:
                # Building the problem costs nodes times kinds; random hostile trees took 120 ms
                # before this limit.
                number = len(self.items) + len(self.slices.pieces)
                most = min(most, MAX_CELLS // number)

            useful = self._useful(most)
            where = where[useful[where]]

        units_a_node = 12 + len(self.items) + len(self._names)
        size = where.size * units_a_node // 8
        work.charge(150 + size + len(self.items) * len(ledger.table) // 200)
        room = self.room[:, where]

        for number, item in enumerate(self.items):
            if scope is None:
                break

            inside = scope.of(accelerated=ledger.accelerated(item.shape))
            if inside is not None:
                room[number] *= inside[where]

        kinds = []
        for item, asks in zip(self.items, self.asks, strict=True):
            kinds.append(Piece(item.need, asks, item.home))

        blocks = []
        if self.slices is not None:
            layers = self.slices.layers
            number = len(self.items) + len(self.slices.pieces)
            # The square of the kinds: each is compared with all others when the steps are made.
            work.charge(where.size * len(layers) // 8 + number * number // 2)

            for label in layers:
                codes = level((label,), ledger.table).codes
                blocks.append(codes[where].astype(np.int64))

            kinds += self.slices.pieces

        rows = np.array(self._rows_asked, dtype=np.int64)
        free = np.maximum(ledger.free[rows[:, None], where], 0)
        return problem(kinds, self.pieces, self.wanted, where, free, room, blocks)

    def problem_on(self, nodes: Ints, free: Ints, is_open: Bools) -> PackingProblem:
        """The packing problem of a minimum without slices, limited to `nodes`.

        `free[r][n]` and `is_open[item][n]` are for these nodes.
        """
        units_a_node = 12 + len(self.items) + len(self._names)
        self.ledger.work.charge(120 + nodes.size * units_a_node // 8)
        free = np.maximum(free[self._rows_asked], 0)

        fits = []
        counts = []
        kinds = []
        for item, asks in zip(self.items, self.asks, strict=True):
            by_resource = []
            for r, asked in enumerate(asks):
                if asked:
                    by_resource.append(free[r] // asked)

            fits.append(np.minimum.reduce(by_resource))
            counts.append(min(len(item.pods), self.needs[item.gang]))
            kinds.append(Piece(item.gang, asks))

        room = np.where(is_open, np.array(fits), 0)

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
        rows = []

        for r in range(len(free)):
            amounts = [asks[r] for asks in self.asks]
            total = 0
            for item, amount in zip(self.items, amounts, strict=True):
                total += min(len(item.pods), self.needs[item.gang]) * amount

            if not (free[r][anywhere] < total).any():
                continue

            # ⌊free/a⌋ for each requested amount: the sum of free room alone misses that 3 and 3 do
            # not hold a pod of 4.
            for divisor in sorted({1, *amounts} - {0}):
                asked = {}
                for number, amount in enumerate(amounts):
                    if amount >= divisor:
                        asked[number] = amount // divisor

                if len(asked) == 1:
                    continue

                self.ledger.work.charge(8 + len(asked) + free.shape[1] // 50)
                fits = np.logical_or.reduce([room[number] > 0 for number in asked])
                rows.append((np.where(fits, free[r] // divisor, 0), asked))

        return rows

    # --- slices ----------------------------------------------------------------------------------

    def few(self) -> Ints | None:
        """Nodes of the smallest number of domains that could hold the slices by totals; the last of
        these domains is as tight as possible.

        Most often these domains suffice, and packing them is much faster than packing all nodes of
        a large cluster. A slice that lacks members gets a domain with room for the missing members,
        if there is one. None if there is no choice, or if pods without slices may be placed
        anywhere.
        """
        if self.slices is None:
            return None
        if any(item.home < 0 and not item.pins for item in self.items):
            return None

        mask = self._outside_slices()

        for first, inside, copies, order, count in self._copies:
            # The fewest domains, those with most copies first; `number` is the index of the last of
            # them.
            sums = np.cumsum(copies[order])
            number = int(np.searchsorted(sums, count))
            if number >= len(order):
                return None

            before_last = int(copies[order[:number]].sum())
            enough = copies[order] >= count - before_last

            own_item = self.slices.item_of[first.pods[0].uid]
            room = inside.sums(self.room[own_item])[order]
            for_all = np.flatnonzero(enough & (room >= first.size))

            # The last in descending order is the tightest domain that is still large enough.
            last = for_all[-1] if for_all.size else number
            chosen = [*order[:number], order[last]]
            mask |= np.isin(inside.codes, chosen)

        return np.flatnonzero(mask & self._anywhere)

    def _useful(self, most: int) -> Bools:
        """The nodes of domains that could hold a slice by sums, `most` of them, those of domains
        with most room first.

        All others are of no use, but to pods without slices.
        """
        mask = self._outside_slices()
        anywhere = self._anywhere.astype(np.int64)

        for _, inside, _, order, _ in self._copies:
            sizes = inside.sums(anywhere)[order]
            first_domains = order[np.cumsum(sizes) <= most]
            mask |= np.isin(inside.codes, first_domains)

        return mask

    def _outside_slices(self) -> Bools:
        """The nodes that take any pod that is in no slice."""
        mask: Bools = np.zeros(len(self.ledger.table), dtype=np.bool_)
        for number, item in enumerate(self.items):
            if item.home < 0:
                mask |= self.room[number] > 0

        return mask

    @cached_property
    def _copies(self) -> list[tuple[Slice, TopologyLevel, Ints, Ints, int]]:
        """Of each kind of slices that may open anywhere, what domains take by sums, and how many
        are needed.

        That is the first one, its level, the copies by domain, and the domains that take any, those
        with most first.
        """
        assert self.slices is not None
        self.ledger.work.charge(20 + len(self.items) * len(self.ledger.table) // 60)
        result = []

        for piece, slices in zip(self.slices.pieces, self.slices.at_hand, strict=True):
            if not slices:
                continue

            first = slices[0]
            count = min(len(slices), self.slices.wanted[piece.gang])
            inside, copies = self._copies_of(first, ())

            # Stable: domains with equal room keep the order of their names, so that the plan is
            # deterministic.
            order = np.argsort(-copies, kind="stable")
            takes_any = order[copies[order] > 0]
            result.append((first, inside, copies, takes_any, count))

        return result

    def _copies_of(self, slice_: Slice, outer: tuple[str, ...]) -> tuple[TopologyLevel, Ints]:
        """By domain how many copies of a slice it takes by sums; of inner ones by domain inside the
        outer levels.
        """
        assert self.slices is not None
        labels = (*outer, slice_.key)
        inside = level(labels, self.ledger.table)

        # NO_LIMIT and not int64's maximum: these numbers are summed over domains.
        most = np.full(inside.size, NO_LIMIT, dtype=np.int64)
        own_items = Counter(self.slices.item_of[pod.uid] for pod in slice_.own)
        for number, count in own_items.items():
            room = inside.sums(self.room[number])
            most = np.minimum(most, room // count)

        example_of: dict[int, Slice] = {}
        part_kinds: Counter[int] = Counter()
        for part in slice_.parts:
            kind = self.slices.kind_of[id(part)]
            example_of[kind] = part
            part_kinds[kind] += 1

        for kind, count in part_kinds.items():
            finer, copies = self._copies_of(example_of[kind], labels)
            outer_domains = finer.inside(inside)
            summed = np.bincount(outer_domains, weights=copies, minlength=inside.size)
            most = np.minimum(most, summed.astype(np.int64) // count)

        return inside, most

    @cached_property
    def _anywhere(self) -> Bools:
        anywhere: Bools = np.any(self.room, axis=0)
        return anywhere


def _parted(demand: Demand) -> Demand | None:
    """The demand of members that are several parts, or of which some are, as slices; None for any
    other.
    """
    if not any(item.shape.constraints.affinity for item in demand.items):
        return None

    waiting = sum(len(item.pods) for item in demand.items)
    if sum(demand.needs) < waiting:
        return None

    terms = terms_of(demand.gangs, demand.ledger)
    gangs = demand.gangs
    ledger = demand.ledger

    if terms is None or terms.is_one_part or not terms.parts:
        return None

    keys = dict.fromkeys(part.keys[0] for part in terms.parts)
    layers, is_nested = layers_of([(SliceLayer(1, key),) for key in keys], ledger.table)

    # Shapes differ by terms that name one part each: what asks for the same and may go to the same
    # nodes is one kind.
    like: dict[Shape, Shape] = {}
    shapes: dict[tuple[ResourceVector, bytes], Shape] = {}

    for item, room in zip(demand.items, demand.room, strict=True):
        # Without this, every permutation of equal jobs would be tried: 12 racks for 12 children in
        # all their orders.
        open_nodes = narrow(item.pods[0], room, ledger.occupancy).tobytes()
        name = item.shape.requests, open_nodes
        like[item.shape] = shapes.setdefault(name, item.shape)

    wanted = [len(loose) for loose in terms.loose]
    kinds = Kinds(ledger, layers, wanted, like=like)
    for number, loose in enumerate(terms.loose):
        kinds.add_pods(number, number, loose)

    for part in terms.parts:
        kinds.wanted[part.gang] += 1
        slice_ = Slice(part.keys[0], len(part.pods), part.pods, alone=part.alone)
        kinds.tops.append((part.gang, part.gang, slice_, ()))

    no_units = (None,) * len(gangs)
    items, slices = kinds.finished(no_units, is_nested=is_nested)
    return Demand(demand.group, gangs, ledger, items, demand.needs, slices)


def needed_units(gang: Gang, lack: int, ledger: Ledger) -> NeededUnits:
    """The slices, or parts of slices, that a gang needs if it lacks `lack` members. Computed once
    per plan; does not depend on free room.
    """

    def with_its_gang() -> tuple[Gang, NeededUnits]:
        ledger.work.charge(20 + UNITS_A_POD * len(gang.pending))
        all_units = units(gang, gang.pending, ledger.table)
        return gang, needed(all_units, lack)

    # The gang is kept beside its units, so that no other has its id.
    key = ("units", id(gang), lack)
    kept: tuple[Gang, NeededUnits] = ledger.recall(key, with_its_gang, lasting=True)
    return kept[1]


def _sliced(group: Group, gangs: Sequence[Gang], ledger: Ledger, lacks: Sequence[int]) -> Demand:
    """The demand of gangs of which some have slices, each of which lacks so many members; once for
    all scopes.
    """
    key = ("sliced", group.apart, *map(id, gangs), *lacks)  # of gangs that the demand keeps alive
    demand: Demand = ledger.recall(key, lambda: _collected(group, gangs, ledger, lacks))
    return replace(demand, group=group)  # its own room: that is of this scope


def _collected(group: Group, gangs: Sequence[Gang], ledger: Ledger, lacks: Sequence[int]) -> Demand:
    table = ledger.table
    number_of = {gang.id: number for number, gang in enumerate(gangs)}
    entries = [PackedPart((gang.id,)) for gang in gangs]

    if group.apart:
        ledger.work.charge(sum(20 + UNITS_A_POD * len(gang.pending) for gang in gangs))
        by_id = {gang.id: gang for gang in gangs}
        lack_of = dict(zip(by_id, lacks, strict=True))
        entries = entries_of(group.apart, by_id, lack_of, table) or entries

    units_of: list[NeededUnits | None] = [NeededUnits() for _ in gangs]
    for entry in entries:
        number = number_of[entry.gangs[0]]
        gang = gangs[number]

        if entry.units is None and gang.constraints.slices:
            units_of[number] = needed_units(gang, lacks[number], ledger)
        else:
            units_of[number] = entry.units

    all_labels: list[tuple[SliceLayer, ...]] = []
    for gang, own in zip(gangs, units_of, strict=True):
        all_labels += _labels(gang, own)

    layers, is_nested = layers_of(all_labels, table)
    kinds = Kinds(ledger, layers, [0] * len(gangs))
    firsts: dict[Hashable, int] = {}
    needs = [0] * len(gangs)

    for entry in entries:
        number = number_of[entry.gangs[0]]
        gang = gangs[number]
        lack = lacks[number]
        wanted = units_of[number]

        # Identical parts are one kind with a number, else each order of them would be tried.
        g = number
        if group.apart:
            numbers = [number_of[gang_id] for gang_id in entry.gangs]
            members = [(gangs[other], lacks[other]) for other in numbers]
            g = firsts.setdefault(_alike(members, wanted), number)

        if wanted is None:
            ledger.work.charge(20 + UNITS_A_POD * len(gang.pending))
            needs[g] += lack
            kinds.wanted[g] += lack
            kinds.add_pods(g, g, gang.pending)
        else:
            needs[g] += wanted.pods
            kinds.add_units(g, wanted)

    items, slices = kinds.finished(tuple(units_of), is_nested=is_nested)
    return Demand(group, gangs, ledger, items, tuple(needs), slices)


def _labels(gang: Gang, own: NeededUnits | None) -> Iterator[tuple[SliceLayer, ...]]:
    """The layers of what belongs together of a gang, or of the part that it is the first
    gang of.
    """
    if own is None or gang.constraints.slices:
        yield gang.constraints.slices
        return

    distinct: dict[tuple[str, ...], None] = {}
    for slice_ in own.of:
        distinct.update(dict.fromkeys(layers_in(slice_)))

    for labels in distinct:
        yield tuple([SliceLayer(1, label) for label in labels])


def _alike(members: Sequence[tuple[Gang, int]], wanted: NeededUnits | None) -> Hashable:
    """Equal for parts of which a packing may take one for the other: all that waits is needed,
    anywhere.
    """
    first = members[0][0]
    if wanted is not None:
        is_one_slice = len(wanted.of) == 1 and not wanted.fixed
        if not is_one_slice or first.constraints.slices:
            return first.id

    for gang, lack in members:
        if lack < len(gang.pending) or any(pod.claims for pod in gang.pending):
            return first.id

    if wanted is None:
        return frozenset(Counter(pod.shape for pod in first.pending).items())

    return signature(wanted.of[0])
