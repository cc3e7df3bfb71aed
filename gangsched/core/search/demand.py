"""Requests of a group as numbers: its pods by gang and shape, and where each kind has room (L11).

Invariant: sums only refute; what they refute, no packing finds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from gangsched.core.permit import missing
from gangsched.core.queue_sort import size_key
from gangsched.core.reserve import Ledger
from gangsched.core.scope import Scope
from gangsched.core.scopes import usable
from gangsched.core.search.packing import PackingProblem, Piece
from gangsched.core.search.region import problem
from gangsched.core.topology import TopologyLevel
from gangsched.model.gang import Gang, Group
from gangsched.model.objects import Pod, Shape
from gangsched.model.snapshot import Bools, Ints

MAX_SHAPES = 64
"""Items of one group beyond which sums are not made, for each must be summed up by domain."""


@dataclass(frozen=True, slots=True)
class Item:
    """The pending members of one gang (by index in the group) that have one shape, in placing order.

    `pinned` members can only go where their volumes exist or are being provisioned; they are separate items.
    """

    gang: int
    shape: Shape
    pods: tuple[Pod, ...]
    pinned: bool = False


@dataclass(frozen=True, eq=False)
class Demand:
    """`items` on the nodes that are open to the group; each gang needs `needs[gang]` of them in total."""

    group: Group
    gangs: Sequence[Gang]
    ledger: Ledger
    items: tuple[Item, ...]
    needs: tuple[int, ...]

    @classmethod
    def of(cls, group: Group, gangs: Sequence[Gang], ledger: Ledger) -> Demand:
        """Pending members that the gangs need."""
        return cls.of_all(group, gangs, ledger).minimum()

    @classmethod
    def of_all(cls, group: Group, gangs: Sequence[Gang], ledger: Ledger) -> Demand:
        """All pending members of the gangs."""
        return cls(group, gangs, ledger, tuple(_items(gangs, ledger)), tuple(len(gang.pending) for gang in gangs))

    def minimum(self) -> Demand:
        """The demand reduced to needed members; itself if all are needed."""
        needs = tuple(missing(gang, 0) for gang in self.gangs)
        return self if needs == self.needs else replace(self, needs=needs)

    @cached_property
    def is_exact(self) -> bool:
        """Whether packing decides: only room and the node itself matter."""
        return not any(item.shape.unsupported for item in self.items) and all(
            self.ledger.only_room_counts(item.pods) for item in self.items
        )

    @cached_property
    def room(self) -> Ints:
        """`room[item][n]`: number of pods of the item that fit on node `n`, without other items."""
        return np.array([usable(item.shape, self.group, self.ledger) for item in self.items])

    @cached_property
    def _names(self) -> list[str]:
        asked = {name for item in self.items for name, _ in item.shape.requests}
        return sorted(name for name in asked if name in self.ledger.resources)

    @cached_property
    def _asks(self) -> list[tuple[int, ...]]:
        amounts = [dict(item.shape.requests) for item in self.items]
        return [tuple(amount.get(name, 0) for name in self._names) for amount in amounts]

    @cached_property
    def _free(self) -> Ints:
        """`free[r][n]` of the resources that are asked for, a copy."""
        found: Ints = np.maximum(self.ledger.free[[self.ledger.resources[name] for name in self._names]], 0)
        return found

    @property
    def is_hopeless(self) -> bool:
        """Whether the whole cluster has too little room, by sums."""
        whole = TopologyLevel((), np.zeros(len(self.ledger.table), dtype=np.int32), 1, ())
        return not self.judge(whole)[0].all()

    def problem(self, nodes: Ints | None = None, scope: Scope | None = None) -> PackingProblem:
        """The packing problem of the minimum on these nodes, within the scope."""
        work, room = self.ledger.work, self.room
        where = np.flatnonzero(self._anywhere) if nodes is None else nodes
        size = where.size * (12 + len(self.items) + len(self._names)) // 8
        work.charge(150 + size + len(self.items) * len(self.ledger.table) // 200)
        room = room[:, where]
        for number, item in enumerate(self.items):
            inside = None if scope is None else scope.of(accelerated=self.ledger.accelerated(item.shape))
            if inside is not None:
                room[number] *= inside[where]
        counts = [min(len(item.pods), self.needs[item.gang]) for item in self.items]
        kinds = [Piece(item.gang, asks) for item, asks in zip(self.items, self._asks, strict=True)]
        return problem(kinds, tuple(counts), self.needs, where, self._free[:, where], room)

    def judge(self, level: TopologyLevel, items: Sequence[int] | None = None) -> tuple[Bools, Ints]:
        """By domain: whether sums allow the minimum, and how many of the needed pods they allow.

        With `items`, by index, only those must be in the domain; others may be anywhere.
        """
        kept = range(len(self.items)) if items is None else items
        enough, holds = np.ones(level.size, dtype=np.bool_), np.full(level.size, sum(self.needs), dtype=np.int64)
        if len(self.items) > MAX_SHAPES:
            return enough, holds
        self.ledger.work.charge(20 + len(self.items) * len(self.ledger.table) // 60)
        rooms = {i: level.sums(self.room[i]) for i in kept}
        elsewhere = [i for i in range(len(self.items)) if i not in rooms]
        needs = list(self.needs)
        for i in elsewhere:
            needs[self.items[i].gang] = max(0, needs[self.items[i].gang] - len(self.items[i].pods))
        total = np.zeros(level.size, dtype=np.int64)
        for gang, need in enumerate(needs):
            own = [np.minimum(len(self.items[i].pods), rooms[i]) for i in kept if self.items[i].gang == gang]
            most = np.minimum(sum(own, np.zeros(level.size, dtype=np.int64)), need)
            enough &= most >= need
            total += most
        holds = np.minimum(holds, total + sum(self.needs) - sum(needs))
        if len(kept) > 1:
            for row, asked in self._rows:
                self.ledger.work.charge(2 + len(self.ledger.table) // 200)
                have, cheapest = level.sums(row), self._cheapest(asked, needs, kept)
                enough &= have >= cheapest[-1:].sum()
                holds = np.minimum(holds, np.searchsorted(cheapest, have, "right") + sum(self.needs) - sum(needs))
        return enough, holds

    @cached_property
    def _rows(self) -> list[tuple[Ints, dict[int, int]]]:
        """Rows that what fits cannot exceed: ⌊free/a⌋ by node, and ⌊ask/a⌋ of each item that asks at least that.

        Rows that refute nothing are left out: where one item alone asks so much, its room says more; where every node
        has enough for all, no sum is too small.
        """
        found: list[tuple[Ints, dict[int, int]]] = []
        for r in range(len(self._names)):
            amounts = [asks[r] for asks in self._asks]
            most = sum(min(len(i.pods), self.needs[i.gang]) * a for i, a in zip(self.items, amounts, strict=True))
            if not (self._free[r][self._anywhere] < most).any():
                continue
            for a in sorted({1, *amounts} - {0}):
                asked = {i: amount // a for i, amount in enumerate(amounts) if amount >= a}
                if len(asked) == 1:
                    continue
                self.ledger.work.charge(8 + len(self.ledger.table) // 50)
                nodes = np.logical_or.reduce([self.room[i] > 0 for i in asked])
                found.append((np.where(nodes, self._free[r] // a, 0), asked))
        return found

    @cached_property
    def _anywhere(self) -> Bools:
        found: Bools = np.any(self.room, axis=0)
        return found

    def _cheapest(self, asked: dict[int, int], needs: Sequence[int], kept: Sequence[int]) -> Ints:
        """The least that 1, 2, … of the needed pods take of a row, each gang with those that take least."""
        taken = [np.zeros(0, dtype=np.int64)]
        for gang, need in enumerate(needs):
            own = sorted((asked.get(i, 0), len(self.items[i].pods)) for i in kept if self.items[i].gang == gang)
            if own and need:
                taken.append(np.repeat(*np.array(own).T)[:need])
        found: Ints = np.cumsum(np.sort(np.concatenate(taken)))
        return found


def _items(gangs: Sequence[Gang], ledger: Ledger) -> list[Item]:
    """Members by gang, shape and whether they are pinned, the largest shapes first, and pinned ones before others."""
    items = []
    storage = ledger.occupancy.storage
    for index, gang in enumerate(gangs):
        pods: dict[tuple[Shape, bool], list[Pod]] = {}
        last, own = None, list[Pod]()
        for pod in gang.pending:
            if pod.shape is not last or pod.claims:  # of a thousand alike, one is looked up
                own = pods.setdefault((pod.shape, bool(pod.claims) and storage.pinned(pod)), [])
                last = None if pod.claims else pod.shape
            own.append(pod)
        items += [Item(index, shape, tuple(members), pinned) for (shape, pinned), members in pods.items()]
    return sorted(items, key=lambda item: (size_key(item.shape, ledger.policy), not item.pinned))
