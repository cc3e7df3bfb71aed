"""When nominations must be checked even if nothing changes: at a deadline, or when a nominee without a pod has waited
long enough.

Invariant: a nomination has one such time. Outdated heap entries are skipped when they are due, so no turn scans all
nominations.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from heapq import heappop, heappush
from itertools import islice
from math import inf

from gangsched.state.preemption.nomination import NominationRecord

CHECKED_AT_ONCE = 50
"""Nominations that one turn checks, about 0.1 ms each: a pod that ends may concern hundreds of them."""


class NextLooks:
    """The times are `NominationRecord.due_s`, in monotonic seconds; infinity means never."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, NominationRecord]] = []
        self._now: dict[str, Set[str]] = {}

    def look_at(self, record: NominationRecord, at_s: float) -> None:
        """Schedule a check of the nomination, instead of its earlier time."""
        if at_s != record.due_s:
            record.due_s = at_s
            if at_s < inf:
                heappush(self._heap, (at_s, record.serial, record))

    def now(self, changed: Mapping[str, Set[str]]) -> None:
        """Check the nominations of these groups on these nodes, or, where none are named, whatever node matters."""
        for group, nodes in changed.items():
            before = self._now.get(group, nodes)
            self._now[group] = before | nodes if before and nodes else frozenset()

    def take(self) -> dict[str, Set[str]]:
        """The next groups, with the nodes, whose nominations one turn checks."""
        chosen = dict(islice(self._now.items(), CHECKED_AT_ONCE))
        for group in chosen:
            del self._now[group]
        return chosen

    def take_due(self, now_s: float) -> set[str]:
        """Groups whose nomination is due for a check; their times are cleared."""
        groups: set[str] = set()
        while (due_s := self._first_s()) is not None and due_s <= now_s:
            record = heappop(self._heap)[2]
            record.due_s = inf
            groups.add(record.group)
        return groups

    def next_s(self) -> float | None:
        """The earliest time; minus infinity while nominations wait to be checked."""
        return -inf if self._now else self._first_s()

    def _first_s(self) -> float | None:
        while self._heap and self._heap[0][0] != self._heap[0][2].due_s:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None
