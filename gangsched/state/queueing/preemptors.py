"""Groups that may get room by preemption, and are therefore woken up not only by freed room
(semantics V25).

Invariant: a preemptor is examined again within `EVERY_S` of a change on a node that could hold one
of its pods if it were empty, or on which lower-priority groups are held back for it. A change is
one of a pod, a nomination, a budget or the node itself; it also counts that a pod becomes old
enough to be evicted. Of equal preemptors (a *kind*) only the first in rank is examined, because a
change that does not help the first does not help the others. So an event costs one check per kind,
and there are at most `AT_ONCE` examinations per second, however many groups wait. What changes
during a search that takes several plans counts as changed once it has ended in vain.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Set
from itertools import accumulate
from typing import Final

import numpy as np

from gangsched.core.queue_sort import group_key
from gangsched.model.gang import Group, Rank
from gangsched.model.objects import Pod
from gangsched.model.preemption import NotHelpful, Obstacle
from gangsched.model.snapshot import Snapshot
from gangsched.state.group_record import GroupRecord, PreemptorKind
from gangsched.state.reserving.news import takes_one_empty

EVERY_S: Final = 1.0
AT_ONCE: Final = 16
"""Groups that are examined in one turn for this alone."""
LOOKS_AT_ONCE: Final = 200
"""Shapes of which it is found out whether they may use a node that changed; kinds with others are
taken to.
"""
UNHELPED: Final = frozenset(
    {Obstacle.POLICY_NEVER, Obstacle.FORBIDDEN, Obstacle.BACK_OFF, Obstacle.DELAYED, Obstacle.LATER}
)
"""Obstacles that nothing on a node ends; each ends by itself, with the group, or never."""
ANYWHERE: Final = ""
"""Instead of a node: what changed is on none."""


class Preemptors:
    """Waiting preemptors. `version` increases with every change that may help one, which
    invalidates earlier results.
    """

    def __init__(self, groups: Mapping[str, GroupRecord]) -> None:
        self.version = 0
        self._groups = groups
        self._kinds: dict[PreemptorKind, list[tuple[Rank, str]]] = {}
        self._of_priority: defaultdict[int, set[PreemptorKind]] = defaultdict(set)

        # where others are held back for the kind (V27)
        self._wanted: dict[PreemptorKind, frozenset[str]] = {}
        self._pending: dict[PreemptorKind, None] = {}  # in the order in which they are examined
        self._changed: set[str] = set()
        self._is_anywhere = False
        self._looked_s = -math.inf
        # for which the next plan goes on looking for victims
        self._searching: set[str] = set()
        # by node or ANYWHERE, the version of its last change; kept while anybody searches
        self._changed_at: dict[str, int] = {}

    def put(self, group: Group, found: NotHelpful) -> None:
        """Record that preemption was allowed but did not help the group."""
        record = self._groups[group.id]
        # Its kind may be another one now, by a changed request or priority.
        self.remove(record)
        woken = record.woken_as
        record.woken_as = None

        may_be_helped = found.why not in UNHELPED
        if may_be_helped or found.wanted:
            kind = _kind(group)
            rank = group_key(group)

            if may_be_helped:
                self._of_priority[kind.priority].add(kind)
            else:
                # It is examined only to end what others are held back for, which says nothing of
                # its equals.
                kind = kind._replace(asks=group.id)

            insort(self._kinds.setdefault(kind, []), (rank, group.id))
            record.preempts_as = kind, rank

            if found.wanted:
                self._wanted[kind] = frozenset(found.wanted)
            else:
                self._wanted.pop(kind, None)

            # It came back to the kind that it was woken for, without being helped: the next ones
            # would not be either.
            woken = None if woken == kind else woken

        self._pass_on(woken)
        if found.why is Obstacle.LATER:
            self._searching.add(group.id)
            if record.searches_since is None:
                record.searches_since = self.version
        else:
            self._look_again(record)

    def _look_again(self, group: GroupRecord) -> None:
        """Count again what changed while plans looked for victims, of which the first may have
        passed over where it was.
        """
        since = group.searches_since
        missed: set[str] = set()
        if since is not None:
            missed = {where for where, version in self._changed_at.items() if version > since}

        self._end_search(group)
        if not missed:
            return

        # No change for others: whoever searched meanwhile looks again as well, once.
        self.version += 1
        if group.preempts_as is not None:
            kind, _ = group.preempts_as
            self._pending[kind] = None

    def _end_search(self, group: GroupRecord) -> None:
        group.searches_since = None
        self._searching.discard(group.id)
        if not self._searching:
            self._changed_at.clear()

    def left(self, group: GroupRecord) -> None:
        """Remove a group that is gone, or no longer waits for room that it may preempt."""
        self._end_search(group)
        self.remove(group)
        woken = group.woken_as
        group.woken_as = None
        self._pass_on(woken)

    def _pass_on(self, kind: PreemptorKind | None) -> None:
        """The one that was woken for all of this kind is not of it any more: the next one is to be
        examined.
        """
        if kind in self._kinds:
            self._pending[kind] = None

    def remove(self, group: GroupRecord) -> None:
        """Remove a group that is about to be planned."""
        if group.preempts_as is None:
            return

        (kind, rank), group.preempts_as = group.preempts_as, None
        entries = self._kinds[kind]
        del entries[bisect_left(entries, (rank, group.id))]

        if not entries:
            del self._kinds[kind]
            self._of_priority[kind.priority].discard(kind)

            if not self._of_priority[kind.priority]:
                del self._of_priority[kind.priority]

            self._wanted.pop(kind, None)
            self._pending.pop(kind, None)

    def note(self, nodes: Iterable[str], *, anywhere: bool = False) -> None:
        """Record a change on these nodes, or `anywhere`, that may help a preemptor."""
        changed = set(nodes)
        self._count(changed, anywhere=anywhere)
        if not self._searching:
            return

        for node in changed:
            self._changed_at[node] = self.version
        if anywhere:
            self._changed_at[ANYWHERE] = self.version

    def _count(self, changed: Set[str], *, anywhere: bool) -> None:
        self._changed |= changed
        self._is_anywhere |= anywhere
        self.version += 1

    def look(
        self,
        snapshot: Callable[[], Snapshot],
        lowest_priority: int | None,
        now_s: float,
    ) -> list[str]:
        """Groups to examine. `lowest_priority` is the lowest priority of running pods; groups of
        this priority or lower cannot preempt.
        """
        # Once a second: on a busy cluster something changes in every turn.
        if not self._is_due or now_s < self._looked_s + EVERY_S:
            return []

        self._looked_s = now_s

        higher = [
            each
            for each in self._of_priority
            if lowest_priority is not None and each > lowest_priority
        ]
        if self._changed or self._is_anywhere:
            may = self._wanted.keys() | set().union(*(self._of_priority[each] for each in higher))
            self._pending |= dict.fromkeys(self._helped(snapshot(), self._changed, may))
            self._changed = set()
            self._is_anywhere = False

        found: list[str] = []
        for kind in list(self._pending):
            if len(found) == AT_ONCE:
                break

            del self._pending[kind]
            # Nothing of lower priority runs any more since it was found pending.
            if kind.priority in higher or kind in self._wanted:
                found.append(self._kinds[kind][0][1])
                self._groups[found[-1]].woken_as = kind

        return found

    def groups(self) -> Set[str]:
        """Ids of all groups, for validation."""
        return {group for entries in self._kinds.values() for _, group in entries}

    def next_deadline_s(self) -> float:
        """Time at which `look` may return a group."""
        return self._looked_s + EVERY_S if self._is_due else math.inf

    @property
    def _is_due(self) -> bool:
        if not self._kinds:
            # Nobody asks for these changes, and node names would pile up.
            self._changed = set()
            self._is_anywhere = False

        return bool(self._changed or self._is_anywhere or self._pending)

    def _helped(
        self,
        snapshot: Snapshot,
        changed: Set[str],
        may: Set[PreemptorKind],
    ) -> list[PreemptorKind]:
        """Those of the kinds that `may` preempt which use a node that changed, those of the first
        groups first.
        """
        kinds = sorted(may, key=lambda kind: self._kinds[kind][0])
        if self._is_anywhere:
            return kinds

        index = snapshot.table.index
        nodes = np.array(sorted(index[name] for name in changed if name in index), dtype=np.int64)
        looked = accumulate(len(kind.shapes) for kind in kinds)

        return [
            kind
            for kind, number in zip(kinds, looked, strict=True)
            # Beyond so many shapes all are taken to use the node: to examine one too many is the
            # cheaper error.
            if number > LOOKS_AT_ONCE
            or not changed.isdisjoint(self._wanted.get(kind, ()))
            or any(takes_one_empty(shape, nodes, snapshot) for shape in kind.shapes)
        ]


def _kind(group: Group) -> PreemptorKind:
    pods = [pod for gang in group.gangs for pod in (*gang.pending, *gang.retry)]
    return PreemptorKind(group.priority, frozenset(pod.shape for pod in pods), _asks(group, pods))


def _asks(group: Group, pods: Iterable[Pod]) -> Hashable:
    """Equal for groups of which preemption helps none if not the first; the id of a group that is a
    kind of its own.
    """
    gang, *others = group.gangs
    has_places = bool(
        gang.nodes or gang.held or gang.kept or gang.retry or gang.bound or gang.succeeded
    )

    looks_around = any(pod.claims or pod.shape.inter_pod is not None for pod in pods)
    # Any of these ties a group to nodes or pods of its own, so that a change may help it and not
    # its equals.
    if others or has_places or looks_around or group.avoid or group.broken or gang.min_resources:
        return group.id

    alike = frozenset(
        Counter((pod.shape, pod.priority, pod.never_preempts) for pod in pods).items()
    )
    return (
        alike,
        gang.min_member,
        gang.mode,
        gang.constraints,
        gang.plain,
        gang.never_preempts,
        gang.run_time_s,
    )
