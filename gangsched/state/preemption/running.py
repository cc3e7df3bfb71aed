"""Running pods and gangs as input of `core.preemption`, updated between plans (semantics V25).

Invariant: the first call builds the input; each later call costs what has changed since the last
one, and deleted pods and gangs are dropped at once. No decisions are made here: pods that can never
be victims are included, since refusals count them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from itertools import count, islice
from math import inf

from gangsched.core.preemption.columns import PodTableCache
from gangsched.model.disruption import PodDisruptionBudget
from gangsched.model.gang import Gang
from gangsched.model.preemption import Budget, Running, RunningGang, RunningPod
from gangsched.model.tree import composites_of, gangs_of
from gangsched.state.groups import Registry
from gangsched.state.member_store import MemberStore
from gangsched.state.members import UNDER_WAY, Member, State
from gangsched.state.preemption.disruption_budgets import Budgets

COMPARED_PER_LOOK = 8_000
COMPARED_BESIDE_A_DECISION = 1_000
"""Comparisons of one look, a unit of work each; a plan whose look made more decides nothing."""
MOST_BUDGETS_PER_POD = 2
"""The eviction API evicts no pod under more than one budget, however many they are."""


class CoveredPods:
    """Running pods that PodDisruptionBudgets cover (semantics V7): call `follow` for changes,
    `read` until it returns True, and then `of`.

    One call compares a bounded number of pods with budgets; a result stays valid until that pod or
    budget changes. Without this limit, a namespace with 1,000 budgets over 2,500 pods took 1.2 s of
    one plan. `compared` counts comparisons.
    """

    def __init__(self) -> None:
        self.compared = 0
        self._budgets: Budgets = {}

        # By namespace, then by uid.
        self._pods: dict[str, dict[str, RunningPod]] = {}
        # Both directions: keys of budgets by uid, and uids by the key of a budget.
        self._covering: dict[str, tuple[str, ...]] = {}
        self._covered: dict[str, set[str]] = {}

        # Cache of `_covered` for plan inputs, which must not change; an entry is dropped when its
        # budget's pods change.
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
        """Compare some of the remaining pods with these budgets, at most `most` times. True if no
        pod remains and this call compared so few that the turn has time for a decision.
        """
        # By identity: `DisruptionBudgets.snapshot` is one object, and one tuple per namespace,
        # until something changes.
        if budgets is not self._budgets:
            for namespace in self._budgets.keys() | budgets.keys():
                if self._budgets.get(namespace) is not budgets.get(namespace):
                    self._list(self._budgets.get(namespace, ()), budgets.get(namespace, ()))

            self._budgets = budgets

        before = self.compared
        until = self.compared + most
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
        for budget in (
            pod_disruption_budget for listed in budgets.values() for pod_disruption_budget in listed
        ):
            uids = self._covered.get(budget.key)
            if uids:
                if budget.key not in self._frozen:
                    self._frozen[budget.key] = frozenset(uids)

                yield Budget(budget.key, budget.allowed, self._frozen[budget.key])

    def _list(
        self,
        before: Iterable[PodDisruptionBudget],
        now: Iterable[PodDisruptionBudget],
    ) -> None:
        """The budgets of a namespace have changed; one of which only the status has is compared
        with nothing.
        """
        old: Mapping[str, PodDisruptionBudget] = {
            pod_disruption_budget.key: pod_disruption_budget for pod_disruption_budget in before
        }
        new: Mapping[str, PodDisruptionBudget] = {
            pod_disruption_budget.key: pod_disruption_budget for pod_disruption_budget in now
        }

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


RUNS = frozenset({State.BOUND, State.TERMINATING})
"""The states of members that may be victims, or are leaving already."""
LOOKS_A_PLAN = 3_000
UNITS_A_LOOK = 3
"""Pods of one look, and the units of work of each with its gang: the first look at 20,000 pods took
43 to 75 ms of one plan.
"""
LEAST_LOOKS = 500
LEAST_COMPARED = 1_000
"""However little work is left, so that each plan comes nearer to the end."""


class RunningPods:
    """All running pods; `looks` counts the pods read, for tests."""

    def __init__(self, members: MemberStore, registry: Registry) -> None:
        self.looks = 0
        self._members = members
        self._registry = registry
        self._pods: dict[str, RunningPod] = {}
        self._gangs: dict[str, tuple[Gang, RunningGang]] = {}
        self._leaving: set[str] = set()

        # Uids of pods that the next looks begin with, as one look reads a bounded number.
        self._behind: set[str] = set()
        self.covered = CoveredPods()

        # What plans keep of these pods; it depends on their marks alone.
        self.cache = PodTableCache()
        self._marks = count(1)
        members.when_gone(self._drop)

    def __len__(self) -> int:
        """Pods and gangs that are kept until the next look."""
        return len(self._pods) + len(self._gangs) + len(self._behind)

    def now(self, leaving: Set[str], budgets: Budgets, left: float = inf) -> Running:
        """Current input; `leaving` are the victims of nominations in progress.

        One call reads a bounded number of pods, or compares as many with budgets, and fewer if the
        plan has few units of work `left`. Until later calls have read the remaining pods, the
        result is not `whole`, and no decision may use it.
        """
        # None at the first call, when everything is read.
        changed = self._members.take_changed()
        self._behind |= self._members.uids() | self._pods.keys() if changed is None else changed
        self._behind |= (moved := leaving ^ self._leaving)
        self._leaving ^= moved
        stale = set(
            islice(self._behind, int(min(LOOKS_A_PLAN, max(LEAST_LOOKS, left // UNITS_A_LOOK))))
        )
        self._behind -= stale
        touched = self._look_at(stale, leaving)

        for gang_id, (view, running) in list(self._gangs.items()):
            if gang_id not in touched and self._is_stale(gang_id, view, running):
                touched.add(gang_id)

        for gang_id in touched:
            self._look_at_gang(gang_id)

        gangs = tuple(running for _, running in self._gangs.values())
        units = UNITS_A_LOOK * max(len(stale), len(touched))
        before = self.covered.compared
        most = int(min(COMPARED_PER_LOOK, max(LEAST_COMPARED, left - units)))
        is_whole = not self._behind and self.covered.read(budgets, most)
        units += self.covered.compared - before
        covered = tuple(self.covered.of(budgets)) if is_whole else ()

        return Running(tuple(self._pods.values()), gangs, covered, whole=is_whole, units=units)

    def forget(self, gang_ids: Set[str]) -> None:
        """Drop gangs that are gone."""
        for gang_id in gang_ids & self._gangs.keys():
            del self._gangs[gang_id]

    def _drop(self, uid: str) -> None:
        """A pod is gone. Its gang, if anything is left of it, has another view from now on."""
        self._behind.discard(uid)
        if (old := self._pods.pop(uid, None)) is not None:
            self.covered.follow(old, None)

    def _look_at(self, uids: Set[str], leaving: Set[str]) -> set[str]:
        """Bring these pods up to date; returns the gangs that they are or were of, "" for plain
        pods.
        """
        self.looks += len(uids)
        touched: set[str] = set()

        for uid in uids:
            old = self._pods.pop(uid, None)
            member = self._members.get(uid)
            now: RunningPod | None = None

            if old is not None:
                touched.add(old.gang)

            if member is not None:
                touched.add(member.gang)
                if member.state in RUNS:
                    goes = member.state is State.TERMINATING or uid in leaving
                    # A new mark for a changed pod, and its place at the end of the dict: plans then
                    # read only the end.
                    gang = self._gang_of(member)
                    mark = next(self._marks)
                    now = self._pods[uid] = RunningPod(member.pod, member.node, gang, goes, mark)

            self.covered.follow(old, now)

        return touched

    def _gang_of(self, member: Member) -> str:
        record = self._registry.gangs.get(member.gang)
        return "" if record is None or record.plain else record.id

    def _is_stale(self, gang_id: str, view: Gang, running: RunningGang) -> bool:
        if gang_id not in self._registry.gangs or self._registry.view(gang_id) is not view:
            return True

        group = self._registry.groups.get(self._registry.group_of.get(gang_id, ""))
        return group is None or (group.id, group.tree) != (running.group, running.tree)

    def _look_at_gang(self, gang_id: str) -> None:
        self._gangs.pop(gang_id, None)
        record = self._registry.gangs.get(gang_id)

        group = self._registry.group_of.get(gang_id)
        if record is None or record.plain or group is None:
            return

        view = self._registry.view(gang_id)
        bound = [
            uid
            for uid in record.members
            if (pod := self._pods.get(uid)) is not None and not pod.leaving
        ]
        if not bound and not record.of(*UNDER_WAY):
            return

        tree = self._registry.groups[group].tree
        around = composites_of(tree) if tree is not None else ()
        is_within = any(
            composite.indivisible and gang_id in gangs_of(composite) for composite in around
        )
        running = RunningGang(
            id=gang_id,
            group=group,
            min_member=(
                max(view.permitted_min, len(bound))
                if view.uninitialised is not None
                else view.min_member
            ),
            uids=tuple(bound),
            succeeded=view.succeeded if view.free_running else 0,
            indivisible=view.indivisible or is_within,
            disrupted_singly=view.disrupted_singly and not is_within,
            binding=bool(record.of(*UNDER_WAY)),
            tree=tree,
        )
        self._gangs[gang_id] = view, running
