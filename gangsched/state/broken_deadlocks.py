"""Running gangs that each lost members and hold the room that the other needs (semantics D2).

Invariant: pure bookkeeping between plans. Whether a group would fit without another one is asked of
a plan (`gangsched.turn`), one question in a turn; an answer stands while neither group changes, and
for a minute at most.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Final, TypeAlias

from gangsched.core.queue_sort import group_key
from gangsched.model.gang import Group, namespace_of, shown
from gangsched.model.objects import Pod
from gangsched.model.plan import Verdict
from gangsched.model.preemption import BrokenDeadlock
from gangsched.model.reasons import Reason
from gangsched.model.snapshot import Snapshot
from gangsched.state.cluster import Cluster
from gangsched.state.group_record import GroupRecord, QueueCause
from gangsched.state.groups import Registry
from gangsched.state.members import Member, State
from gangsched.state.queueing.queue import Queue
from gangsched.state.reporting.reports import Reports
from gangsched.state.rule_set import Rules

LOOK_EVERY_S: Final = 10.0
ASKED_AGAIN_S: Final = 60.0
MOST_GROUPS: Final = 8
"""Groups that are compared with each other, the first in rank: 56 questions at most."""

Key: TypeAlias = tuple[frozenset[str], frozenset[str]]
"""The uids of a group's bound members and of those that wait."""


@dataclass(frozen=True, slots=True)
class Question:
    """Whether `group` would get all that it lacks if the members of the group `without` were gone,
    which are the pods `gone` with their nodes.
    """

    group: Group
    without: str
    snapshot: Snapshot
    gone: tuple[tuple[Pod, str], ...]
    keys: tuple[Key, Key]


