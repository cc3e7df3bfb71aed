"""Counts and durations of gangs, for metrics.

Invariant: no decisions and no names of gangs. The waiting time of a gang begins when it first has
its quorum, and ends when enough binds for its minimum have succeeded. A gang that loses its quorum,
or starts again, waits again; after a restart the wait begins with the first list.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from gangsched.model.gang import Gang, Refusal, namespace_of
from gangsched.model.plan import Verdict
from gangsched.model.reasons import Reason
from gangsched.state.broken_groups import broken
from gangsched.state.gangs import GangWait
from gangsched.state.group_record import GroupRecord, PendingPart
from gangsched.state.groups import Registry
from gangsched.state.members import Member

NOT_LOOKED_AT = "New"
"""The reason of those that no plan has looked at yet."""
REASONS = (*(reason.value for reason in Reason), NOT_LOOKED_AT)
COUNTED_PER_REFRESH = 500
"""Groups that are counted at a time, at one or two microseconds each."""
MOST_KEPT = 10_000
"""Starts that are kept for somebody who may never ask, such as a simulation."""


class Loss(StrEnum):
    """Why a bound member was lost (L1)."""

    NODE = "node"
    FAILED = "failed"
    DELETED = "deleted"
    REJECTED = "rejected"


class Healed(NamedTuple):
    """A lost member is replaced: outside of its gang's home or there, by a pod that was created at
    this epoch second.
    """

    is_outside: bool
    created_s: int


@dataclass(slots=True)
class GangCounts:
    """Counters: groups that yielded (D1) or timed out (T2), members that a kubelet rejected (B6),
    objects that were set aside (I8).
    """

    yielded: int = 0
    timed_out: int = 0
    kubelet_rejected: int = 0
    set_aside: int = 0
    #: Bound members that were lost, by cause (L1).
    losses: Counter[Loss] = field(default_factory=Counter)

    def committed(self, verdict: Verdict) -> None:
        """Count a committed verdict."""
        self.yielded += bool(verdict.yields_to)
        self.timed_out += verdict.expired


@dataclass(slots=True)
class Pending:
    """The number of waiting gangs and pods by reason, of broken gangs (B5), and of pods with a hold
    (R3).

    `namespaces` has the waiting pods of each namespace, `never` the gangs that would not fit into
    the empty cluster.
    """

    gangs: Counter[str] = field(default_factory=Counter)
    pods: Counter[str] = field(default_factory=Counter)
    broken: int = 0
    held: int = 0
    namespaces: Counter[str] = field(default_factory=Counter)
    never: int = 0

    def add(self, part: PendingPart, sign: int = 1) -> None:
        """Add (+1) or remove (-1) a waiting gang."""
        reason, plain, pods, held, is_broken, namespace, never = part
        self.pods[reason] += sign * pods

        self.namespaces[namespace] += sign * pods
        # Namespaces come and go, unlike reasons.
        if not self.namespaces[namespace]:
            del self.namespaces[namespace]

        if not plain:
            self.never += sign * never
            self.gangs[reason] += sign
            self.broken += sign * is_broken
            self.held += sign * held


class PendingCount:
    """Keeps `Pending` up to date by recounting only changed groups, because a scrape must not count
    50,000 waiting gangs.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._sum = Pending()
        self._changed: set[GroupRecord] = set()

        #: Receives a group that could not be counted, and the exception.
        self.fails: Callable[[str, Exception], None] = _raise

    def changed(self, groups: Iterable[GroupRecord]) -> None:
        """Record groups that changed or are gone, for a recount."""
        self._changed.update(groups)

    def catch_up(self, most: int = COUNTED_PER_REFRESH) -> None:
        """Recount some of the changed groups; `now` recounts the remaining ones."""
        registry = self._registry
        for _ in range(min(most, len(self._changed))):
            group = self._changed.pop()
            # By identity: a group that was formed again under the same id has another record, which
            # counts for itself.
            parts: tuple[PendingPart, ...] = ()

            try:
                if registry.groups.get(group.id) is group:
                    parts = parts_of(registry, group)
            except Exception as error:  # of this group; the others are counted (I10)
                self.fails(group.id, error)

            if parts == group.counted:
                continue

            for part in group.counted:
                self._sum.add(part, -1)

            for part in parts:
                self._sum.add(part)

            group.counted = parts

    def now(self) -> Pending:
        """Waiting gangs and pods as of the last refresh and commit."""
        self.catch_up(len(self._changed))
        return self._sum


