"""Requests of shapes as rows, so that a few column comparisons find which of thousands of shapes fit.

Invariant: exact integers, no clock. Only resources are compared, so a shape that does not fit here fits nowhere; the
caller checks eligible nodes afterwards. Rows are ordered by the first group that needs each shape, so the next shape is
found without a scan.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from itertools import islice
from typing import Any, TypeAlias

import numpy as np

from gangsched.core.topology import level
from gangsched.model.objects import Shape
from gangsched.model.snapshot import Bools, Ints, Snapshot

NEVER = np.iinfo(np.int64).max
MOST_COUNTED = 2**14
"""Pods of one shape whose requests are added up at most, so that sums stay within int64 whatever is asked."""
Entry: TypeAlias = tuple[tuple[Any, ...], str]
"""The rank of a group and its id; smaller goes first."""


class ShapeRows:
    """`requests[row][resource]`; unused rows request more than any node offers.

    *Pending* shapes have freed room and have not been evaluated since.
    """

    def __init__(self) -> None:
        self._rows: dict[Shape, int] = {}
        self._shapes: list[Shape | None] = []
        self._unused: list[int] = []
        self._columns: dict[str, int] = {}
        self._requests: Ints = np.zeros((16, 4), dtype=np.int64)
        self._least: Ints = np.ones(16, dtype=np.int64)
        self._within: list[tuple[str, ...]] = [()]  # sets of labels, by the number that `_level` has
        self._level: Ints = np.zeros(16, dtype=np.int64)
        self._pending: Bools = np.zeros(16, dtype=np.bool_)
        self._first: dict[int, Entry] = {}
        self._order: list[tuple[Entry, int]] = []

    def put(self, shape: Shape, least: int, first: Entry, within: tuple[str, ...] = ()) -> None:
        """Add a shape. At least `least` of its pods must fit to help any group, in one domain of the labels `within`.

        `first` is the first group that would be helped.
        """
        row = self._rows.get(shape)
        if row is None:
            row = self._rows[shape] = self._new_row(shape)
        self._least[row] = min(least, MOST_COUNTED)
        if within not in self._within:
            self._within.append(within)
        self._level[row] = self._within.index(within)
        if self._first.get(row) != first:
            self._leave_order(row)
            self._first[row] = first
            insort(self._order, (first, row))

    def remove(self, shape: Shape) -> None:
        """Remove the shape, if known."""
        row = self._rows.pop(shape, None)
        if row is not None:
            self._shapes[row] = None
            self._requests[row], self._least[row], self._pending[row] = NEVER, 1, False
            self._leave_order(row)
            self._unused.append(row)

    @property
    def any_pending(self) -> bool:
        """Whether any shape is pending."""
        return bool(self._pending.any())

    def is_pending(self, shape: Shape) -> bool:
        """Whether this shape is pending."""
        row = self._rows.get(shape)
        return row is not None and bool(self._pending[row])

    def mark_pending(self, rows: Bools) -> None:
        """Add these rows to the pending ones."""
        self._pending[: len(rows)] |= rows

    def keep_pending(self, rows: Bools) -> None:
        """Remove all pending rows but these."""
        self._pending[: len(rows)] &= rows

    def looked_at(self, shape: Shape) -> None:
        """Mark the shape as evaluated."""
        self._pending[self._rows[shape]] = False

    def first_pending(self, number: int) -> list[Shape]:
        """The first `number` pending shapes, in the order of the first groups that need them."""
        if not self.any_pending:
            return []
        pending = self._pending.tobytes()
        found = (self._shapes[row] for _, row in self._order if pending[row])
        return [shape for shape in islice(found, number) if shape is not None]

    def rows_of(self, shapes: Iterable[Shape]) -> Ints:
        """The row numbers of these shapes, if they are known."""
        return np.array([self._rows[shape] for shape in shapes], dtype=np.int64)

    def fitting(self, snapshot: Snapshot, nodes: Ints) -> Bools:
        """Rows of shapes with a pod that fits on one of these nodes, and whose smallest need fits in total.

        If all pods must be in one domain, the total is that of the domains of these nodes. Complexity: shapes times
        nodes with distinct free room.
        """
        in_use = len(self._shapes)
        fits = np.zeros(in_use, dtype=np.bool_)
        if not in_use or not len(nodes):
            return fits
        requests, least = self._requests[:in_use], self._least[:in_use]
        names = sorted(self._columns, key=self._columns.__getitem__)
        free = np.zeros((len(names), snapshot.free.shape[1]), dtype=np.int64)
        for column, name in enumerate(names):
            if name in snapshot.resources:
                free[column] = np.maximum(snapshot.free[snapshot.resources[name]], 0)
        requests = requests[:, : len(names)]
        for amounts in np.unique(free[:, nodes], axis=1).T:
            fits |= (requests <= amounts).all(axis=1)
        found = np.flatnonzero(fits)
        fits[found] = (requests[found] * least[found, np.newaxis] <= free.sum(axis=1)).all(axis=1)
        for number, within in enumerate(self._within):
            of_level = np.flatnonzero(fits & (self._level[:in_use] == number)) if within else found[:0]
            if of_level.size:
                inside = level(within, snapshot.table)
                domains = inside.of(nodes)
                sums = np.array([inside.sums(row)[domains] for row in free]).reshape(len(free), -1)
                asked, fits[of_level] = requests[of_level] * least[of_level, np.newaxis], False
                for amounts in np.unique(sums, axis=1).T:
                    fits[of_level] |= (asked <= amounts).all(axis=1)
        return fits

    def _leave_order(self, row: int) -> None:
        first = self._first.pop(row, None)
        if first is not None:
            del self._order[bisect_left(self._order, (first, row))]

    def _new_row(self, shape: Shape) -> int:
        if self._unused:
            row = self._unused.pop()
        else:
            row = len(self._shapes)
            self._shapes.append(None)
        for name, _ in shape.requests:
            self._columns.setdefault(name, len(self._columns))
        rows, columns = self._requests.shape
        if row == rows or len(self._columns) > columns:
            self._grow(rows * 2 if row == rows else rows, max(columns, 2 * len(self._columns)))
        self._shapes[row] = shape
        self._requests[row] = 0
        for name, amount in shape.requests:
            self._requests[row, self._columns[name]] = amount
        return row

    def _grow(self, rows: int, columns: int) -> None:
        before, least, levels, pending = self._requests, self._least, self._level, self._pending
        self._requests = np.zeros((rows, columns), dtype=np.int64)
        self._requests[: len(before), : before.shape[1]] = before
        self._least = np.ones(rows, dtype=np.int64)
        self._least[: len(least)] = least
        self._level = np.zeros(rows, dtype=np.int64)
        self._level[: len(levels)] = levels
        self._pending = np.zeros(rows, dtype=np.bool_)
        self._pending[: len(pending)] = pending
