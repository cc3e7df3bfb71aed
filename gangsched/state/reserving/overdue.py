"""Backfilled groups that have exceeded their declared run time and may be evicted for it (semantics
H11).

Invariant: only groups that used reserved room because of their declared run time may be evicted,
only in favour of the groups whose reservations they used, and only once they exceed the run time by
a tenth and by at least `after_s`. These groups are stored in memory only, so after a restart they
are not evicted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from gangsched.api.run_time import run_time_s
from gangsched.model.plan import Verdict
from gangsched.model.reservation import How, Reserved
from gangsched.state.group_record import QueueCause
from gangsched.state.groups import Registry
from gangsched.state.member_store import MemberStore
from gangsched.state.members import STARTED, Member, State
from gangsched.state.queueing.queue import Queue
from gangsched.state.reserving.overruns import much_longer_s
from gangsched.state.rule_set import Rules

LOOK_EVERY_S = 5.0


class Overdue:
    """`heads` maps a group to the uids that may be evicted for it.

    With the rule `evict_overrun_after_s` None, overruns are only reported.
    """

    def __init__(
        self,
        members: MemberStore,
        registry: Registry,
        queue: Queue,
        rules: Rules,
    ) -> None:
        self.heads: Mapping[str, frozenset[str]] = {}
        self._members = members
        self._registry = registry
        self._queue = queue
        self._default_s = rules.defaults.expected_runtime_s
        self._after_s = rules.evict_overrun_after_s
        self._heads_of: dict[str, frozenset[str]] = {}
        self._look_s = 0.0

    def committed(self, verdict: Verdict, standing: Iterable[Reserved]) -> None:
        """Record a committed verdict, and the reservations at that time."""
        # Only who got in by a declared run time owes it to a head (H11).
        if self._after_s is None or verdict.how is not How.SHORT:
            return

        # A fence has no start that an overrun could delay.
        timed = [
            reservation
            for reservation in standing
            if not reservation.is_fence and reservation.group != verdict.group
        ]
        for bind in verdict.binds:
            heads = frozenset(
                reservation.group for reservation in timed if bind.node in reservation.nodes
            )
            if heads:
                self._heads_of[bind.pod.uid] = heads

    def look(self, now_s: float, wall_s: float) -> None:
        """Update which groups are overdue; heads that may gain room by an eviction are examined
        again.
        """
        if not self._heads_of or now_s < self._look_s:
            return

        self._look_s = now_s + LOOK_EVERY_S
        found: dict[str, set[str]] = {}

        for uid, heads in list(self._heads_of.items()):
            member = self._members.get(uid)
            # It has left the room, and its successor under the same name has another uid.
            if member is None or member.state not in STARTED:
                del self._heads_of[uid]
            elif self._is_overdue(member, wall_s):
                for head in heads & self._registry.groups.keys():
                    # A gang that loses a member for this would hold the rest of its room without
                    # using it.
                    found.setdefault(head, set()).update(self._whole(member))

        before = self.heads
        self.heads = {head: frozenset(uids) for head, uids in found.items()}
        for head, uids in self.heads.items():
            # Only where an eviction became possible: the head was planned beside the others
            # already.
            if not uids <= before.get(head, frozenset()):
                self._queue.activate(head, QueueCause.OVERRUN)

    def next_deadline_s(self) -> float:
        """Time at which `look` must be called again."""
        return self._look_s if self._heads_of else math.inf

    def _is_overdue(self, member: Member, wall_s: float) -> bool:
        pod = member.pod
        gang = self._registry.gangs.get(member.gang)

        if member.state is not State.BOUND or not pod.start_s or self._after_s is None:
            return False

        stated_s = run_time_s(
            pod.run_time_metadata,
            gang.stated_run_time if gang else None,
            self._default_s,
        )
        return wall_s >= pod.start_s + stated_s + much_longer_s(stated_s, self._after_s)

    def _whole(self, member: Member) -> set[str]:
        """All that runs of its group, or the pod alone."""
        group = self._registry.groups.get(self._registry.group_of.get(member.gang, ""))
        if group is None:
            return {member.pod.uid}

        gangs = (self._registry.gangs[gang_id] for gang_id in group.gangs)
        result: set[str] = set()
        for gang in gangs:
            for each in gang.of(*STARTED):
                result.add(each.pod.uid)

        return result
