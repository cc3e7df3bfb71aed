"""What shapes request, as rows: which of thousands fit somewhere is a few comparisons of columns.

Law: exact integers, no clock. It answers by resources alone, so that what does not fit here fits nowhere; which nodes a
shape may use is looked at after that.
"""

from __future__ import annotations

import numpy as np

from gangsched.model.objects import Shape
from gangsched.model.snapshot import Ints, Snapshot

NEVER = np.iinfo(np.int64).max


class ShapeRows:
    """`requests[row][resource]`; a row that is not in use asks for more than there can be."""

    def __init__(self) -> None:
        self._rows: dict[Shape, int] = {}
        self._shapes: list[Shape | None] = []
        self._unused: list[int] = []
        self._columns: dict[str, int] = {}
        self._requests: Ints = np.zeros((16, 4), dtype=np.int64)
        self._least: Ints = np.ones(16, dtype=np.int64)

    def put(self, shape: Shape, least: int) -> None:
        """Know the shape, of which at least that many pods must fit before anybody is helped."""
        row = self._rows.get(shape)
        if row is None:
            row = self._rows[shape] = self._new_row(shape)
        self._least[row] = least

    def remove(self, shape: Shape) -> None:
        """Forget the shape, if it is known."""
        row = self._rows.pop(shape, None)
        if row is not None:
            self._shapes[row] = None
            self._requests[row], self._least[row] = NEVER, 1
            self._unused.append(row)

    def fitting(self, snapshot: Snapshot, nodes: Ints) -> list[Shape]:
        """The shapes of which a pod fits on one of these nodes, and the least number into what is free in all.

        Complexity: shapes times nodes that differ in what is free.
        """
        in_use = len(self._shapes)
        if not in_use or not len(nodes):
            return []
        requests, least = self._requests[:in_use], self._least[:in_use]
        names = sorted(self._columns, key=self._columns.__getitem__)
        free = np.zeros((len(names), snapshot.free.shape[1]), dtype=np.int64)
        for column, name in enumerate(names):
            if name in snapshot.resources:
                free[column] = np.maximum(snapshot.free[snapshot.resources[name]], 0)
        requests = requests[:, : len(names)]
        fits = np.zeros(in_use, dtype=np.bool_)
        for amounts in np.unique(free[:, nodes], axis=1).T:
            fits |= (requests <= amounts).all(axis=1)
        found = np.flatnonzero(fits)
        found = found[(requests[found] * least[found, np.newaxis] <= free.sum(axis=1)).all(axis=1)]
        return [shape for row in found.tolist() if (shape := self._shapes[row]) is not None]

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
        before, least = self._requests, self._least
        self._requests = np.zeros((rows, columns), dtype=np.int64)
        self._requests[: len(before), : before.shape[1]] = before
        self._least = np.ones(rows, dtype=np.int64)
        self._least[: len(least)] = least
