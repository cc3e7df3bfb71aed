"""The nodes that an autoscaler added for a request, and that are reserved for its group (semantics
E10).

Invariant: a node is reserved for one group, and only where the class of its request adds nodes: as
many as the group needs, of those that nothing shows to have been added for others.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final

from gangsched.model.provisioning import NodeFence, ProvisioningRequest
from gangsched.state.autoscaling.new_nodes import NewNodes
from gangsched.state.autoscaling.node_request import NodeRequest
from gangsched.state.cluster import Cluster
from gangsched.state.group_record import GroupRecord
from gangsched.state.groups import Registry

BEST_EFFORT: Final = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
QUEUED: Final = "queued-provisioning.gke.io"
"""The classes that add nodes. Any other one may only look for room, as
`check-capacity.autoscaling.x-k8s.io` does, so that new nodes were added for somebody else.
"""
QUEUED_MARK: Final = "autoscaling.gke.io/provisioning-request"
"""The label of the nodes of a `QUEUED` request: the request's detail ResizeRequestName."""
OF_KARPENTER: Final = "karpenter.sh/nodepool"
"""The label of nodes that Karpenter added, which knows no ProvisioningRequests."""


class AddedNodes:
    """The reserved nodes of all groups; a request that is given is provisioned."""

    def __init__(self, registry: Registry, cluster: Cluster) -> None:
        self._registry = registry
        self._cluster = cluster
        self._nodes = NewNodes(cluster)
        #: Groups of whose nodes some have come.
        self.groups: set[str] = set()

    def fences(self, now_s: float) -> tuple[NodeFence, ...]:
        """The nodes that were added for groups which have not started on them yet."""
        fences: list[NodeFence] = []
        for group_id in sorted(self.groups):
            request = self._registry.groups[group_id].node_request
            if request is not None:
                priority = self._registry.group(group_id, now_s).priority
                fence = NodeFence(group_id, priority, request.fenced)
                fences.append(fence)

        return tuple(fences)

    def reserve(
        self,
        group: GroupRecord,
        request: NodeRequest,
        provisioned: Iterable[ProvisioningRequest],
    ) -> None:
        """Reserve nodes that came for these requests of the group, as many as it needs."""
        brought: set[str] = set()
        for existing in provisioned:
            brought |= self._brought(request, existing)

        kept = [name for name in request.fenced if name in brought]
        candidates = self._candidates(group, brought.difference(kept))
        fenced = self._enough(chain(kept, candidates), request)

        lost = set(request.fenced).difference(fenced)
        request.fenced = tuple(fenced)
        self._cluster.open(lost)
        if fenced:
            self.groups.add(group.id)
        else:
            self.groups.discard(group.id)

    def release(self, group: GroupRecord, request: NodeRequest) -> None:
        """Let everybody use the nodes of a group."""
        self._cluster.open(request.fenced)
        request.fenced = ()
        self.groups.discard(group.id)

    # --- which nodes -----------------------------------------------------------------------------

    def _brought(self, request: NodeRequest, existing: ProvisioningRequest) -> set[str]:
        """New nodes that may have been added for this request, and for nobody else."""
        class_name = request.orders[existing.key].class_name
        if class_name not in {BEST_EFFORT, QUEUED}:
            return set()

        # An autoscaler accepts a request before it adds nodes for it.
        since_s = max(existing.creation_s, existing.accepted_s)
        mark = ""
        if class_name == QUEUED:
            mark = existing.resize_request or existing.name

        brought: set[str] = set()
        for name in self._nodes.added(request.shapes, since_s):
            labels = self._cluster.nodes[name].labels
            if OF_KARPENTER not in labels and labels.get(QUEUED_MARK, "") == mark:
                brought.add(name)

        return brought

    def _candidates(self, group: GroupRecord, brought: set[str]) -> Iterator[str]:
        """Those of the nodes that are nobody's, the oldest first; nothing is looked at before one
        is needed, as thousands may be new.
        """
        for name in sorted(brought.difference(self._taken(group)), key=self._age):
            if self._is_empty(name):
                yield name

    def _enough(self, nodes: Iterable[str], request: NodeRequest) -> list[str]:
        """The first of these nodes that hold all pods of the request."""
        lacking = 0
        for order in request.orders.values():
            lacking += sum([pod_set.count for pod_set in order.pod_sets])

        fenced: list[str] = []
        for name in nodes:
            lacking -= self._places(name, request)
            fenced.append(name)
            if lacking <= 0:
                break

        return fenced

    def _places(self, name: str, request: NodeRequest) -> int:
        """How many pods of the largest shape the node holds if it is empty; at least one."""
        offered = dict(self._cluster.nodes[name].allocatable)
        least = math.inf
        for shape in request.shapes:
            for resource, amount in shape.requests:
                if amount:
                    least = min(least, offered.get(resource, 0) // amount)

        if least == math.inf:
            return 1

        return max(1, int(least))

    def _taken(self, group: GroupRecord) -> set[str]:
        """Nodes that are reserved for other groups."""
        taken: set[str] = set()
        for group_id in self.groups - {group.id}:
            other = self._registry.groups[group_id].node_request
            if other is not None:
                taken.update(other.fenced)

        return taken

    def _is_empty(self, name: str) -> bool:
        residents = self._cluster.residents(name)
        return all(pod.ends_with_node for pod in residents.values())

    def _age(self, name: str) -> tuple[int, str]:
        return self._cluster.nodes[name].creation_s, name
