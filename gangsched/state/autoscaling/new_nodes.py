"""Nodes that were added to the cluster recently, or that are being added now (semantics E9).

Invariant: pure functions of the node table, cached until it changes. A node counts for the shapes
that its labels and taints allow, whatever room it has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
from msgspec import structs

from gangsched.core.filter import static_fit
from gangsched.model.objects import Node, Shape
from gangsched.model.snapshot import Bools, Ints, NodeTable
from gangsched.state.cluster import Cluster

SETTLED_S: Final = 300
"""A node that is younger may be one of several that an autoscaler still adds."""
BOOTS_S: Final = 1_200
"""A node that is not ready by then is not being added any more: cluster-autoscaler removes it."""
BOOT_TAINTS: Final = frozenset(
    {
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/network-unavailable",
        "node.cloudprovider.kubernetes.io/uninitialized",
        "karpenter.sh/unregistered",
    }
)
"""Keys of the taints that a new node has until it is ready."""
NEWEST: Final = 1_000
"""New nodes that are looked at for whether they boot, the newest."""


class NodeChanges:
    """Notices that the cluster has other nodes, or that one of them has changed."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._table: NodeTable | None = None

    def any_new(self) -> bool:
        """Whether there is a change that was not noticed before."""
        table = self._cluster.table()
        before = self._table
        self._table = table
        return table is not before


class NewNodes:
    """Asked about the nodes of a cluster as they are now."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._table = NodeTable.of(())
        self._created_s: Ints = np.zeros(0, dtype=np.int64)
        #: Indices of the nodes, the oldest first.
        self._by_age: Ints = np.zeros(0, dtype=np.int64)
        #: Those that boot or booted recently, without the taints that they have meanwhile.
        self._young = NodeTable.of(())

    def usable(self, shapes: Iterable[Shape]) -> int:
        """The number of nodes that pods of one of these shapes may use."""
        self._refresh()
        return int(_mask(shapes, self._table).sum())

    def added(self, shapes: Iterable[Shape], since_s: float) -> frozenset[str]:
        """Usable nodes that were created at epoch second `since_s` or later."""
        self._refresh()
        new = self._created_s >= np.int64(since_s)
        if not new.any():
            return frozenset()

        usable = _mask(shapes, self._table)
        indices = np.flatnonzero(new & usable)
        return frozenset(self.names(indices))

    def came(self, shapes: Iterable[Shape], since_s: float) -> Ints:
        """Indices of the nodes that `added` returns, the oldest first."""
        self._refresh()
        new = self._created_s >= np.int64(since_s)
        if not new.any():
            return self._by_age[:0]

        wanted = new & _mask(shapes, self._table)
        return self._by_age[wanted[self._by_age]]

    def names(self, indices: Ints) -> Iterator[str]:
        """The names of nodes of the present table."""
        for index in indices:
            yield self._table.names[index]

    def is_among(self, name: str, indices: Ints) -> bool:
        """Whether a node is one of these."""
        index = self._table.index.get(name)
        if index is None:
            return False

        return bool((indices == index).any())

    def being_added_until_s(self, shapes: Iterable[Shape], wall_s: float) -> float | None:
        """The epoch second until which nodes that these shapes may use are probably still being
        added; None if none is.

        A node that is ready counts for `SETTLED_S`, and one that is not for `BOOTS_S`.
        """
        self._refresh()
        until_s: list[float] = []
        usable = _mask(shapes, self._young)

        for index in np.flatnonzero(usable):
            node = self._young.nodes[index]
            limit_s = SETTLED_S
            if self._boots(node.name):
                limit_s = BOOTS_S

            until_s.append(node.creation_s + limit_s)

        last_s = max(until_s, default=0.0)
        return last_s if last_s > wall_s else None

    def _boots(self, name: str) -> bool:
        node = self._table.nodes[self._table.index[name]]
        return any(taint.key in BOOT_TAINTS for taint in node.taints)

    def _refresh(self) -> None:
        table = self._cluster.table()
        if table is self._table:
            return

        self._table = table
        created_s: list[int] = []
        for node in table.nodes:
            created_s.append(node.creation_s)

        self._created_s = np.array(created_s, dtype=np.int64)
        self._by_age = np.argsort(self._created_s, kind="stable")

        # By age among themselves, as no clock of ours says how old a node is.
        newest_s = max(created_s, default=0)
        young: list[Node] = []
        for node in table.nodes:
            if node.creation_s > newest_s - BOOTS_S:
                young.append(node)

        young.sort(key=_creation_s, reverse=True)
        self._young = NodeTable.of(map(_booted, young[:NEWEST]))


def _mask(shapes: Iterable[Shape], table: NodeTable) -> Bools:
    mask = np.zeros(len(table), dtype=np.bool_)
    for shape in shapes:
        mask |= static_fit(shape, table).mask

    return mask


def _creation_s(node: Node) -> int:
    return node.creation_s


def _booted(node: Node) -> Node:
    """The node as it is once it is ready."""
    taints = tuple(taint for taint in node.taints if taint.key not in BOOT_TAINTS)
    if len(taints) == len(node.taints):
        return node

    return structs.replace(node, taints=taints)
