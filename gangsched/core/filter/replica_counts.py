"""Nodes near other replicas of a controller during a plan: kube-scheduler's default spread.

Invariant: the numbers are those of the snapshot plus every move of the plan, each counted once. A plan that needs no
controller does no work; otherwise each move is read once, however many controllers are needed.

kube-scheduler's default constraints are zones with maxSkew 5 and nodes with maxSkew 3, both ScheduleAnyway: a node
costs the replicas in its zone times log(zones + 2), plus 4 if it has a zone, plus its own replicas times log(nodes +
2). In kube-scheduler only nodes that the pod may use count as nodes and zones. Here all nodes count, so that the cost
of a node depends only on the running replicas, and can be updated instead of being computed for each pod.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gangsched.model.objects import Pod
from gangsched.model.snapshot import Codes, Ints, NodeTable

ZONE = "topology.kubernetes.io/zone"
OF_A_ZONE = 5 - 1
"""What a zone costs by itself, maxSkew - 1. What a node does is the same for every node."""
SCALE = 1_000
"""Costs are whole numbers, so that what is taken back leaves exactly what was there."""


@dataclass(slots=True)
class SpreadCost:
    """`cost[n]` of node `n`; `codes[n]` is its zone, -1 without one. A replica costs `for_zone` and `for_node`."""

    cost: Ints
    codes: Codes
    for_zone: int
    for_node: int

    def add(self, number: int, node: int) -> None:
        """Count `number` more replicas on a node."""
        self.cost[node] += number * self.for_node
        if (zone := self.codes[node]) >= 0:
            self.cost += (self.codes == zone) * (number * self.for_zone)


class ReplicaCounts:
    """Costs of the controllers that this plan needs; `seen` is the number of moves counted so far."""

    def __init__(self, table: NodeTable, replicas: Mapping[str, Mapping[str, int]]) -> None:
        self._table, self._replicas = table, replicas
        self._known: dict[str, SpreadCost] = {}
        self._moved: defaultdict[str, Counter[int]] = defaultdict(Counter)
        self.seen = 0

    def of(self, uid: str, moves: Sequence[tuple[Sequence[Pod], Sequence[int], int]]) -> SpreadCost:
        """Spread cost of each node after these moves, a list that only grows; the result is overwritten later."""
        for pods, nodes, sign in moves[self.seen :]:
            for pod, node in zip(pods, nodes, strict=True):
                if owner := pod.replica_of:
                    self._moved[owner][node] += sign
                    if owner in self._known:
                        self._known[owner].add(sign, node)
        self.seen = len(moves)
        known = self._known.get(uid)
        if known is None:
            known = self._known[uid] = self._start(uid)
        return known

    def _start(self, uid: str) -> SpreadCost:
        column, index = self._table.label_column(ZONE), self._table.index
        numbers, zones = np.zeros(len(self._table), dtype=np.int64), len(column.values)
        for name, number in self._replicas.get(uid, {}).items():
            if (node := index.get(name)) is not None:
                numbers[node] += number
        for node, number in self._moved[uid].items():
            numbers[node] += number
        for_zone, for_node = (round(SCALE * math.log(size + 2)) for size in (zones, len(self._table)))
        by_zone = np.zeros(zones + 1, dtype=np.int64)
        np.add.at(by_zone, column.codes, numbers)
        by_zone = by_zone * for_zone + SCALE * OF_A_ZONE
        by_zone[-1] = 0  # of nodes without a zone
        return SpreadCost(by_zone[column.codes] + numbers * for_node, column.codes, for_zone, for_node)
