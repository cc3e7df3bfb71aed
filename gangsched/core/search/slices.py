"""Slices: members of a gang that must be in one domain, and domains that running members fix for
the waiting members.

Invariant: every waiting member is in exactly one unit: a slice, or the waiting part of a partly
running slice. Slice i of a layer of size k consists of the existing members with index i·k to i·k +
k - 1. Members without indexes fill slices in placing order, beginning with slices that have running
members.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count
from operator import itemgetter
from typing import TypeAlias

import numpy as np
from msgspec import structs

from gangsched.core.scope import Scope
from gangsched.core.topology import level
from gangsched.model.gang import Gang, Group
from gangsched.model.gpu_policy import SliceLayer
from gangsched.model.objects import Pod
from gangsched.model.snapshot import Bools, Ints, NodeTable

Numbered: TypeAlias = list[tuple[int, Pod]]
Standing: TypeAlias = list[tuple[int, int]]
"""The index of a member and of its node."""
NOWHERE = -2
"""The code of the domain of a slice whose members run on nodes that have lost its label, but not
those of the slices inside it.
"""


@dataclass(frozen=True, slots=True)
class Slice:
    """The waiting `pods` of one slice, which must be in one domain of `key`; `size` counts all
    members of the slice.

    The pods are those of the smaller slices in `parts` and the `loose` ones outside these; without
    `parts`, all pods are the slice's `own`. Slices that are `alone` never share a domain.
    """

    key: str
    size: int
    pods: tuple[Pod, ...]
    parts: tuple[Slice, ...] = ()
    alone: bool = False
    loose: tuple[Pod, ...] = ()

    @property
    def own(self) -> tuple[Pod, ...]:
        """Pods of the slice that are in none of its parts."""
        if self.parts:
            return self.loose

        return self.pods


@dataclass(frozen=True, slots=True)
class Unit:
    """A slice that is placed as a whole, or the waiting pods of a partly running slice, which are
    placed one by one.

    `pins` are the domains, as label and code, to which running members limit the pods.
    """

    pins: tuple[tuple[str, int], ...] = ()
    whole: Slice | None = None
    alone: tuple[Pod, ...] = ()

    @property
    def pods(self) -> tuple[Pod, ...]:
        """The unit's waiting members."""
        if self.whole is None:
            return self.alone

        return self.whole.pods

    def mask(self, table: NodeTable) -> Bools:
        """`mask[n]`: node `n` is in the domains of the unit's running members."""
        inside = table.everywhere()
        for key, code in self.pins:
            if code == NOWHERE:
                return ~inside

            domain = level((key,), table).mask(code)
            inside = inside & domain

        return inside

    def within(self, scope: Scope, table: NodeTable) -> Scope:
        """The scope, limited to the domain of the unit's running members."""
        if not self.pins:
            return scope

        key, code = self.pins[-1]
        if code == NOWHERE:
            name = f"the {key} of the rest of the slice, whose nodes lack that label"
        else:
            name = level((key,), table).name(code)

        inside = self.mask(table)
        return structs.replace(scope.narrowed(inside, name), name=name)


def is_sliced(gangs: Sequence[Gang]) -> bool:
    """Whether any of the gangs has slices."""
    return any(gang.constraints.slices for gang in gangs)


def units(gang: Gang, pods: Sequence[Pod], table: NodeTable) -> list[Unit]:
    """The units in which a gang with slices is placed: units with running members first, then by
    index.
    """
    layers = gang.constraints.slices
    there = []
    for index, node in gang.standing:
        if node in table.index:
            there.append((index, table.index[node]))

    if gang.indexed:
        numbered = [(pod.index, pod) for pod in pods]
    else:
        nodes = [node for _, node in there]
        there = list(_slots(nodes, layers, table))
        open_slots = _open_slots(there, layers[-1].size, len(pods))
        numbered = list(zip(open_slots, pods, strict=True))

    numbered.sort(key=itemgetter(0))
    in_order = list(_units(numbered, there, layers, table, ()))

    # Pinned units have no choice of a domain, so they are placed before others take their room.
    return sorted(in_order, key=lambda unit: not unit.pins)


def pinned_to(group: Group, table: NodeTable) -> Bools | None:
    """The nodes to which running members limit all waiting members of their slices; None if any
    member may be placed elsewhere.
    """
    mask = ~table.everywhere()
    for gang in group.gangs:
        waiting = (*gang.retry, *gang.pending)
        if not waiting:
            continue
        if not gang.constraints.slices or not gang.standing:
            return None

        of_gang = units(gang, waiting, table)
        if not all(unit.pins for unit in of_gang):
            return None

        for unit in of_gang:
            mask |= unit.mask(table)

    return mask


@dataclass(slots=True)
class NeededUnits:
    """The units of a gang that make up its minimum.

    `fixed` are needed units, each with its number of pods. In addition, `number` of the slices in
    `of`, which all have the same size, are needed.
    """

    fixed: list[tuple[Unit, int]] = field(default_factory=list)
    of: list[Slice] = field(default_factory=list)
    number: int = 0

    @property
    def pods(self) -> int:
        """The smallest number of members that meets the need."""
        size = 0
        if self.of:
            size = len(self.of[0].pods)

        fixed = sum(number for _, number in self.fixed)
        return fixed + self.number * size

    @property
    def waiting(self) -> list[Pod]:
        """The first waiting members that meet the need."""
        pods: list[Pod] = []
        for unit, number in self.fixed:
            pods += unit.pods[:number]

        for slice_ in self.of[: self.number]:
            pods += slice_.pods

        return pods


