"""Nominations and conditions that are written on pods late: by the process before, after this one
had read them, or by a request of this one that was not answered (semantics V24, E1).

Invariant: each group is looked at once, some in a turn, when no write of the process before can be
carried out any more, and again as long after each unanswered write of our own. A status of a
PodGroup is compared whenever it changes (`reporting.stored`); of pods that would be each of our own
writes.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final

from gangsched.model.protocol import Action, CancelPreemption, NominatedMember
from gangsched.state.group_record import GroupRecord
from gangsched.state.groups import Registry
from gangsched.state.member_store import MemberStore
from gangsched.state.members import Member, State
from gangsched.state.preemption import nominees
from gangsched.state.preemption.nominations import Nominations
from gangsched.state.reporting.conditions import is_stored
from gangsched.state.reporting.stored import LATE_S
from gangsched.state.timers import Timers

LOOK_AFTER_S = 2 * LATE_S + 1.0
"""What this process wrote beside the last of those writes is old enough to be written again."""

LOOKS_A_TURN: Final = 1_000
"""Groups and members that wait, about a microsecond each: tens of thousands may wait."""


class LateWrites:
    """Looks at the pods that wait: at all of them two minutes after the first `due`, and at those
    of a gang two minutes after its last write that is undecided.
    """

    def __init__(
        self,
        members: MemberStore,
        registry: Registry,
        nominations: Nominations,
    ) -> None:
        self._members = members
        self._registry = registry
        self._nominations = nominations

        self._is_set = False
        self._look_s = math.inf
        self._undecided = Timers()  # by gang
        self._left: deque[str] = deque()  # groups
        self._go_on_s = math.inf

    def undecided(self, uid: str, now_s: float) -> None:
        """What this process sent for a pod may still be written, over what it sends from now on."""
        member = self._members.get(uid)
        if member is not None:
            self._undecided.set(member.gang, now_s + LOOK_AFTER_S)

    def due(self, now_s: float) -> list[Action]:
        """Clear nominations that are none of ours, and have conditions told again that pods do not
        store.
        """
        if not self._is_set:
            self._is_set = True
            self._look_s = now_s + LOOK_AFTER_S

        if now_s >= self._look_s:
            self._look_s = math.inf
            self._left.extend(self._registry.groups)

        group_of = self._registry.group_of
        gangs = self._undecided.take_due(now_s)
        self._left.extend({group_of[gang]: None for gang in gangs if gang in group_of})

        actions: list[Action] = []
        looks = 0
        while self._left and looks < LOOKS_A_TURN:
            group = self._registry.groups.get(self._left.popleft())
            if group is not None:
                waiting = nominees.waiting(group, self._registry)
                looks += 1 + len(waiting)
                actions += self._look(group, waiting)

        self._go_on_s = now_s if self._left else math.inf
        return actions

    def next_deadline_s(self) -> float:
        """When the next look is due."""
        return min(self._look_s, self._go_on_s, self._undecided.next_s())

    def _look(self, group: GroupRecord, waiting: Mapping[str, Member]) -> list[Action]:
        """Look at one group."""
        for gang in group.gangs:
            for member in self._registry.gangs[gang].of(State.WAITING_FOR_CLAIMS):
                self._compare(member)

        for member in waiting.values():
            self._compare(member)

        strays = self._strays(group, waiting.values())
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
