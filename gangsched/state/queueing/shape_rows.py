"""Requests of shapes as rows, so that a few column comparisons find the shapes that fit among
thousands.

Invariant: exact integers, no clock. Only resources are compared, so a shape that does not fit here
fits nowhere; the caller checks eligible nodes afterwards. Rows are ordered by the first group that
needs each shape, so the next shape is found without a scan.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from itertools import islice

import numpy as np

from gangsched.core.topology import level
from gangsched.model.snapshot import Bools, Ints, Snapshot
from gangsched.state.group_record import Entry, NeededRoom

NEVER = np.iinfo(np.int64).max
MOST_COUNTED = 2**14
"""Pods of one shape whose requests are added up at most, so that sums stay within int64 whatever is
asked.
"""
FEW_COLUMNS = 8
"""Sorting more to find equal ones takes less time than comparing each with thousands of rows."""
SUMMED_NODES = 50_000
"""Nodes of all sets of labels whose domains are summed up for one event; for others it is found out
later.
"""


class ShapeRows:
    """`requests[row][resource]`; unused rows request more than any node offers.

    A room is pending from the moment at which capacity for it is freed until it is evaluated.
    """

    def __init__(self) -> None:
        self._rows: dict[NeededRoom, int] = {}
        self._rooms: list[NeededRoom | None] = []
        self._unused: list[int] = []
        self._columns: dict[str, int] = {}
        self._requests: Ints = np.zeros((16, 4), dtype=np.int64)
        self._least: Ints = np.ones(16, dtype=np.int64)
        self._within: dict[tuple[str, ...], set[int]] = {}  # rows by their labels
        self._beginning: dict[str, set[tuple[str, ...]]] = {}  # labels by the first of them
        self._is_bound: Bools = np.zeros(16, dtype=np.bool_)
        self._pending: Bools = np.zeros(16, dtype=np.bool_)
        self._first: dict[int, Entry] = {}
        self._order: list[tuple[Entry, int]] = []

    def put(self, room: NeededRoom, least: int, first: Entry) -> None:
        """Add the room; at least `least` pods must fit to help any group. `first` would be the
        first group helped.
        """
        row = self._rows.get(room)
        if row is None:
            row = self._rows[room] = self._new_row(room)

        self._least[row] = min(least, MOST_COUNTED)
        if self._first.get(row) != first:
            self._leave_order(row)
            self._first[row] = first
            insort(self._order, (first, row))

    def remove(self, room: NeededRoom) -> None:
        """Remove the room, if known."""
        row = self._rows.pop(room, None)
        if row is not None:
            self._rooms[row] = None
            within = room.within
            if within:
                self._within[within].discard(row)
                if not self._within[within]:
                    del self._within[within]
                    self._beginning[within[0]].discard(within)

                    if not self._beginning[within[0]]:
                        del self._beginning[within[0]]

            self._requests[row], self._least[row], self._pending[row] = NEVER, 1, False
            self._leave_order(row)
            self._unused.append(row)

    @property
    def any_pending(self) -> bool:
        """Whether any room is pending."""
        return bool(self._pending.any())

    def is_pending(self, room: NeededRoom) -> bool:
        """Whether this room is pending."""
        row = self._rows.get(room)
        return row is not None and bool(self._pending[row])

    def mark_pending(self, rows: Bools) -> None:
        """Add these rows to the pending ones."""
        self._pending[: len(rows)] |= rows

    def keep_pending(self, rows: Bools) -> None:
        """Remove all pending rows but these."""
        self._pending[: len(rows)] &= rows

    def looked_at(self, room: NeededRoom) -> None:
        """Mark the room as evaluated."""
        self._pending[self._rows[room]] = False

    def first_pending(self, number: int) -> list[NeededRoom]:
        """The first `number` pending rooms, in the order of the first groups that need them."""
        if not self.any_pending:
            return []

        pending = self._pending.tobytes()
        found = (self._rooms[row] for _, row in self._order if pending[row])
        result: list[NeededRoom] = []
        for room in islice(found, number):
            if room is not None:
                result.append(room)

        return result

    def rows_of(self, rooms: Iterable[NeededRoom]) -> Ints:
        """The row numbers of these rooms, which must be known."""
        return np.array([self._rows[room] for room in rooms], dtype=np.int64)

    def fitting(self, snapshot: Snapshot, nodes: Ints) -> Bools:
        """Rows of shapes with a pod that fits on one of these nodes, and whose smallest need fits
        in total.

        A need that must be in one domain is compared with the totals of the domains of these nodes,
        for the first sets of labels only (`SUMMED_NODES`). Complexity: rooms times nodes with
        distinct free room.
        """
        in_use = len(self._rooms)
        fits = np.zeros(in_use, dtype=np.bool_)

        if not in_use or not len(nodes):
            return fits

        requests = self._requests[:in_use]
        least = self._least[:in_use]
        names = sorted(self._columns, key=self._columns.__getitem__)
        free = np.zeros((len(names), snapshot.free.shape[1]), dtype=np.int64)

        for column, name in enumerate(names):
            if name in snapshot.resources:
                free[column] = np.maximum(snapshot.free[snapshot.resources[name]], 0)

        requests = requests[:, : len(names)]
        for amounts in _distinct(free[:, nodes]):
            fits |= (requests <= amounts).all(axis=1)

        found = np.flatnonzero(fits)
        fits[found] = (requests[found] * least[found, np.newaxis] <= free.sum(axis=1)).all(axis=1)
        may_fit = fits
        fits = fits & ~self._is_bound[:in_use]

        for number, within in enumerate(self._held(snapshot, nodes)):
            rows = np.array(sorted(self._within[within]), dtype=np.int64)
            of_level = rows[may_fit[rows]]

            if number * len(snapshot.table) >= SUMMED_NODES:
                fits[of_level] = True
                continue

            if of_level.size:
                inside = level(within, snapshot.table)
                domains = inside.of(nodes)
                sums = np.array([inside.sums(row)[domains] for row in free]).reshape(len(free), -1)
                asked = requests[of_level] * least[of_level, np.newaxis]

                for amounts in _distinct(sums):
                    fits[of_level] |= (asked <= amounts).all(axis=1)

        return fits

    def _held(self, snapshot: Snapshot, nodes: Ints) -> list[tuple[str, ...]]:
        """The labels of which one domain must have the room, but for those that none of these nodes
        has.
        """
        if not self._beginning:
            return []

        keys = set[str]().union(*(snapshot.table.nodes[node].labels for node in nodes.tolist()))
        found = (each for key in keys & self._beginning.keys() for each in self._beginning[key])
        return sorted(within for within in found if keys.issuperset(within))

    def _leave_order(self, row: int) -> None:
        first = self._first.pop(row, None)
        if first is not None:
            del self._order[bisect_left(self._order, (first, row))]

    def _new_row(self, room: NeededRoom) -> int:
        shape, within = room
        if self._unused:
            row = self._unused.pop()
        else:
            row = len(self._rooms)
            self._rooms.append(None)

        for name, _ in shape.requests:
            self._columns.setdefault(name, len(self._columns))

        rows, columns = self._requests.shape
        if row == rows or len(self._columns) > columns:
            self._grow(rows * 2 if row == rows else rows, max(columns, 2 * len(self._columns)))

        self._rooms[row] = room
        self._is_bound[row] = bool(within)

        if within:
            self._within.setdefault(within, set()).add(row)
            self._beginning.setdefault(within[0], set()).add(within)

        self._requests[row] = 0
        for name, amount in shape.requests:
            self._requests[row, self._columns[name]] = amount

        return row

    def _grow(self, rows: int, columns: int) -> None:
        before = self._requests
        least = self._least
        bound = self._is_bound
        pending = self._pending
        self._requests = np.zeros((rows, columns), dtype=np.int64)
        self._requests[: len(before), : before.shape[1]] = before
        self._least = np.ones(rows, dtype=np.int64)
        self._least[: len(least)] = least
        self._is_bound = np.zeros(rows, dtype=np.bool_)
        self._pending = np.zeros(rows, dtype=np.bool_)
        self._is_bound[: len(bound)], self._pending[: len(pending)] = bound, pending


def _distinct(columns: Ints) -> Iterable[Ints]:
    """The columns, each once if they are many."""
    return (columns if columns.shape[1] <= FEW_COLUMNS else np.unique(columns, axis=1)).T
