"""Sets of strings by key.

Invariant: a key without any is not kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Set


class SetsByKey:
    """The sets; each in the order in which its strings were added."""

    def __init__(self) -> None:
        self._sets: dict[str, dict[str, None]] = {}

    def __iter__(self) -> Iterator[str]:
        """The keys."""
        return iter(self._sets)

    def of(self, key: str) -> Set[str]:
        """The set of a key."""
        found = self._sets.get(key)
        return found.keys() if found is not None else frozenset()

    def add(self, key: str, item: str) -> None:
        """Add to the set of a key."""
        self._sets.setdefault(key, {})[item] = None

    def discard(self, key: str, item: str) -> None:
        """Remove from the set of a key, if it is there."""
        items = self._sets.get(key)
        if items is None:
            return

        items.pop(item, None)
        if not items:
            del self._sets[key]
