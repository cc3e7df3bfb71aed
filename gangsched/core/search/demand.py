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
from operator import mul
from typing import NamedTuple

import numpy as np

from gangsched.core.filter import narrow
from gangsched.core.permit import missing
from gangsched.core.placement_attempt import PlacementAttempt
from gangsched.core.reserve import Ledger
from gangsched.core.scope import Scope
from gangsched.core.scopes import usable
from gangsched.core.search.kinds import Item, Kinds, Slices, items_of, layers_of
from gangsched.core.search.packing_problem import PackingProblem, Piece
from gangsched.core.search.part_kinds import PackedPart, entries_of, layers_in, signature
from gangsched.core.search.region import problem
from gangsched.core.search.slice_room import SliceRoom
from gangsched.core.search.slices import NeededUnits, Slice, is_sliced, needed, units
from gangsched.core.search.terms import terms_of
from gangsched.core.topology import level
from gangsched.model.gang import Gang, Group
from gangsched.model.gpu_policy import SliceLayer
from gangsched.model.objects import Shape
from gangsched.model.resources import ResourceVector
from gangsched.model.snapshot import Bools, Ints

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


class AskedRow(NamedTuple):
    """A resource in units of `a`: ⌊free/a⌋ by node, and ⌊ask/a⌋ by item, for the items that request
    at least `a`.
    """

    free: Ints
    asked: dict[int, int]


