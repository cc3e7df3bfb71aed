"""When the pods that take room are expected to end (semantics H2).

Law: what is told is that of the members and PodGroups as they are now, at the wall-clock second that is given; only
nodes on which something changed, or an end has passed, are looked at again, and only when somebody asks. Pods that end
with their node (a DaemonSet's, a kubelet's own) are left out: their room is not for others.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from gangsched.api.run_time import run_time_s
from gangsched.core.reservations.expected_end import expected_end_s
from gangsched.model.reservation import Occupant
from gangsched.state.cluster import Cluster
from gangsched.state.groups import Registry
from gangsched.state.member_store import MemberStore
from gangsched.state.members import Member, State

NOT_STARTED = frozenset({State.HELD, State.KEPT})
"""The states of members that take room and are not bound: nobody knows when they will end."""
DAEMON_KINDS = frozenset({"DaemonSet", "Node"})
CLOCK_STEP_S = 60.0
"""A wall clock that goes back by more than this was wrong, and so were ends that it made pass."""


@dataclass(frozen=True, slots=True)
class _Row:
    """The occupants of one node, and the earliest end among them."""

    occupants: tuple[Occupant, ...]
    passes_s: float


class ExpectedEnds:
    """Reads the members, the cluster and the registry; `default_s` is the run time of pods of ours that state none."""

    def __init__(
        self,
        cluster: Cluster,
        members: MemberStore,
        registry: Registry,
        *,
        names: frozenset[str],
        default_s: float | None = None,
    ) -> None:
        self._cluster = cluster
        self._members = members
        self._registry = registry
        self._names = names
        self._default_s = default_s
        self._rows: dict[str, _Row] = {}
        self._passes_s = math.inf
        self._wall_s = -math.inf
        self._all: tuple[Occupant, ...] | None = None

    def occupants(self, wall_s: float) -> Sequence[Occupant]:
        """Every pod that takes room on a node and may leave it; the same object while nothing has changed."""
        self._refresh(wall_s)
        if self._all is None:
            self._all = tuple(chain.from_iterable(row.occupants for row in self._rows.values()))
        return self._all

    @property
    def passes_s(self) -> float:
        """When the next of the ends that were told last will have passed, and moves if the pod is still there."""
        return self._passes_s

    def _refresh(self, wall_s: float) -> None:
        stale = self._cluster.take_touched()
        if wall_s < self._wall_s - CLOCK_STEP_S:
            stale |= self._rows.keys()
        elif wall_s >= self._passes_s:
            stale |= {name for name, row in self._rows.items() if row.passes_s <= wall_s}
        self._wall_s = wall_s
        stale |= self._rows.keys() - self._cluster.nodes.keys()
        if not stale:
            return
        for name in stale:
            occupants = tuple(self._on(name, wall_s)) if name in self._cluster.nodes else ()
            if occupants:
                self._rows[name] = _Row(occupants, min(each.ends_s for each in occupants))
            else:
                self._rows.pop(name, None)
        self._passes_s = min((row.passes_s for row in self._rows.values()), default=math.inf)
        self._all = None

    def _on(self, node: str, wall_s: float) -> Iterator[Occupant]:
        """The occupants of a node."""
        before = self._rows.get(node)
        since_s = {each.pod.uid: each.started_s for each in before.occupants} if before is not None else {}
        for uid, pod in self._cluster.residents(node).items():
            if pod.mirror or pod.controller_kind in DAEMON_KINDS:
                continue
            member = self._members[uid]
            # Until the kubelet reports a start, the bind is one; a start in the future is a clock that is wrong.
            started_s = min(float(pod.start_s), wall_s) if pod.start_s else since_s.get(uid, wall_s)
            group = self._registry.group_of.get(member.gang, pod.key)
            yield Occupant(pod, node, started_s, self._ends_s(member, started_s, wall_s), group)

    def _ends_s(self, member: Member, started_s: float, wall_s: float) -> float:
        pod = member.pod
        if pod.deletion_s:
            return expected_end_s(pod.deletion_s, 0.0, wall_s)
        if member.state in NOT_STARTED:
            return math.inf
        gang = self._registry.gangs.get(member.gang)
        of_group = gang.stated_run_time if gang is not None else None
        default_s = self._default_s if pod.scheduler_name in self._names else None
        stated_s = run_time_s(pod.run_time_metadata, of_group, default_s)
        return stated_s if stated_s == math.inf else expected_end_s(started_s, stated_s, wall_s)
