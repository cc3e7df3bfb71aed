"""Restore the nominations of an earlier process (semantics V24).

Invariant: a nomination is restored as a whole or not at all: every needed member has its node; in
every gang that would fall below its minimum, all members have the condition of victims; and the
group fits once terminating pods and these victims are gone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gangsched.core.queue_sort import group_key
from gangsched.model.gang import Placement
from gangsched.model.objects import Phase, Pod
from gangsched.model.preemption import STUCK_S, Harm, Preemption, UnitKind, Victim
from gangsched.model.protocol import Action, CancelPreemption
from gangsched.model.tree import Part, composites_of, gangs_of, part_id
from gangsched.state.cluster import Cluster
from gangsched.state.group_record import GroupRecord
from gangsched.state.groups import Registry
from gangsched.state.member_store import MemberStore
from gangsched.state.members import STARTED, Member, State
from gangsched.state.preemption import nominees
from gangsched.state.preemption.disruption_budgets import Budgets
from gangsched.state.preemption.nomination import nominated
from gangsched.state.preemption.nominations import Nominations


def restore(
    nominations: Nominations,
    members: MemberStore,
    cluster: Cluster,
    registry: Registry,
    now_s: float,
    wall_s: float,
    *,
    breakable: Budgets,
) -> list[Action]:
    """Restore nominations in the order of rank, and clear the remaining writes of nominations that
    cannot be restored.

    `breakable` are the PodDisruptionBudgets that may be violated, as the setting `last_resort`
    permits. It is not stored whether victims violate a budget; they do if more of them remain than
    the budget allows now.
    """
    left = _Left(nominations, members, cluster, registry, now_s, wall_s, breakable)
    groups = [group for group in registry.groups.values() if left.nominated(group)]
    actions: list[Action] = []

    groups.sort(key=lambda group: group_key(registry.group(group.id, now_s)))
    for group in groups:
        decision = left.decision(group)
        if decision is not None:
            actions += nominations.begin(group, decision, now_s)
        else:
            cleared = tuple(nominated(placement) for placement in left.nominated(group))
            actions.append(CancelPreemption(f"{group.id}/restore", cleared))

    return actions


@dataclass(frozen=True, slots=True)
class _Left:
    """The nominations stored in API objects."""

    nominations: Nominations
    members: MemberStore
    cluster: Cluster
    registry: Registry
    now_s: float
    wall_s: float
    breakable: Budgets

    def nominated(self, group: GroupRecord) -> list[Placement]:
        """The waiting members that have a nominated node."""
        waiting = nominees.waiting(group, self.registry)
        placements = []
        for member in waiting.values():
            pod = member.pod
            if pod.nominated_node:
                placements.append(Placement(pod, pod.nominated_node))

        return placements

    def decision(self, group: GroupRecord) -> Preemption | None:
        """The preemption decision in progress; None if it can no longer be derived or is no longer
        valid.
        """
        placements = self._needed(group)
        if not placements:
            return None

        nodes = {placement.node for placement in placements}
        lowest = min(placement.pod.priority for placement in placements)
        victims = tuple(self._victims(nodes, lowest))
        awaited = self._terminating(nodes)
        going = awaited + [self.members[victim.uid] for victim in victims]

        last_end_s = int(self.wall_s)
        if going:
            last_end_s = max(self._end_s(member.pod) for member in going)

        decision = Preemption(
            placements=tuple(placements),
            victims=victims,
            awaited=tuple(member.pod.uid for member in awaited),
            harm=self._harm(victims),
            deadline_s=last_end_s + STUCK_S,
        )
        # Nodes and pods may have changed while no process was there.
        if self.nominations.obstacle(group.id, decision, self.now_s):
            return None

        return decision

    def _end_s(self, pod: Pod) -> int:
        """When a pod will have terminated, if it does so now."""
        return pod.deletion_s or int(self.wall_s) + pod.grace_s

    def _harm(self, victims: Sequence[Victim]) -> Harm | None:
        """Which budgets the victims break; None if they break none. What else was lost was counted
        before.
        """
        pods = [self.members[victim.uid].pod for victim in victims]
        pods = [pod for pod in pods if pod.phase is not Phase.PENDING]

        broken = 0
        for budgets in self.breakable.values():
            for budget in budgets:
                covered = sum(map(budget.covers, pods))
                broken += covered > budget.allowed

        if not broken:
            return None

        highest = max((victim.priority for victim in victims), default=0)
        return Harm(broken, highest, 0, 0, len(victims), 0, 0)

    def _needed(self, group: GroupRecord) -> list[Placement]:
        """As many of the nominated members as each gang needs; empty if one has fewer."""
        chosen: list[Placement] = []
        of_gang: defaultdict[str, list[Placement]] = defaultdict(list)

        for placement in self.nominated(group):
            of_gang[self.members[placement.pod.uid].gang].append(placement)

        for gang_id in nominees.chosen_gangs(group, of_gang, self.registry):
            needed = nominees.needs(self.registry.view(gang_id))
            if len(of_gang[gang_id]) < needed:
                return []

            chosen += of_gang[gang_id][:needed]

        return chosen

    def _victims(
        self,
        nodes: set[str],
        lowest: int,
    ) -> Iterable[Victim]:
        """The pods with our mark on these nodes, and the rest of the groups that go with them."""
        groups: set[str] = set()
        for member in self._on(nodes):
            if not self._is_marked(member) or member.pod.priority > lowest:
                # Those of equal priority may be pods that overran (H11), whose mark says no more
                # than that.
                continue

            group_id = self.registry.group_of.get(member.gang, "")
            kind = self._kind(member, group_id)
            if kind is UnitKind.CORE:
                groups.add(group_id)
            elif kind is not None:
                victim = _victim(member, group_id, kind)
                if kind is UnitKind.CHILD:
                    victim = victim._replace(part=self._part(member.gang, group_id))

                yield victim

        for group_id in sorted(groups):
            for member in nominees.started_together(group_id, self.registry):
                yield _victim(member, group_id, UnitKind.CORE)

    def _kind(self, member: Member, group_id: str) -> UnitKind | None:
        """The kind of unit as which a marked pod was to be evicted; None if only a part of its unit
        is marked.
        """
        record = self.registry.gangs.get(member.gang)
        if record is None or record.plain or not group_id:
            return UnitKind.POD

        view = self.registry.view(record.id)
        if view.disrupted_singly:
            return UnitKind.POD
        if all(map(self._is_marked, nominees.started_together(group_id, self.registry))):
            return UnitKind.CORE
        if self._part(record.id, group_id):
            return UnitKind.CHILD

        staying = sum(not self._is_marked(started) for started in record.of(*STARTED))
        if view.free_running:
            staying += view.succeeded

        if staying >= max(1, view.min_member):
            return UnitKind.SURPLUS

        return None

    def _part(self, gang_id: str, group_id: str) -> str:
        """The largest child with this gang of which all that runs is marked and that its composite
        may spare, "" if there is none.
        """
        for around in composites_of(self.registry.groups[group_id].root):
            if around.min_children >= len(around.children):
                continue

            for child in around.children:
                if gang_id in gangs_of(child) and self._all_marked(child):
                    return part_id(child)

        return ""

    def _all_marked(self, part: Part) -> bool:
        for gang_id in gangs_of(part):
            started = self.registry.gangs[gang_id].of(*STARTED)
            if not all(map(self._is_marked, started)):
                return False

        return True

    def _is_marked(self, member: Member) -> bool:
        return member.pod.disruption_target and member.state is State.BOUND

    def _terminating(self, nodes: set[str]) -> list[Member]:
        """The pods that leave these nodes anyway and are not stuck (V4)."""
        terminating: list[Member] = []
        for member in self._on(nodes):
            is_stuck = self.wall_s >= member.pod.deletion_s + STUCK_S
            if member.state is State.TERMINATING and not is_stuck:
                terminating.append(member)

        return terminating

    def _on(self, nodes: set[str]) -> list[Member]:
        members = []
        for node in sorted(nodes):
            members += [self.members[uid] for uid in self.cluster.residents(node)]

        return members


def _victim(
    member: Member,
    group_id: str,
    kind: UnitKind,
) -> Victim:
    pod = member.pod
    # Its mark does not say whether it overran; as `overdue`, one of equal priority stays a victim
    # at the last look.
    gang = "" if kind is UnitKind.POD else member.gang
    group = group_id if gang else ""

    return Victim(
        pod.uid,
        pod.namespace,
        pod.name,
        member.node,
        gang,
        group,
        kind,
        pod.priority,
        overdue=True,
    )