@dataclass(frozen=True, eq=False)
class Demand:
    """`items` on the nodes that are open to the group; each gang needs `needs[gang]` pods
    in total.
    """

    gangs: Sequence[Gang]
    attempt: PlacementAttempt
    items: tuple[Item, ...]
    needs: tuple[int, ...]
    slices: Slices | None = None

    @property
    def group(self) -> Group:
        """The group of the gangs."""
        return self.attempt.group

    @property
    def ledger(self) -> Ledger:
        """The ledger on which they are to be placed."""
        return self.attempt.ledger

    @classmethod
    def of(cls, gangs: Sequence[Gang], attempt: PlacementAttempt) -> Demand:
        """The demand of the pending members that the gangs need."""
        if attempt.group.apart or is_sliced(gangs):
            lacks = [missing(gang, 0) for gang in gangs]
            return _sliced(gangs, attempt, lacks)

        of_all = cls.of_all(gangs, attempt)
        minimum = of_all.minimum()
        # Members whose affinity makes several parts are slices: the packing then keeps the parts
        # apart (decision 0065).
        return _parted(minimum) or minimum

    @classmethod
    def of_all(cls, gangs: Sequence[Gang], attempt: PlacementAttempt) -> Demand:
        """The demand of all pending members of the gangs, needed or not."""
        needs = tuple(len(gang.pending) for gang in gangs)
        if attempt.group.apart or is_sliced(gangs):
            return _sliced(gangs, attempt, needs)

        items = tuple(items_of(gangs, attempt.ledger))
        return cls(gangs, attempt, items, needs)

    def minimum(self) -> Demand:
        """The part of the demand that the minimums need; the demand itself if they need all
        of it.
        """
        needs = tuple(missing(gang, 0) for gang in self.gangs)
        if needs == self.needs:
            return self
        if self.slices is None:
            return replace(self, needs=needs)

        return Demand.of(self.gangs, self.attempt)

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
        for item in self.items:
            first = item.pods[0]
            if storage.is_joint(first):
                return True

            if any(storage.shares(pod) for pod in item.pods):
                return True

        return False

    @cached_property
    def only_room(self) -> bool:
        """Whether only room matters for every member, and not other pods, ports, volumes
        or claims.
        """
        only_room_counts = self.ledger.only_room_counts
        return all(only_room_counts(item.pods) for item in self.items)

    @cached_property
    def by_terms(self) -> bool:
        """Whether only room and topology constraints, some of them expressed as terms, matter for
        the members.
        """
        firsts = [item.pods[0] for item in self.items]
        running = self.ledger.occupancy.pods
        term_labels = running.label_keys(firsts)

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
        ledger = self.ledger
        storage = ledger.occupancy.storage
        rooms = []

        for item in self.items:
            first = item.pods[0]
            room = usable(item.shape, self.attempt)

            for label, code in item.pins:
                # A mask: members of a slice that runs in part may only join its domain.
                domains = level((label,), ledger.table)
                room = room * (domains.codes == code)

            if item.devices is not None:
                room = storage.with_devices(first, room)

            if self.by_terms:
                room = narrow(first, room, ledger.occupancy)

            rooms.append(room)

        return np.array(rooms)

    @cached_property
    def _names(self) -> list[str]:
        asked: set[str] = set()
        for item in self.items:
            for name, _ in item.shape.requests:
                asked.add(name)

        known = asked.intersection(self.ledger.resources)
        return sorted(known)

    @cached_property
    def _rows_asked(self) -> list[int]:
        """The rows of `Ledger.free` for the resources that are requested."""
        rows = self.ledger.resources
        return [rows[name] for name in self._names]

    @cached_property
    def asks(self) -> list[tuple[int, ...]]:
        """`asks[item][r]` for the resources that are requested."""
        result = []
        for item in self.items:
            requests = dict(item.shape.requests)
            amounts = [requests.get(name, 0) for name in self._names]
            result.append(tuple(amounts))

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
        counts = []
        for item in self.items:
            count = 0
            # More pieces than are needed would only multiply the choices; pods inside slices come
            # with their slice.
            if item.home < 0:
                wanted = self.wanted[item.need]
                count = min(len(item.pods), wanted)

            counts.append(count)

        if self.slices is not None:
            counts += map(len, self.slices.at_hand)

        return tuple(counts)

    def problem(
        self,
        nodes: Ints | None = None,
        scope: Scope | None = None,
    ) -> PackingProblem:
        """The packing problem of the minimum on these `nodes`, limited to the `scope`."""
        where = self._where(nodes)
        self._charge_problem(where.size)

        kinds = []
        for item, asks in zip(self.items, self.asks, strict=True):
            kinds.append(Piece(item.need, asks, item.home))

        blocks: list[Ints] = []
        if self.slices is not None:
            kinds += self.slices.pieces
            blocks = self._blocks(self.slices, where)

        rows = np.array(self._rows_asked, dtype=np.int64)
        free = self.ledger.free[rows[:, None], where]
        # Overcommitted nodes have negative room.
        free = np.maximum(free, 0)
        room = self._room_in(scope, where)

        return problem(kinds, self.pieces, self.wanted, where, free, room, blocks)

    def _where(self, nodes: Ints | None) -> Ints:
        """Those of the nodes that are of use to a packing; None stands for all nodes."""
        where = np.flatnonzero(self._anywhere) if nodes is None else nodes
        if self.slices is None or self.slice_room is None:
            return where

        most = MAX_NODES if nodes is None else len(self.ledger.table)
        if self.group.apart:
            # Building the problem costs nodes times kinds; random hostile trees took 120 ms
            # before this limit.
            kinds = len(self.items) + len(self.slices.pieces)
            most = min(most, MAX_CELLS // kinds)

        useful = self.slice_room.useful(most)
        return where[useful[where]]

    def _charge_problem(self, nodes: int) -> None:
        units_a_node = 12 + len(self.items) + len(self._names)
        for_nodes = nodes * units_a_node // 8
        for_room = len(self.items) * len(self.ledger.table) // 200
        self.ledger.work.charge(150 + for_nodes + for_room)

    def _room_in(self, scope: Scope | None, where: Ints) -> Ints:
        """`room` on the nodes `where`, none outside the scope."""
        room = self.room[:, where]
        if scope is None:
            return room

        for number, item in enumerate(self.items):
            accelerated = self.ledger.accelerated(item.shape)
            inside = scope.of(accelerated=accelerated)
            if inside is not None:
                room[number] *= inside[where]

        return room

    def _blocks(self, slices: Slices, where: Ints) -> list[Ints]:
        """For each layer of slices, the block of each of the nodes `where`."""
        ledger = self.ledger
        kinds = len(self.items) + len(slices.pieces)
        # The square of the kinds: each is compared with all others when the steps are made.
        for_nodes = where.size * len(slices.layers) // 8
        for_kinds = kinds * kinds // 2
        ledger.work.charge(for_nodes + for_kinds)

        blocks = []
        for label in slices.layers:
            codes = level((label,), ledger.table).codes
            blocks.append(codes[where].astype(np.int64))

        return blocks

    def problem_on(
        self,
        nodes: Ints,
        free: Ints,
        is_open: Bools,
    ) -> PackingProblem:
        """The packing problem of a minimum without slices, limited to `nodes`.

        `free[r][n]` and `is_open[item][n]` are for these nodes.
        """
        units_a_node = 12 + len(self.items) + len(self._names)
        for_nodes = nodes.size * units_a_node // 8
        self.ledger.work.charge(120 + for_nodes)
        free = np.maximum(free[self._rows_asked], 0)

        fits = []
        counts = []
        kinds = []
        for item, asks in zip(self.items, self.asks, strict=True):
            by_resource = []
            for row, asked in enumerate(asks):
                if asked:
                    by_resource.append(free[row] // asked)

            needed = min(len(item.pods), self.needs[item.gang])
            fits.append(np.minimum.reduce(by_resource))
            counts.append(needed)
            kinds.append(Piece(item.gang, asks))

        room = np.where(is_open, np.array(fits), 0)

        return problem(kinds, tuple(counts), self.needs, nodes, free, room)

    @cached_property
    def rows(self) -> list[AskedRow]:
        """The result of `rows_on` for all nodes."""
        return self.rows_on()

    def rows_on(self, nodes: Ints | None = None) -> list[AskedRow]:
        """Rows that limit what fits on these nodes; None stands for all nodes.

        Rows that cannot refute anything are left out: if only one item requests the resource, its
        room is more precise; if every node has enough for all pods, the total suffices.
        """
        where = slice(None) if nodes is None else nodes
        free = self.free[:, where]
        room = self.room[:, where]
        anywhere = room.any(axis=0)
        needed = []
        for item in self.items:
            most = self.needs[item.gang]
            needed.append(min(len(item.pods), most))

        rows = []

        for row, free_of_row in enumerate(free):
            amounts = [asks[row] for asks in self.asks]
            total = sum(map(mul, needed, amounts))
            if not (free_of_row[anywhere] < total).any():
                continue

            # ⌊free/a⌋ for each requested amount: the sum of free room alone misses that 3 and 3 do
            # not hold a pod of 4.
            divisors = {1, *amounts} - {0}
            for divisor in sorted(divisors):
                asked = {}
                for number, amount in enumerate(amounts):
                    if amount >= divisor:
                        asked[number] = amount // divisor

                if len(asked) == 1:
                    continue

                self.ledger.work.charge(8 + len(asked) + free_of_row.size // 50)
                takes = [room[number] > 0 for number in asked]
                takes_any = np.logical_or.reduce(takes)
                units = np.where(takes_any, free_of_row // divisor, 0)
                rows.append(AskedRow(units, asked))

        return rows

    @cached_property
    def slice_room(self) -> SliceRoom | None:
        """Room for the slices by sums; None without slices."""
        if self.slices is None:
            return None

        return SliceRoom(self.items, self.slices, self.room, self.ledger)

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

    gangs = demand.gangs
    ledger = demand.ledger
    terms = terms_of(gangs, ledger)
    if terms is None or terms.is_one_part or not terms.parts:
        return None

    keys = dict.fromkeys(part.keys[0] for part in terms.parts)
    labels = [(SliceLayer(1, key),) for key in keys]
    layers, is_nested = layers_of(labels, ledger.table)

    wanted = [len(loose) for loose in terms.loose]
    kinds = Kinds(ledger, layers, wanted, like=_like(demand))
    for number, loose in enumerate(terms.loose):
        kinds.add_pods(number, number, loose)

    for part in terms.parts:
        gang = part.gang
        kinds.wanted[gang] += 1
        slice_ = Slice(part.keys[0], len(part.pods), part.pods, alone=part.alone)
        kinds.tops.append((gang, gang, slice_, ()))

    no_units = (None,) * len(gangs)
    items, slices = kinds.finished(no_units, is_nested=is_nested)
    return Demand(gangs, demand.attempt, items, demand.needs, slices)


def _like(demand: Demand) -> dict[Shape, Shape]:
    """For each shape the first that asks for the same and may go to the same nodes: one kind.

    Shapes differ by terms that name one part each. Without this, every permutation of equal jobs
    would be tried: 12 racks for 12 children in all their orders.
    """
    like: dict[Shape, Shape] = {}
    firsts: dict[tuple[ResourceVector, bytes], Shape] = {}

    for item, room in zip(demand.items, demand.room, strict=True):
        shape = item.shape
        open_nodes = narrow(item.pods[0], room, demand.ledger.occupancy)
        key = (shape.requests, open_nodes.tobytes())
        like[shape] = firsts.setdefault(key, shape)

    return like


def needed_units(gang: Gang, lack: int, ledger: Ledger) -> NeededUnits:
    """The slices, or parts of slices, that a gang needs if it lacks `lack` members. Computed once
    per plan; does not depend on free room.
    """

    def with_its_gang() -> tuple[Gang, NeededUnits]:
        _charge_pods(gang, ledger)
        all_units = units(gang, gang.pending, ledger.table)
        return gang, needed(all_units, lack)

    # The gang is kept beside its units, so that no other has its id.
    key = ("units", id(gang), lack)
    kept: tuple[Gang, NeededUnits] = ledger.recall(key, with_its_gang, lasting=True)
    return kept[1]


def _sliced(
    gangs: Sequence[Gang],
    attempt: PlacementAttempt,
    lacks: Sequence[int],
) -> Demand:
    """The demand of gangs of which some have slices, each of which lacks so many members; once for
    all scopes.
    """
    # By id: the demand keeps its gangs alive.
    gang_ids = map(id, gangs)
    key = ("sliced", attempt.group.apart, *gang_ids, *lacks)
    demand: Demand = attempt.ledger.recall(key, lambda: _collected(gangs, attempt, lacks))

    # A demand of its own, because its room is that of this scope.
    return replace(demand, attempt=attempt)


def _collected(
    gangs: Sequence[Gang],
    attempt: PlacementAttempt,
    lacks: Sequence[int],
) -> Demand:
    group = attempt.group
    ledger = attempt.ledger
    number_of = {gang.id: number for number, gang in enumerate(gangs)}
    entries = _entries(group, gangs, ledger, lacks)

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

    layers, is_nested = layers_of(all_labels, ledger.table)
    kinds = Kinds(ledger, layers, [0] * len(gangs))
    first_alike: dict[Hashable, int] = {}
    needs = [0] * len(gangs)

    for entry in entries:
        number = number_of[entry.gangs[0]]
        gang = gangs[number]
        lack = lacks[number]
        wanted = units_of[number]

        # Identical parts are one kind with a number, else each order of them would be tried.
        need = number
        if group.apart:
            numbers = [number_of[gang_id] for gang_id in entry.gangs]
            members = [(gangs[other], lacks[other]) for other in numbers]
            need = first_alike.setdefault(_alike(members, wanted), number)

        if wanted is None:
            _charge_pods(gang, ledger)
            needs[need] += lack
            kinds.wanted[need] += lack
            kinds.add_pods(need, need, gang.pending)
        else:
            needs[need] += wanted.pods
            kinds.add_units(need, wanted)

    items, slices = kinds.finished(tuple(units_of), is_nested=is_nested)
    return Demand(gangs, attempt, items, tuple(needs), slices)


def _entries(
    group: Group,
    gangs: Sequence[Gang],
    ledger: Ledger,
    lacks: Sequence[int],
) -> Sequence[PackedPart]:
    """The parts of the group that are packed, at least each gang as one."""
    gang_by_gang = [PackedPart((gang.id,)) for gang in gangs]
    if not group.apart:
        return gang_by_gang

    for gang in gangs:
        _charge_pods(gang, ledger)

    by_id = {gang.id: gang for gang in gangs}
    lack_of = dict(zip(by_id, lacks, strict=True))
    parts = entries_of(group.apart, by_id, lack_of, ledger.table)
    return parts or gang_by_gang


def _charge_pods(gang: Gang, ledger: Ledger) -> None:
    """Charge for finding out which of the gang's members belong together."""
    ledger.work.charge(20 + UNITS_A_POD * len(gang.pending))


def _labels(
    gang: Gang,
    own: NeededUnits | None,
) -> Iterator[tuple[SliceLayer, ...]]:
    """The layers of what belongs together of a gang, or of the part that it is the first
    gang of.
    """
    if own is None or gang.constraints.slices:
        yield gang.constraints.slices
        return

    distinct: dict[tuple[str, ...], None] = {}
    for slice_ in own.of:
        for labels in layers_in(slice_):
            distinct[labels] = None

    for labels in distinct:
        yield tuple(SliceLayer(1, label) for label in labels)


def _alike(
    members: Sequence[tuple[Gang, int]],
    wanted: NeededUnits | None,
) -> Hashable:
    """Equal for parts of which a packing may take one for the other: all that waits is needed,
    anywhere.
    """
    first = members[0][0]
    if wanted is not None:
        is_one_slice = len(wanted.of) == 1 and not wanted.fixed
        if not is_one_slice or first.constraints.slices:
            return first.id

    for gang, lack in members:
        any_claims = any(pod.claims for pod in gang.pending)
        if lack < len(gang.pending) or any_claims:
            return first.id

    if wanted is None:
        counts = Counter(pod.shape for pod in first.pending)
        return frozenset(counts.items())

    return signature(wanted.of[0])
