"""Groups of ours that run for longer than they state (semantics H11).

Law: a group is told once a run, when the first of its members passes its run time; a plain pod once a statement. What
had passed before this process knew the present is not told: the one before it did. Nothing else follows from it here.
"""

from __future__ import annotations

import heapq
import math

from gangsched.api.keys import DEADLINE
from gangsched.api.run_time import run_time, run_time_s
from gangsched.api.timestamps import format_timestamp
from gangsched.core.reservations.expected_end import expected_end_s
from gangsched.model.objects import Pod
from gangsched.model.protocol import RecordEvent
from gangsched.model.reasons import EventReason
from gangsched.state.gangs import GangRecord
from gangsched.state.groups import Registry
from gangsched.state.member_store import MemberStore
from gangsched.state.members import Member, State
from gangsched.state.reporting.gang_events import gang_ref, pod_ref
from gangsched.state.reserving.expected_ends import LATE_S

SPARE = 1_000
"""Entries of pods that are gone are dropped once there are so many more entries than pods."""


class Overruns:
    """Follows the pods of ours that have started and whose run time is known; `default_s` is that of the others."""

    def __init__(
        self, members: MemberStore, registry: Registry, *, names: frozenset[str], default_s: float | None
    ) -> None:
        self._members = members
        self._registry = registry
        self._names = names
        self._default_s = default_s
        self._ends: list[tuple[float, str]] = []
        self._end_of: dict[str, float] = {}
        self._told_runs: dict[str, int] = {}
        self._since_s: float | None = None
        self._now_to_wall_s = 0.0

    def note(self, pod: Pod, gang: GangRecord | None) -> None:
        """A pod exists or has changed, or what its gang states; most have no run time or have not started."""
        if not pod.start_s or pod.scheduler_name not in self._names:
            return
        stated_s = run_time_s(pod.run_time_metadata, _stated_by(gang), self._default_s)
        end_s = pod.start_s + stated_s + _slack_s(pod)
        if end_s == math.inf or self._end_of.get(pod.uid) == end_s:
            return
        self._end_of[pod.uid] = end_s
        heapq.heappush(self._ends, (end_s, pod.uid))
        if len(self._ends) > 2 * len(self._members.uids()) + SPARE:
            self._forget_the_gone()

    def due(self, now_s: float, wall_s: float) -> list[RecordEvent]:
        """The Events of groups that have passed their run time since last asked; `wall_s` is in epoch seconds."""
        self._now_to_wall_s = wall_s - now_s
        since_s = self._since_s = wall_s if self._since_s is None else self._since_s
        events = []
        while self._ends and self._ends[0][0] <= wall_s:
            end_s, uid = heapq.heappop(self._ends)
            member = self._members.get(uid)
            is_current = self._end_of.get(uid) == end_s and since_s < end_s
            if is_current and member is not None and member.state is State.BOUND and self._is_news(member):
                events.append(self._event(member, wall_s))
        return events

    def next_deadline_s(self) -> float | None:
        """When the next run time is over."""
        return self._ends[0][0] - self._now_to_wall_s if self._ends and self._since_s is not None else None

    def forget(self, gangs: set[str]) -> None:
        """These gangs are gone."""
        for gang_id in gangs & self._told_runs.keys():
            del self._told_runs[gang_id]

    def _is_news(self, member: Member) -> bool:
        """Whether nobody has told of this run of its gang; each Permit begins a new one (semantics B4)."""
        gang = self._registry.gangs.get(member.gang)
        if gang is None:
            return True
        run = member.permit.epoch if member.permit is not None else 0
        if self._told_runs.get(gang.id) == run:
            return False
        self._told_runs[gang.id] = run
        return True

    def _event(self, member: Member, wall_s: float) -> RecordEvent:
        pod, gang = member.pod, self._registry.gangs.get(member.gang)
        found = run_time(pod.run_time_metadata, _stated_by(gang), default_s=self._default_s)
        ends = format_timestamp(int(expected_end_s(pod.start_s, found.seconds, wall_s)), seconds=False)
        text = f"pod {pod.key} runs for longer than the {found.seconds:g} s of {found.source}"
        ref = (gang_ref(gang) if gang is not None else None) or pod_ref(pod)
        return RecordEvent(ref, EventReason.OVERRUN, f"{text}; it is expected to end by {ends} now", warning=True)

    def _forget_the_gone(self) -> None:
        self._end_of = {uid: end_s for uid, end_s in self._end_of.items() if uid in self._members.uids()}
        self._ends = [(end_s, uid) for uid, end_s in self._end_of.items() if end_s > (self._since_s or -math.inf)]
        heapq.heapify(self._ends)


def _slack_s(pod: Pod) -> float:
    """How late a pod may end and be on time; at its deadline the kubelet gives it its grace period."""
    return LATE_S + (pod.grace_s if DEADLINE in dict(pod.run_time_metadata) else 0)


def _stated_by(gang: GangRecord | None) -> str | None:
    return gang.stated_run_time if gang is not None else None
