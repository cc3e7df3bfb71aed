"""Room for slices by sums: how many copies of each kind domains take (`Demand`).

Invariant: sums can only refute; a packing decides among the nodes that they leave.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from gangsched.core.reserve import Ledger
from gangsched.core.search.kinds import Item, Slices
from gangsched.core.search.slices import Slice
from gangsched.core.topology import TopologyLevel, level
from gangsched.model.snapshot import Bools, Ints

NO_LIMIT = 2**31


class _Copies(NamedTuple):
    """A kind of slices that may open anywhere, and how many domains take by sums.

    `copies[domain]` are those that it takes, `order` the domains that take any, those with most
    first; `count` slices are needed, `first` is one of them.
    """

    first: Slice
    level: TopologyLevel
    copies: Ints
    order: Ints
    needed: int


class SliceRoom:
    """The room of one demand: `room[item][n]` is the number of pods of an item that node `n`
    takes.
    """

    def __init__(
        self,
        items: Sequence[Item],
        slices: Slices,
        room: Ints,
        ledger: Ledger,
    ) -> None:
        self._items = items
        self._slices = slices
        self._room = room
        self._ledger = ledger
        self._anywhere: Bools = np.any(room, axis=0)

    def few(self) -> Ints | None:
        """Nodes of the smallest number of domains that could hold the slices by totals; the last of
        these domains is as tight as possible.

        Most often these domains suffice, and packing them is much faster than packing all nodes of
        a large cluster. A slice that lacks members gets a domain with room for the missing members,
        if there is one. None if there is no choice, or if pods without slices may be placed
        anywhere.
        """
        are_free = (item.home < 0 and not item.pins for item in self._items)
        if any(are_free):
            return None

        mask = self._outside_slices()

        for kind in self._copies:
            order = kind.order
            copies = kind.copies[order]

            # The fewest domains, those with most copies first; `number` is the index of the last of
            # them.
            sums = np.cumsum(copies)
            number = int(np.searchsorted(sums, kind.needed))
            if number >= len(order):
                return None

            before_last = int(copies[:number].sum())
            enough = copies >= kind.needed - before_last

            first_pod = kind.first.pods[0]
            own_item = self._slices.item_of[first_pod.uid]
            room = kind.level.sums(self._room[own_item])[order]
            for_all = np.flatnonzero(enough & (room >= kind.first.size))

            # The last in descending order is the tightest domain that is still large enough.
            last = for_all[-1] if for_all.size else number
            chosen = [*order[:number], order[last]]
            mask |= np.isin(kind.level.codes, chosen)

        return np.flatnonzero(mask & self._anywhere)

    def useful(self, most: int) -> Bools:
        """The nodes of domains that could hold a slice by sums, `most` of them, those of domains
        with most room first.

        All others are of no use, but to pods without slices.
        """
        mask = self._outside_slices()
        anywhere = self._anywhere.astype(np.int64)

        for kind in self._copies:
            sizes = kind.level.sums(anywhere)[kind.order]
            first_domains = kind.order[np.cumsum(sizes) <= most]
            mask |= np.isin(kind.level.codes, first_domains)

        return mask

    def _outside_slices(self) -> Bools:
        """The nodes that take any pod that is in no slice."""
        nodes = len(self._ledger.table)
        mask: Bools = np.zeros(nodes, dtype=np.bool_)
        for number, item in enumerate(self._items):
            if item.home < 0:
                mask |= self._room[number] > 0

        return mask

    @cached_property
    def _copies(self) -> list[_Copies]:
        """The kinds of slices that may open anywhere."""
        cells = len(self._items) * len(self._ledger.table)
        self._ledger.work.charge(20 + cells // 60)
        result = []

        kinds = zip(self._slices.pieces, self._slices.at_hand, strict=True)
        for piece, slices in kinds:
            if not slices:
                continue

            first = slices[0]
            wanted = self._slices.wanted[piece.gang]
            needed = min(len(slices), wanted)
            inside, copies = self._copies_of(first, ())

            # Stable: domains with equal room keep the order of their names, so that the plan is
            # deterministic.
            order = np.argsort(-copies, kind="stable")
            takes_any = order[copies[order] > 0]
            result.append(_Copies(first, inside, copies, takes_any, needed))

        return result

    def _copies_of(
        self,
        slice_: Slice,
        outer: tuple[str, ...],
    ) -> tuple[TopologyLevel, Ints]:
        """By domain how many copies of a slice it takes by sums; of inner ones by domain inside the
        outer levels.
        """
        labels = (*outer, slice_.key)
        inside = level(labels, self._ledger.table)

        # NO_LIMIT and not int64's maximum: these numbers are summed over domains.
        most = np.full(inside.size, NO_LIMIT, dtype=np.int64)
        item_of = self._slices.item_of
        own_items = Counter(item_of[pod.uid] for pod in slice_.own)
        for number, count in own_items.items():
            room = inside.sums(self._room[number])
            most = np.minimum(most, room // count)

        example_of: dict[int, Slice] = {}
        part_kinds: Counter[int] = Counter()
        for part in slice_.parts:
            kind = self._slices.kind_of[id(part)]
            example_of[kind] = part
            part_kinds[kind] += 1

        for kind, count in part_kinds.items():
            finer, copies = self._copies_of(example_of[kind], labels)
            outer_domains = finer.inside(inside)
            of_kind = np.bincount(outer_domains, weights=copies, minlength=inside.size)
            of_kind = of_kind.astype(np.int64)
            most = np.minimum(most, of_kind // count)

        return inside, most