@dataclass(frozen=True, slots=True)
class _Answer:
    keys: tuple[Key, Key]
    fits: bool
    at_s: float


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two groups in a deadlock since a monotonic second; the first ranks before the second."""

    first: str
    second: str
    since_s: float


class BrokenDeadlocks:
    """`yields` maps a group to the uids of the members that give up their room for it."""

    def __init__(
        self,
        cluster: Cluster,
        registry: Registry,
        queue: Queue,
        reports: Reports,
        rules: Rules,
    ) -> None:
        self.yields: Mapping[str, frozenset[str]] = {}
        self._cluster = cluster
        self._registry = registry
        self._queue = queue
        self._reports = reports
        self._after_s = (
            rules.broken_deadlock_after_s
            if rules.broken_deadlock is BrokenDeadlock.YIELD
            else math.inf
        )
        #: Groups that lack members and were refused for room.
        self._broken: set[str] = set()
        self._pairs: tuple[_Pair, ...] = ()
        self._answers: dict[tuple[str, str], _Answer] = {}
        self._look_s = -math.inf

    def committed(self, group: GroupRecord, verdict: Verdict) -> None:
        """Record a committed verdict."""
        self._broken.discard(group.id)

        gangs = map(self._registry.view, group.gangs)
        lacks = any(gang.lacks for gang in gangs)
        is_refused = verdict.reason is Reason.UNSCHEDULABLE
        if lacks and is_refused and not verdict.binds:
            self._broken.add(group.id)

    def question(self, now_s: float) -> Question | None:
        """The next question; None if there is none at present."""
        if now_s < self._look_s:
            return None
        if not self._has_any():
            return None

        groups = self._groups(now_s)
        keys: dict[str, Key] = {}
        for group in groups:
            keys[group.id] = self._key(group.id)

        for first, second in combinations(groups, 2):
            for group, other in ((first, second), (second, first)):
                if self._is_open(group.id, other.id, keys, now_s):
                    asked = (keys[group.id], keys[other.id])
                    gone = tuple(self._placed(other.id))
                    snapshot = self._cluster.snapshot()
                    return Question(group, other.id, snapshot, gone, asked)

                if not self._answers[group.id, other.id].fits:
                    break  # the other way round it does not matter

        self._look_s = now_s + LOOK_EVERY_S
        self._conclude(groups, now_s)
        return None

    def answer(self, question: Question, *, fits: bool, now_s: float) -> None:
        """Record the answer to a question."""
        asked = question.group.id, question.without
        self._answers[asked] = _Answer(question.keys, fits, now_s)

    def next_deadline_s(self) -> float:
        """Monotonic time at which `question` must be called again."""
        if not self._has_any():
            return math.inf

        return self._look_s

    # --- inside ----------------------------------------------------------------------------------

    def _groups(self, now_s: float) -> list[Group]:
        self._broken &= self._registry.groups.keys()
        idle = []
        for group_id in self._broken:
            group = self._registry.group(group_id, now_s)
            record = self._registry.groups[group_id]
            # What is evicted or nominated already is on its way.
            if record.nomination is not None:
                continue

            # Who has nobody to place waits for its controller, not for room.
            if any(gang.waiting for gang in group.gangs):
                idle.append(group)

        idle.sort(key=group_key)
        return idle[:MOST_GROUPS]

    def _has_any(self) -> bool:
        """Whether there may be a deadlock, or one was told."""
        return len(self._broken) > 1 or bool(self._pairs)

    def _members(self, group_id: str) -> Iterator[Member]:
        for gang in self._registry.groups[group_id].gangs:
            yield from self._registry.gangs[gang].members.values()

    def _bound(self, group_id: str) -> list[Member]:
        members = self._members(group_id)
        return [member for member in members if member.state is State.BOUND]

    def _placed(self, group_id: str) -> Iterator[tuple[Pod, str]]:
        """The bound members of a group, each with its node."""
        for member in self._bound(group_id):
            yield member.pod, member.node

    def _bound_uids(self, group_id: str) -> frozenset[str]:
        uids = set()
        for member in self._bound(group_id):
            uids.add(member.pod.uid)

        return frozenset(uids)

    def _key(self, group_id: str) -> Key:
        waiting = set()
        for member in self._members(group_id):
            if not member.node:
                waiting.add(member.pod.uid)

        return self._bound_uids(group_id), frozenset(waiting)

    def _is_open(self, group: str, other: str, keys: Mapping[str, Key], now_s: float) -> bool:
        known = self._answers.get((group, other))
        if known is None:
            return True

        asked_again_s = known.at_s + ASKED_AGAIN_S
        if now_s >= asked_again_s:
            return True

        return known.keys != (keys[group], keys[other])

    def _conclude(self, groups: list[Group], now_s: float) -> None:
        """Record who is in a deadlock, tell it, and let the lower rank yield once it has lasted."""
        since_s: dict[tuple[str, str], float] = {}
        about: set[str] = set()
        for pair in self._pairs:
            since_s[pair.first, pair.second] = pair.since_s
            about |= {pair.first, pair.second}

        pairs: list[_Pair] = []
        ids = [group.id for group in groups]
        for first, second in combinations(ids, 2):
            if not self._is_yes(first, second) or not self._is_yes(second, first):
                continue

            began_s = since_s.get((first, second), now_s)
            pairs.append(_Pair(first, second, began_s))
            about |= {first, second}

        for asked in list(self._answers):
            if not set(ids).issuperset(asked):
                del self._answers[asked]

        self._pairs = tuple(pairs)
        self._tell(about, now_s)
        self._yield(now_s)

    def _is_yes(self, group: str, other: str) -> bool:
        """Whether a group is known to fit without the members of the other one."""
        answer = self._answers.get((group, other))
        return answer is not None and answer.fits

    def _tell(self, groups: Iterable[str], now_s: float) -> None:
        for group_id in groups:
            if group_id not in self._registry.groups:
                continue

            other = self._opposite(group_id)
            for gang in self._registry.groups[group_id].gangs:
                record = self._registry.gangs[gang]
                text = ""
                if other is not None:
                    text = deadlock_text(group_id, other, record.namespace)

                if record.deadlock != text:
                    record.deadlock = text
                    self._reports.note(group_id, now_s)

    def _opposite(self, group_id: str) -> str | None:
        """The other group of its first pair."""
        for pair in self._pairs:
            if pair.first == group_id:
                return pair.second
            if pair.second == group_id:
                return pair.first

        return None

    def _yield(self, now_s: float) -> None:
        yields: dict[str, frozenset[str]] = {}
        giving: set[str] = set()
        for pair in self._pairs:
            due_s = pair.since_s + self._after_s
            if now_s < due_s:
                continue
            if pair.first in giving or pair.first in yields:
                continue

            yields[pair.first] = self._bound_uids(pair.second)
            giving.add(pair.second)
            self._queue.activate(pair.first, QueueCause.DEADLOCK)

        self.yields = yields


def deadlock_text(group_id: str, other: str, namespace: str) -> str:
    """What a gang is told of a deadlock; groups of other namespaces are not named (I4)."""
    pair = sorted((group_id, other))
    if all(namespace_of(name) == namespace for name in pair):
        return f"each of {shown(pair[0])} and {shown(pair[1])} waits for room that the other holds"

    return "it and a gang of another namespace each wait for room that the other holds"


def all_fit(group: Group, verdicts: Iterable[Verdict]) -> bool:
    """Whether a plan gives a group all that it lacks."""
    lacks = sum(gang.lacks for gang in group.gangs)
    placed: set[str] = set()
    for verdict in verdicts:
        if verdict.group == group.id:
            placed |= {placement.pod.uid for placement in verdict.binds}

    waiting: list[Pod] = []
    for gang in group.gangs:
        waiting += [*gang.pending, *gang.retry]

    return len(placed) >= min(lacks, len(waiting))
