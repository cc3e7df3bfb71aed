"""Number of replicas of each controller on each node, updated with every pod.

Invariant: the numbers are those of the pods that are counted, on nodes that are known or not. What was `shown` never
changes: a controller's numbers are copied when they change after that. So neither a snapshot nor a plan counts pods.
"""

from __future__ import annotations

from collections.abc import Mapping

from gangsched.model.objects import Pod

NOWHERE: Mapping[str, int] = {}


class Replicas:
    """The numbers by the controller's uid and the node's name."""

    def __init__(self) -> None:
        self._counts: dict[str, dict[str, int]] = {}
        self._unshown: set[str] = set()  # controllers whose numbers may be changed in place

    def count(self, pod: Pod, node: str, sign: int) -> None:
        """Count a pod onto a node (+1) or off it (-1); nothing if no controller replicates it."""
        uid = pod.replica_of
        if not uid:
            return
        if uid not in self._unshown:
            self._counts[uid] = dict(self._counts.get(uid, NOWHERE))
            self._unshown.add(uid)
        counts = self._counts[uid]
        counts[node] = counts.get(node, 0) + sign
        if not counts[node]:
            del counts[node]
        if not counts:
            del self._counts[uid]
            self._unshown.discard(uid)

    def recount(self, residents: Mapping[str, Mapping[str, Pod]]) -> None:
        """Count these pods by node and uid, and no others."""
        self._counts, self._unshown = {}, set()
        for node, pods in residents.items():
            for pod in pods.values():
                self.count(pod, node, +1)

    def shown(self) -> Mapping[str, Mapping[str, int]]:
        """Current numbers, for a snapshot."""
        self._unshown.clear()
        return dict(self._counts)
