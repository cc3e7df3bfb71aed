"""The last entries by key, bounded in number."""

from __future__ import annotations

from collections import OrderedDict
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")

REMEMBERED = 50_000


class Recent(OrderedDict[K, V]):
    """The entries written last, at most `limit`."""

    def __init__(self, limit: int = REMEMBERED) -> None:
        super().__init__()
        self._limit = limit

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)
        if len(self) > self._limit:
            self.popitem(last=False)