def needed(all_units: Sequence[Unit], lack: int) -> NeededUnits:
    """The units that give a gang `lack` more members: whole slices, partly running ones first.

    If members of a slice do not exist yet, it consists of its existing members. Such a slice is
    needed only if there are too few complete slices; the largest one comes first.
    """
    needed_units = NeededUnits()
    new = []
    for unit in all_units:
        if unit.pins and lack > 0:
            number = len(unit.pods)
            if unit.whole is None:
                number = min(lack, number)

            needed_units.fixed.append((unit, number))
            lack -= len(unit.pods)

        if not unit.pins and unit.whole is not None:
            new.append(unit)

    size = max((len(unit.pods) for unit in new), default=1)
    full = []
    for unit in new:
        if unit.whole is not None and len(unit.pods) == size:
            full.append(unit.whole)

    # Rounded up: a slice starts whole or not at all.
    number = max(0, -(-lack // size))
    if number <= len(full):
        needed_units.of = full
        needed_units.number = number
        return needed_units

    for unit in sorted(new, key=lambda unit: -len(unit.pods)):
        if lack > 0:
            needed_units.fixed.append((unit, len(unit.pods)))
            lack -= len(unit.pods)

    return needed_units


def alone(gang: Gang, slice_: Slice) -> Gang:
    """A gang that consists of one slice, which is placed as a whole or not at all."""
    keys = [layer.topology for layer in gang.constraints.slices]
    layers = gang.constraints.slices[keys.index(slice_.key) :]
    return structs.replace(
        gang,
        pending=slice_.pods,
        retry=(),
        kept=(),
        held=(),
        standing=(),
        bound=0,
        satisfied=False,
        min_member=len(slice_.pods),
        constraints=replace(gang.constraints, slices=layers),
    )


def _units(
    pods: Numbered,
    there: Standing,
    layers: Sequence[SliceLayer],
    table: NodeTable,
    pins: tuple[tuple[str, int], ...],
) -> Iterator[Unit]:
    inner = layers[1:]
    size, key = layers[0]
    by_slice: defaultdict[int, Standing] = defaultdict(list)

    for index, node in there:
        # Slice i has the members of index i·k to i·k + k − 1 (decision 0074).
        by_slice[index // size].append((index, node))

    for number, members in _by_slice(pods, size):
        own = by_slice[number]
        numbers = [node for _, node in own]
        nodes = np.array(numbers, dtype=np.int64)
        code = level((key,), table).common(nodes) if own else None

        if code is None and _has_domain(nodes, inner, table):
            # Nodes of those inside need not be in one domain of this layer.
            waiting = [pod for _, pod in members]
            yield Unit((*pins, (key, NOWHERE)), alone=tuple(waiting))
        elif code is None:  # none runs, or none where the label is
            yield Unit(pins, _slice(members, layers))
        elif inner:
            yield from _units(members, own, inner, table, (*pins, (key, code)))
        else:
            yield Unit((*pins, (key, code)), alone=tuple(pod for _, pod in members))


def _has_domain(nodes: Ints, layers: Sequence[SliceLayer], table: NodeTable) -> bool:
    """Whether any of these nodes is in a domain of one of the layers."""
    for layer in layers:
        domains = level((layer.topology,), table)
        if domains.of(nodes).size:
            return True

    return False


def _slice(pods: Numbered, layers: Sequence[SliceLayer]) -> Slice:
    inner = layers[1:]
    size, key = layers[0]
    parts = []
    if inner:
        for _, members in _by_slice(pods, inner[0].size):
            parts.append(_slice(members, inner))

    own = tuple([pod for _, pod in pods])
    return Slice(key, size, own, tuple(parts))


def _by_slice(pods: Numbered, size: int) -> list[tuple[int, Numbered]]:
    by_slice: defaultdict[int, Numbered] = defaultdict(list)
    for index, pod in pods:
        by_slice[index // size].append((index, pod))

    return sorted(by_slice.items())


def _slots(
    nodes: Sequence[int],
    layers: Sequence[SliceLayer],
    table: NodeTable,
    first: int = 0,
) -> Iterator[tuple[int, int]]:
    """Indexes for running members that have none: those in one domain share slices of its level,
    the first ones.
    """
    if not layers:
        yield from ((first + number, node) for number, node in enumerate(sorted(nodes)))
        return

    inner = layers[1:]
    size, key = layers[0]
    codes = level((key,), table).codes
    by_domain: defaultdict[int, list[int]] = defaultdict(list)

    for node in nodes:
        by_domain[int(codes[node])].append(node)

    for _, own in sorted(by_domain.items()):
        last = first
        for slot, node in _slots(own, inner, table, first):
            last = max(last, slot + 1)
            yield slot, node

        # The next domain begins a slice of its own.
        first = -(-last // size) * size


def _open_slots(there: Standing, size: int, number: int) -> list[int]:
    """So many slots that no member has: first those of slices of which some run, then
    the lowest.
    """
    taken = {slot for slot, _ in there}
    begun = {slot // size for slot in taken}
    others = (slice_ for slice_ in count() if slice_ not in begun)

    slots: list[int] = []
    for slice_ in chain(sorted(begun), others):
        first = slice_ * size
        slots += [slot for slot in range(first, first + size) if slot not in taken]
        if len(slots) >= number:
            break

    return slots[:number]
