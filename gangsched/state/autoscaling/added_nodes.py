"""The nodes that an autoscaler added for a request, and that are reserved for its group (semantics
E10).

Invariant: a node is reserved for one group, and only where the class of its request adds nodes: as
many as the group needs, of those that nothing shows to have been added for others.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Final

from gangsched.model.provisioning import NodeFence, ProvisioningRequest
from gangsched.model.snapshot import Ints
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
        #: The names of all reserved nodes.
        self._reserved: set[str] = set()
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
        provisioned: Sequence[ProvisioningRequest],
    ) -> None:
        """Reserve nodes that came for these requests of the group, as many as it needs."""
        # An autoscaler accepts a request before it adds nodes for it.
        since_s = min(max(existing.creation_s, existing.accepted_s) for existing in provisioned)
        came = self._nodes.came(request.shapes, since_s)
        marks = _marks(request, provisioned)
        if not marks:
            came = came[:0]

        kept: list[str] = []
        for name in request.fenced:
            if self._nodes.is_among(name, came) and self._is_brought(name, marks):
                kept.append(name)

        self._reserved.difference_update(request.fenced)
        self._reserved.update(kept)
        fenced = self._enough(chain(kept, self._candidates(came, marks)), request)
        self._reserved.update(fenced)

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
        self._reserved.difference_update(request.fenced)
        request.fenced = ()
        self.groups.discard(group.id)

    # --- which nodes -----------------------------------------------------------------------------

    def _is_brought(self, name: str, marks: frozenset[str]) -> bool:
        """Whether the node may have been added for a request with these marks, and for nobody
        else.
        """
        labels = self._cluster.nodes[name].labels
        return OF_KARPENTER not in labels and labels.get(QUEUED_MARK, "") in marks

    def _candidates(self, came: Ints, marks: frozenset[str]) -> Iterator[str]:
        """Those of the nodes that are nobody's, the oldest first; nothing is looked at before one
        is needed, as thousands may be new.
        """
        for name in self._nodes.names(came):
            is_free = name not in self._reserved and self._is_empty(name)
            if is_free and self._is_brought(name, marks):
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

    def _is_empty(self, name: str) -> bool:
        residents = self._cluster.residents(name)
        return all(pod.ends_with_node for pod in residents.values())


def _marks(request: NodeRequest, provisioned: Iterable[ProvisioningRequest]) -> frozenset[str]:
    """What the label `QUEUED_MARK` may be on nodes that these requests brought, "" for none; empty
    if their classes add no nodes.
    """
    marks: set[str] = set()
    for existing in provisioned:
        class_name = request.orders[existing.key].class_name
        if class_name == BEST_EFFORT:
            marks.add("")
        elif class_name == QUEUED:
            marks.add(existing.resize_request or existing.name)

    return frozenset(marks)
