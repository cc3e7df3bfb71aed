"""Pods and slices of a demand, numbered by kind; pods or slices of one kind are interchangeable in
a packing.

Invariant: every member that may be placed is in one item, and every slice has one kind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from itertools import chain, pairwise, permutations
from typing import TypeAlias

from gangsched.core.queue_sort import size_key
from gangsched.core.reserve import Ledger
from gangsched.core.search.packing_problem import Piece
from gangsched.core.search.slices import NeededUnits, Slice
from gangsched.core.topology import lies_within
from gangsched.model.gang import Gang
from gangsched.model.gpu_policy import SliceLayer
from gangsched.model.objects import Pod, Shape
from gangsched.model.snapshot import NodeTable

Pins: TypeAlias = tuple[tuple[str, int], ...]

UNITS_A_SLICE = 6
UNITS_AN_ITEM = 8
"""Units of adding a slice, and a kind of pods."""


@dataclass(frozen=True, slots=True)
class Item:
    """The pending members of one gang that have one shape, in placing order."""

    #: Index of the gang in the group.
    gang: int
    shape: Shape
    pods: tuple[Pod, ...]
    #: They can only be placed where their volumes exist or are being provisioned, so they are a
    #: separate item.
    pinned: bool
    #: Index of the need that they count towards.
    need: int
    #: If they are in slices: the layer of these.
    home: int = -1
    #: Domains, as pairs of label and code, in which they must be.
    pins: Pins = ()
    devices: Hashable = None


@dataclass(frozen=True, slots=True, eq=False)
class Slices:
    """Slices as kinds of a packing, numbered after the items."""

    #: Labels, the coarsest first.
    layers: tuple[str, ...]
    nested: bool
    units: tuple[NeededUnits | None, ...]
    pieces: tuple[Piece, ...]
    #: By kind: the slices that may start in any block.
    at_hand: tuple[tuple[Slice, ...], ...]
    #: By need: how many pods or slices must be placed; the first needs are those of the gangs.
    wanted: tuple[int, ...]
    #: Kinds of slices by their `id`; `item_of` are the items of pods by uid.
    kind_of: Mapping[int, int]
    item_of: Mapping[str, int]


def layers_of(
    stated: Sequence[Sequence[SliceLayer]],
    table: NodeTable,
) -> tuple[tuple[str, ...], bool]:
    """The labels of all gangs' slices, coarsest first, and whether they are nested: each domain of
    a label is inside one domain of the label before it.
    """
    different: dict[tuple[str, ...], None] = {}
    for layers in stated:
        if layers:
            labels = tuple(layer.topology for layer in layers)
            different[labels] = None

    if len(different) == 1:
        # an inner slice is inside an outer one, wherever else its domain reaches
        return next(iter(different)), True

    order: TopologicalSorter[str] = TopologicalSorter()
    for labels in different:
        order.add(labels[0])
        # says which is outside where both have the same domains
        for outer, inner in pairwise(labels):
            order.add(inner, outer)

    every = tuple(dict.fromkeys(chain.from_iterable(different)))
    # Not by refinement: of a zone with nodes outside its only rack, the rack is inside, though
    # neither is finer.
    within = {}
    for one, other in permutations(every, 2):
        within[(one, other)] = lies_within(one, other, table)

    for (one, other), is_within in within.items():
        if is_within and not within[other, one]:
            order.add(one, other)

    try:
        ordered = tuple(order.static_order())
    except CycleError:
        return every, False

    is_nested = all(within[fine, coarse] for coarse, fine in pairwise(ordered))
    return ordered, is_nested


def items_of(gangs: Sequence[Gang], ledger: Ledger) -> list[Item]:
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
                name = (pod.shape, storage.pinned(pod), storage.device_kind(pod))
                own = pods.setdefault(name, [])
                last = None if pod.claims else pod.shape

            own.append(pod)

        pods_a_unit = 2 if last is None else 8
        looked_up = len(gang.pending) // pods_a_unit
        ledger.work.charge(looked_up + UNITS_AN_ITEM * len(pods))

        for (shape, pinned, devices), members in pods.items():
            items.append(Item(index, shape, tuple(members), pinned, index, devices=devices))

    return _in_order(items, ledger)


def _in_order(items: Iterable[Item], ledger: Ledger) -> list[Item]:
    """The items, the largest shapes first."""

    # Pinned members first among their shape: others would take the only nodes that have their
    # volumes.
    def key(item: Item) -> tuple[tuple[int, int, int], bool]:
        return size_key(item.shape, ledger.policy), not item.pinned

    return sorted(items, key=key)


@dataclass(slots=True)
class Kinds:
    """Collects pods and slices into kinds; `like` maps a shape to an equal shape that stands for
    both.
    """

    ledger: Ledger
    layers: Sequence[str]
    wanted: list[int]
    tops: list[tuple[int, int, Slice, Pins]] = field(default_factory=list)
    pods: dict[tuple[int, int, Shape, bool, Hashable, int, Pins], list[Pod]] = field(
        default_factory=dict
    )
    like: Mapping[Shape, Shape] = field(default_factory=dict)

    def add_pods(
        self,
        gang: int,
        need: int,
        pods: Iterable[Pod],
        *,
        home: int = -1,
        pins: Pins = (),
    ) -> None:
        """Add pods that count towards a need, or belong to slices of layer `home`."""
        storage = self.ledger.occupancy.storage
        for pod in pods:
            pinned = storage.pinned(pod)
            devices = storage.device_kind(pod)
            shape = self.like.get(pod.shape, pod.shape)
            key = (gang, need, shape, pinned, devices, home, pins)
            self.pods.setdefault(key, []).append(pod)

    def add_units(self, gang: int, needed: NeededUnits) -> None:
        """Add the units that a gang, or several alike, needs."""
        self.wanted[gang] += needed.number
        for slice_ in needed.of:
            self.tops.append((gang, gang, slice_, ()))

        for unit, count in needed.fixed:
            # A need of its own: no other unit can stand in for one that is fixed.
            need = len(self.wanted)

            if unit.whole is None:
                self.wanted.append(count)
                self.add_pods(gang, need, unit.alone, pins=unit.pins)
            else:
                self.wanted.append(1)
                self.tops.append((gang, need, unit.whole, unit.pins))

    def finished(
        self,
        units_of: tuple[NeededUnits | None, ...],
        *,
        is_nested: bool,
    ) -> tuple[tuple[Item, ...], Slices]:
        """The items, and the slices as kinds after them."""
        work = self.ledger.work
        for gang, _, top, pins in self.tops:
            open_slices = [top]
            while open_slices:
                slice_ = open_slices.pop()
                work.charge(UNITS_A_SLICE)
                open_slices += slice_.parts

                layer = self.layers.index(slice_.key)
                self.add_pods(gang, gang, slice_.own, home=layer, pins=pins)

        work.charge(UNITS_AN_ITEM * len(self.pods))
        unordered = []
        for (gang, need, shape, pinned, devices, home, pins), members in self.pods.items():
            item = Item(
                gang,
                shape,
                tuple(members),
                pinned,
                need,
                home,
                pins,
                devices,
            )
            unordered.append(item)

        items = _in_order(unordered, self.ledger)
        item_of = {}
        for number, item in enumerate(items):
            for pod in item.pods:
                item_of[pod.uid] = number

        kinds: dict[tuple[int, int, int, tuple[int, ...], Pins, bool], int] = {}
        kind_of: dict[int, int] = {}
        at_hand: dict[int, list[Slice]] = {}

        def kind(
            slice_: Slice,
            need: int,
            home: int,
            pins: Pins,
        ) -> int:
            layer = self.layers.index(slice_.key)
            # Recursion as deep as slices have layers: three for slices, four for trees.
            holds = []
            for part in slice_.parts:
                holds.append(kind(part, need, layer, pins))

            for pod in slice_.own:
                holds.append(item_of[pod.uid])

            # Slices of equal contents are one kind, so that their order is not tried.
            own_need = need if home < 0 else 0
            name = own_need, home, layer, tuple(sorted(holds)), pins, slice_.alone
            kind_of[id(slice_)] = number = kinds.setdefault(name, len(items) + len(kinds))
            return number

        for _, need, top, pins in self.tops:
            number = kind(top, need, -1, pins)
            at_hand.setdefault(number, []).append(top)

        numbers = range(len(items), len(items) + len(kinds))
        pieces = []
        for need, home, layer, holds, _, is_alone in kinds:
            parts = Counter(holds)
            piece = Piece(
                need,
                home=home,
                layer=layer,
                parts=tuple(sorted(parts.items())),
                alone=is_alone,
            )
            pieces.append(piece)

        slices = Slices(
            tuple(self.layers),
            is_nested,
            units_of,
            tuple(pieces),
            tuple(tuple(at_hand.get(number, ())) for number in numbers),
            tuple(self.wanted),
            kind_of,
            item_of,
        )
        return tuple(items), slices
