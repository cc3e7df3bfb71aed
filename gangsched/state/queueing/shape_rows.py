"""Requests of shapes as rows, so that a few column comparisons find the shapes that fit among
thousands.

Invariant: exact integers, no clock. Only resources are compared, so a shape that does not fit here
fits nowhere; the caller checks eligible nodes afterwards. Rows are ordered by the first group that
needs each shape, so the next shape is found without a scan.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TypeAlias

import numpy as np

from gangsched.core.topology import level
from gangsched.model.snapshot import Bools, Ints, NodeTable, Snapshot
from gangsched.state.group_record import Entry, NeededRoom

Labels: TypeAlias = tuple[str, ...]
"""Labels of one of whose domains must have the room."""

NEVER = np.iinfo(np.int64).max
MOST_COUNTED = 2**14
"""Pods of one shape whose requests are added up at most, so that sums stay within int64 whatever is
asked.
"""
FEW_COLUMNS = 8
"""Looking for the largest of more takes less time than comparing each with thousands of rows."""
MOST_COLUMNS = 64
"""Amounts of nodes that are compared with all rows; of more, each stands for several nodes and is
as large as all of them.
"""
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
        self._within: dict[Labels, set[int]] = {}  # rows by their labels
        self._beginning: dict[str, set[Labels]] = {}  # labels by the first of them
        self._is_bound: Bools = np.zeros(16, dtype=np.bool_)
        self._pending: Bools = np.zeros(16, dtype=np.bool_)
        #: Whether any of these is set, None if that is to be found out: each turn asks four times.
        self._is_any_pending: bool | None = False
        self._first: dict[int, Entry] = {}
        self._order: list[tuple[Entry, int]] = []

    def put(
        self,
        room: NeededRoom,
        least: int,
        first: Entry,
    ) -> None:
        """Add the room; at least `least` pods must fit to help any group. `first` would be the
        first group helped.
        """
        row = self._rows.get(room)
        if row is None:
            row = self._new_row(room)
            self._rows[room] = row

        self._least[row] = min(least, MOST_COUNTED)
        if self._first.get(row) != first:
            self._leave_order(row)
            self._first[row] = first
            insort(self._order, (first, row))

    def reorder(self, firsts: Sequence[tuple[NeededRoom, Entry]]) -> None:
        """Order the rooms, which are all that are known, by other first groups."""
        self._first = {}
        order = []
        for room, first in firsts:
            row = self._rows[room]
            self._first[row] = first
            order.append((first, row))

        order.sort()
        self._order = order

    def remove(self, room: NeededRoom) -> None:
        """Remove the room, if known."""
        row = self._rows.pop(room, None)
        if row is None:
            return

        if room.within:
            self._leave_labels(room.within, row)

        self._rooms[row] = None
        self._requests[row] = NEVER
        self._least[row] = 1
        self._pending[row] = False
        self._is_any_pending = None
        self._leave_order(row)
        self._unused.append(row)

    def _leave_labels(
        self,
        within: tuple[str, ...],
        row: int,
    ) -> None:
        """Take a row out of the indexes by labels."""
        rows = self._within[within]
        rows.discard(row)
        if rows:
            return

        first = within[0]
        del self._within[within]
        self._beginning[first].discard(within)
        if not self._beginning[first]:
            del self._beginning[first]

    @property
    def any_pending(self) -> bool:
        """Whether any room is pending."""
        if self._is_any_pending is None:
            self._is_any_pending = bool(self._pending.any())

        return self._is_any_pending

    def is_pending(self, room: NeededRoom) -> bool:
        """Whether this room is pending."""
        row = self._rows.get(room)
        return row is not None and bool(self._pending[row])

    def mark_pending(self, rows: Bools) -> None:
        """Add these rows to the pending ones."""
        self._pending[: len(rows)] |= rows
        self._is_any_pending = None

    def keep_pending(self, rows: Bools) -> None:
        """Remove all pending rows but these."""
        self._pending[: len(rows)] &= rows
        self._is_any_pending = None

    def looked_at(self, room: NeededRoom) -> None:
        """Mark the room as evaluated."""
        self._pending[self._rows[room]] = False
        self._is_any_pending = None

    def first_pending(self, number: int) -> list[NeededRoom]:
        """The first `number` pending rooms, in the order of the first groups that need them."""
        if not self.any_pending:
            return []

        pending = self._pending.tobytes()
        rooms = (self._rooms[row] for _, row in self._order if pending[row])
        return [room for room in islice(rooms, number) if room is not None]

    def rows_of(self, rooms: Iterable[NeededRoom]) -> Ints:
        """The row numbers of these rooms, which must be known."""
        rows = [self._rows[room] for room in rooms]
        return np.array(rows, dtype=np.int64)

    def fitting(
        self,
        snapshot: Snapshot,
        nodes: Ints,
    ) -> Bools:
        """Rows of shapes with a pod that fits on one of these nodes, and whose smallest need fits
        in total.

        A need that must be in one domain is compared with the totals of the domains of these nodes,
        for the first sets of labels only (`SUMMED_NODES`). Complexity: rooms times `MOST_COLUMNS`.
        """
        in_use = len(self._rooms)
        fits = np.zeros(in_use, dtype=np.bool_)
        if not in_use or not len(nodes):
            return fits

        free = self._free(snapshot)
        requests = self._requests[:in_use, : len(free)]
        least = self._least[:in_use, np.newaxis]
        for amounts in _largest(free[:, nodes]):
            fits |= (requests <= amounts).all(axis=1)

        on_a_node = np.flatnonzero(fits)
        needed = requests[on_a_node] * least[on_a_node]
        in_total = free.sum(axis=1)
        fits[on_a_node] = (needed <= in_total).all(axis=1)

        may_fit = fits
        fits = fits & ~self._is_bound[:in_use]
        for number, within in enumerate(self._held(snapshot, nodes)):
            in_order = sorted(self._within[within])
            rows = np.array(in_order, dtype=np.int64)
            of_level = rows[may_fit[rows]]

            if number * len(snapshot.table) >= SUMMED_NODES:
                fits[of_level] = True

            elif of_level.size:
                needed = requests[of_level] * least[of_level]
                totals = _totals(within, snapshot.table, free, nodes)
                for amounts in _largest(totals):
                    fits[of_level] |= (needed <= amounts).all(axis=1)

        return fits

    def _free(self, snapshot: Snapshot) -> Ints:
        """Free room by column and node; nothing of resources that no node has."""
        names = sorted(self._columns, key=self._columns.__getitem__)
        nodes = snapshot.free.shape[1]
        free = np.zeros((len(names), nodes), dtype=np.int64)

        for column, name in enumerate(names):
            if name in snapshot.resources:
                row = snapshot.resources[name]
                free[column] = np.maximum(snapshot.free[row], 0)

        return free

    def _held(
        self,
        snapshot: Snapshot,
        nodes: Ints,
    ) -> list[Labels]:
        """The labels of which one domain must have the room, but for those that none of these nodes
        has.
        """
        if not self._beginning:
            return []

        keys: set[str] = set()
        for node in nodes.tolist():
            keys.update(snapshot.table.nodes[node].labels)

        held = []
        for key in keys & self._beginning.keys():
            for within in self._beginning[key]:
                if keys.issuperset(within):
                    held.append(within)

        return sorted(held)

    def _leave_order(self, row: int) -> None:
        first = self._first.pop(row, None)
        if first is not None:
            place = bisect_left(self._order, (first, row))
            del self._order[place]

    def _new_row(self, room: NeededRoom) -> int:
        shape, within = room
        for name, _ in shape.requests:
            self._columns.setdefault(name, len(self._columns))

        if self._unused:
            row = self._unused.pop()
        else:
            row = len(self._rooms)
            self._rooms.append(None)

        self._grow_to(row)
        self._rooms[row] = room
        self._is_bound[row] = bool(within)
        if within:
            rows = self._within.setdefault(within, set())
            rows.add(row)
            beginning = self._beginning.setdefault(within[0], set())
            beginning.add(within)

        self._requests[row] = 0
        for name, amount in shape.requests:
            column = self._columns[name]
            self._requests[row, column] = amount

        return row

    def _grow_to(self, row: int) -> None:
        """Make place for a row, and for all columns."""
        rows, columns = self._requests.shape
        needed = len(self._columns)
        if row < rows and needed <= columns:
            return

        if row == rows:
            rows *= 2

        self._grow(rows, max(columns, 2 * needed))

    def _grow(
        self,
        rows: int,
        columns: int,
    ) -> None:
        before = self._requests
        self._requests = np.zeros((rows, columns), dtype=np.int64)
        self._requests[: len(before), : before.shape[1]] = before

        more = rows - len(before)
        no_rows = np.zeros(more, dtype=np.bool_)
        one_each = np.ones(more, dtype=np.int64)
        self._least = np.append(self._least, one_each)
        self._is_bound = np.append(self._is_bound, no_rows)
        self._pending = np.append(self._pending, no_rows)


def _totals(
    within: Labels,
    table: NodeTable,
    free: Ints,
    nodes: Ints,
) -> Ints:
    """`totals[row][i]`: what is free in the domains that have any of these nodes."""
    domains = level(within, table)
    with_nodes = domains.of(nodes)
    size = (len(free), with_nodes.size)
    totals = np.zeros(size, dtype=np.int64)
    for row, amounts in enumerate(free):
        totals[row] = domains.sums(amounts)[with_nodes]

    return totals


def _largest(columns: Ints) -> Iterable[Ints]:
    """The columns without those that another one exceeds in all rows, if they are many.

    What fits in a column fits in one of these. Where more than `MOST_COLUMNS` exceed each other in
    some row, the last ones are the maximum of several, in which more may fit.
    """
    if columns.shape[1] <= FEW_COLUMNS:
        return columns.T

    # In parts of the most, so that resources of all units count alike.
    most = columns.max(axis=1, keepdims=True)
    parts = columns / np.maximum(most, 1)
    order = np.argsort(-parts.sum(axis=0))
    left = columns[:, order]
    largest: list[Ints] = []

    # None exceeds the first one.
    while left.shape[1] and len(largest) < MOST_COLUMNS // 2:
        first = left[:, 0]
        largest.append(first)
        is_other = (left > first[:, np.newaxis]).any(axis=0)
        left = left[:, is_other]

    maxima = _maxima(left, MOST_COLUMNS // 2)
    return [*largest, *maxima]


def _maxima(columns: Ints, number: int) -> Iterable[Ints]:
    """At most so many columns, each the maximum of some that are close in the first row that
    differs.
    """
    many = columns.shape[1]
    if many <= number:
        return columns.T

    order = np.lexsort(columns[::-1])
    size = -(-many // number)
    begins = np.arange(0, many, size)
    maxima = np.maximum.reduceat(columns[:, order], begins, axis=1)
    return maxima.T
