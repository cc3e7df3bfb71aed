"""Room that members keep after their binds, or the writes of their claims, were refused (semantics
B3).

Invariant: only gangs that were noted are looked at, so that a turn costs nothing where no bind was
refused.
"""

from __future__ import annotations

import math

from gangsched.model.parts import broken_part
from gangsched.model.tree import Part, gangs_of
from gangsched.state.claim_binding import waits
from gangsched.state.groups import Registry
from gangsched.state.member_store import MemberStore
from gangsched.state.members import State
from gangsched.state.queueing.queue import Queue


class KeptRooms:
    """The gangs with members that keep their room."""

    def __init__(self, members: MemberStore, registry: Registry, queue: Queue) -> None:
        self._members = members
        self._registry = registry
        self._queue = queue
        self._keeping: set[str] = set()

    def note(self, gang_id: str) -> None:
        """Record that a member of a gang keeps its room."""
        self._keeping.add(gang_id)

    def release(self, now_s: float) -> None:
        """Give back the room of failed binds when its time is over, or no part around their gang is
        broken (B3).

        A gang of which no bind succeeded is placed again as a whole, and members with claims get
        them anew: they keep their room until they are planned.
        """
        broken: dict[str, Part | None] = {}
        for gang_id in list(self._keeping):
            gang = self._registry.gangs.get(gang_id)
            kept = []
            if gang is not None:
                kept = gang.of(State.KEPT)

            if gang is None or not kept:
                self._keeping.discard(gang_id)
                continue

            group_id = self._registry.group_of.get(gang_id, gang_id)
            # Once for all gangs of a group, which may have hundreds.
            if group_id not in broken:
                broken[group_id] = self._broken_part(group_id)

            part = broken[group_id]
            is_known = group_id in self._registry.groups
            rests = is_known and self._queue.backs_off(group_id, now_s)
            released = []
            for member in kept:
                # Another try of its own would write what may not be there any more.
                is_placed_anew = gang.permit is None or waits(member.selections)
                is_planned_now = is_placed_anew and not rests
                if part is None or is_planned_now or now_s >= member.keeps_until_s:
                    released.append(member)

            self._members.release(released)
            if part is None:
                for member in released:
                    member.keeps_until_s = 0.0  # what it keeps in another start is for that one

    def _broken_part(self, group_id: str) -> Part | None:
        """The part that has something and is not whole without members that wait for their claims,
        which may never be bound.
        """
        root = self._registry.parts(group_id)
        sent: dict[str, int] = {}
        for gang_id in gangs_of(root.part):
            gang = self._registry.gangs.get(gang_id)
            if gang is not None:
                waiting = gang.of(State.WAITING_FOR_CLAIMS)
                sent[gang_id] = max(0, gang.started - len(waiting))

        return broken_part(root, sent)

    def next_deadline_s(self) -> float:
        """Time at which a member has kept its room for long enough."""
        times_s: list[float] = []
        for gang_id in self._keeping & self._registry.gangs.keys():
            gang = self._registry.gangs[gang_id]
            for member in gang.of(State.KEPT):
                times_s.append(member.keeps_until_s)

        return min(times_s, default=math.inf)
