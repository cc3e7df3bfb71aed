"""PodDisruptionBudgets by namespace.

Invariant: while they are not listed or cannot be read, `snapshot` is None and no pod may be
evicted, since an eviction could violate an unknown budget. The API server counts disruptions in the
status of each budget.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from gangsched.model.disruption import PodDisruptionBudget

Budgets: TypeAlias = Mapping[str, tuple[PodDisruptionBudget, ...]]
"""The budgets of each namespace that has any, in the order of their names."""


class DisruptionBudgets:
    """Known PodDisruptionBudgets; call `apply`, `drop`, `replace` and `miss` for messages of the
    watch.
    """

    def __init__(self) -> None:
        self._readable = False
        self._known: defaultdict[str, dict[str, PodDisruptionBudget]] = defaultdict(dict)
        self._snapshot: dict[str, tuple[PodDisruptionBudget, ...]] = {}

        # Namespaces that the snapshot shows as they were, since a wave of deletions updates a
        # budget with each pod.
        self._stale: set[str] = set()
        self._changed = False

    def snapshot(self) -> Budgets | None:
        """Current budgets, the same object until one changes; None while they cannot be read."""
        if self._stale:
            shown = {**self._snapshot}
            for namespace in self._stale:
                shown.pop(namespace, None)
                if budgets := self._known.get(namespace):
                    shown[namespace] = tuple(budgets[key] for key in sorted(budgets))

            self._snapshot = shown
            self._stale.clear()

        return self._snapshot if self._readable else None

    def take_changed(self) -> bool:
        """Whether a budget changed since the last call, which may allow a preemption."""
        changed = self._changed
        self._changed = False
        return changed

    def apply(self, budget: PodDisruptionBudget) -> None:
        """Add or update a budget."""
        known = self._known[budget.namespace]
        if known.get(budget.key) != budget:
            known[budget.key] = budget
            self._touch(budget.namespace)

    def drop(self, key: str) -> None:
        """Remove a deleted budget."""
        namespace = key.partition("/")[0]
        if self._known[namespace].pop(key, None) is not None:
            self._touch(namespace)

    def replace(self, budgets: Iterable[PodDisruptionBudget]) -> None:
        """Replace all budgets; from then on they can be read."""
        listed = {budget.key: budget for budget in budgets}
        gone: list[str] = []
        for known in self._known.values():
            gone += [key for key in known if key not in listed]

        for key in gone:
            self.drop(key)

        for budget in listed.values():
            self.apply(budget)

        # Budgets that can be read again allow what was refused without knowing them.
        self._changed |= not self._readable
        self._readable = True

    def miss(self) -> None:
        """Record that budgets cannot be read."""
        self._changed |= self._readable
        self._readable = False

    def _touch(self, namespace: str) -> None:
        self._stale.add(namespace)
        self._changed = True
