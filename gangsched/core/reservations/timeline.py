"""The timeline: the pods that use room now, and when each is expected to end (semantics H2).

Invariant: a timeline depends on its arguments only and is immutable; adding a reservation returns a
new timeline. The order of pods that end at the same time is irrelevant. `OccupantColumns` only
caches what was already read.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from operator import is_not
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from gangsched.core.reserve import Ledger
from gangsched.model.gang import Placement
from gangsched.model.objects import Pod, Shape
from gangsched.model.reservation import Occupant
from gangsched.model.snapshot import Bools, Ints, NodeTable

Floats = npt.NDArray[np.float64]
Objects = npt.NDArray[Any]
OccupantsByNode: TypeAlias = Mapping[str, Sequence[Occupant]]
_LAST_S: Final = float(np.finfo(np.float64).max)
"""The end of time: what ends later has no known end."""
_NO_GROUP: Final = -1
"""Instead of an entry: the pod is only reserved room for, so that no group has it."""
SHAPES: Final = 4_096
"""Shapes beyond which columns forget those that no pod has any more."""


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    """One row a pod, by its end: when it started and ends, its node, the number of its shape,
    whether it has claims, and the number of its entry in `groups` of the timeline.

    A number, since copying a column of objects takes ten times as long as one of numbers.
    """

    ends_s: Floats
    started_s: Floats
    node: Ints
    shape: Ints
    claims: Bools
    group: Ints
    pods: Objects

    @classmethod
    def of(
        cls,
        pods: Sequence[Pod],
        node: Ints,
        started_s: Floats,
        ends_s: Floats,
        shape: Ints,
        group: Ints,
    ) -> _Rows:
        """Build columns from these rows, given in any order."""
        claims = np.array([bool(pod.claims) for pod in pods], dtype=np.bool_)
        rows = cls(
            ends_s,
            started_s,
            node,
            shape,
            claims,
            group,
            pods=_object_column(pods),
        )

        # Stable, so that equal ends keep the order in which they were read.
        order = np.argsort(ends_s, kind="stable")
        return rows._take(order)

    def without(self, nodes: Ints) -> _Rows:
        """The timeline without the pods on these nodes."""
        is_there = np.isin(self.node, nodes)
        return self._take(np.flatnonzero(~is_there))

    def without_groups(self, entries: Ints) -> _Rows:
        """The timeline without the pods whose group is one of these entries."""
        is_there = np.isin(self.group, entries)
        return self._take(np.flatnonzero(~is_there))

    def with_ending_together(self, others: _Rows) -> _Rows:
        """The timeline with `others` added, whose pods all end at the same time."""
        if not len(others.ends_s):
            return self

        # One insertion instead of a sort: a plan adds the pods of each head and of each group that
        # it places.
        end_s = others.ends_s[0]
        at = int(np.searchsorted(self.ends_s, end_s, side="right"))

        columns = []
        for own, other in zip(self._columns(), others._columns(), strict=True):
            column = np.concatenate((own[:at], other, own[at:]))
            columns.append(column)

        return _Rows(*columns)

    def with_others(self, others: _Rows) -> _Rows:
        """The timeline with `others` added."""
        columns = []
        for own, other in zip(self._columns(), others._columns(), strict=True):
            column = np.concatenate((own, other))
            columns.append(column)

        joined = _Rows(*columns)
        order = np.argsort(joined.ends_s, kind="stable")
        return joined._take(order)

    def _take(self, index: Ints) -> _Rows:
        columns = [column[index] for column in self._columns()]
        return _Rows(*columns)

    def _columns(self) -> tuple[Any, ...]:
        return (
            self.ends_s,
            self.started_s,
            self.node,
            self.shape,
            self.claims,
            self.group,
            self.pods,
        )


def _object_column(values: Sequence[object]) -> Objects:
    """A column of these values; numpy would make a table of a sequence of sequences."""
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column


class _Shapes:
    """Shapes by number, each with what a pod of it asks: `amounts(resources)[r][number]`."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self._shapes: list[Shape] = []  # keeps the ids in use
        self._resources: dict[str, int] = {}
        self._amounts: Ints = np.zeros((0, 0), dtype=np.int64)

    def __len__(self) -> int:
        return len(self._shapes)

    def numbers(self, pods: Iterable[Pod]) -> Ints:
        """The number of each pod's shape; a new shape gets the next number."""
        shapes = [pod.shape for pod in pods]
        for shape in shapes:
            # By id, as shapes are compared by identity; `_shapes` keeps them alive, so that no id
            # is used again.
            if id(shape) not in self._numbers:
                self._numbers[id(shape)] = len(self._shapes)
                self._shapes.append(shape)

        numbers = [self._numbers[id(shape)] for shape in shapes]
        return np.array(numbers, dtype=np.int64)

    def amounts(self, resources: Mapping[str, int]) -> Ints:
        """A column of requests for each shape; read-only."""
        number_of_shapes = len(self._shapes)
        is_complete = self._amounts.shape[1] == number_of_shapes
        if is_complete and self._resources == resources:
            return self._amounts

        amounts = np.zeros((len(resources), number_of_shapes), dtype=np.int64)
        for number, shape in enumerate(self._shapes):
            for name, amount in shape.requests:
                if name in resources:
                    row = resources[name]
                    amounts[row, number] = amount

        self._amounts = amounts
        self._resources = dict(resources)
        return amounts


