"""Packing: an exact search for places, over nodes and over domains inside a region.

Invariant: it depends on numbers only, not on names, so a refuted problem is refuted wherever the
numbers are equal. It ends with places, or once every choice is refuted by sums or an exhausted
search; if work runs out it continues later from the same choice.

It places *kinds*: identical pods of a gang, or identical slices. A slice opens in one block of
nodes, and its parts, pods or smaller slices, must be placed inside that block. The search walks
over blocks and their nodes in one fixed order and rests on four observations:

(1) Identical pods and slices are interchangeable, so a node gets counts (a *pattern*), and so does
a block. (2) A pattern that leaves room for one more pod is never better than one that uses it, so
only full ones are tried. (3) Equal nodes of a block, and equal blocks, are interchangeable, so
their counts are tried in descending order only. (4) Whether the rest fits into the remaining steps
depends on nothing else, so refuted remainders are cached.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from math import inf
from operator import mul
from typing import TypeAlias

import numpy as np

from gangsched.core.search.openings import OpeningLimits, first_opening, next_opening
from gangsched.core.work import Work
from gangsched.model.snapshot import Ints

Pattern: TypeAlias = tuple[int, ...]
Amounts: TypeAlias = tuple[int, ...]

STEP_UNITS = 12
SUM_BITS = 64
"""Bits of one of several sums that are held in one number: more than any amount in all
nodes has.
"""
MOST_KNOWN = 20_000
"""Successors of patterns that one search remembers; nodes alike ask for the same ones again and
again.
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

        return blake2b(
            repr((self.kinds, self.start, self.needs, numbers)).encode(),
            digest_size=16,
        ).digest()

    @cached_property
    def pods(self) -> range:
        """The kinds that are pods."""
        return range(sum(1 for kind in self.kinds if kind.layer < 0))

    @cached_property
    def opening(self) -> tuple[tuple[int, ...], ...]:
        """By layer: the kinds that start at the beginning of the layer's blocks."""
        return tuple(
            tuple(t for t, kind in enumerate(self.kinds) if kind.layer == layer)
            for layer in range(self.layers)
        )

    @cached_property
    def opening_alone(self) -> tuple[tuple[bool, ...], ...]:
        """By layer: which of the kinds that start there are `alone`."""
        result = []
        for kinds in self.opening:
            result.append(tuple(self.kinds[t].alone for t in kinds))

        return tuple(result)

    @cached_property
    def opening_needs(self) -> tuple[tuple[int, ...], ...]:
        """By layer: the gang towards whose need each kind that starts there counts, -1 for none."""
        needs = []
        for kind in self.kinds:
            needs.append(kind.gang if kind.home < 0 else -1)

        result = []
        for kinds in self.opening:
            result.append(tuple(needs[t] for t in kinds))

        return tuple(result)

    @cached_property
    def layers(self) -> int:
        """Number of layers of blocks."""
        return 1 + max([step.layer for step in self.steps], default=-1)

    @cached_property
    def free_kinds(self) -> tuple[tuple[int, ...], ...]:
        """By gang: the kinds that count towards its need."""
        return tuple(
            tuple(t for t, kind in enumerate(self.kinds) if kind.home < 0 and kind.gang == gang)
            for gang in range(len(self.needs))
        )

    @cached_property
    def bound_kinds(self) -> tuple[tuple[int, ...], ...]:
        """For each layer, the kinds whose pieces must all be placed in the current block."""
        return tuple(
            tuple(t for t, kind in enumerate(self.kinds) if kind.home == layer)
            for layer in range(self.layers)
        )

    @cached_property
    def alone(self) -> tuple[int, ...]:
        """The kinds that are `alone`: a block can contain one piece of them in total."""
        result = []
        for t, kind in enumerate(self.kinds):
            if kind.alone:
                result.append(t)

        return tuple(result)

    @cached_property
    def blocks_after(self) -> list[list[int]]:
        """`blocks_after[step][0]`: number of blocks from that step on in which an `alone` piece
        fits.
        """
        takes = []
        for step in self.steps:
            takes.append([int(any(step.room[t] for t in self.alone))])

        return _sums_after(np.array(takes, dtype=np.int64).reshape(len(self.steps), 1))

    @cached_property
    def ends(self) -> tuple[tuple[int, ...], ...]:
        """`ends[step][layer]`: end of the block of that layer in which the step is."""
        found: list[tuple[int, ...]] = []
        last = [len(self.steps)] * self.layers

        for position in range(len(self.steps) - 1, -1, -1):
            found.append(tuple(last))
            layer = self.steps[position].layer
            if layer >= 0:
                last[layer:] = [position] * (self.layers - layer)

        return (*found[::-1], tuple([len(self.steps)] * self.layers))

    @cached_property
    def rows(self) -> tuple[tuple[int, int], ...]:
        """Resources and amounts used to refute by totals: at most ⌊free/amount⌋ pieces fit per
        node.
        """
        asked = set()
        for t in self.pods:
            for r, a in enumerate(self.kinds[t].asks):
                if a:
                    asked.add((r, a))

        return tuple(sorted({*asked, *((r, 1) for r, _ in asked)}))

    @cached_property
    def weights(self) -> tuple[Amounts, ...]:
        """`weights[row][kind]`: the amount of a row that one piece uses."""
        weights = []
        for r, a in self.rows:
            weights.append(self._weights(r, a))

        return tuple(weights)

    def _weights(self, r: int, a: int) -> Amounts:
        known: dict[int, int] = {}
        for t in sorted(
            range(len(self.kinds)),
            key=lambda t: (self.kinds[t].layer < 0, self.kinds[t].layer),
        )[::-1]:
            kind = self.kinds[t]
            known[t] = (
                kind.asks[r] // a
                if kind.layer < 0
                else sum(known[part] * n for part, n in kind.parts)
            )

        return tuple(known[t] for t in range(len(self.kinds)))

    @cached_property
    def cheapest(self) -> tuple[tuple[tuple[int, ...], ...], ...]:
        """`cheapest[row][gang]`: kinds of the gang, ordered by the amount of the row that
        they use.
        """
        return tuple(
            tuple(tuple(sorted(kinds, key=lambda t: (weight[t], t))) for kinds in self.free_kinds)
            for weight in self.weights
        )

    @cached_property
    def row_after(self) -> list[list[int]]:
        """`row_after[step][row]`: the total of a row over that step and all later ones."""
        width = len(self.kinds[0].asks)
        free = np.array([step.free or (0,) * width for step in self.steps], dtype=np.int64).reshape(
            len(self.steps),
            width,
        )
        have = []
        for r, a in self.rows:
            have.append(free[:, r] // a)

        return _sums_after(
            np.array(have, dtype=np.int64).reshape(len(self.rows), len(self.steps)).T
        )

    @cached_property
    def room_after(self) -> list[list[int]]:
        """`room_after[step][kind]`: number of pieces that fit from that step on, if no other kind
        is placed.
        """
        rooms = np.array([step.room for step in self.steps], dtype=np.int64)
        return _sums_after(rooms.reshape(len(self.steps), len(self.kinds)))

    @cached_property
    def is_whole(self) -> bool:
        """True if every piece is needed and none is a slice. Comparing totals once is
        then enough.
        """
        is_all = all(
            need == sum(self.start[t] for t in kinds)
            for need, kinds in zip(self.needs, self.free_kinds, strict=True)
        )
        if not is_all:
            return False

        return all(kind.layer < 0 and kind.home < 0 for kind in self.kinds)

    @cached_property
    def whole_weights(self) -> tuple[int, ...]:
        """By kind, the amounts that one piece uses of all rows and of its own room, packed into one
        number.
        """
        rows = [
            *self.weights,
            *([int(t == own) for t in range(len(self.kinds))] for own in range(len(self.kinds))),
        ]
        weights = []
        for t in range(len(self.kinds)):
            weights.append(_side_by_side(row[t] for row in rows))

        return tuple(weights)

    @cached_property
    def signs(self) -> int:
        """The sign bits in these packed totals; a bit is set once the total of its row
        is negative.
        """
        return _side_by_side([1 << (SUM_BITS - 1)] * (len(self.weights) + len(self.kinds)))

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
            result.append(need - sum(self.start[t] - left[t] for t in kinds))

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

        if self.alone and sum(left[t] for t in self.alone) > self.blocks_after[step][0]:
            return True

        rooms = self.room_after[step]
        ends = self.ends[step]
        return self._lacks_places(left, lack, rooms, ends) or self._lacks_amounts(
            step,
            left,
            lack,
            rooms,
            ends,
        )

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
            if lack[gang] > 0 and sum(min(left[t], rooms[t]) for t in kinds) < lack[gang]:
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


@dataclass(slots=True)
class _Frame:
    """One choice on the way: what was left before it, the bound by an equal neighbour, and the
    choice under way.
    """

    step: int
    left: Pattern
    above: Pattern
    #: By gang: pieces that it still needs.
    lack: Sequence[int]
    choice: Pattern | None = None


@dataclass(slots=True)
class Packing:
    """A search in progress, which has numbers only; `found` is None until it ends. `is_used`: reuse
    its result.
    """

    problem: PackingProblem
    found: bool | None = None
    choices: int = 0
    is_used: bool = False
    _stack: list[_Frame] = field(default_factory=list)
    _dead: set[tuple[int, Pattern, Pattern]] = field(default_factory=set)
    _cost: int = 0
    _known: dict[tuple[Pattern, Amounts, Pattern, bool], Pattern | None] = field(
        default_factory=dict
    )

    def __post_init__(self) -> None:
        """Begin with everything unplaced."""
        self._cost = STEP_UNITS + len(self.problem.weights) * len(self.problem.kinds) // 12
        entered = self._enter(0, self.problem.start, ())
        if isinstance(entered, bool):
            self.found = entered
        else:
            self._stack.append(entered)

    def run(self, work: Work, most: float = inf) -> bool | None:
        """Whether there is a packing; None after `most` choices. Raises OutOfWork; the next call
        continues.
        """
        problem = self.problem
        stack = self._stack
        begun = self.choices

        while self.found is None:
            if self.choices - begun >= most:
                return None

            frame = stack[-1]
            # Charged before the choice changes: one that was not followed to its end must not count
            # as refuted.
            work.charge(self._cost)
            self.choices += 1
            step = problem.steps[frame.step]

            choice = self._next(step, frame, work)
            if choice is None:
                self._dead.add((frame.step, frame.left, frame.above))
                stack.pop()

                if not stack:
                    self.found = False

                continue

            frame.choice = choice
            entered = self._enter(
                frame.step + 1,
                self._rest(step, frame.left, choice),
                self._bound(frame, choice),
            )
            if isinstance(entered, _Frame):
                stack.append(entered)
            elif entered:
                self.found = True

        return self.found

    @property
    def chosen(self) -> list[tuple[Step, Pattern]]:
        """The choices of the solution, in order."""
        result: list[tuple[Step, Pattern]] = []
        for frame in self._stack:
            if frame.choice is not None:
                result.append((self.problem.steps[frame.step], frame.choice))

        return result

    def _bound(self, frame: _Frame, choice: Pattern) -> Pattern:
        """The choice that bounds the next step, if that step is an equal node."""
        steps = self.problem.steps
        following = frame.step + 1
        this = steps[frame.step]

        is_like = following < len(steps) and this.layer < 0 and steps[following].layer < 0
        if is_like and steps[following].like == this.like:
            return choice

        return ()

    def _enter(
        self,
        position: int,
        left: Pattern,
        above: Pattern,
    ) -> _Frame | bool:
        """The choice at `position`; True if nothing is left to place, False if that is refuted."""
        problem = self.problem
        steps = problem.steps

        lack = problem.lacking(left)
        if not any(each > 0 for each in lack) and not any(
            left[t] for kinds in problem.bound_kinds for t in kinds
        ):
            return True

        while position < len(steps):
            step = steps[position]
            if step.layer >= 0:
                if any(left[t] for kinds in problem.bound_kinds[step.layer :] for t in kinds):
                    return False  # the block before ends here

                above = self._block_before(step)

            if any(map(min, left, step.room)):
                break

            position = position + 1
            above = ()

        if position == len(steps) or (position, left, above) in self._dead:
            return False
        if problem.hopeless(position, left, lack):
            return False

        return _Frame(position, left, above, lack)

    def _block_before(self, step: Step) -> Pattern:
        """The choice of an equal block right before this one; empty if there is none."""
        for frame in reversed(self._stack):
            before = self.problem.steps[frame.step]
            if before.layer >= 0 and before.layer <= step.layer:
                is_equal = (before.layer, before.like) == (step.layer, step.like)
                if not is_equal:
                    return ()

                return frame.choice or ()

        return ()

    def _rest(
        self,
        step: Step,
        left: Pattern,
        choice: Pattern,
    ) -> Pattern:
        """The members left after a choice; the parts of opened slices are left to be placed."""
        rest = list(left)
        if step.layer < 0:
            for t, count in enumerate(choice):
                rest[t] -= count

            return tuple(rest)

        for t, count in zip(self.problem.opening[step.layer], choice, strict=True):
            rest[t] -= count
            for part, number in self.problem.kinds[t].parts:
                rest[part] += count * number

        return tuple(rest)

    def _next(
        self,
        step: Step,
        frame: _Frame,
        work: Work,
    ) -> Pattern | None:
        """The choice after the present one, in falling order; None after the last. Raises
        OutOfWork.
        """
        if step.layer < 0:
            return self._next_full(step, frame, work)

        kinds = self.problem.opening[step.layer]
        limits = OpeningLimits(
            most=tuple(min(frame.left[t], step.room[t]) for t in kinds),
            alone=self.problem.opening_alone[step.layer],
            needs=self.problem.opening_needs[step.layer],
            lack=frame.lack,
        )

        if frame.choice is None:
            return first_opening(limits, frame.above)

        return next_opening(frame.choice, limits)

    def _next_full(
        self,
        step: Step,
        frame: _Frame,
        work: Work,
    ) -> Pattern | None:
        """The next counts of pods for a node to which no pod can be added. Raises OutOfWork, having
        come further.
        """
        limits = tuple(map(min, frame.left, step.room))[: len(self.problem.pods)]
        asked = (
            limits,
            step.free,
            frame.above if frame.choice is None else frame.choice,
            frame.choice is None,
        )
        if asked in self._known:
            return self._known[asked]

        pattern = self._next_pattern(limits, step.free, frame)
        while pattern is not None and self._takes_more(limits, step.free, pattern):
            work.charge(self._cost)
            frame.choice = pattern
            pattern = self._next_pattern(limits, step.free, frame)

        if len(self._known) < MOST_KNOWN:
            self._known[asked] = pattern

        return pattern

    def _next_pattern(
        self,
        limits: Pattern,
        has: Amounts,
        frame: _Frame,
    ) -> Pattern | None:
        """The next counts of pods for a node: of the last kind that it takes always as many
        as fit.
        """
        kinds = self.problem.pods
        free = list(has)
        counts = [0] * len(limits)
        start = 0
        bound = frame.above

        if frame.choice is not None:
            last = max((t for t in kinds if limits[t]), default=0)
            start = next((t for t in range(last - 1, -1, -1) if frame.choice[t]), -1)
            if start < 0:
                return None

            counts[: start + 1] = frame.choice[: start + 1]
            counts[start] -= 1
            for t in range(start + 1):
                if counts[t]:
                    free = [
                        f - counts[t] * a
                        for f, a in zip(free, self.problem.kinds[t].asks, strict=True)
                    ]

            start = start + 1
            bound = ()  # one less in one place is below the bound whatever follows

        for t in range(start, len(limits)):
            if limits[t]:
                asks = self.problem.kinds[t].asks
                most = min([limits[t], *(f // a for f, a in zip(free, asks, strict=True) if a)])

                if bound:
                    most = min(most, bound[t])

                counts[t] = most
                if most:
                    free = [f - most * a for f, a in zip(free, asks, strict=True)]

            if bound and counts[t] < bound[t]:
                bound = ()

        return tuple(counts)

    def _takes_more(
        self,
        limits: Pattern,
        has: Amounts,
        pattern: Pattern,
    ) -> bool:
        """Whether one more pod of any kind would fit."""
        free = list(has)
        kinds = self.problem.kinds

        for t, count in enumerate(pattern):
            if count:
                free = [f - count * a for f, a in zip(free, kinds[t].asks, strict=True)]

        return any(
            count < limits[t] and all(a <= f for a, f in zip(kinds[t].asks, free, strict=True))
            for t, count in enumerate(pattern)
        )


def _sums_after(values: Ints) -> list[list[int]]:
    """`sums[i]` of the rows from `i` on; one more than there are rows."""
    sums = np.zeros((len(values) + 1, values.shape[1]), dtype=np.int64)
    sums[:-1] = np.cumsum(values[::-1], axis=0)[::-1]
    found: list[list[int]] = sums.tolist()

    return found


def _side_by_side(sums: Iterable[int]) -> int:
    """These sums in one number, `SUM_BITS` each."""
    return sum(amount << (SUM_BITS * place) for place, amount in enumerate(sums))
