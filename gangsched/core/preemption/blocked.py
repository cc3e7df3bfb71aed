"""Proofs that PodDisruptionBudgets leave no choice of victims (V21).

Invariant: a proof relaxes the rules, so it holds for every set of victims that they allow. Without
one, another choice may exist that the search did not find.
"""

from __future__ import annotations

import numpy as np

from gangsched.core.preemption.regions import Regions
from gangsched.core.preemption.units import Units
from gangsched.model.snapshot import Bools

PODS_A_UNIT = 16
"""Running pods that are examined for one unit of work."""


def is_blocked(regions: Regions, level: int) -> bool:
    """Whether no pods of at most priority `level` that the budgets let go free enough room; False
    if that is not known.
    """
    columns = regions.columns
    work = regions.everywhere.sums.work
    cost = len(columns.running) // PODS_A_UNIT
    if work.left <= cost:
        return False

    work.charge(cost)
    may_go = _let_go(regions.units, level)
    if not regions.has_room_without(may_go):
        return True

    budgets = range(len(columns.budgets.left))
    return any(_is_short(regions, may_go, budget) for budget in budgets)


def _let_go(units: Units, level: int) -> Bools:
    """The pods that some unit evicts which violates no budget by itself."""
    columns = units.columns
    budgets = columns.budgets
    may_go = units.could_go(level)

    used_up = set()
    for budget, left in enumerate(budgets.left):
        if left <= 0:
            used_up.add(budget)

    for pod, covering in budgets.covering.items():
        if not used_up.isdisjoint(covering):
            may_go[pod] = False

    covered = columns.mask(list(budgets.covering))
    for core in units.cores.among(covered).tolist():
        members = units.cores.members(core)
        if budgets.broken(members):
            # Members above a minimum also go one by one.
            for pod in members:
                if not units.single[pod]:
                    may_go[pod] = False

    return may_go


def _is_short(regions: Regions, may_go: Bools, budget: int) -> bool:
    """Whether the totals are too small although all pods that the budget does not cover are gone,
    and of the others the largest, as many as it allows.
    """
    columns = regions.columns
    region = regions.everywhere
    covered = []
    for pod, covering in columns.budgets.covering.items():
        if budget in covering and may_go[pod]:
            covered.append(pod)

    allowed = max(0, columns.budgets.left[budget])
    if len(covered) <= allowed:
        return False

    free = region.without(may_go & ~columns.mask(covered))
    eligible = region.sums.mask
    kept = len(covered) - allowed

    for row, requests in enumerate(region.requests):
        there = np.maximum(free[row][eligible], 0)
        largest = np.sort(requests[covered])[kept:]

        most = there.sum() + largest.sum()
        if most < region.sums.needed(row):
            return True

    return False
