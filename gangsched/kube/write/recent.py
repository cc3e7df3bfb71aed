"""What was written lately, by key; bounded in time and in number.

Law: an entry is remembered for `for_s` seconds at least and twice that at most, so that at a steady pace of writes what
is kept does not grow. In a burst it is the last half of `limit` at least, and never more than `limit`.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from gangsched.kube.ports import Now

K = TypeVar("K")
V = TypeVar("V")

REMEMBERED = 100_000


class Recent(Generic[K, V]):
    """Two generations: the young one becomes the old one when its time is over, or when it has half of `limit`."""

    def __init__(self, now: Now, *, for_s: float, limit: int = REMEMBERED) -> None:
        self._now, self._for_s, self._half = now, for_s, max(1, limit // 2)
        self._young: dict[K, V] = {}
        self._old: dict[K, V] = {}
        self._since_s = now()

    def __len__(self) -> int:
        return len(self._young.keys() | self._old.keys())

    def __contains__(self, key: K) -> bool:
        return key in self._young or key in self._old

    def get(self, key: K) -> V | None:
        """What was remembered last under a key."""
        return self._young[key] if key in self._young else self._old.get(key)

    def __setitem__(self, key: K, value: V) -> None:
        now_s = self._now()
        if now_s - self._since_s >= self._for_s or (len(self._young) >= self._half and key not in self._young):
            is_long_ago = now_s - self._since_s >= 2 * self._for_s
            self._old, self._young, self._since_s = {} if is_long_ago else self._young, {}, now_s
        self._young[key] = value
