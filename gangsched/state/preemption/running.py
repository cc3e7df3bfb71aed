"""Running pods and gangs as input of `core.preemption`, updated between plans (semantics V25).

Invariant: the first call builds the input; each later call costs what has changed since the last one, and deleted pods
and gangs are dropped at once. No decisions are made here: pods that can never be victims are included, since refusals
count them.
"""

from __future__ import annotations

from collections.abc import Set
from itertools import count, islice
from math import inf

from gangsched.core.preemption.columns import PodTableCache
from gangsched.model.gang import Gang
from gangsched.model.preemption import Running, RunningGang, RunningPod
from gangsched.model.tree import composites_of, gangs_of
from gangsched.state.groups import Registry
from gangsched.state.member_store import MemberStore
from gangsched.state.members import UNDER_WAY, Member, State
from gangsched.state.preemption.covered import COMPARED_PER_LOOK, CoveredPods
from gangsched.state.preemption.disruption_budgets import Budgets

RUNS = frozenset({State.BOUND, State.TERMINATING})
"""The states of members that may be victims, or are leaving already."""
LOOKS_A_PLAN, UNITS_A_LOOK = 3_000, 3
"""Pods of one look, and the units of work of each with its gang: the first look at 20,000 pods took 43 to 75 ms of one
plan.
"""
LEAST_LOOKS, LEAST_COMPARED = 500, 1_000
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

        One call reads a bounded number of pods, or compares as many with budgets, and fewer if the plan has few units
        of work `left`. Until later calls have read the remaining pods, the result is not `whole` and must not be used
        for decisions.
        """
        # None at the first call, when everything is read.
        changed = self._members.take_changed()
        self._behind |= self._members.uids() | self._pods.keys() if changed is None else changed
        self._behind |= (moved := leaving ^ self._leaving)
        self._leaving ^= moved
        stale = set(islice(self._behind, int(min(LOOKS_A_PLAN, max(LEAST_LOOKS, left // UNITS_A_LOOK)))))
        self._behind -= stale
        touched = self._look_at(stale, leaving)
        for gang_id, (view, running) in list(self._gangs.items()):
            if gang_id not in touched and self._is_stale(gang_id, view, running):
                touched.add(gang_id)
        for gang_id in touched:
            self._look_at_gang(gang_id)
        gangs = tuple(running for _, running in self._gangs.values())
        units, before = UNITS_A_LOOK * max(len(stale), len(touched)), self.covered.compared
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
        """Bring these pods up to date; returns the gangs that they are or were of, "" for plain pods."""
        self.looks += len(uids)
        touched: set[str] = set()
        for uid in uids:
            old, member = self._pods.pop(uid, None), self._members.get(uid)
            now: RunningPod | None = None
            if old is not None:
                touched.add(old.gang)
            if member is not None:
                touched.add(member.gang)
                if member.state in RUNS:
                    goes = member.state is State.TERMINATING or uid in leaving
                    # A new mark for a changed pod, and its place at the end of the dict: plans then read only the end.
                    gang, mark = self._gang_of(member), next(self._marks)
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
        bound = [uid for uid in record.members if (pod := self._pods.get(uid)) is not None and not pod.leaving]
        if not bound and not record.of(*UNDER_WAY):
            return
        tree = self._registry.groups[group].tree
        around = composites_of(tree) if tree is not None else ()
        is_within = any(each.indivisible and gang_id in gangs_of(each) for each in around)
        running = RunningGang(
            id=gang_id,
            group=group,
            min_member=max(view.permitted_min, len(bound)) if view.uninitialised is not None else view.min_member,
            uids=tuple(bound),
            succeeded=view.succeeded if view.free_running else 0,
            indivisible=view.indivisible or is_within,
            disrupted_singly=view.disrupted_singly and not is_within,
            binding=bool(record.of(*UNDER_WAY)),
            tree=tree,
        )
        self._gangs[gang_id] = view, running
