"""For whom groups of lower priority are held back, from one plan to the next (semantics V27).

Invariant: for one group at a time, the first in rank of those that wait for room which they may preempt and whose time
is not over. Each has `hold_back_s` from the beginning of its wait, whether it was the first or not, until it has
started or is gone; so have all groups of a namespace and a right together, and then none for `RESTS` times as long, or
a gang that is created anew all the time would hold others back without an end. What is opened again is told to the
cluster, so that groups that wait for room there are looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from gangsched.model.gang import Rank
from gangsched.model.preemption import HeldBack, Share
from gangsched.state.cluster import Cluster

RESTS: Final = 10


class HoldingBack:
    """Changes nothing in `cluster` but which nodes it reports as freed. Times are monotonic seconds."""

    def __init__(self, cluster: Cluster, *, hold_back_s: float) -> None:
        self._cluster = cluster
        self._hold_back_s = hold_back_s
        self._waiting: dict[str, tuple[Rank, HeldBack]] = {}
        self._until_s: dict[str, float] = {}
        self._share_until_s: dict[Share, float] = {}
        self._shown: HeldBack | None = None

    def look(self, now_s: float) -> None:
        """See for whom lower groups are held back now."""
        for group in [group for group in self._waiting if self._until_s[group] <= now_s]:
            del self._waiting[group]
        rest_s = RESTS * self._hold_back_s
        for share in [share for share, until_s in self._share_until_s.items() if until_s + rest_s <= now_s]:
            del self._share_until_s[share]
        _, shown = min(self._waiting.values(), default=((), None))
        if self._shown is not None and (left := {*self._shown.nodes} - {*(shown.nodes if shown else ())}):
            self._cluster.open(left)
        self._shown = shown

    def now(self) -> HeldBack | None:
        """Where lower groups are held back, and for whom."""
        return self._shown

    def until_s(self) -> Mapping[str, float]:
        """When the time of each group is over that has held others back in this wait, or could have."""
        return self._until_s

    def share_until_s(self) -> Mapping[Share, float]:
        """When the time of each namespace and right is over, until the next one may begin."""
        return self._share_until_s

    def wait(self, namespaces: Iterable[str], where: HeldBack, now_s: float) -> None:
        """A group of these namespaces waits for room for which it may preempt."""
        until_s = now_s + self._hold_back_s
        shares_s = [self._share_until_s.setdefault((each, where.right), until_s) for each in namespaces]
        self._until_s.setdefault(where.group, min(shares_s))
        self._waiting[where.group] = where.rank, where

    def end(self, group_id: str, *, started: bool = False) -> None:
        """The group does not wait for such room now; if it `started` or is gone, its next wait is another one."""
        self._waiting.pop(group_id, None)
        if started:
            self._until_s.pop(group_id, None)

    def next_deadline_s(self) -> float | None:
        """When `look` must be called even if no message comes."""
        return self._until_s[self._shown.group] if self._shown is not None else None
