"""Waiting: groups refused for room, in the order in which they may be heads (semantics H3, H4).

Invariant: a group is here from a refusal for room until its next verdict, or until it is gone. The
order is Q1's with the age of H4. To find the first few groups, only one group per namespace is
compared, however many wait behind that group.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from heapq import merge
from itertools import islice

from gangsched.state.group_record import EntitlementCause, GroupRecord, HeadRank


class Waiting:
    """Ranks of waiting groups by namespace; a group of several namespaces is listed under the
    first.
    """

    def __init__(self) -> None:
        self._number = 0
        self._by_namespace: dict[str, list[HeadRank]] = {}
        self.version = 0  # grows with every change

    def __len__(self) -> int:
        return self._number

    def ids(self) -> set[str]:
        """Ids of all groups."""
        return {rank[-1] for ranks in self._by_namespace.values() for rank in ranks}

    def put(
        self,
        group: GroupRecord,
        namespace: str,
        rank: HeadRank,
        cause: EntitlementCause,
    ) -> None:
        """Add a group that was refused for room, or may be a head again."""
        # A group that is refused again with the same rank changes nothing, and `version` would call
        # for another search.
        if group.awaits_room and group.head == (namespace, rank):
            return

        if group.awaits_room:
            self._take_out(group)

        group.entitle(cause)
        group.head = namespace, rank
        self.version += 1
        self._number += 1
        insort(self._by_namespace.setdefault(namespace, []), rank)

    def remove(
        self,
        group: GroupRecord,
        cause: EntitlementCause = EntitlementCause.CHANGED,
    ) -> None:
        """Remove a group that no longer waits for room, or may not be a head."""
        if group.awaits_room:
            self._take_out(group)
            group.entitle(cause)

    def _take_out(self, group: GroupRecord) -> None:
        assert group.head is not None
        namespace, rank = group.head
        self.version += 1
        self._number -= 1
        ranks = self._by_namespace[namespace]
        del ranks[bisect_left(ranks, rank)]

        if not ranks:
            del self._by_namespace[namespace]

    def first(
        self,
        number: int,
        *,
        of_each: int,
        before: Callable[[str], HeadRank | None],
        skip: Callable[[str], bool],
    ) -> list[str]:
        """The first `number` groups that are not in `skip`, at most `of_each` per namespace.

        If `before(namespace)` is not None, only groups of that namespace with a lower rank are
        included.
        """
        each = (
            islice(self._until(before(namespace), ranks, skip), of_each)
            for namespace, ranks in self._by_namespace.items()
        )
        # Merged lazily: of each namespace only the first are looked at, whoever queues thousands
        # behind them.
        return [group for *_, group in islice(merge(*each), number)]

    def _until(
        self,
        end: HeadRank | None,
        ranks: list[HeadRank],
        skip: Callable[[str], bool],
    ) -> Iterator[HeadRank]:
        for rank in ranks:
            if end is not None and rank >= end:
                return

            if not skip(rank[-1]):
                yield rank
