"""Which running pods PodDisruptionBudgets cover, computed in bounded steps (semantics V7).

Invariant: one call compares a bounded number of pods with budgets; a result stays valid until that pod or budget
changes. Without this limit, a namespace with 1,000 budgets over 2,500 pods took 1.2 s of one plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from gangsched.model.disruption import PodDisruptionBudget
from gangsched.model.preemption import Budget, RunningPod
from gangsched.state.preemption.disruption_budgets import Budgets

COMPARED_PER_LOOK, COMPARED_BESIDE_A_DECISION = 8_000, 1_000
"""Comparisons of one look, a unit of work each; a plan whose look made more decides nothing."""
MOST_BUDGETS_PER_POD = 2
"""The eviction API evicts no pod under more than one budget, however many they are."""


class CoveredPods:
    """Call `follow` for changes, `read` until it returns True, and then `of`.

    `compared` counts comparisons.
    """

    def __init__(self) -> None:
        self.compared = 0
        self._budgets: Budgets = {}
        # By namespace, then by uid.
        self._pods: dict[str, dict[str, RunningPod]] = {}
        # Both directions: keys of budgets by uid, and uids by the key of a budget.
        self._covering: dict[str, tuple[str, ...]] = {}
        self._covered: dict[str, set[str]] = {}
        # Cache of `_covered` for plan inputs, which must not change; an entry is dropped when its budget's pods change.
        self._frozen: dict[str, frozenset[str]] = {}
        # What is left to compare: pods with all budgets, and budgets each with some pods.
        self._new_pods: dict[str, RunningPod] = {}
        self._new_budgets: dict[str, tuple[PodDisruptionBudget, list[RunningPod]]] = {}

    def __len__(self) -> int:
        """Pods that are followed."""
        return sum(map(len, self._pods.values()))

    def follow(self, before: RunningPod | None, now: RunningPod | None) -> None:
        """Record that a pod runs, has changed, or is gone."""
        if before is not None and (now is None or not _is_alike(before, now)):
            self._uncover(before.pod.uid)
            pods = self._pods[before.pod.namespace]
            pods.pop(before.pod.uid, None)
            if not pods:
                del self._pods[before.pod.namespace]
            self._new_pods.pop(before.pod.uid, None)
        if now is not None and (before is None or not _is_alike(before, now)):
            self._pods.setdefault(now.pod.namespace, {})[now.pod.uid] = now
            if now.pod.namespace in self._budgets:
                self._new_pods[now.pod.uid] = now

    def read(self, budgets: Budgets, most: int = COMPARED_PER_LOOK) -> bool:
        """Compare some of the remaining pods with these budgets, `most` times at most; return whether none remains and
        this call compared only a few, so that the turn has time for a decision.
        """
        # By identity: `DisruptionBudgets.snapshot` is one object, and one tuple per namespace, until something changes.
        if budgets is not self._budgets:
            for namespace in self._budgets.keys() | budgets.keys():
                if self._budgets.get(namespace) is not budgets.get(namespace):
                    self._list(self._budgets.get(namespace, ()), budgets.get(namespace, ()))
            self._budgets = budgets
        before, until = self.compared, self.compared + most
        while self._new_budgets and self.compared < until:
            key, (budget, pods) = next(iter(self._new_budgets.items()))
            for _ in range(min(len(pods), until - self.compared)):
                self._compare(pods.pop(), (budget,))
            if not pods:
                del self._new_budgets[key]
        while self._new_pods and self.compared < until:
            uid = next(iter(self._new_pods))
            pod = self._new_pods.pop(uid)
            self._compare(pod, budgets.get(pod.pod.namespace, ()))
        is_all = not self._new_budgets and not self._new_pods
        return is_all and self.compared - before <= COMPARED_BESIDE_A_DECISION

    def of(self, budgets: Budgets) -> Iterator[Budget]:
        """Yield the budgets that cover a pod, each with its pods."""
        for budget in (each for listed in budgets.values() for each in listed):
            uids = self._covered.get(budget.key)
            if uids:
                if budget.key not in self._frozen:
                    self._frozen[budget.key] = frozenset(uids)
                yield Budget(budget.key, budget.allowed, self._frozen[budget.key])

    def _list(self, before: Iterable[PodDisruptionBudget], now: Iterable[PodDisruptionBudget]) -> None:
        """The budgets of a namespace have changed; one of which only the status has is compared with nothing."""
        old: Mapping[str, PodDisruptionBudget] = {each.key: each for each in before}
        new: Mapping[str, PodDisruptionBudget] = {each.key: each for each in now}
        for key, budget in old.items():
            if key not in new or new[key].selector != budget.selector:
                self._forget(key)
        for key, budget in new.items():
            if key not in old or old[key].selector != budget.selector:
                self._new_budgets[key] = budget, list(self._pods.get(budget.namespace, {}).values())

    def _forget(self, key: str) -> None:
        """A budget is gone; pods that it covered may be under others that were not kept."""
        self._new_budgets.pop(key, None)
        self._frozen.pop(key, None)
        namespace = key.partition("/")[0]
        for uid in self._covered.pop(key, ()):
            keys = self._covering.pop(uid)
            # It was compared only until it had as many; a budget behind these may cover it, too.
            if len(keys) == MOST_BUDGETS_PER_POD:
                self._new_pods[uid] = self._pods[namespace][uid]
            if rest := tuple(each for each in keys if each != key):
                self._covering[uid] = rest

    def _uncover(self, uid: str) -> None:
        for key in self._covering.pop(uid, ()):
            self._covered[key].discard(uid)
            self._frozen.pop(key, None)

    def _compare(self, running: RunningPod, budgets: Iterable[PodDisruptionBudget]) -> None:
        pod = running.pod
        if self._pods.get(pod.namespace, {}).get(pod.uid) is not running:
            # It has gone or changed since; if it changed, it is among the new pods.
            return
        for budget in budgets:
            keys = self._covering.get(pod.uid, ())
            if len(keys) == MOST_BUDGETS_PER_POD:
                return
            self.compared += 1
            if budget.key not in keys and budget.covers(pod):
                self._covering[pod.uid] = (*keys, budget.key)
                self._covered.setdefault(budget.key, set()).add(pod.uid)
                self._frozen.pop(budget.key, None)


def _is_alike(one: RunningPod, other: RunningPod) -> bool:
    """Whether budgets cannot tell them apart."""
    return one.pod.namespace == other.pod.namespace and one.pod.labels == other.pod.labels
