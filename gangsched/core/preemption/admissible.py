"""Which units go together within the budgets, where the order of their prices finds too few of them
(V6, V7).

A budget, and what a gang has above its minimum, let some of several pods go. The usual order takes
the cheapest of them, though only dearer ones may free room where it is needed. Here every choice is
tried, with a bound on their number.

Invariant: a set that is returned suffices by totals, breaks no budget, and takes no more of a gang
than it has above its minimum. None says nothing: the bound may have been reached.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from gangsched.core.preemption.numbers import by_gang
from gangsched.core.preemption.units import Units
from gangsched.model.snapshot import Bools, Ints

MOST_TRIALS = 64
"""Sets that are compared with the room of a region, in all regions and priorities of one
attempt.
"""
MOST_LIMITED = 24
"""Units of which not all may go; with more of them, no choice but the usual one is tried."""


@dataclass(eq=False)
class Trials:
    """How many sets one attempt has compared."""

    left: int = MOST_TRIALS


@dataclass(frozen=True, slots=True)
class _Limits:
    """What may still go: by budget, and by gang of those above its minimum."""

    budgets: Counter[int]
    gangs: Counter[int]
    #: The covered pods of units that go.
    pods: frozenset[int] = frozenset()


@dataclass(eq=False)
class AdmissibleSets:
    """A search for the first set of units without whose pods there is `enough` room."""

    units: Units
    enough: Callable[[Bools], bool]
    trials: Trials
    #: The pods of all units that nothing limits.
    _unlimited: Bools = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    _covered: dict[int, frozenset[int]] = field(default_factory=dict)

    def first(self, ordered: Ints) -> Ints | None:
        """The first set of these units; None if there is none, or if it is not known."""
        is_limited = self._are_limited(ordered)
        limited = ordered[is_limited].tolist()
        if not limited or len(limited) > MOST_LIMITED:
            return None

        others = self.units.pods_of(ordered[~is_limited].tolist())
        self._unlimited = self.units.columns.mask(others)

        limits = self._limits()
        possible = self._possible(limited, limits)
        if not self._suffice(possible):
            return None

        chosen = self._choose([], possible, limits)
        if chosen is None:
            return None

        goes = ~is_limited | np.isin(ordered, chosen)
        return ordered[goes]

    def _choose(
        self,
        taken: list[int],
        possible: Sequence[int],
        limits: _Limits,
    ) -> list[int] | None:
        """Those that are `taken`, with as many of the `possible` ones as suffice and may go: the
        first of them goes, or else it stays.
        """
        if not possible:
            return taken

        first, *others = possible
        after = self._after(first, limits)
        beside = self._possible(others, after)
        goes = [*taken, first]

        # If nothing else has to stay for it, that is no less than before.
        if beside == others or self._suffice([*goes, *beside]):
            chosen = self._choose(goes, beside, after)
            if chosen is not None:
                return chosen

        if not self._suffice([*taken, *others]):
            return None

        return self._choose(taken, others, limits)

    def _suffice(self, units: Sequence[int]) -> bool:
        if self.trials.left <= 0:
            return False

        self.trials.left -= 1
        gone = self._unlimited.copy()
        gone[self.units.pods_of(units)] = True
        return self.enough(gone)

    def _are_limited(self, ordered: Ints) -> Bools:
        """By unit whether a budget covers pods of it, or it is one of more members of a gang than
        that has above its minimum.
        """
        units = self.units
        columns = units.columns
        covered = columns.mask(list(columns.budgets.covering))

        singles = ordered[ordered < units.first_core]
        gangs = columns.gang[singles[columns.in_gang[singles]]]
        members = np.bincount(gangs, minlength=len(columns.gangs))
        is_one_of_more = by_gang(members > units.surplus, columns.gang)

        of_pods = covered | is_one_of_more
        of_cores = units.cores.totals(covered.astype(np.int64)) > 0
        by_unit = np.concatenate((of_pods, of_cores))
        limited: Bools = by_unit[ordered]
        return limited

    def _limits(self) -> _Limits:
        budgets = self.units.columns.budgets.left
        surplus = self.units.surplus.tolist()
        return _Limits(
            Counter(dict(enumerate(budgets))),
            Counter(dict(enumerate(surplus))),
        )

    def _possible(
        self,
        limited: Sequence[int],
        limits: _Limits,
    ) -> list[int]:
        """The units that may go by themselves beside what goes already."""
        return [unit for unit in limited if self._may_go(unit, limits)]

    def _may_go(self, unit: int, limits: _Limits) -> bool:
        gang = self._gang(unit)
        if gang is not None and limits.gangs[gang] <= 0:
            return False

        asked = self._asked(unit, limits)
        return all(number <= limits.budgets[budget] for budget, number in asked.items())

    def _after(self, unit: int, limits: _Limits) -> _Limits:
        """What may still go once the unit does."""
        budgets = limits.budgets.copy()
        budgets.subtract(self._asked(unit, limits))

        gangs = limits.gangs.copy()
        gang = self._gang(unit)
        if gang is not None:
            gangs[gang] -= 1

        pods = limits.pods | self._covered_by(unit)
        return _Limits(budgets, gangs, pods)

    def _asked(self, unit: int, limits: _Limits) -> Counter[int]:
        """What the unit takes of each budget; a pod that goes already takes nothing more."""
        pods = self._covered_by(unit) - limits.pods
        return self.units.columns.budgets.asked(pods)

    def _covered_by(self, unit: int) -> frozenset[int]:
        """The pods of a unit that budgets cover."""
        if unit not in self._covered:
            covering = self.units.columns.budgets.covering
            pods = self.units.pods_of([unit])
            self._covered[unit] = frozenset(pod for pod in pods if pod in covering)

        return self._covered[unit]

    def _gang(self, unit: int) -> int | None:
        """The gang of a single member; None for a plain pod or a core."""
        columns = self.units.columns
        if unit >= self.units.first_core or not columns.in_gang[unit]:
            return None

        return int(columns.gang[unit])
