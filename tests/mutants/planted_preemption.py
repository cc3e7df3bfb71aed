"""Bugs planted in `core.preemption`."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

UNIT = "tests/unit/core/preemption"

PREEMPTION = (
    Mutant(
        "victims that are not needed are evicted all the same",
        "V9",
        "core/preemption/selection.py",
        "            if tally.give_back(",
        "            if unit < 0 and tally.give_back(",
        UNIT,
    ),
    Mutant(
        "a PodDisruptionBudget counts for each unit by itself",
        "V7",
        "core/preemption/budgets.py",
        "                asked += more\n",
        "                asked = Counter()\n",
        UNIT,
    ),
    Mutant(
        "nominated members take no room on the ledger",
        "V10",
        "core/preemption/plan_preemptions.py",
        "self.ledger.move(((each.pod, each.node) for each in found.placements), 1)",
        "self.ledger.move((), 1)",
        UNIT,
    ),
    Mutant(
        "one member lends its priority to all",
        "V2",
        "core/preemption/preemptor.py",
        "right = min(pod.priority for pod in pods)",
        "right = max(pod.priority for pod in pods)",
        UNIT,
    ),
    Mutant(
        "a gang is taken below its minimum",
        "V6",
        "core/preemption/units.py",
        "members = members[place < self.surplus[gangs]]",
        "members = members[place <= self.surplus[gangs]]",
        UNIT,
    ),
)
