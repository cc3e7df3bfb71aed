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

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

from gangsched.core.search.openings import OpeningLimits, first_opening, next_opening
from gangsched.core.search.packing_problem import Amounts, PackingProblem, Pattern, Step
from gangsched.core.work import Work

STEP_UNITS = 12
MOST_KNOWN = 20_000
"""Successors of patterns that one search remembers; nodes alike ask for the same ones again and
again.
"""


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