class Timeline:
    """Pods that use room, as columns, in the order of their expected ends."""

    def __init__(
        self,
        rows: _Rows,
        shapes: _Shapes,
        groups: Objects,
        ledger: Ledger,
    ) -> None:
        """Nodes and resources are those of `ledger`; `groups` are ids of groups."""
        self._rows = rows
        self._groups = groups
        self._shapes = shapes
        self._amounts = shapes.amounts(ledger.resources)
        self._ledger = ledger

    @classmethod
    def of(cls, occupants: Iterable[Occupant], ledger: Ledger) -> Timeline:
        """Build a timeline; pods on nodes that are not in the ledger are left out."""
        by_node: dict[str, list[Occupant]] = {}
        for occupant in occupants:
            on_node = by_node.setdefault(occupant.node, [])
            on_node.append(occupant)

        return OccupantColumns().timeline(by_node, ledger)

    @property
    def ends_s(self) -> Floats:
        """Expected end of each pod, ascending; `math.inf` if unknown."""
        return self._rows.ends_s

    def with_reserved(
        self,
        placements: Sequence[Placement],
        at_s: float,
        ends_s: float,
    ) -> Timeline:
        """A timeline in which the pods of a reservation also run, from `at_s` to `ends_s`."""
        pods = [placement.pod for placement in placements]
        index = self._ledger.table.index
        nodes = [index[placement.node] for placement in placements]

        reserved = _Rows.of(
            pods,
            node=np.array(nodes, dtype=np.int64),
            started_s=np.full(len(pods), at_s, dtype=np.float64),
            ends_s=np.full(len(pods), ends_s, dtype=np.float64),
            shape=self._shapes.numbers(pods),
            group=np.full(len(pods), _NO_GROUP, dtype=np.int64),
        )
        rows = self._rows.with_ending_together(reserved)

        return Timeline(rows, self._shapes, self._groups, self._ledger)

    def of_others(self, group: str) -> Timeline:
        """The timeline as a group sees it that waits for more room: its own pods never end, since
        with them it needs no room any more.
        """
        entries = np.flatnonzero(self._groups == group)
        others = self._rows.without_groups(entries)
        return Timeline(others, self._shapes, self._groups, self._ledger)

    def distinct_ends_s(self, until_s: float) -> Floats:
        """Known expected ends until `until_s`, ascending and without duplicates."""
        # Without the infinite ones, whose pods never make room.
        ended = self.ended(min(until_s, _LAST_S))
        ends_s = self.ends_s[:ended]

        is_first = np.ones(ended, dtype=np.bool_)
        np.not_equal(ends_s[1:], ends_s[:-1], out=is_first[1:])
        return ends_s[is_first]

    def ended(self, at_s: float) -> int:
        """Number of pods whose expected end is at or before `at_s`."""
        return int(np.searchsorted(self.ends_s, at_s, side="right"))

    @property
    def nodes(self) -> Ints:
        """Node of each pod, by index, in the order of `ends_s`."""
        return self._rows.node

    def freed(
        self,
        pods: slice | Ints,
        rows: Sequence[int] | None = None,
    ) -> Ints:
        """`freed[r][n]`: the room that these pods, given by index, use on each node.

        The rows of resources that are not in `rows` stay 0; None stands for all resources.
        """
        nodes = self._rows.node[pods]
        shapes = self._rows.shape[pods]
        if rows is None:
            rows = range(len(self._amounts))

        freed = np.zeros((len(self._amounts), len(self._ledger.table)), dtype=np.int64)
        for row in rows:
            amounts = self._amounts[row][shapes]
            # `add.at`, because many of these pods share a node.
            np.add.at(freed[row], nodes, amounts)

        return freed

    def release(self, ended: int, ledger: Ledger) -> None:
        """Release the room of the first `ended` pods on `ledger`."""
        if not ended:
            return

        rows = self._rows
        pods = rows.pods[:ended].tolist()
        nodes = rows.node[:ended]
        claiming = np.flatnonzero(rows.claims[:ended])
        freed = self.freed(slice(ended))
        ledger.release_many(pods, nodes, freed, claiming=claiming.tolist())

    def longest_started_s(self) -> Floats:
        """Start time of the longest-running pod of each node; `math.inf` for a node
        without pods.
        """
        # The minimum of nothing: infinity marks an empty node.
        started_s = np.full(len(self._ledger.table), math.inf)
        np.minimum.at(started_s, self._rows.node, self._rows.started_s)
        return started_s


