"""The cluster as input of `plan`: nodes as columns.

Invariant: a snapshot is immutable. Node columns are sorted by node name, so the lowest index is the
first name, and no decision depends on the order of events. `NodeTable` only caches pure functions
of itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping, Set
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import structs

from gangsched.model.nominated_room import ColumnLayout, NominatedRoom, Nomination
from gangsched.model.objects import Node, Pod, Shape, Taint
from gangsched.model.pods_by_node import PodsByNode
from gangsched.model.storage import Storage

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Codes = npt.NDArray[np.int32]
LABEL_COLUMNS_LIMIT = 512


@dataclass(frozen=True, slots=True, eq=False)
class LabelColumn:
    """One label key over all nodes: `codes[node]` indexes `values`; -1 where the node lacks the
    label.
    """

    codes: Codes
    values: tuple[str, ...]


class RefusedNodes(NamedTuple):
    """Refused nodes as a mask, and the reason as kube-scheduler words it."""

    reason: str
    nodes: Bools


@dataclass(frozen=True, slots=True, eq=False)
class StaticFit:
    """Result of the static filters for one shape. `mask[node]` is true where its pods may run;
    `refused` has every node that is not in the mask exactly once.
    """

    mask: Bools
    refused: tuple[RefusedNodes, ...]


@dataclass(frozen=True, slots=True, eq=False)
class NodeTable:
    """Node attributes that filters read, except room; a new table is created when any of them
    changes.

    `tainted` maps each set of taints to the indices of the nodes that have it. `schedulable[n]` is
    false for a cordoned node. Read-only.
    """

    nodes: tuple[Node, ...]
    names: tuple[str, ...]
    index: Mapping[str, int]
    tainted: Mapping[tuple[Taint, ...], Ints]
    schedulable: Bools
    label_columns: dict[str, LabelColumn] = field(default_factory=dict)
    known_label_keys: list[Set[str]] = field(default_factory=list)
    """`label_keys`, if they were asked for."""
    static_fits: MutableMapping[Shape, StaticFit] = field(default_factory=WeakKeyDictionary)
    penalties: MutableMapping[Shape, Ints | None] = field(default_factory=WeakKeyDictionary)
    # by spread constraint
    eligible: MutableMapping[Shape, dict[int, Bools]] = field(default_factory=WeakKeyDictionary)
    levels: dict[tuple[str, ...], Any] = field(default_factory=dict)
    """`core.topology.TopologyLevel` by its labels."""
    judged: dict[str, Any] = field(default_factory=dict)
    """Results of sums about domains, and the room that they are about (`core.search.judging`)."""
    packings: dict[bytes, Any] = field(default_factory=dict)
    """Facts about packings by content (`core.search.facts`); true of every table, so the next one
    gets them.
    """
    topology_keys: tuple[str, ...] = ()
    """Labels of the known levels, smallest domains first: they tell which of two labels is coarser
    where domains of the other have the same names in several of its domains.
    """

    @classmethod
    def of(
        cls,
        nodes: Iterable[Node],
        before: NodeTable | None = None,
        *,
        topology_keys: tuple[str, ...] = (),
    ) -> NodeTable:
        """Build a table of `nodes`, sorted by name. Cached results about packings are taken from
        `before`.
        """
        # Sorted: the lowest index breaks ties in scoring, and must not depend on the order of a
        # list or watch.
        ordered = tuple(sorted(nodes, key=lambda node: node.name))
        names = tuple(node.name for node in ordered)

        # nodes of one pool have the same taints: few lists
        tainted: dict[tuple[Taint, ...], list[int]] = {}
        for index, node in enumerate(ordered):
            if node.taints:
                tainted.setdefault(node.taints, []).append(index)

        schedulable = np.array([not node.unschedulable for node in ordered], dtype=np.bool_)
        schedulable.flags.writeable = False
        indices = {taints: np.array(nodes) for taints, nodes in tainted.items()}

        # Keyed by content, so they hold whatever the nodes are; all other caches begin empty with
        # the table.
        packings = before.packings if before is not None else {}
        index_of = {name: index for index, name in enumerate(names)}
        return cls(
            ordered,
            names,
            index_of,
            indices,
            schedulable,
            packings=packings,
            topology_keys=topology_keys,
        )

    def __len__(self) -> int:
        return len(self.nodes)

    def everywhere(self) -> Bools:
        """A new mask that is true for all nodes."""
        return np.ones(len(self), dtype=np.bool_)

    def having(self, names: Iterable[str]) -> Bools:
        """A new mask that is true for the nodes with these names; unknown names are ignored."""
        mask = np.zeros(len(self), dtype=np.bool_)
        known = [number for number in map(self.index.get, names) if number is not None]
        mask[known] = True
        return mask

    @property
    def label_keys(self) -> Set[str]:
        """The keys of all labels of nodes, cached."""
        if not self.known_label_keys:
            none = frozenset[str]()
            keys = none.union(*(node.labels for node in self.nodes))
            self.known_label_keys.append(keys)

        return self.known_label_keys[0]

    def label_column(self, key: str) -> LabelColumn:
        """Values of one label over all nodes, cached."""
        column = self.label_columns.get(key)
        if column is None:
            code_of: dict[str, int] = {}
            codes = [
                (
                    -1
                    if (value := node.labels.get(key)) is None
                    else code_of.setdefault(value, len(code_of))
                )
                for node in self.nodes
            ]

            if len(self.label_columns) >= LABEL_COLUMNS_LIMIT:
                self.label_columns.clear()  # keys may be any text of a user's selector

            column = self.label_columns[key] = LabelColumn(
                np.array(codes, dtype=np.int32),
                tuple(code_of),
            )

        return column


class Snapshot(msgspec.Struct, frozen=True, eq=False):
    """A consistent view of the cluster. Amounts are exact; rows are as in `resources`, nodes as in
    `table`.
    """

    table: NodeTable
    resources: Mapping[str, int]
    allocatable: Ints
    #: `free[r][n]` excludes the room of bound, assumed and held pods, and is negative on an
    #: over-committed node.
    free: Ints
    #: The pods that use room.
    pods_by_node: PodsByNode = msgspec.field(default_factory=PodsByNode)
    #: Claims and volumes.
    storage: Storage = msgspec.field(default_factory=Storage)
    #: Nominated room, which is not subtracted from `free`.
    nominated: NominatedRoom = msgspec.field(default_factory=NominatedRoom)
    #: `overhead[r][n]` is used by pods that end only with the node (`Pod.ends_with_node`); None if
    #: there are none.
    overhead: Ints | None = None
    #: `served[name][n]`: node `n` offers that extended resource only through devices, and its
    #: amount is an upper limit.
    served: Mapping[str, Bools] = msgspec.field(default_factory=dict)

    def with_room_of(self, placed: Iterable[tuple[Pod, str]]) -> Snapshot:
        """The snapshot as if these pods, each with its node, used no room. What else depends on
        them, such as ports, volumes and spreading, stays.
        """
        free = self.free.copy()
        for pod, name in placed:
            node = self.table.index.get(name)
            if node is None:
                continue

            for resource, amount in pod.shape.requests:
                row = self.resources.get(resource)
                if row is not None:
                    free[row, node] += amount

        return structs.replace(self, free=free)

    def emptied(self) -> Ints:
        """`room[r][n]` of an empty cluster, in which only pods that end with their node
        (DaemonSets, mirror pods) use room. Read-only.
        """
        # At 0, since DaemonSets bound past the scheduler may use more than there is.
        if self.overhead is None:
            return self.allocatable

        left: Ints = np.maximum(self.allocatable - self.overhead, 0)
        return left

    @property
    def layout(self) -> ColumnLayout:
        """Meaning of the rows and columns of `free`."""
        return ColumnLayout(self.resources, self.table.index)

    @property
    def nominations(self) -> tuple[Nomination, ...]:
        """All promises of room, in any order."""
        return tuple(self.nominated.by_key.values())
