"""A cache of recently written values by key, limited in time and number.

Invariant: an entry expires after `for_s` seconds and is removed by the next write; above `limit`
entries the oldest are removed. So the size is constant at a steady rate of writes.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

from gangsched.kube.ports import Now

K = TypeVar("K")
V = TypeVar("V")

REMEMBERED = 100_000


class Recent(Generic[K, V]):
    """Entries from oldest to newest; writing an entry again makes it the newest."""

    def __init__(self, now: Now, *, for_s: float, limit: int = REMEMBERED) -> None:
        self._now = now
        self._for_s = for_s
        self._limit = limit
        self._entries: OrderedDict[K, tuple[float, V]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: K) -> bool:
        return key in self._entries

    def get(self, key: K) -> V | None:
        """Last value of a key."""
        entry = self._entries.get(key)
        if entry is None:
            return None

        return entry[1]

    def forget(self, key: K) -> None:
        """Drop a key."""
        self._entries.pop(key, None)

    def __setitem__(self, key: K, value: V) -> None:
        entries = self._entries
        now_s = self._now()
        entries[key] = (now_s, value)
        entries.move_to_end(key)

        # Entry by entry instead of all at once, so that memory neither grows nor swings at a steady
        # rate.
        while entries and (
            len(entries) > self._limit or next(iter(entries.values()))[0] <= now_s - self._for_s
        ):
            entries.popitem(last=False)
