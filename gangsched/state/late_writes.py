"""What the process before wrote on pods after this one had read them: nominations and conditions
(semantics V24, E1).

Invariant: each group is looked at once, some in a turn, when no write of that process can be
carried out any more. A status of a PodGroup is compared whenever it changes (`reporting.stored`);
of pods that would be each of our own writes.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Iterable
from typing import Final

from gangsched.model.protocol import Action, CancelPreemption, NominatedMember
from gangsched.state.group_record import GroupRecord
from gangsched.state.groups import Registry
from gangsched.state.members import Member
from gangsched.state.preemption import nominees
from gangsched.state.preemption.nominations import Nominations
from gangsched.state.reporting.conditions import is_stored
from gangsched.state.reporting.stored import LATE_S

LOOK_AFTER_S = 2 * LATE_S + 1.0
"""What this process wrote beside the last of those writes is old enough to be written again."""

LOOKS_A_TURN: Final = 1_000
"""Groups and members that wait, about a microsecond each: tens of thousands may wait."""


class LateWrites:
    """Looks once at all pods that wait, from two minutes after the first `due` on."""

    def __init__(self, registry: Registry, nominations: Nominations) -> None:
        self._registry = registry
        self._nominations = nominations
        self._look_s = math.inf
        self._is_set = False
        self._is_looking = False
        self._left: deque[str] = deque()

    def due(self, now_s: float) -> list[Action]:
        """Clear nominations that are none of ours, and have conditions told again that pods do not
        store.
        """
        if not self._is_set:
            self._is_set = True
            self._look_s = now_s + LOOK_AFTER_S

        if now_s < self._look_s:
            return []

        # What comes later is told by this process alone.
        if not self._is_looking:
            self._is_looking = True
            self._left.extend(self._registry.groups)

        actions: list[Action] = []
        looks = 0
        while self._left and looks < LOOKS_A_TURN:
            group = self._registry.groups.get(self._left.popleft())
            if group is not None:
                waiting = nominees.waiting(group, self._registry)
                looks += 1 + len(waiting)
                actions += self._look(group, waiting.values())

        if not self._left:
            self._look_s = math.inf

        return actions

    def next_deadline_s(self) -> float:
        """When the look is due."""
        return self._look_s

    def _look(self, group: GroupRecord, waiting: Collection[Member]) -> list[Action]:
        """Look at one group."""
        for member in waiting:
            self._compare(member)

        strays = self._strays(group, waiting)
        return [CancelPreemption(f"{group.id}/late", strays)] if strays else []

    def _compare(self, member: Member) -> None:
        """Have the condition of a pod reported again if the pod stores another one."""
        pod = member.pod
        record = self._registry.gangs[member.gang]
        conditions = record.reported.pods
        if pod.uid not in conditions:
            return

        condition, _ = conditions[pod.uid]
        if not is_stored(pod, condition):
            del conditions[pod.uid]
            self._registry.touch(record.id)

    def _strays(
        self,
        group: GroupRecord,
        waiting: Iterable[Member],
    ) -> tuple[NominatedMember, ...]:
        """The members that are nominated, and not by this process."""
        ours = self._nominations.of(group.id)
        known = ours.nominees if ours is not None else {}
        strays: list[NominatedMember] = []

        for member in waiting:
            pod = member.pod
            node = pod.nominated_node
            if node and pod.uid not in known:
                stray = NominatedMember(pod.uid, pod.namespace, pod.name, node)
                strays.append(stray)

        return tuple(strays)
