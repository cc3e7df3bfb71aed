"""Suspects: groups at which a process ended, by name and number of times.

Invariant: names and numbers only, and few of them. Whoever may write the Lease may add some, and
can so keep groups from being planned, which a leader can as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

MOST_SUSPECTS: Final = 5
LONGEST_NAME: Final = 512
_decoder = msgspec.json.Decoder(dict[str, int])


class Suspects:
    """Suspects that this process knows. `is_wanted` says of which it still need be known."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.is_wanted: Callable[[str], bool] = lambda name: True

    def add(self, name: str) -> None:
        """A process ended at this group."""
        if 0 < len(name) <= LONGEST_NAME:
            self.counts[name] = self.counts.pop(name, 0) + 1
            self._limit()

    def merge(self, text: str) -> None:
        """Learn of the suspects in `text`; what is none is ignored."""
        try:
            stored = _decoder.decode(text.encode())
        except msgspec.MsgspecError:
            return

        for name, number in stored.items():
            if 0 < len(name) <= LONGEST_NAME:
                self.counts[name] = max(number, self.counts.get(name, 0))

        self._limit()

    def text(self) -> str:
        """The suspects that are still wanted, for `merge`; "" for none."""
        gone = [name for name in self.counts if not self.is_wanted(name)]
        for name in gone:
            del self.counts[name]

        if not self.counts:
            return ""

        return msgspec.json.encode(self.counts).decode()

    def _limit(self) -> None:
        for name in [*self.counts][:-MOST_SUSPECTS]:
            del self.counts[name]
