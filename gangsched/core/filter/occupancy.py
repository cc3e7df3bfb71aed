"""Usage of the nodes during one plan: free room, the pods on each node, storage.

Invariant: stateful filters read nothing else. Every reservation updates it, and undoing a reservation restores it
exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from gangsched.core.filter.pod_counts import PodCounts
from gangsched.core.filter.volumes.storage_use import StorageUse
from gangsched.core.work import Work
from gangsched.model.objects import Pod
from gangsched.model.snapshot import Ints, NodeTable


@dataclass(frozen=True, slots=True)
class Occupancy:
    """`free[r][node]` in exact units, rows as in `resources`; pods by topology domain; storage in use."""

    table: NodeTable
    resources: Mapping[str, int]
    free: Ints
    pods: PodCounts
    storage: StorageUse
    work: Work = field(default_factory=Work)

    def move(self, pods: Sequence[Pod], nodes: Sequence[int], sign: int) -> None:
        """Move `pods[i]`, all of one shape, onto node `nodes[i]` (+1) or off it (-1); the ledger updates `free`."""
        self.pods.move(pods, nodes, sign)
        for pod, node in zip(pods, nodes, strict=True):
            if pod.claims:
                # Pods without claims never reach the storage, so that they pay nothing for it.
                (self.storage.come if sign > 0 else self.storage.go)(pod, node)

    def come(self, pods: Sequence[Pod], nodes: Sequence[int]) -> None:
        """Add `pods[i]` to node `nodes[i]`; the pods may have different shapes."""
        self.pods.come(pods, nodes)
        for pod, node in zip(pods, nodes, strict=True):
            if pod.claims:
                self.storage.come(pod, node)

    def leave(self, pods: Sequence[Pod], nodes: Sequence[int], claiming: Sequence[int]) -> None:
        """Remove `pods[i]` from node `nodes[i]`; the pods may have different shapes, and those at the indices
        `claiming` have claims.
        """
        self.pods.leave(pods, nodes)
        for index in claiming:
            self.storage.go(pods[index], nodes[index])

    def take_back_leave(self, pods: Sequence[Pod], nodes: Sequence[int], claiming: Sequence[int]) -> None:
        """Undo a `leave`; the newest is undone first."""
        self.pods.take_back(pods, nodes, -1)
        for index in reversed(claiming):
            self.storage.come_back(pods[index], nodes[index])

    def take_back(self, pods: Sequence[Pod], nodes: Sequence[int], sign: int) -> None:
        """Undo a `move`; the newest is undone first."""
        self.pods.take_back(pods, nodes, sign)
        # In reverse: volumes picked for a later pod depend on those of an earlier one.
        for pod, node in zip(reversed(pods), reversed(nodes), strict=True):
            if pod.claims:
                (self.storage.go if sign > 0 else self.storage.come_back)(pod, node)

    def equivalence(self, pods: Sequence[Pod]) -> Callable[[Pod], Hashable]:
        """Return a key function for `pods`: every filter and preference gives the same result for pods with equal keys.

        The key consists of the shape, the claims, the namespace, and the labels that any term reads.
        """
        keys = self.pods.label_keys(pods)
        # Comparing claims is charged per pod; plain pods must not pay for it.
        claims = self.storage.equivalence if any(pod.claims for pod in pods) else None
        if keys is None:
            return (lambda pod: (id(pod.shape), claims(pod))) if claims else lambda pod: id(pod.shape)
        # A fixed order makes the keys of all pods comparable.
        ordered = sorted(keys)
        return lambda pod: (id(pod.shape), pod.namespace, claims and claims(pod), *map(pod.labels.get, ordered))
