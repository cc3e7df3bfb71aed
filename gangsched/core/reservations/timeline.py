"""The timeline: the pods that use room now, and when each is expected to end (semantics H2).

Invariant: a timeline depends on its arguments only and is immutable; adding a reservation returns a
new timeline. The order of pods that end at the same time is irrelevant. `OccupantColumns` only
caches what was already read.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from gangsched.core.reserve import Ledger
from gangsched.model.gang import Placement
from gangsched.model.objects import Pod, Shape
from gangsched.model.reservation import Occupant
from gangsched.model.snapshot import Bools, Ints, NodeTable

Floats = npt.NDArray[np.float64]
_LAST_S: Final = float(np.finfo(np.float64).max)
"""The end of time: what ends later has no known end."""
SHAPES: Final = 4_096
"""Shapes beyond which columns forget those that no pod has any more."""


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    """One row a pod, by its end: when it started and ends, its node, the number of its shape,
    whether it has claims, and the id of its group.
    """

    ends_s: Floats
    started_s: Floats
    node: Ints
    shape: Ints
    claims: Bools
    group: npt.NDArray[Any]
    pods: npt.NDArray[Any]

    @classmethod
    def of(
        cls,
        pods: Sequence[Pod],
        node: Ints,
        started_s: Floats,
        ends_s: Floats,
        shape: Ints,
        groups: Sequence[str],
    ) -> _Rows:
        """Build columns from these rows, given in any order."""
        column = np.empty(len(pods), dtype=object)
        column[:] = pods
        group = np.empty(len(pods), dtype=object)
        group[:] = groups
        claims = np.array([bool(pod.claims) for pod in pods], dtype=np.bool_)

        # Stable, so that equal ends keep the order in which they were read.
        return cls(ends_s, started_s, node, shape, claims, group, column)._take(
            np.argsort(ends_s, kind="stable")
        )

    def without(self, nodes: Ints) -> _Rows:
        """The timeline without the pods on these nodes."""
        return self._take(np.flatnonzero(~np.isin(self.node, nodes)))

    def without_group(self, group: str) -> _Rows:
        """The timeline without the pods of a group."""
        return self._take(np.flatnonzero(self.group != group))

    def with_ending_together(self, others: _Rows) -> _Rows:
        """The timeline with `others` added, whose pods all end at the same time."""
        # One insertion instead of a sort: a plan adds the pods of each head and of each group that
        # it places.
        at = (
            int(np.searchsorted(self.ends_s, others.ends_s[0], side="right"))
            if len(others.ends_s)
            else 0
        )
        both = zip(self._columns(), others._columns(), strict=True)
        return _Rows(*(np.concatenate((column[:at], other, column[at:])) for column, other in both))

    def with_others(self, others: _Rows) -> _Rows:
        """The timeline with `others` added."""
        both = zip(self._columns(), others._columns(), strict=True)
        joined = _Rows(*(np.concatenate(columns) for columns in both))
        return joined._take(np.argsort(joined.ends_s, kind="stable"))

    def _take(self, index: Ints) -> _Rows:
        return _Rows(*(column[index] for column in self._columns()))

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

        return np.array([self._numbers[id(shape)] for shape in shapes], dtype=np.int64)

    def amounts(self, resources: Mapping[str, int]) -> Ints:
        """A column of requests for each shape; read-only."""
        if self._amounts.shape[1] != len(self._shapes) or self._resources != resources:
            self._amounts = np.zeros((len(resources), len(self._shapes)), dtype=np.int64)
            self._resources = dict(resources)
            for number, shape in enumerate(self._shapes):
                for name, amount in shape.requests:
                    if name in resources:
                        self._amounts[resources[name], number] = amount

        return self._amounts


class Timeline:
    """Pods that use room, as columns, in the order of their expected ends."""

    def __init__(self, rows: _Rows, shapes: _Shapes, ledger: Ledger) -> None:
        """Nodes and resources are those of `ledger`."""
        self._rows = rows
        self._shapes = shapes
        self._amounts = shapes.amounts(ledger.resources)
        self._ledger = ledger

    @classmethod
    def of(cls, occupants: Iterable[Occupant], ledger: Ledger) -> Timeline:
        """Build a timeline; pods on nodes that are not in the ledger are left out."""
        by_node: dict[str, list[Occupant]] = {}
        for occupant in occupants:
            by_node.setdefault(occupant.node, []).append(occupant)

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
        node = np.array([index[placement.node] for placement in placements], dtype=np.int64)
        started_s, all_end_s = (
            np.full(len(pods), each, dtype=np.float64) for each in (at_s, ends_s)
        )
        groups = [""] * len(pods)
        more = _Rows.of(pods, node, started_s, all_end_s, self._shapes.numbers(pods), groups)

        return Timeline(self._rows.with_ending_together(more), self._shapes, self._ledger)

    def of_others(self, group: str) -> Timeline:
        """The timeline as a group sees it that waits for more room: its own pods never end, since
        with them it needs no room any more.
        """
        return Timeline(self._rows.without_group(group), self._shapes, self._ledger)

    def distinct_ends_s(self, until_s: float) -> Floats:
        """Known expected ends until `until_s`, ascending and without duplicates."""
        # Without the infinite ones, whose pods never make room.
        ends_s = self.ends_s[: self.ended(min(until_s, _LAST_S))]
        first = np.ones(len(ends_s), dtype=np.bool_)
        np.not_equal(ends_s[1:], ends_s[:-1], out=first[1:])

        return ends_s[first]

    def ended(self, at_s: float) -> int:
        """Number of pods whose expected end is at or before `at_s`."""
        return int(np.searchsorted(self.ends_s, at_s, side="right"))

    @property
    def nodes(self) -> Ints:
        """Node of each pod, by index, in the order of `ends_s`."""
        return self._rows.node

    def freed(self, pods: slice | Ints, rows: Sequence[int] | None = None) -> Ints:
        """`freed[r][n]`: the room that these pods, given by index, use on each node.

        The rows of resources that are not in `rows` stay 0; None stands for all resources.
        """
        nodes = self._rows.node[pods]
        shapes = self._rows.shape[pods]

        found = np.zeros((len(self._amounts), len(self._ledger.table)), dtype=np.int64)
        for row in range(len(found)) if rows is None else rows:
            # `add.at`, because many of these pods share a node.
            np.add.at(found[row], nodes, self._amounts[row][shapes])

        return found

    def release(self, ended: int, ledger: Ledger) -> None:
        """Release the room of the first `ended` pods on `ledger`."""
        if ended:
            rows = self._rows
            claiming = np.flatnonzero(self._rows.claims[:ended]).tolist()
            pods = rows.pods[:ended].tolist()
            nodes = rows.node[:ended]
            ledger.release_many(pods, nodes, self.freed(slice(ended)), claiming=claiming)

    def longest_started_s(self) -> Floats:
        """Start time of the longest-running pod of each node; `math.inf` for a node
        without pods.
        """
        # The minimum of nothing: infinity marks an empty node.
        started = np.full(len(self._ledger.table), math.inf)
        np.minimum.at(started, self._rows.node, self._rows.started_s)
        return started


class OccupantColumns:
    """Pods that use room as rows, cached between plans; a node is read again only if its pods
    changed.

    Changes are detected by the identity of the mapping for the whole cluster, then of the sequence
    for each node.
    """

    def __init__(self) -> None:
        self._table: NodeTable | None = None
        self._seen: Mapping[str, Sequence[Occupant]] = {}
        self._shapes = _Shapes()
        self._rows: _Rows | None = None

    def timeline(self, by_node: Mapping[str, Sequence[Occupant]], ledger: Ledger) -> Timeline:
        """The timeline of these pods, given by node name."""
        index = ledger.table.index
        changed = list[str]()

        if self._seen is not by_node:
            changed = [name for name, there in by_node.items() if self._seen.get(name) is not there]
            changed += self._seen.keys() - by_node.keys()

        # Rows have node numbers of one table. Shapes that are gone keep their numbers until all are
        # read again.
        if self._rows is None or self._table is not ledger.table or len(self._shapes) > SHAPES:
            self._table = ledger.table
            self._shapes = _Shapes()
            self._rows = None
            changed = list(by_node)

        if changed or self._rows is None:
            there = chain.from_iterable(by_node.get(name, ()) for name in changed if name in index)
            new = self._read(list(there), index)
            nodes = np.array([index[name] for name in changed if name in index], dtype=np.int64)
            self._rows = new if self._rows is None else self._rows.without(nodes).with_others(new)
            self._seen = by_node

        return Timeline(self._rows, self._shapes, ledger)

    def _read(self, occupants: Sequence[Occupant], index: Mapping[str, int]) -> _Rows:
        pods = [occupant.pod for occupant in occupants]
        node = np.array([index[occupant.node] for occupant in occupants], dtype=np.int64)
        started_s = np.array([occupant.started_s for occupant in occupants], dtype=np.float64)
        ends_s = np.array([occupant.ends_s for occupant in occupants], dtype=np.float64)

        groups = [occupant.group for occupant in occupants]
        return _Rows.of(pods, node, started_s, ends_s, self._shapes.numbers(pods), groups)
