"""The problem that a packing solves: kinds of pods and slices, and nodes and blocks as steps.

Invariant: it depends on numbers only, not on names, so problems with equal numbers are equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from operator import mul
from typing import TypeAlias

import numpy as np

from gangsched.model.snapshot import Ints

Pattern: TypeAlias = tuple[int, ...]
Amounts: TypeAlias = tuple[int, ...]
KindNumbers: TypeAlias = tuple[int, ...]
"""KindNumbers by number."""

SUM_BITS = 64
"""Bits of one of several sums that are held in one number: more than any amount in all
nodes has.
"""


@dataclass(frozen=True, slots=True)
class Piece:
    """Identical pods or slices.

    A slice starts at the beginning of a block of `layer`; pods have `asks` instead of a layer.
    `home` is the layer of the block that must contain all pieces, -1 for kinds that count towards
    the need of `gang`. `parts` are the kinds inside one slice, by index, with their numbers. A
    block contains at most one piece that is `alone`; all such pieces are needed.
    """

    gang: int
    asks: Amounts = ()
    home: int = -1
    layer: int = -1
    parts: tuple[tuple[int, int], ...] = ()
    alone: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """A node (`layer` -1) or the beginning of a block; of each kind alone, at most `room[kind]`
    pieces fit.

    Equal neighbours in one block have the same number `like`.
    """

    layer: int
    like: int
    room: Amounts
    free: Amounts = ()
    node: int = -1


@dataclass(frozen=True)
class PackingProblem:
    """`start[kind]` pieces are available; gang `g` needs `needs[g]` in total. Pods come before
    slices in `kinds`.
    """

    kinds: tuple[Piece, ...]
    start: Pattern
    needs: tuple[int, ...]
    steps: tuple[Step, ...]

    @cached_property
    def name(self) -> bytes:
        """A digest of the problem without node names: equal for equal problems only."""
        # Without the nodes: equal racks have the same name, so that one refutation serves all of
        # them.
        numbers = []
        for step in self.steps:
            numbers.append((step.layer, step.like, *step.room, *step.free))

        content = repr((self.kinds, self.start, self.needs, numbers))
        return blake2b(content.encode(), digest_size=16).digest()

    @cached_property
    def pods(self) -> range:
        """The kinds that are pods."""
        pods = sum(kind.layer < 0 for kind in self.kinds)
        return range(pods)

    @cached_property
    def opening(self) -> tuple[KindNumbers, ...]:
        """By layer: the kinds that start at the beginning of the layer's blocks."""
        layers = [kind.layer for kind in self.kinds]
        return _by_number(layers, self.layers)

    @cached_property
    def opening_alone(self) -> tuple[tuple[bool, ...], ...]:
        """By layer: which of the kinds that start there are `alone`."""
        result = []
        for kinds in self.opening:
            are_alone = [self.kinds[kind].alone for kind in kinds]
            result.append(tuple(are_alone))

        return tuple(result)

    @cached_property
    def opening_needs(self) -> tuple[KindNumbers, ...]:
        """By layer: the gang towards whose need each kind that starts there counts, -1 for none."""
        needs = self._free_gangs
        result = []
        for kinds in self.opening:
            of_layer = [needs[kind] for kind in kinds]
            result.append(tuple(of_layer))

        return tuple(result)

    @property
    def _free_gangs(self) -> list[int]:
        """By kind: the gang towards whose need it counts, -1 for none."""
        gangs = []
        for kind in self.kinds:
            gangs.append(kind.gang if kind.home < 0 else -1)

        return gangs

    @cached_property
    def layers(self) -> int:
        """Number of layers of blocks."""
        outermost = -1
        for step in self.steps:
            outermost = max(outermost, step.layer)

        return 1 + outermost

    @cached_property
    def free_kinds(self) -> tuple[KindNumbers, ...]:
        """By gang: the kinds that count towards its need."""
        return _by_number(self._free_gangs, len(self.needs))

    @cached_property
    def bound_kinds(self) -> tuple[KindNumbers, ...]:
        """For each layer, the kinds whose pieces must all be placed in the current block."""
        homes = [kind.home for kind in self.kinds]
        return _by_number(homes, self.layers)

    @cached_property
    def alone(self) -> tuple[int, ...]:
        """The kinds that are `alone`: a block can contain one piece of them in total."""
        kinds = []
        for number, kind in enumerate(self.kinds):
            if kind.alone:
                kinds.append(number)

        return tuple(kinds)

    @cached_property
    def blocks_after(self) -> list[list[int]]:
        """`blocks_after[step][0]`: number of blocks from that step on in which an `alone` piece
        fits.
        """
        number = len(self.steps)
        takes = np.zeros((number, 1), dtype=np.int64)
        for position, step in enumerate(self.steps):
            room = [step.room[kind] for kind in self.alone]
            takes[position] = any(room)

        return _sums_after(takes)

    @cached_property
    def ends(self) -> tuple[tuple[int, ...], ...]:
        """`ends[step][layer]`: end of the block of that layer in which the step is."""
        ends: list[tuple[int, ...]] = []
        number = len(self.steps)
        last = [number] * self.layers
        for position in range(number - 1, -1, -1):
            ends.append(tuple(last))
            layer = self.steps[position].layer
            if layer >= 0:
                last[layer:] = [position] * (self.layers - layer)

        ends.reverse()
        ends.append((number,) * self.layers)
        return tuple(ends)

    @cached_property
    def rows(self) -> tuple[tuple[int, int], ...]:
        """Resources and amounts used to refute by totals: at most ⌊free/amount⌋ pieces fit per
        node.
        """
        rows = set()
        for pod in self.pods:
            for resource, amount in enumerate(self.kinds[pod].asks):
                if amount:
                    rows.add((resource, amount))
                    rows.add((resource, 1))

        return tuple(sorted(rows))

    @cached_property
    def weights(self) -> tuple[Amounts, ...]:
        """`weights[row][kind]`: the amount of a row that one piece uses."""
        weights = []
        for resource, unit in self.rows:
            weights.append(self._weights(resource, unit))

        return tuple(weights)

    def _weights(
        self,
        resource: int,
        unit: int,
    ) -> Amounts:
        kinds = self.kinds
        weights = [0] * len(kinds)
        for pod in self.pods:
            amount = kinds[pod].asks[resource]
            weights[pod] = amount // unit

        # The inner slices first, since those around them consist of them.
        slices = range(len(self.pods), len(kinds))
        inner_first = sorted(slices, key=lambda kind: -kinds[kind].layer)
        for slice_ in inner_first:
            for part, number in kinds[slice_].parts:
                weights[slice_] += weights[part] * number

        return tuple(weights)

    @cached_property
    def cheapest(self) -> tuple[tuple[KindNumbers, ...], ...]:
        """`cheapest[row][gang]`: kinds of the gang, ordered by the amount of the row that
        they use.
        """
        cheapest = []
        for weight in self.weights:
            of_row = []
            for kinds in self.free_kinds:
                ordered = sorted(kinds, key=lambda kind: (weight[kind], kind))
                of_row.append(tuple(ordered))

            cheapest.append(tuple(of_row))

        return tuple(cheapest)

    @cached_property
    def row_after(self) -> list[list[int]]:
        """`row_after[step][row]`: the total of a row over that step and all later ones."""
        number = len(self.steps)
        width = len(self.kinds[0].asks)
        nothing = (0,) * width
        rows = [step.free or nothing for step in self.steps]
        free = np.array(rows, dtype=np.int64).reshape(number, width)

        units = np.zeros((number, len(self.rows)), dtype=np.int64)
        for row, (resource, unit) in enumerate(self.rows):
            units[:, row] = free[:, resource] // unit

        return _sums_after(units)

    @cached_property
    def room_after(self) -> list[list[int]]:
        """`room_after[step][kind]`: number of pieces that fit from that step on, if no other kind
        is placed.
        """
        rooms = np.array([step.room for step in self.steps], dtype=np.int64)
        rooms = rooms.reshape(len(self.steps), len(self.kinds))
        return _sums_after(rooms)

    @cached_property
    def is_whole(self) -> bool:
        """True if every piece is needed and none is a slice. Comparing totals once is
        then enough.
        """
        for need, kinds in zip(self.needs, self.free_kinds, strict=True):
            if need != sum(self.start[kind] for kind in kinds):
                return False

        return all(kind.layer < 0 and kind.home < 0 for kind in self.kinds)

    @cached_property
    def whole_weights(self) -> tuple[int, ...]:
        """By kind, the amounts that one piece uses of all rows and of its own room, packed into one
        number.
        """
        numbers = range(len(self.kinds))
        result = []
        for kind in numbers:
            amounts = [weight[kind] for weight in self.weights]
            own_room = [int(kind == other) for other in numbers]
            result.append(_side_by_side(amounts + own_room))

        return tuple(result)

    @cached_property
    def signs(self) -> int:
        """The sign bits in these packed totals; a bit is set once the total of its row
        is negative.
        """
        sign = 1 << (SUM_BITS - 1)
        sums = len(self.weights) + len(self.kinds)
        return _side_by_side([sign] * sums)

    @cached_property
    def whole_after(self) -> list[int]:
        """By step, the totals of all rows and of each kind's room from that step on, packed, with
        `signs`.
        """
        result: list[int] = []
        for rows, rooms in zip(self.row_after, self.room_after, strict=True):
            result.append(self.signs + _side_by_side((*rows, *rooms)))

        return result

    def lacking(self, left: Pattern) -> list[int]:
        """Number of pieces that each gang still needs if `left[kind]` pieces are not yet placed."""
        result: list[int] = []
        for need, kinds in zip(self.needs, self.free_kinds, strict=True):
            placed = sum(self.start[kind] - left[kind] for kind in kinds)
            result.append(need - placed)

        return result

    def hopeless(
        self,
        step: int,
        left: Pattern,
        lack: Sequence[int],
    ) -> bool:
        """Whether totals prove that the remaining pieces do not fit into the remaining steps."""
        if self.is_whole:
            # One subtraction compares all sums: each has 64 bits of the number, with a sign bit
            # that a deficit clears.
            asked: int = sum(map(mul, left, self.whole_weights))
            return (self.whole_after[step] - asked) & self.signs != self.signs

        if self.alone:
            (blocks,) = self.blocks_after[step]
            if sum(left[kind] for kind in self.alone) > blocks:
                return True

        rooms = self.room_after[step]
        ends = self.ends[step]
        if self._lacks_places(left, lack, rooms, ends):
            return True

        return self._lacks_amounts(step, left, lack, rooms, ends)

    def _lacks_places(
        self,
        left: Pattern,
        lack: Sequence[int],
        rooms: Sequence[int],
        ends: Sequence[int],
    ) -> bool:
        """Whether some kind of pieces has too few places: in the blocks under way if it is bound to
        them, else anywhere.
        """
        for layer, kinds in enumerate(self.bound_kinds):
            after = self.room_after[ends[layer]]
            if any(left[t] > rooms[t] - after[t] for t in kinds):
                return True

        for gang, kinds in enumerate(self.free_kinds):
            needed = lack[gang]
            if needed > 0 and sum(min(left[t], rooms[t]) for t in kinds) < needed:
                return True

        return False

    def _lacks_amounts(
        self,
        step: int,
        left: Pattern,
        lack: Sequence[int],
        rooms: Sequence[int],
        ends: Sequence[int],
    ) -> bool:
        """Whether the pieces that are left ask for more of some resource than there is, each gang
        with those that ask for least.
        """
        have = self.row_after[step]
        after_block = [self.row_after[end] for end in ends]

        for row, weight in enumerate(self.weights):
            asked = 0
            for layer in range(self.layers - 1, -1, -1):
                for t in self.bound_kinds[layer]:
                    asked += weight[t] * left[t]

                if asked > have[row] - after_block[layer][row]:
                    return True

            for gang, kinds in enumerate(self.cheapest[row]):
                rest = lack[gang]
                for t in kinds:
                    if rest <= 0:
                        break

                    count = min(left[t], rooms[t], rest)
                    rest -= count
                    asked += count * weight[t]

            if asked > have[row]:
                return True

        return False


def _by_number(
    numbers: Sequence[int],
    size: int,
) -> tuple[KindNumbers, ...]:
    """By each number below `size`, the kinds that have it."""
    kinds: list[list[int]] = [[] for _ in range(size)]
    for kind, number in enumerate(numbers):
        if 0 <= number < size:
            kinds[number].append(kind)

    return tuple(map(tuple, kinds))


def _sums_after(values: Ints) -> list[list[int]]:
    """`sums[i]` of the rows from `i` on; one more than there are rows."""
    rows, columns = values.shape
    sums = np.zeros((rows + 1, columns), dtype=np.int64)
    from_last = np.cumsum(values[::-1], axis=0)
    sums[:-1] = from_last[::-1]

    by_row: list[list[int]] = sums.tolist()
    return by_row


def _side_by_side(sums: Iterable[int]) -> int:
    """These sums in one number, `SUM_BITS` each."""
    return sum(amount << (SUM_BITS * place) for place, amount in enumerate(sums))
