"""When the pods that take room are expected to end (semantics H2).

Invariant: results follow from the current members and PodGroups at the given wall-clock second.
Only nodes with a change, or with an expected end that has passed, are read again, on demand. Pods
that end with their node (DaemonSets, static pods) are left out, because their room never becomes
free for other pods.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from typing import TypeVar
from weakref import WeakKeyDictionary

import numpy as np
from msgspec import structs

from gangsched.api.run_time import run_time_s
from gangsched.core.reservations.expected_end import expected_end_s
from gangsched.model.objects import Shape
from gangsched.model.reservation import Occupant
from gangsched.model.snapshot import Floats, NodeTable
from gangsched.state.cluster import Cluster
from gangsched.state.groups import Registry
from gangsched.state.member_store import MemberStore
from gangsched.state.members import Member, State
from gangsched.state.reserving.news import News
from gangsched.state.rule_set import Rules

T = TypeVar("T")

NOT_STARTED = frozenset({State.HELD, State.KEPT})
"""The states of members that take room and are not bound: nobody knows when they will end."""
LATE_S = 5.0
"""How long a pod may take to go after its expected end before that is expected anew."""
EARLY_S = 1.0
"""A pod that goes, or is to go, so much earlier than was expected is news for those who wait for
its room.
"""
PODS_A_NODE = 2
"""To look at a node takes as long as to look at so many pods."""
CLOCK_STEP_S = 60.0
"""A wall clock that goes back by more than this was wrong, and so were ends that it made pass."""


class ExpectedEnds:
    """Expected ends, derived from the members, the cluster and the registry.

    The rules state the run time of pods that declare none, and name the accelerators.
    """

    def __init__(
        self,
        cluster: Cluster,
        members: MemberStore,
        registry: Registry,
        rules: Rules,
        *,
        late_s: float = LATE_S,
    ) -> None:
        """An end has passed once it is `late_s` ago."""
        self._cluster = cluster
        self._members = members
        self._registry = registry
        self._names = rules.scheduler_names
        self._default_s = rules.defaults.expected_runtime_s
        self._policy = rules.policy
        self._late_s = late_s
        self._on: dict[str, tuple[Occupant, ...]] = {}
        self._told: dict[str, tuple[Occupant, ...]] | None = None  # a copy that is never changed
        self._first_s: dict[str, float] = {}
        self._last_s: dict[str, float] = {}
        self._passes_s = math.inf
        self._wall_s = -math.inf
        self._news = News()

        # By shape, which thousands of pods share; it goes with the last of them.
        self._accelerated: WeakKeyDictionary[Shape, bool] = WeakKeyDictionary()

    def __len__(self) -> int:
        """Number of stored occupants."""
        return sum(map(len, self._on.values()))

    def occupants(self, wall_s: float) -> Mapping[str, Sequence[Occupant]]:
        """By node name, the pods that may leave the node; the same object until they change."""
        self._refresh(wall_s)
        if self._told is None:
            # Plans keep columns of occupants for as long as they are given this very object.
            self._told = self._on.copy()

        return self._told

    def glance(self, wall_s: float) -> Mapping[str, Sequence[Occupant]]:
        """Like `occupants`, but the next call still reports the changes."""
        found = self._on.copy()
        for name in self._stale(wall_s, self._cluster.touched):
            _keep(
                found,
                name,
                tuple(self._look_at(name, wall_s)) if name in self._cluster.nodes else (),
            )

        return found

    def last_ends_at_a_glance(self, table: NodeTable, wall_s: float) -> Floats:
        """Like `last_ends`, but the next call still reports the changes."""
        on = self.glance(wall_s)
        ends_s = (
            [
                occupant.ends_s
                for occupant in on.get(name, ())
                if self._asks_for_accelerators(occupant.pod.shape)
            ]
            for name in table.names
        )
        return np.array([max(each, default=-math.inf) for each in ends_s], dtype=np.float64)

    def last_ends(self, table: NodeTable, wall_s: float) -> Floats:
        """`last[n]`: latest expected end of a pod with accelerators on node `n`, -inf if there is
        none (H10).
        """
        self._refresh(wall_s)
        return np.array(
            [self._last_s.get(name, -math.inf) for name in table.names],
            dtype=np.float64,
        )

    @property
    def passes_s(self) -> float:
        """Time of the next expected end; if its pod still exists then, the end moves."""
        return self._passes_s + self._late_s

    def exceeds(self, pods: int, wall_s: float) -> bool:
        """Whether the next `occupants` looks again at more pods; a node counts as some."""
        cluster = self._cluster
        number_of_nodes = len(cluster.touched)
        has_passed = wall_s >= self.passes_s

        if not has_passed and PODS_A_NODE * number_of_nodes + cluster.on_touched <= pods:
            return False

        number = 0
        for name in self._outdated(wall_s):
            number += PODS_A_NODE + len(cluster.residents(name))
            if number > pods:
                return True

        if not has_passed:
            cluster.counted_touched(number - PODS_A_NODE * number_of_nodes)

        return False

    def catch_up(self, pods: int, wall_s: float) -> None:
        """Look again at nodes with about so many pods, so that `occupants` has less to do."""
        looked_at = []
        number = 0
        for name in self._outdated(wall_s):
            looked_at.append(name)
            number += PODS_A_NODE + len(self._cluster.residents(name))
            if number >= pods:
                break

        self._cluster.take_touched(looked_at)
        self._look(looked_at, wall_s)

    def take_news(self) -> News:
        """Changes of occupants since the last call."""
        news = self._news
        self._news = News()
        return news

    def forget_gone(self) -> None:
        """Drop deleted pods that are still stored because `take_news` would report
        their changes.
        """
        for name in self._cluster.touched & self._on.keys():
            there = self._cluster.residents(name)
            before = self._on[name]

            stay = tuple([occupant for occupant in before if occupant.pod.uid in there])
            if len(stay) < len(before):
                _keep(self._on, name, stay)
                self._told = None

        self._news = News()

    def _refresh(self, wall_s: float) -> None:
        stale = self._stale(wall_s, self._cluster.touched)
        self._cluster.take_touched(stale)
        self._wall_s = wall_s
        self._look(stale, wall_s)

    def _look(self, nodes: Collection[str], wall_s: float) -> None:
        """Look again at these nodes."""
        if not nodes:
            return

        for name in nodes:
            occupants = tuple(self._look_at(name, wall_s)) if name in self._cluster.nodes else ()
            accelerated = [
                occupant.ends_s
                for occupant in occupants
                if self._asks_for_accelerators(occupant.pod.shape)
            ]

            before = self._on.get(name, ())
            if occupants != before:
                expected = (*before, *self._as_planned(occupants, before))
                self._news.note(name, expected, occupants, early_by_s=EARLY_S, wall_s=wall_s)
                _keep(self._on, name, occupants)
                self._told = None

            _keep(
                self._first_s,
                name,
                min((occupant.ends_s for occupant in occupants), default=None),
            )
            _keep(self._last_s, name, max(accelerated, default=None))

        self._passes_s = min(self._first_s.values(), default=math.inf)

    def _as_planned(
        self,
        occupants: Sequence[Occupant],
        before: Sequence[Occupant],
    ) -> Iterator[Occupant]:
        """New occupants that end before their group, with the end that the plan which placed them
        expected: that of the whole group.
        """
        known = {occupant.pod.uid for occupant in before}
        for occupant in occupants:
            group = self._registry.groups.get(occupant.group)
            if group is None or occupant.pod.uid in known:
                continue

            run_times_s = [self._registry.view(gang).run_time_s for gang in group.gangs]
            ends_s = occupant.started_s + max(run_times_s)
            if ends_s > occupant.ends_s:
                yield structs.replace(occupant, ends_s=ends_s)

    def _stale(self, wall_s: float, touched: Set[str]) -> set[str]:
        """The nodes that are to be looked at again."""
        stale = {*touched}
        # Ends that passed by the wrong clock were moved, so all are derived again.
        if wall_s < self._wall_s - CLOCK_STEP_S:
            stale |= self._on.keys()
        else:
            stale.update(self._passed(wall_s))

        return stale

    def _outdated(self, wall_s: float) -> Iterator[str]:
        """The same one by one, unless all are to be looked at again."""
        touched = self._cluster.touched
        yield from touched
        for name in self._passed(wall_s):
            if name not in touched:
                yield name

    def _passed(self, wall_s: float) -> Iterator[str]:
        """The nodes of which an end has passed."""
        if wall_s < self.passes_s:
            return

        for name, first_s in self._first_s.items():
            if first_s + self._late_s <= wall_s:
                yield name

    def _asks_for_accelerators(self, shape: Shape) -> bool:
        known = self._accelerated.get(shape)
        if known is None:
            known = any(self._policy.is_accelerator(name) for name, _ in shape.requests)
            self._accelerated[shape] = known

        return known

    def _look_at(self, node: str, wall_s: float) -> Iterator[Occupant]:
        """The occupants of a node as they are now."""
        since_s = {occupant.pod.uid: occupant.started_s for occupant in self._on.get(node, ())}
        for uid, pod in self._cluster.residents(node).items():
            if pod.ends_with_node:
                continue

            member = self._members[uid]
            # Until the kubelet reports a start, the bind is one; a start in the future is a clock
            # that is wrong.
            started_s = min(float(pod.start_s), wall_s) if pod.start_s else since_s.get(uid, wall_s)
            group = self._registry.group_of.get(member.gang, pod.key)
            yield Occupant(
                pod,
                node,
                started_s,
                self._ends_s(member, started_s, wall_s - self._late_s),
                group,
            )

    def _ends_s(self, member: Member, started_s: float, wall_s: float) -> float:
        pod = member.pod
        # A deletionTimestamp includes the grace period: it is when the kubelet kills the pod at the
        # latest.
        if pod.deletion_s:
            return expected_end_s(pod.deletion_s, 0.0, wall_s)
        if member.state in NOT_STARTED:
            return math.inf

        gang = self._registry.gangs.get(member.gang)
        of_group = gang.stated_run_time if gang is not None else None

        # The setting is a statement about pods that are ours; of others nothing is known that they
        # do not say (H1).
        default_s = self._default_s if pod.scheduler_name in self._names else None
        stated_s = run_time_s(pod.run_time_metadata, of_group, default_s)
        if stated_s == math.inf:
            return stated_s

        return expected_end_s(started_s, stated_s, wall_s)


def _keep(of: dict[str, T], name: str, value: T | None) -> None:
    """Keep what is known of a node; what is empty is not kept."""
    if value is None or value == ():
        of.pop(name, None)
    else:
        of[name] = value
