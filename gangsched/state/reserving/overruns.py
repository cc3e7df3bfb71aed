"""Groups that run longer than declared (semantics H11).

Invariant: an overrun is reported once per run of a group, when its first member exceeds its run
time; for a plain pod once per declared value. Overruns that began before the start of this process
were reported by an earlier one. After a pod has run much longer than declared, the run times
declared in its namespace are ignored for `ignore_s`.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator

from gangsched.api.keys import DEADLINE
from gangsched.api.run_time import DEFAULT, RunTime, run_time, run_time_s
from gangsched.core.reservations.expected_end import expected_end_s
from gangsched.model.objects import Pod
from gangsched.model.protocol import ObjectRef, RecordEvent
from gangsched.model.reasons import EventReason
from gangsched.sentences.times import by
from gangsched.state.gangs import GangRecord
from gangsched.state.groups import Registry
from gangsched.state.member_store import MemberStore
from gangsched.state.members import Member, State
from gangsched.state.reporting.gang_events import gang_ref, pod_ref
from gangsched.state.reserving.expected_ends import LATE_S
from gangsched.state.rule_set import Rules
from gangsched.state.timers import JUMP_S

LEAST_S = 600.0
"""By how much longer than stated a pod runs at least where its statements stop to count."""
ENDS_AT_A_TIME = 500
"""Run times that are over in one turn: thousands of pods of one user may have started together."""
SPARE = 1_000
"""Entries of pods that are gone are dropped once there are so many more entries than pods."""


class Overruns:
    """Started pods with a known run time; `default_s` is the run time of pods that declare none."""

    def __init__(self, members: MemberStore, registry: Registry, rules: Rules) -> None:
        self._members = members
        self._registry = registry
        self._names = rules.scheduler_names
        self._default_s = rules.defaults.expected_runtime_s
        self._ignore_s = rules.ignore_run_times_s
        self._ignored_until_s: dict[str, float] = {}
        self._much_later: list[tuple[float, str]] = []
        self._ends: list[tuple[float, str]] = []
        self._end_of: dict[str, float] = {}
        self._since_s: float | None = None
        self._now_to_wall_s = 0.0

    def note(self, pod: Pod, gang: GangRecord | None) -> None:
        """Update a new or changed pod, or a pod whose gang changed; cheap for pods without a run
        time or a start.
        """
        # A run time begins when the kubelet starts the pod, not with the bind.
        if not pod.start_s or pod.scheduler_name not in self._names:
            return

        stated_s = run_time_s(pod.run_time_metadata, _stated_by(gang), self._default_s)
        end_s = pod.start_s + stated_s + _slack_s(pod)
        if end_s == math.inf:
            self._end_of.pop(pod.uid, None)  # the statement may have been taken back
            return

        # Nearly every update of a pod; a heap entry for each would make it grow with the kubelet's
        # writes.
        if self._end_of.get(pod.uid) == end_s:
            return

        self._end_of[pod.uid] = end_s
        heapq.heappush(self._ends, (end_s, pod.uid))

        if len(self._ends) > 2 * len(self._members.uids()) + SPARE:
            self._forget_the_gone()

    def due(self, now_s: float, wall_s: float) -> list[RecordEvent]:
        """Events of groups that exceeded their run time since the last call; `wall_s` is in epoch
        seconds.
        """
        offset_s = wall_s - now_s
        if offset_s <= self._now_to_wall_s - JUMP_S:
            self._conclude_again(wall_s)

        self._now_to_wall_s = offset_s
        # What was over before was reported by the process before (an Event, which is not read
        # back).
        since_s = wall_s if self._since_s is None else self._since_s
        self._since_s = since_s
        events = []

        for _ in range(ENDS_AT_A_TIME):
            if not self._ends or self._ends[0][0] > wall_s:
                break

            end_s, uid = heapq.heappop(self._ends)
            member = self._members.get(uid)
            # An outdated entry: the run time was edited, and its new end has an entry of its own.
            if member is None or self._end_of.get(uid) != end_s:
                continue

            stated = self._run_time(member)
            if self._ignore_s:
                self._watch(member, stated, end_s)

            # Its gang may be another one by now, or state nothing any more.
            if member.state is not State.BOUND or stated.seconds == math.inf:
                continue
            if since_s < end_s and self._is_news(member):
                events.append(self._event(member, stated, wall_s))

        return [*events, *self._ignore(wall_s)]

    def next_deadline_s(self) -> float:
        """Time at which the next pod exceeds its run time."""
        due = []
        for heap in (self._ends, self._much_later):
            if heap:
                due.append(heap[0][0])

        due += self._ignored_until_s.values()
        if due and self._since_s is not None:
            return min(due) - self._now_to_wall_s

        return math.inf

    def _conclude_again(self, wall_s: float) -> None:
        """The clock was set back: what it made of the pods that run is looked at again."""
        self._much_later = []
        self._ends = [(end_s, uid) for uid, end_s in self._end_of.items()]
        heapq.heapify(self._ends)

        # What is to last longer than it ever does was decided while the clock was ahead.
        latest_s = wall_s + self._ignore_s
        before = self._ignored_until_s
        self._ignored_until_s = {
            namespace: until_s for namespace, until_s in before.items() if until_s <= latest_s
        }
        if self._ignored_until_s.keys() != before.keys():
            self._registry.ignore_run_times(self._ignored_until_s.keys())

    def _watch(self, member: Member, stated: RunTime, end_s: float) -> None:
        """See when the pod runs for much longer than its owner states; a kubelet and a default are
        no statements.
        """
        if stated.source not in (DEADLINE, DEFAULT, ""):
            heapq.heappush(
                self._much_later,
                (end_s + much_longer_s(stated.seconds, LEAST_S), member.pod.uid),
            )

    def _ignore(self, wall_s: float) -> Iterator[RecordEvent]:
        """Bring up to date in which namespaces statements count for nothing; Events where that
        begins.
        """
        before = self._ignored_until_s.keys() | set()
        again = []

        while self._much_later and self._much_later[0][0] <= wall_s:
            at_s, uid = heapq.heappop(self._much_later)
            member = self._members.get(uid)
            if (
                member is None
                or member.state is not State.BOUND
                or at_s < self._end_of.get(uid, math.inf)
            ):
                continue

            namespace = member.pod.namespace
            until_s = wall_s + self._ignore_s

            if namespace not in self._ignored_until_s:
                yield self._ignored_event(member, until_s)

            self._ignored_until_s[namespace] = until_s
            # As long as the pod runs on, its namespace stays ignored: look again before that ends.
            again.append((until_s - 1.0, uid))

        # After the loop, which would else take the same entries again and again where `ignore_s` is
        # short.
        for entry in again:
            heapq.heappush(self._much_later, entry)

        over = []
        for namespace, until_s in self._ignored_until_s.items():
            if until_s <= wall_s:
                over.append(namespace)

        for namespace in over:
            del self._ignored_until_s[namespace]

        if before != self._ignored_until_s.keys():
            self._registry.ignore_run_times(self._ignored_until_s.keys())

    def _ignored_event(self, member: Member, until_s: float) -> RecordEvent:
        pod = member.pod
        until = by(until_s)
        text = (
            f"pod {pod.key} has run much longer than declared; declared run times of pods in"
            f" namespace {pod.namespace}"
        )
        text += f" are ignored until {until} at the earliest"

        return RecordEvent(self._ref(member), EventReason.RUN_TIMES_IGNORED, text, warning=True)

    def _run_time(self, member: Member) -> RunTime:
        of_gang = _stated_by(self._registry.gangs.get(member.gang))
        return run_time(member.pod.run_time_metadata, of_gang, default_s=self._default_s)

    def _ref(self, member: Member) -> ObjectRef:
        gang = self._registry.gangs.get(member.gang)
        if gang is None:
            return pod_ref(member.pod)

        return gang_ref(gang) or pod_ref(member.pod)

    def _is_news(self, member: Member) -> bool:
        """Whether nobody has told of this run of its gang; each Permit begins a new one (semantics
        B4).
        """
        gang = self._registry.gangs.get(member.gang)
        if gang is None:
            return True

        run = member.permit.epoch if member.permit is not None else 0
        if gang.told_run == run:
            return False

        gang.told_run = run
        return True

    def _event(self, member: Member, stated: RunTime, wall_s: float) -> RecordEvent:
        pod = member.pod
        ends_s = expected_end_s(pod.start_s, stated.seconds, wall_s)
        ends = by(ends_s)
        text = f"pod {pod.key} has exceeded its run time of {stated.seconds:g} s ({stated.source})"

        return RecordEvent(
            self._ref(member),
            EventReason.OVERRUN,
            f"{text}; it is now expected to end by {ends}",
            warning=True,
        )

    def _forget_the_gone(self) -> None:
        self._end_of = {
            uid: end_s for uid, end_s in self._end_of.items() if uid in self._members.uids()
        }
        self._ends = [
            (end_s, uid)
            for uid, end_s in self._end_of.items()
            if end_s > (self._since_s or -math.inf)
        ]
        heapq.heapify(self._ends)


def much_longer_s(stated_s: float, least_s: float) -> float:
    """The overrun in seconds from which declarations are ignored: a tenth of the run time, at least
    `least_s`.
    """
    return max(0.1 * stated_s, least_s)


def _slack_s(pod: Pod) -> float:
    """How late a pod may end and be on time; at its deadline the kubelet gives it its
    grace period.
    """
    if DEADLINE not in dict(pod.run_time_metadata):
        return LATE_S

    return LATE_S + pod.grace_s


def _stated_by(gang: GangRecord | None) -> str | None:
    return gang.stated_run_time if gang is not None else None
