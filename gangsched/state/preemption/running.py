"""Running pods and gangs as input of `core.preemption`, updated between plans (semantics V25).

Invariant: the first call builds the input; each later call costs what has changed since the last
one, and deleted pods and gangs are dropped at once. No decisions are made here: pods that can never
be victims are included, since refusals count them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from itertools import count, islice
from math import inf

from gangsched.core.preemption.columns import PodTableCache
from gangsched.model.disruption import PodDisruptionBudget
from gangsched.model.gang import Gang
from gangsched.model.objects import Pod
from gangsched.model.preemption import Budget, Running, RunningGang, RunningPod
from gangsched.model.tree import Part, composites_of, gangs_of
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

    def follow(
        self,
        before: RunningPod | None,
        now: RunningPod | None,
    ) -> None:
        """Record that a pod runs, has changed, or is gone."""
        if before is not None and now is not None and _is_alike(before, now):
            return

        if before is not None:
            self._drop(before.pod)

        if now is not None:
            pod = now.pod
            pods = self._pods.setdefault(pod.namespace, {})
            pods[pod.uid] = now
            if pod.namespace in self._budgets:
                self._new_pods[pod.uid] = now

    def _drop(self, pod: Pod) -> None:
        self._uncover(pod.uid)
        self._new_pods.pop(pod.uid, None)

        pods = self._pods[pod.namespace]
        pods.pop(pod.uid, None)
        if not pods:
            del self._pods[pod.namespace]

    def read(
        self,
        budgets: Budgets,
        most: int = COMPARED_PER_LOOK,
    ) -> bool:
        """Compare some of the remaining pods with these budgets, at most `most` times. True if no
        pod remains and this call compared so few that the turn has time for a decision.
        """
        if budgets is not self._budgets:
            self._follow_budgets(budgets)

        begun = self.compared
        until = begun + most
        while self._new_budgets and self.compared < until:
            key, (budget, pods) = next(iter(self._new_budgets.items()))
            for _ in range(min(len(pods), until - self.compared)):
                self._compare(pods.pop(), (budget,))

            if not pods:
                del self._new_budgets[key]

        while self._new_pods and self.compared < until:
            uid = next(iter(self._new_pods))
            running = self._new_pods.pop(uid)
            of_namespace = budgets.get(running.pod.namespace, ())
            self._compare(running, of_namespace)

        is_all = not self._new_budgets and not self._new_pods
        return is_all and self.compared - begun <= COMPARED_BESIDE_A_DECISION

    def _follow_budgets(self, budgets: Budgets) -> None:
        """Take over the budgets of the namespaces in which any has changed."""
        before = self._budgets
        # By identity: `DisruptionBudgets.snapshot` is one object, and one tuple per namespace,
        # until something changes.
        for namespace in before.keys() | budgets.keys():
            if before.get(namespace) is not budgets.get(namespace):
                self._list(before.get(namespace, ()), budgets.get(namespace, ()))

        self._budgets = budgets

    def of(self, budgets: Budgets) -> Iterator[Budget]:
        """Yield the budgets that cover a pod, each with its pods."""
        for listed in budgets.values():
            for budget in listed:
                uids = self._covered.get(budget.key)
                if not uids:
                    continue

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
        old = {budget.key: budget for budget in before}
        new = {budget.key: budget for budget in now}

        for key, budget in old.items():
            if key not in new or new[key].selector != budget.selector:
                self._forget(key)

        for key, budget in new.items():
            if key not in old or old[key].selector != budget.selector:
                pods = self._pods.get(budget.namespace, {})
                self._new_budgets[key] = (budget, list(pods.values()))

    def _forget(self, key: str) -> None:
        """A budget is gone; pods that it covered may be under others that were not kept."""
        self._new_budgets.pop(key, None)
        self._frozen.pop(key, None)
        namespace, _, _ = key.partition("/")

        for uid in self._covered.pop(key, ()):
            keys = self._covering.pop(uid)
            # It was compared only until it had as many; a budget behind these may cover it, too.
            if len(keys) == MOST_BUDGETS_PER_POD:
                self._new_pods[uid] = self._pods[namespace][uid]

            others = tuple(other for other in keys if other != key)
            if others:
                self._covering[uid] = others

    def _uncover(self, uid: str) -> None:
        for key in self._covering.pop(uid, ()):
            self._covered[key].discard(uid)
            self._frozen.pop(key, None)

    def _compare(
        self,
        running: RunningPod,
        budgets: Iterable[PodDisruptionBudget],
    ) -> None:
        pod = running.pod
        followed = self._pods.get(pod.namespace, {})
        if followed.get(pod.uid) is not running:
            # It has gone or changed since; if it changed, it is among the new pods.
            return

        for budget in budgets:
            keys = self._covering.get(pod.uid, ())
            if len(keys) == MOST_BUDGETS_PER_POD:
                return

            self.compared += 1
            if budget.key not in keys and budget.covers(pod):
                self._covering[pod.uid] = (*keys, budget.key)
                covered = self._covered.setdefault(budget.key, set())
                covered.add(pod.uid)
                self._frozen.pop(budget.key, None)


def _is_alike(
    one: RunningPod,
    other: RunningPod,
) -> bool:
    """Whether budgets cannot tell them apart."""
    if one.pod.namespace != other.pod.namespace:
        return False

    return one.pod.labels == other.pod.labels


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

    def __init__(
        self,
        members: MemberStore,
        registry: Registry,
    ) -> None:
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

    def now(
        self,
        leaving: Set[str],
        budgets: Budgets,
        left: float = inf,
    ) -> Running:
        """Current input; `leaving` are the victims of nominations in progress.

        One call reads a bounded number of pods, or compares as many with budgets, and fewer if the
        plan has few units of work `left`. Until later calls have read the remaining pods, the
        result is not `whole`, and no decision may use it.
        """
        self._note_changes(leaving)
        some = max(LEAST_LOOKS, left // UNITS_A_LOOK)
        stale = set(islice(self._behind, int(min(LOOKS_A_PLAN, some))))
        self._behind -= stale
        touched = self._look_at(stale, leaving)

        for gang_id, (view, running) in list(self._gangs.items()):
            if gang_id not in touched and self._is_stale(gang_id, view, running):
                touched.add(gang_id)

        for gang_id in touched:
            self._look_at_gang(gang_id)

        units = UNITS_A_LOOK * max(len(stale), len(touched))
        begun = self.covered.compared
        most = int(min(COMPARED_PER_LOOK, max(LEAST_COMPARED, left - units)))
        is_whole = not self._behind and self.covered.read(budgets, most)
        units += self.covered.compared - begun

        covered: tuple[Budget, ...] = ()
        if is_whole:
            covered = tuple(self.covered.of(budgets))

        gangs = tuple(running for _, running in self._gangs.values())
        return Running(tuple(self._pods.values()), gangs, covered, whole=is_whole, units=units)

    def _note_changes(self, leaving: Set[str]) -> None:
        """Add pods that have changed, or are leaving now or no longer, to those to be read."""
        changed = self._members.take_changed()
        if changed is None:
            # The first call, when everything is read.
            changed = self._members.uids() | self._pods.keys()

        self._behind |= changed
        self._behind |= leaving ^ self._leaving
        self._leaving = set(leaving)

    def forget(self, gang_ids: Set[str]) -> None:
        """Drop gangs that are gone."""
        for gang_id in gang_ids & self._gangs.keys():
            del self._gangs[gang_id]

    def _drop(self, uid: str) -> None:
        """A pod is gone. Its gang, if anything is left of it, has another view from now on."""
        self._behind.discard(uid)
        running = self._pods.pop(uid, None)
        if running is not None:
            self.covered.follow(running, None)

    def _look_at(
        self,
        uids: Set[str],
        leaving: Set[str],
    ) -> set[str]:
        """Bring these pods up to date; returns the gangs that they are or were of, "" for plain
        pods.
        """
        self.looks += len(uids)
        touched: set[str] = set()

        for uid in uids:
            before = self._pods.pop(uid, None)
            if before is not None:
                touched.add(before.gang)

            now = None
            member = self._members.get(uid)
            if member is not None:
                touched.add(member.gang)
                now = self._running(member, leaving)

            if now is not None:
                # At the end of the dict, as it has a new mark: plans then read only the end.
                self._pods[uid] = now

            self.covered.follow(before, now)

        return touched

    def _running(
        self,
        member: Member,
        leaving: Set[str],
    ) -> RunningPod | None:
        """The member with a new mark; None if it does not run."""
        if member.state not in RUNS:
            return None

        pod = member.pod
        is_leaving = member.state is State.TERMINATING or pod.uid in leaving
        gang = self._gang_of(member)
        return RunningPod(pod, member.node, gang, is_leaving, next(self._marks))

    def _gang_of(self, member: Member) -> str:
        record = self._registry.gangs.get(member.gang)
        if record is None or record.plain:
            return ""

        return record.id

    def _is_stale(
        self,
        gang_id: str,
        view: Gang,
        running: RunningGang,
    ) -> bool:
        registry = self._registry
        if gang_id not in registry.gangs or registry.view(gang_id) is not view:
            return True

        group_id = registry.group_of.get(gang_id, "")
        group = registry.groups.get(group_id)
        if group is None or group.id != running.group:
            return True

        return group.root != running.root

    def _look_at_gang(self, gang_id: str) -> None:
        self._gangs.pop(gang_id, None)
        record = self._registry.gangs.get(gang_id)
        group = self._registry.group_of.get(gang_id)
        if record is None or record.plain or group is None:
            return

        bound = []
        for uid in record.members:
            running = self._pods.get(uid)
            if running is not None and not running.leaving:
                bound.append(uid)

        is_binding = bool(record.of(*UNDER_WAY))
        if not bound and not is_binding:
            return

        view = self._registry.view(gang_id)
        min_member = view.min_member
        if view.uninitialised is not None:
            min_member = max(view.permitted_min, len(bound))

        root = self._registry.groups[group].root
        is_within = _is_indivisible(root, gang_id)
        running_gang = RunningGang(
            id=gang_id,
            group=group,
            min_member=min_member,
            uids=tuple(bound),
            succeeded=view.succeeded if view.free_running else 0,
            indivisible=view.indivisible or is_within,
            disrupted_singly=view.disrupted_singly and not is_within,
            binding=is_binding,
            root=root,
        )
        self._gangs[gang_id] = (view, running_gang)


def _is_indivisible(
    root: Part,
    gang_id: str,
) -> bool:
    """Whether a composite around the gang goes only as a whole."""
    for composite in composites_of(root):
        if composite.indivisible and gang_id in gangs_of(composite):
            return True

    return False
