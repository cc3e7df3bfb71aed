"""When each nomination is checked next: at once after a change, at its deadline, or when a vacant
place expires.

Invariant: a nomination has one such time, so no turn scans all nominations; and a turn checks at
most `CHECKED_AT_ONCE` nominations, in the order in which they changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from itertools import islice
from math import inf

from gangsched.state.timers import Timers

CHECKED_AT_ONCE = 50
"""Nominations that one turn checks: a pod that ends may concern hundreds of them."""


class NextLooks:
    """The next checks, by the id of the nomination; times are in monotonic seconds."""

    def __init__(self) -> None:
        self.timers = Timers()
        self._now: dict[str, Set[str]] = {}

    def now(self, changed: Mapping[str, Set[str]]) -> None:
        """Check these nominations in the next turns: on these nodes or, if none are given, on all
        nodes that matter.
        """
        for group_id, nodes in changed.items():
            # No nodes means all nodes, so once it is empty it stays empty.
            before = self._now.get(group_id, nodes)
            if before and nodes:
                self._now[group_id] = before | nodes
            else:
                self._now[group_id] = frozenset()

    def take(self) -> dict[str, Set[str]]:
        """The nominations that this turn checks, with nodes."""
        chosen = dict(islice(self._now.items(), CHECKED_AT_ONCE))
        for group_id in chosen:
            del self._now[group_id]

        return chosen

    def next_s(self) -> float:
        """The earliest time; minus infinity while nominations wait to be checked."""
        return -inf if self._now else self.timers.next_s()
