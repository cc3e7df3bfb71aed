"""Nodes and what occupies them, kept as columns for `core`.

Law: a pod occupies at most one node, keyed by uid, whether it is bound, assumed (bind under way) or held; the columns
are always the exact sum. Pods on nodes that are not known (yet) are remembered and counted once the node appears.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import numpy as np

from gangsched.model.objects import Node
from gangsched.model.resources import PODS, ResourceVector
from gangsched.model.snapshot import Ints, NodeTable, Snapshot


class Cluster:
    """`occupy` and `vacate` move pods, `apply_node` and `drop_node` move nodes, `snapshot` shows the result."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._places: dict[str, tuple[str, ResourceVector]] = {}
        self._used: dict[str, dict[str, int]] = defaultdict(dict)
        self._resources: dict[str, int] = {PODS: 0}
        self._table = NodeTable.of(())
        self._allocatable: Ints = np.zeros((1, 0), dtype=np.int64)
        self._free: Ints = np.zeros((1, 0), dtype=np.int64)
        self._stale_table = False
        self._stale_columns = False
        self._snapshot: Snapshot | None = None
        self._grown: set[str] = set()

    def __len__(self) -> int:
        return len(self._nodes)

    @property
    def node_names(self) -> frozenset[str]:
        """The nodes there are."""
        return frozenset(self._nodes)

    def node_of(self, uid: str) -> str:
        """Where a pod is bound, assumed or held; "" if nowhere."""
        place = self._places.get(uid)
        return place[0] if place else ""

    def apply_node(self, node: Node) -> None:
        """Add or change a node; a change that no decision looks at costs nothing."""
        old = self._nodes.get(node.name)
        if old is not None and old == node:
            return
        self._nodes[node.name] = node
        self._snapshot = None
        self._grown.add(node.name)
        if old is None or any(name not in self._resources for name, _ in node.allocatable):
            self._stale_columns = self._stale_table = True
            return
        if _attributes(old) != _attributes(node):
            self._stale_table = True
        if old.allocatable != node.allocatable and not self._stale_columns:
            self._fill_column(self._table.index[node.name], node)

    def drop_node(self, name: str) -> None:
        """Forget a node; what occupies it stays remembered until its pods go."""
        if self._nodes.pop(name, None) is not None:
            self._stale_columns = self._stale_table = True
            self._snapshot = None

    def occupy(self, uid: str, node: str, requests: ResourceVector) -> None:
        """Put a pod on a node, taking it from where it was; occupying the same place again changes nothing."""
        old = self._places.get(uid)
        if old is not None:
            if old == (node, requests):
                return
            self.vacate(uid)
        self._places[uid] = (node, requests)
        self._move(node, requests, +1)

    def vacate(self, uid: str) -> None:
        """Give back the room of a pod, if it has any."""
        place = self._places.pop(uid, None)
        if place is not None:
            self._move(*place, -1)
            self._grown.add(place[0])

    def occupants(self) -> Iterable[str]:
        """The uids of all pods that take room."""
        return self._places.keys()

    def take_grown(self) -> set[str]:
        """Nodes on which something changed that could help a refused group, since last asked (semantics Q3)."""
        grown, self._grown = self._grown, set()
        return grown

    def fits(self, uid: str) -> bool:
        """Whether the node of an occupant holds all its pods, as far as this pod's resources go."""
        node, requests = self._places[uid]
        self._refresh()
        index = self._table.index.get(node)
        return index is not None and all(
            name in self._resources and self._free[self._resources[name], index] >= 0 for name, _ in requests
        )

    def table(self) -> NodeTable:
        """The node table as of now."""
        self._refresh()
        return self._table

    def snapshot(self) -> Snapshot:
        """The columns as of now; the same object until something changes."""
        self._refresh()
        if self._snapshot is None:
            allocatable, free = self._allocatable.copy(), self._free.copy()
            allocatable.flags.writeable = free.flags.writeable = False
            self._snapshot = Snapshot(self._table, dict(self._resources), allocatable, free)
        return self._snapshot

    def _move(self, node: str, requests: ResourceVector, sign: int) -> None:
        used = self._used[node]
        for name, amount in requests:
            used[name] = used.get(name, 0) + sign * amount
        if not any(used.values()):
            del self._used[node]
        self._snapshot = None
        if self._stale_columns:
            return
        index = self._table.index.get(node)
        if index is not None:
            for name, amount in requests:
                row = self._resources.get(name)
                if row is not None:
                    self._free[row, index] -= sign * amount

    def _refresh(self) -> None:
        if self._stale_table:
            self._table = NodeTable.of(self._nodes.values())
            self._stale_table = False
        if self._stale_columns:
            for node in self._table.nodes:
                for name, _ in node.allocatable:
                    self._resources.setdefault(name, len(self._resources))
            self._allocatable = np.zeros((len(self._resources), len(self._table)), dtype=np.int64)
            self._free = np.zeros_like(self._allocatable)
            for index, node in enumerate(self._table.nodes):
                self._fill_column(index, node)
            self._stale_columns = False

    def _fill_column(self, index: int, node: Node) -> None:
        self._allocatable[:, index] = 0
        for name, amount in node.allocatable:
            self._allocatable[self._resources[name], index] = amount
        self._free[:, index] = self._allocatable[:, index]
        for name, amount in self._used.get(node.name, {}).items():
            row = self._resources.get(name)
            if row is not None:
                self._free[row, index] -= amount


def _attributes(node: Node) -> tuple[object, ...]:
    """What filters read of a node, room aside."""
    return (node.labels, node.taints, node.unschedulable)
