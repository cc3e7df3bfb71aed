"""Reserve and Unreserve: the ledger that one plan works on.

Law: a ledger starts as the snapshot's free room and every change is journalled, so `rollback(mark)` restores exactly
what was there. It never touches the snapshot. Room per (shape, node) is remembered and brought up to date only on the
nodes that changed since it was last asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gangsched.core.filter import static_fit
from gangsched.core.filter.node_resources_fit import room
from gangsched.model.objects import Shape
from gangsched.model.resources import is_accelerator
from gangsched.model.snapshot import Ints, Snapshot


@dataclass(slots=True)
class _Room:
    """`per_node[n]` pods of one shape fit, as of the first `seen` journal touches."""

    per_node: Ints
    seen: int


class Ledger:
    """Free room while a plan is made: `free[r][n]` in exact units."""

    def __init__(self, snapshot: Snapshot, *, empty: bool = False) -> None:
        """Start from the snapshot's free room or, with `empty`, from what the nodes offer when nothing runs on them."""
        self.table = snapshot.table
        self.resources: Mapping[str, int] = snapshot.resources
        self.free: Ints = snapshot.allocatable if empty else snapshot.free.copy()
        rows = [row for name, row in snapshot.resources.items() if is_accelerator(name)]
        self.accelerators: Ints = snapshot.allocatable[rows].sum(axis=0)
        self.search_steps = 0  # work that `core.search` did on this ledger; it counts against the plan's limits
        self._journal: list[tuple[Shape, Ints, Ints]] = []
        self._touched: list[Ints] = []
        self._rooms: dict[Shape, _Room] = {}

    def mark(self) -> int:
        """A point to roll back to."""
        return len(self._journal)

    def rollback(self, mark: int) -> None:
        """Undo every reservation and release made since `mark`, newest first."""
        while len(self._journal) > mark:
            shape, nodes, counts = self._journal.pop()
            self._add(shape, nodes, counts)

    def reserve(self, shape: Shape, nodes: Ints, counts: Ints) -> None:
        """Take room for `counts[i]` pods of `shape` on each distinct node index `nodes[i]`."""
        self._journal.append((shape, nodes, counts))
        self._add(shape, nodes, -counts)

    def release(self, shape: Shape, node: str) -> None:
        """Give back the room of one pod, as Unreserve does; a node that is gone has none to give back."""
        index = self.table.index.get(node)
        if index is not None:
            self.reserve(shape, np.array([index]), np.array([-1]))

    def room(self, shape: Shape) -> Ints:
        """`room[n]`: how many more pods of `shape` node `n` takes now, 0 where Filter refuses. Read-only."""
        known = self._rooms.get(shape)
        if known is None:
            mask = static_fit(shape, self.table).mask
            known = _Room(np.where(mask, room(shape, self.free, self.resources), 0), len(self._touched))
            self._rooms[shape] = known
        elif known.seen < len(self._touched):
            nodes = np.concatenate(self._touched[known.seen :])
            mask = static_fit(shape, self.table).mask[nodes]
            known.per_node[nodes] = np.where(mask, room(shape, self.free[:, nodes], self.resources), 0)
            known.seen = len(self._touched)
        return known.per_node

    def fits_still(self, shape: Shape, node: str) -> bool:
        """Whether a pod of `shape` that has its room already may stay on `node`: allowed, not over-committed."""
        index = self.table.index.get(node)
        if index is None or not static_fit(shape, self.table).mask[index]:
            return False
        return all(name in self.resources and self.free[self.resources[name], index] >= 0 for name, _ in shape.requests)

    def _add(self, shape: Shape, nodes: Ints, counts: Ints) -> None:
        for name, amount in shape.requests:
            row = self.resources.get(name)
            if row is not None:
                self.free[row, nodes] += counts * amount
        self._touched.append(nodes)
