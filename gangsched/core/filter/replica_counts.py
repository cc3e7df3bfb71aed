"""Costs of kube-scheduler's default spread during a plan: nodes near the peers of a pod cost more.

Invariant: the counts are the snapshot's plus every move of the plan, each move counted once. A plan
in which no pod has peers has no cost; otherwise each move is read once, however many peers there
are.

kube-scheduler's default constraints are zones with maxSkew 5 and nodes with maxSkew 3, both
ScheduleAnyway: the cost of a node is the number of peers in its zone times log(zones + 2), plus 4
if it has a zone, plus the number of peers on it times log(nodes + 2). In kube-scheduler only nodes
that the pod may use count as nodes and zones. Here all nodes count, so that the cost of a node
depends only on the running peers, and can be updated instead of being computed for each pod.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gangsched.model.objects import Pod
from gangsched.model.peers import Behind, PeerKey, PeerNumbers
from gangsched.model.snapshot import Codes, Ints, NodeTable

ZONE = "topology.kubernetes.io/zone"
OF_A_ZONE = 5 - 1
"""Cost of a zone by itself, maxSkew - 1. That of a node is the same for every node."""
# log() is not exact; integers add and subtract without a remainder.
SCALE = 1_000
"""Costs are whole numbers, so that what is taken back leaves exactly what was there."""
FARTHEST = 2**48
"""Above every cost."""


@dataclass(slots=True)
class SpreadCost:
    """`cost[n]` of node `n`; `codes[n]` is its zone, -1 for none. One more pod adds `for_zone` in
    its zone and `for_node` on its node.

    `in_zone[zone]` is an array with `for_zone` on the nodes of that zone, computed once for all
    peers.
    """

    cost: Ints
    codes: Codes
    for_zone: int
    for_node: int
    in_zone: dict[int, Ints]

    def add(self, number: int, node: int) -> None:
        """Count `number` additional pods on a node; `number` is 1 or -1."""
        self.cost[node] += number * self.for_node
        zone = int(self.codes[node])
        if zone < 0:
            return

        added = self.in_zone.get(zone)
        if added is None:
            # Made once per zone and shared by all peers: each move would otherwise make an array of
            # all nodes.
            added = self.in_zone[zone] = (self.codes == zone) * self.for_zone

        if number > 0:
            self.cost += added
        else:
            self.cost -= added


@dataclass(slots=True)
class PeerMoves:
    """`counts[node]`: number of pods with one key that the plan moved to the node. `costs` are the
    costs that these pods change.
    """

    counts: dict[int, int]
    costs: list[SpreadCost]


class ReplicaCounts:
    """Costs for all peers that occur in this plan; `seen` is the number of moves counted so far."""

    def __init__(self, table: NodeTable, peers: PeerNumbers) -> None:
        self._table = table
        self._peers = peers

        # by uid: asked of a pod when it is placed, and again as a move
        self._keys: dict[str, tuple[PeerKey, ...]] = {}
        self._known: dict[PeerKey, SpreadCost] = {}
        self._moved: dict[PeerKey, PeerMoves] = {}
        self._in_zone: dict[int, Ints] = {}
        self.seen = 0

    def keys(self, pod: Pod) -> tuple[PeerKey, ...]:
        """The keys of a pod, as in `PeerNumbers.keys`."""
        keys = self._keys.get(pod.uid)
        if keys is None:
            keys = self._keys[pod.uid] = self._peers.keys(pod)

        return keys

    def follow(self, moves: Sequence[tuple[Sequence[Pod], Sequence[int], int]]) -> int:
        """Count the moves made since the last call; return the number of pods in them."""
        counted = 0
        for pods, nodes, sign in moves[self.seen :]:
            counted += len(pods)
            for pod, node in zip(pods, nodes, strict=True):
                for key in self.keys(pod):
                    moved = self._moved.get(key)
                    if moved is None:
                        moved = self._moved[key] = PeerMoves({}, self._costs_of(key))

                    moved.counts[node] = moved.counts.get(node, 0) + sign
                    for cost in moved.costs:
                        cost.add(sign, node)

        self.seen = len(moves)
        return counted

    def of(self, key: PeerKey) -> SpreadCost:
        """The costs for the peers with this key, as of the last `follow`. Later moves change the
        arrays in place.
        """
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._start(key)

        return known

    def _costs_of(self, moved: PeerKey) -> list[SpreadCost]:
        """The costs that the pods of a key change: its own, and those behind fewer Services."""
        if isinstance(moved, Behind):
            # A pod behind Services A and B counts for the peers of A, of B, and of both.
            costs_of: list[SpreadCost] = []
            for key, cost in self._known.items():
                if isinstance(key, Behind) and key.includes(moved):
                    costs_of.append(cost)

            return costs_of

        if moved not in self._known:
            return []

        return [self._known[moved]]

    def _moves_of(self, key: PeerKey) -> list[PeerMoves]:
        """The moves that count for a key."""
        if isinstance(key, Behind):
            result: list[PeerMoves] = []
            for moved, moves in self._moved.items():
                if key.includes(moved):
                    result.append(moves)

            return result

        if key not in self._moved:
            return []

        return [self._moved[key]]

    def _start(self, key: PeerKey) -> SpreadCost:
        column = self._table.label_column(ZONE)
        index = self._table.index
        there: dict[int, int] = {}

        for name, number in self._peers.numbers(key):
            node = index.get(name)
            if node is not None:
                there[node] = there.get(node, 0) + number

        moved = self._moves_of(key)
        for moves in moved:
            for node, number in moves.counts.items():
                there[node] = there.get(node, 0) + number

        size = len(there)
        nodes = np.fromiter(there.keys(), dtype=np.int64, count=size)
        numbers = np.fromiter(there.values(), dtype=np.int64, count=size)
        zones = len(column.values)
        weight_of_zones = math.log(zones + 2)
        weight_of_nodes = math.log(len(self._table) + 2)
        for_zone = round(SCALE * weight_of_zones)
        for_node = round(SCALE * weight_of_nodes)
        by_zone = np.zeros(zones + 1, dtype=np.int64)
        np.add.at(by_zone, column.codes[nodes], numbers)
        by_zone = by_zone * for_zone + SCALE * OF_A_ZONE

        # Code -1 takes the last entry (mode="wrap"): a node without a zone has no cost for it.
        by_zone[-1] = 0  # of nodes without a zone
        cost = by_zone.take(column.codes, mode="wrap")
        cost[nodes] += numbers * for_node
        spread_cost = SpreadCost(cost, column.codes, for_zone, for_node, self._in_zone)

        for moves in moved:
            # Later moves of these pods update the new cost, too.
            moves.costs.append(spread_cost)

        return spread_cost