class OccupantColumns:
    """Pods that use room as rows, cached between plans; a node is read again only if its pods
    changed.

    Changes are detected by the identity of the mapping for the whole cluster, then of the sequence
    for each node.
    """

    def __init__(self) -> None:
        self._table: NodeTable | None = None
        self._last: OccupantsByNode = {}
        self._shapes = _Shapes()
        self._rows: _Rows | None = None
        #: The id of each row's group; the rows have them in order.
        self._groups: Objects = _object_column(())

    def timeline(self, by_node: OccupantsByNode, ledger: Ledger) -> Timeline:
        """The timeline of these pods, given by node name."""
        index = ledger.table.index
        # Rows have node numbers of one table. Shapes that are gone keep their numbers until all are
        # read again.
        is_outdated = self._table is not ledger.table or len(self._shapes) > SHAPES

        if self._rows is None or is_outdated:
            self._table = ledger.table
            self._shapes = _Shapes()
            self._groups = _object_column(())
            self._keep(self._read(by_node, by_node, index))

        elif self._last is not by_node:
            changed = self._changed(by_node)
            if changed:
                nodes = [index[name] for name in changed if name in index]
                others = self._rows.without(np.array(nodes, dtype=np.int64))
                read = self._read(changed, by_node, index)
                self._keep(others.with_others(read))

        self._last = by_node
        assert self._rows is not None
        return Timeline(self._rows, self._shapes, self._groups, ledger)

    def _keep(self, rows: _Rows) -> None:
        """Keep these rows, and of the groups only theirs, in the order of the rows."""
        self._groups = self._groups[rows.group]
        self._rows = replace(rows, group=np.arange(len(rows.group)))

    def _changed(self, by_node: OccupantsByNode) -> list[str]:
        """The nodes whose pods are others than last time."""
        # Of all nodes, in each plan: a loop took a tenth of a plan with one change.
        before = map(self._last.get, by_node)
        is_other = map(is_not, by_node.values(), before)
        changed = list(compress(by_node, is_other))

        changed += self._last.keys() - by_node.keys()
        return changed

    def _read(
        self,
        names: Iterable[str],
        by_node: OccupantsByNode,
        index: Mapping[str, int],
    ) -> _Rows:
        """The rows of the pods on these nodes, without those that are not in `index`; their groups
        come behind those that are known.
        """
        occupants: list[Occupant] = []
        for name in names:
            if name in index:
                occupants += by_node.get(name, ())

        pods = [occupant.pod for occupant in occupants]
        nodes = [index[occupant.node] for occupant in occupants]
        started_s = [occupant.started_s for occupant in occupants]
        ends_s = [occupant.ends_s for occupant in occupants]

        known = len(self._groups)
        read = _object_column([occupant.group for occupant in occupants])
        self._groups = np.concatenate((self._groups, read))

        return _Rows.of(
            pods,
            node=np.array(nodes, dtype=np.int64),
            started_s=np.array(started_s, dtype=np.float64),
            ends_s=np.array(ends_s, dtype=np.float64),
            shape=self._shapes.numbers(pods),
            group=np.arange(known, len(self._groups)),
        )