def _raise(group_id: str, error: Exception) -> None:
    raise error


def parts_of(registry: Registry, group: GroupRecord) -> tuple[PendingPart, ...]:
    """The parts that the waiting gangs of a group add to `Pending`."""
    gangs = [gang for gang in map(registry.view, group.gangs) if gang.waiting]
    verdict = group.told_verdict

    if not gangs:
        return ()
    if verdict is None:
        return tuple([_part(gang, None) for gang in gangs])
    if not verdict.gangs:
        return tuple([_part(gang, verdict.told) for gang in gangs])

    refusals = dict(verdict.gangs)
    return tuple([_part(gang, refusals.get(gang.id, verdict.told)) for gang in gangs])


def _part(gang: Gang, refusal: Refusal | None) -> PendingPart:
    reason = refusal.reason.value if refusal is not None else NOT_LOOKED_AT
    never = refusal is not None and refusal.never
    held = len(gang.held)
    number = len(gang.pending) + len(gang.retry) + len(gang.later) + len(gang.kept) + held

    return reason, gang.plain, number, held, broken(gang), namespace_of(gang.id), never


def count_pending(registry: Registry) -> Pending:
    """Count all waiting gangs and pods again."""
    pending = Pending()
    for group in registry.groups.values():
        for part in parts_of(registry, group):
            pending.add(part)

    return pending


@dataclass(frozen=True, slots=True)
class GangStart:
    """A gang with the minimum `min_member` has started: its waiting time and number of rounds."""

    min_member: int
    wait_s: float
    rounds: int


class GangWaits:
    """Waiting times of gangs that have a quorum and have not started; plain pods are
    not measured.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._started: deque[GangStart] = deque(maxlen=MOST_KEPT)
        self._healed: deque[Healed] = deque(maxlen=MOST_KEPT)

    def changed(self, group: GroupRecord, gangs: Iterable[Gang], now_s: float) -> None:
        """Update the waiting times of a changed group; `gangs` are its current gangs."""
        for gang in gangs:
            if gang.plain or gang.satisfied:
                continue  # the answers to its binds are to come, or it started before

            record = self._registry.gangs[gang.id]
            if not gang.waiting or gang.uninitialised is not None or gang.quorum < gang.min_member:
                record.wait = None
                continue

            # Some were bound and none is any more: it starts again, and so does its wait.
            if record.wait is None or record.wait.bound:
                record.wait = GangWait(now_s, group.rounds, 0)

            record.wait.lacks = max(1, gang.min_member - gang.bound)

    def bound(
        self,
        member: Member,
        gang: Gang,
        group: GroupRecord,
        now_s: float,
    ) -> None:
        """Record a successful bind of a member."""
        if member.heals:
            is_outside = bool(member.outside)
            self._healed.append(Healed(is_outside, member.pod.creation_s))

        record = self._registry.gangs[gang.id]
        if (wait := record.wait) is None:
            return

        wait.bound += 1
        if wait.bound >= wait.lacks:
            record.wait = None
            self._started.append(
                GangStart(gang.min_member, now_s - wait.since_s, group.rounds - wait.rounds)
            )

    def take_healed(self) -> list[Healed]:
        """Replacements that were bound since the last call."""
        healed = list(self._healed)
        self._healed.clear()
        return healed

    def take_started(self) -> list[GangStart]:
        """Gangs that started since the last call."""
        started = list(self._started)
        self._started.clear()
        return started
