"""PodDisruptionBudgets: the number of disruptions that each one still allows (V7).

Invariant: a budget is charged for all units of a decision, and for all decisions in progress whose
evictions the API server has not counted yet. Pods in phase Pending do not count against a budget,
as in the eviction API.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from gangsched.core.work import Work
from gangsched.model.objects import Phase
from gangsched.model.preemption import Running


class Budgets:
    """PodDisruptionBudgets of the running pods.

    `covering[i]` are the budgets of pod `i`, if any; `left[b]` is the number of disruptions that
    budget `b` still allows.
    """

    def __init__(self, running: Running) -> None:
        """Read the budgets as the API server reports them, less the evictions in progress."""
        index = {}
        if running.budgets:
            index = {pod.pod.uid: i for i, pod in enumerate(running.pods)}

        self.keys = [budget.key for budget in running.budgets]
        self.left = [budget.allowed for budget in running.budgets]
        covering: dict[int, tuple[int, ...]] = {}

        for b, budget in enumerate(running.budgets):
            for uid in budget.uids:
                i = index.get(uid)
                if i is None:
                    continue

                covered = running.pods[i]
                if covered.pod.phase is Phase.PENDING:
                    continue
                if covered.pod.deleting:
                    continue  # the API server has counted it

                if covered.leaving:
                    self.left[b] -= 1
                    continue

                covering[i] = (*covering.get(i, ()), b)

        self.covering: Mapping[int, tuple[int, ...]] = covering

    def asked(self, pods: Iterable[int]) -> Counter[int]:
        """Number of `pods` that each budget covers."""
        return Counter(b for i in pods for b in self.covering.get(i, ()))

    def broken(self, pods: Iterable[int]) -> list[int]:
        """Budgets that evicting all these pods would violate."""
        result: list[int] = []
        for b, number in self.asked(pods).items():
            if number > max(0, self.left[b]):
                result.append(b)

        return result

    def most_broken(self, pods: Iterable[int]) -> tuple[str, int, int] | None:
        """The budget that evicting all these pods would exceed by most, as (key, allowed
        disruptions, needed disruptions). None if none is exceeded.
        """
        asked = self.asked(pods)
        left = self.left
        broken = []
        for b in self.broken(pods):
            broken.append((asked[b] - left[b], self.keys[b], left[b], asked[b]))

        if not broken:
            return None

        return max(broken)[1:]

    def spend(self, pods: Iterable[int]) -> None:
        """Charge the budgets for these victims."""
        for b, number in self.asked(pods).items():
            self.left[b] -= number

    def admit(
        self,
        units: Sequence[int],
        pods_of: Callable[[Sequence[int]], Sequence[int]],
        first_core: int,
        work: Work,
    ) -> list[int]:
        """The units that may be evicted together, tried in this order; a unit that would violate a
        budget is skipped.

        A pod shared by two units counts once. Units below `first_core` are single pods. Raises
        OutOfWork.
        """
        work.charge(len(units) // 4)
        asked: Counter[int] = Counter()
        taken: set[int] = set()
        admitted = []
        covering = self.covering
        left = self.left

        for unit in units:
            budgets = None
            if unit < first_core:
                budgets = covering.get(unit, ())

            # Nearly all are such pods. No call is made for them: for each of 20,000 it would take a
            # millisecond.
            if budgets is not None and len(budgets) < 2:
                if budgets and unit not in taken:
                    budget = budgets[0]
                    if asked[budget] >= left[budget]:
                        continue

                    asked[budget] += 1
                    taken.add(unit)

                admitted.append(unit)
                continue

            pods = pods_of((unit,))
            work.charge(4 + len(pods) // 2)
            new = []
            for i in pods:
                if i in covering and i not in taken:
                    new.append(i)

            more = self.asked(new)
            if all(asked[b] + number <= left[b] for b, number in more.items()):
                asked += more
                taken.update(new)
                admitted.append(unit)

        return admitted
