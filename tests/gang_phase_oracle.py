"""What the status of a PodGroup must say, from the table of semantics E8 alone.

Invariant: shares no code with the package but the pods themselves. It sees every version of every
pod, and is told when gangsched restarts and which pods were lost meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from gangsched.model.objects import Phase, Pod

ADDS_FOR_S: Final = 10.0
"""How long a controller may add members after the last one has ended."""


@dataclass(slots=True)
class Told:
    """What the status must say."""

    phase: str
    counts: dict[str, int]
    #: Reasons that the condition may have.
    reasons: frozenset[str]
    scheduled: bool


@dataclass(slots=True)
class MemberLife:
    """One member that had a node."""

    phase: Phase
    is_here: bool = True
    was_asked: bool = False

    @property
    def has_succeeded(self) -> bool:
        """It did its work, whether or not it was asked to go."""
        return self.phase is Phase.SUCCEEDED

    @property
    def has_failed(self) -> bool:
        """It failed before anybody asked it to go."""
        return self.phase is Phase.FAILED and not self.was_asked

    @property
    def is_deleted(self) -> bool:
        """It went, or was asked to go, before it ended."""
        return (
            not self.has_succeeded and not self.has_failed and (self.was_asked or not self.is_here)
        )


@dataclass(slots=True)
class Ended:
    """Members of the start that ended in one way: those that are gone are a number after a
    restart.
    """

    gone: int = 0

    def total(self, known: int) -> int:
        """All of them; `known` are those of which this process has seen the pods."""
        return self.gone + known


@dataclass(slots=True)
class Oracle:
    """Follows one gang."""

    members: dict[str, MemberLife] = field(default_factory=dict)
    epoch: int = 0
    succeeded: Ended = field(default_factory=Ended)
    failed: Ended = field(default_factory=Ended)
    went: int = 0
    replaced: int = 0
    controllers: set[str] = field(default_factory=set)
    #: Since when nothing lives, None while something does.
    over_since_s: float | None = None
    #: Pods wait that begin another start.
    is_another: bool = False

    def observe(self, pods: Iterable[Pod], now_s: float) -> None:
        """See all pods as they are now."""
        here = {pod.uid: pod for pod in pods}
        newest = max((pod.permitted.epoch for pod in here.values() if pod.permitted), default=0)
        if newest > self.epoch:
            self._begin(newest)

        for uid, member in self.members.items():
            if uid not in here:
                member.is_here = False

        for pod in here.values():
            if self._is_of_start(pod):
                self._see(pod)

        self.is_another = self._begins_another(here.values())
        is_alive = any(pod.live and not pod.deleting for pod in here.values())
        if is_alive:
            self.over_since_s = None
        elif self.over_since_s is None:
            self.over_since_s = now_s

    def _begin(self, epoch: int) -> None:
        self.epoch = epoch
        self.members = {}
        self.succeeded = Ended()
        self.failed = Ended()
        self.went = 0
        self.replaced = 0
        self.controllers = set()

    def _is_of_start(self, pod: Pod) -> bool:
        is_of_another = pod.permitted is not None and pod.permitted.epoch != self.epoch
        return bool(pod.node_name) and not is_of_another

    def _see(self, pod: Pod) -> None:
        member = self.members.get(pod.uid)
        if member is None:
            if self.deleted:
                self.replaced += 1

            member = MemberLife(pod.phase)
            self.members[pod.uid] = member

        if pod.controller_uid:
            self.controllers.add(pod.controller_uid)

        if pod.deleting and not member.has_failed:
            member.was_asked = True

        member.phase = pod.phase

    def restarted(self, pods: Iterable[Pod], now_s: float, *, said: str) -> None:
        """gangsched began again, knowing what it had stored: not how members left meanwhile."""
        here = {pod.uid for pod in pods}
        members = self.members.values()
        succeeded = self.all_succeeded
        failed = self.all_failed

        # While pods wait for another start, only they are counted in what is stored, apart from
        # those that were gone: who of them went since is not known.
        known = [member for uid, member in self.members.items() if member.is_here]
        if not self.is_another:
            known = [member for uid, member in self.members.items() if uid in here]

        self.succeeded = Ended(succeeded - sum(member.has_succeeded for member in known))
        self.failed = Ended(failed - sum(member.has_failed for member in known))
        gone = sum(member.is_deleted for member in members if not member.is_here)
        self.went = max(0, self.went + gone - self.replaced)
        self.replaced = 0
        self.members = {uid: member for uid, member in self.members.items() if uid in here}

        self.observe(pods, now_s)
        if self.over_since_s is not None:
            self.over_since_s = -ADDS_FOR_S if said == "Finished" else now_s

    # --- the table -------------------------------------------------------------------------------

    @property
    def deleted(self) -> int:
        """Members that were deleted and not replaced."""
        gone = sum(member.is_deleted for member in self.members.values())
        return max(0, self.went + gone - self.replaced)

    @property
    def all_succeeded(self) -> int:
        """Members that have succeeded."""
        return self.succeeded.total(sum(member.has_succeeded for member in self.members.values()))

    @property
    def all_failed(self) -> int:
        """Members that have failed."""
        return self.failed.total(sum(member.has_failed for member in self.members.values()))

    def told(self, pods: Iterable[Pod], minimum: int, now_s: float) -> Told | None:
        """The row that applies; None while a controller may add members, when nothing is
        written.
        """
        least = max(1, minimum)
        live = [pod for pod in pods if pod.live and not pod.deleting]
        bound = [pod for pod in live if pod.node_name]
        waiting = [pod for pod in live if not pod.node_name]
        self.is_another = self._begins_another(pods)
        running = sum(pod.phase is Phase.RUNNING for pod in bound)
        succeeded = self.all_succeeded
        failed = self.all_failed
        deleted = self.deleted

        if self.is_another:
            succeeded = 0
            failed = 0
            deleted = 0

        done = len(bound) + succeeded
        counts = {
            "scheduled": done + failed,
            "running": running,
            "succeeded": succeeded,
            "failed": failed,
        }

        def row(phase: str, *reasons: str) -> Told:
            return Told(phase, counts, frozenset(reasons), done >= least)

        if not live and succeeded >= least:
            if self._may_add(now_s):
                return None

            return row("Finished", "Scheduled")

        if not live and failed:
            return row("Failed", "MembersFailed")
        if running + succeeded >= least:
            return row("Running", "Scheduled")
        if done >= least:
            return row("Scheduled", "Scheduled")
        if succeeded and deleted and not waiting:
            return row("Unknown", "MembersDeleted")

        decided = ("Unschedulable", "WaitingForMembers", "BackOff")
        if bound:
            return row("Scheduling", *decided)
        if len(live) >= least:
            return row("PreScheduling", *decided)
        if not live and succeeded:
            return row("Unknown", "WaitingForMembers")

        return row("Pending", *decided)

    def _begins_another(self, pods: Iterable[Pod]) -> bool:
        """Whether pods wait that are not of the start that is remembered."""
        live = [pod for pod in pods if pod.live and not pod.deleting]
        waiting = [pod for pod in live if not pod.node_name]
        if not waiting or len(waiting) < len(live):
            return False

        goes_on = all(pod.controller_uid in self.controllers for pod in waiting)
        return not goes_on or not self.all_succeeded

    def _may_add(self, now_s: float) -> bool:
        since_s = self.over_since_s if self.over_since_s is not None else now_s
        # A little more: when exactly gangsched saw the end is none of the table's business.
        return bool(self.controllers) and now_s - since_s < ADDS_FOR_S + 1
