"""The timeline: one virtual clock, and what happens when.

Invariant: deeds happen in the order of their times, and of their being planned where these are
equal. Time moves only when somebody moves it. What it does *not* do: know who does the deeds.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable

Deed = Callable[[], None]


class Timeline:
    """Seconds since the start of the history; deeds are called without arguments."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._deeds: list[tuple[float, int, Deed]] = []
        self._numbers = itertools.count()

    def at(self, when_s: float, deed: Deed) -> None:
        """Plan a deed; one that is late is done at once."""
        heapq.heappush(self._deeds, (max(when_s, self.now_s), next(self._numbers), deed))

    def after(self, delay_s: float, deed: Deed) -> None:
        """Plan a deed for `delay_s` from now."""
        self.at(self.now_s + delay_s, deed)

    def next_s(self) -> float:
        """When the next deed is due; infinity if there is none."""
        return self._deeds[0][0] if self._deeds else float("inf")

    def pop(self) -> Deed:
        """Take the next deed off, and move the clock to it."""
        self.now_s, _, deed = heapq.heappop(self._deeds)
        return deed
