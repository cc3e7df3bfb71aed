"""Waiting: groups refused for room, in the order in which they may be heads (semantics H3, H4).

Invariant: a group is here from a refusal for room until its next verdict, or until it is gone. The order is Q1's with
the age of H4. To find the first few groups, only one group per namespace is examined, however many wait behind it.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from heapq import merge
from itertools import islice
from typing import TypeAlias

Rank: TypeAlias = tuple[int, bool, bool, int, str]
"""The result of `core.reservations.heads.rank`: smaller is served first."""


class Waiting:
    """Ranks of waiting groups by namespace; a group of several namespaces is listed under the first."""

    def __init__(self) -> None:
        self._of: dict[str, tuple[str, Rank]] = {}
        self._by_namespace: dict[str, list[Rank]] = {}
        self.version = 0  # grows with every change

    def __len__(self) -> int:
        return len(self._of)

    def __contains__(self, group: str) -> bool:
        return group in self._of

    def ids(self) -> set[str]:
        """Ids of all groups."""
        return set(self._of)

    def put(self, group: str, namespace: str, rank: Rank) -> None:
        """Add a group that was refused for room."""
        if self._of.get(group) != (namespace, rank):
            self.remove(group)
            self.version += 1
            self._of[group] = namespace, rank
            insort(self._by_namespace.setdefault(namespace, []), rank)

    def remove(self, group: str) -> tuple[str, Rank] | None:
        """Remove a group that no longer waits for room; return its namespace and rank."""
        place = self._of.pop(group, None)
        if place is not None:
            namespace, rank = place
            self.version += 1
            ranks = self._by_namespace[namespace]
            del ranks[bisect_left(ranks, rank)]
            if not ranks:
                del self._by_namespace[namespace]
        return place

    def first(
        self, number: int, *, of_each: int, before: Callable[[str], Rank | None], skip: Callable[[str], bool]
    ) -> list[str]:
        """The first `number` groups that are not in `skip`, at most `of_each` per namespace.

        If `before(namespace)` is not None, only groups of that namespace with a lower rank are included.
        """
        each = (
            islice(self._until(before(namespace), ranks, skip), of_each)
            for namespace, ranks in self._by_namespace.items()
        )
        return [group for *_, group in islice(merge(*each), number)]

    def _until(self, end: Rank | None, ranks: list[Rank], skip: Callable[[str], bool]) -> Iterator[Rank]:
        for rank in ranks:
            if end is not None and rank >= end:
                return
            if not skip(rank[-1]):
                yield rank
