"""Timers: by key, the time at which it is due, found without a scan of all keys.

Here and in all that asks when something is due, infinity means never.

Invariant: a key has one time. Heap entries with an outdated time are skipped when they are due.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Set
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import islice
from math import inf

DUE_AT_ONCE = 500
"""Keys whose time has come that are taken at once: one user may have made thousands in one moment,
whose time comes in one moment, too. What is left is due at once, so that the next turns take it.
"""
SPARE = 100
JUMP_S = 1.0
"""Shift of the wall clock that is a jump: clocks that are slewed shift by less in the minutes
between turns.
"""


class Timers:
    """Times by key, in seconds of the caller's clock."""

    def __init__(self) -> None:
        self._at_s: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []
        #: Keys that are due whatever their time is, and the order in which they are taken; those of
        #: which another time was set since are in `_in_turn` only.
        self._at_once: set[str] = set()
        self._in_turn: deque[str] = deque()

    def __len__(self) -> int:
        return len(self._at_s)

    def __contains__(self, key: str) -> bool:
        return key in self._at_s

    def keys(self) -> Set[str]:
        """Keys that have a time, as a live view."""
        return self._at_s.keys()

    def get(self, key: str) -> float:
        """The time at which the key is due; infinity if it is never due."""
        if key in self._at_once:
            return -inf

        return self._at_s.get(key, inf)

    def set(self, key: str, at_s: float) -> None:
        """Set the time at which the key is due, replacing an earlier setting; infinity
        means never.
        """
        if at_s == inf:
            self.drop(key)
            return

        self._at_once.discard(key)
        if at_s != self._at_s.get(key):
            self._at_s[key] = at_s
            heappush(self._heap, (at_s, key))

            # A key that is set again leaves its old entry in the heap: groups that change each
            # second would grow it without end.
            if len(self._heap) > 2 * len(self._at_s) + SPARE:
                entries = [(time_s, name) for name, time_s in self._at_s.items()]
                heapify(entries)
                self._heap = entries

    def set_sooner(self, key: str, at_s: float) -> None:
        """Make the key due at this time at the latest."""
        self.set(key, min(at_s, self.get(key)))

    def all_at_once(self, keys: Set[str]) -> None:
        """Make all of these keys due now, those that were due before first.

        With a time each, 20,000 took a turn 50 ms, where a node came or the clock was set back.
        """
        due = set(keys)
        for key in due.difference(self._at_s):
            self.set(key, -inf)

        more = due.difference(self._at_once)
        self._at_once |= more
        self._in_turn.extend(more)

    def drop(self, key: str) -> None:
        """Remove the time of the key."""
        self._at_once.discard(key)
        self._at_s.pop(key, None)

    def take_due(self, now_s: float, most: int | None = DUE_AT_ONCE) -> list[str]:
        """Keys whose time has come, the earliest first, at most so many (None: all); their times
        are removed. What is left is still due.
        """
        # A turn asks a dozen of these, of which most have nothing that is due. What was replaced
        # may be first, and is no later than what is.
        heap = self._heap
        if not self._at_once and (not heap or heap[0][0] > now_s):
            return []

        take_next = partial(self.take_next, now_s)
        due = iter(take_next, None)
        some = islice(due, most)
        return list(some)

    def take_next(self, now_s: float) -> str | None:
        """Remove and return the key whose time came first; None if none is due."""
        while self._at_once:
            key = self._in_turn.popleft()
            if key in self._at_once:
                self.drop(key)
                return key

        self._in_turn.clear()
        at_s = self.next_s()
        if at_s > now_s or at_s == inf:
            return None

        key = heappop(self._heap)[1]
        del self._at_s[key]
        return key

    def next_s(self) -> float:
        """The earliest time; infinity if nothing is ever due."""
        if self._at_once:
            return -inf

        while self._heap:
            at_s, key = self._heap[0]
            if self._at_s.get(key) == at_s:
                return at_s

            heappop(self._heap)  # an entry that was replaced

        return inf
