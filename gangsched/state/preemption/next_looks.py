"""Times at which nominations are checked even if nothing changes: a deadline, or the end of a vacant place.

Invariant: a nomination has one such time. Outdated heap entries are skipped when they are due, so no turn scans all
nominations.
"""

from __future__ import annotations

from heapq import heappop, heappush
from math import inf

from gangsched.state.preemption.nomination import NominationRecord


class NextLooks:
    """The times are `NominationRecord.due_s`, in monotonic seconds; infinity is never."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, NominationRecord]] = []

    def look_at(self, record: NominationRecord, at_s: float) -> None:
        """Schedule a check of the nomination, replacing its earlier time."""
        if at_s != record.due_s:
            record.due_s = at_s
            if at_s < inf:
                heappush(self._heap, (at_s, record.serial, record))

    def take_due(self, now_s: float) -> set[str]:
        """Groups whose time has come; their times are cleared."""
        groups: set[str] = set()
        while (due_s := self.next_s()) is not None and due_s <= now_s:
            record = heappop(self._heap)[2]
            record.due_s = inf
            groups.add(record.group)
        return groups

    def next_s(self) -> float | None:
        """The earliest time."""
        while self._heap and self._heap[0][0] != self._heap[0][2].due_s:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None
