"""Holding back: which group keeps lower-priority groups off the nodes that it may use (semantics
V27).

Invariant: at most one group holds others back: the highest-ranked waiting group that may preempt
and has time left. A group has `hold_back_s` in total, from the start of its wait until it starts or
is gone. The groups of a namespace and priority share one budget of that length, followed by a rest
`RESTS` times as long; otherwise a gang that is recreated repeatedly would hold others back
indefinitely. Nodes that are opened again are reported to the cluster, so that waiting groups are
examined.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from math import inf
from typing import Final

from gangsched.model.preemption import HeldBack, Share
from gangsched.state.cluster import Cluster
from gangsched.state.group_record import GroupRecord

RESTS: Final = 10


class HoldingBack:
    """The group that holds others back. In `cluster` it only marks nodes as freed. Times are
    monotonic seconds.
    """

    def __init__(self, cluster: Cluster, *, hold_back_s: float) -> None:
        self._cluster = cluster
        self._hold_back_s = hold_back_s
        self._waiting: set[GroupRecord] = set()
        self._share_until_s: dict[Share, float] = {}

        # With the time at which the group's time is over.
        self._shown: tuple[HeldBack, float] | None = None

    def look(self, now_s: float) -> None:
        """Update which group holds others back."""
        for group in [group for group in self._waiting if _until_s(group) <= now_s]:
            self._waiting.remove(group)
            group.holds_back = None

        # A share is kept beyond its end, for as long as its groups must rest.
        rest_s = RESTS * self._hold_back_s
        for share in [
            share for share, until_s in self._share_until_s.items() if until_s + rest_s <= now_s
        ]:
            del self._share_until_s[share]

        waiting = (
            (each, _until_s(group))
            for group in self._waiting
            if (each := group.holds_back) is not None
        )
        shown = min(waiting, key=lambda each: each[0].rank, default=None)
        before = self.now()
        now = shown[0] if shown is not None else None
        self._shown = shown

        if before is not None and (left := _opened(before, now)):
            self._cluster.open(left)

    def now(self) -> HeldBack | None:
        """The group that holds lower-priority groups back now, and the nodes."""
        return self._shown[0] if self._shown is not None else None

    def share_until_s(self) -> Mapping[Share, float]:
        """By namespace and priority: end of the shared time, kept until a new one may begin."""
        return self._share_until_s

    def groups(self) -> Set[str]:
        """Ids of the groups that may hold others back, for validation."""
        return {group.id for group in self._waiting}

    def wait(
        self,
        group: GroupRecord,
        namespaces: Iterable[str],
        where: HeldBack,
        now_s: float,
    ) -> None:
        """Record that a group of these namespaces waits for room that it may get by preemption."""
        until_s = now_s + self._hold_back_s
        shares_s = []

        for namespace in namespaces:
            shares_s.append(self._share_until_s.setdefault((namespace, where.right), until_s))

        if group.holds_back_until_s is None:
            group.holds_back_until_s = min(shares_s)

        group.holds_back = where
        self._waiting.add(group)

    def end(self, group: GroupRecord, *, started: bool = False) -> None:
        """Record that the group no longer waits for room that it may get by preemption. If it has
        `started` (or is gone), its time is reset.
        """
        self._waiting.discard(group)
        group.holds_back = None

        if started:
            group.holds_back_until_s = None

    def next_deadline_s(self) -> float:
        """Time at which `look` must be called even without a message."""
        return self._shown[1] if self._shown is not None else inf


def _until_s(group: GroupRecord) -> float:
    """When its time to hold others back ends."""
    if group.holds_back_until_s is not None:
        return group.holds_back_until_s

    return -inf


def _opened(before: HeldBack, now: HeldBack | None) -> set[str]:
    """Nodes from which somebody is held back no more: a lower right holds fewer back from the same
    nodes.
    """
    return {*before.nodes} - {*(now.nodes if now is not None and now.right >= before.right else ())}
