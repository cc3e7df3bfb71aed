"""kube-scheduler's NodePorts: a host port can be used once per node, protocol and address.

An empty address and 0.0.0.0 stand for all addresses; `::` does not.
"""

from __future__ import annotations

from collections.abc import Iterator

from gangsched.core.filter.plugin import Occupancy, StatefulFilter
from gangsched.model.objects import Pod
from gangsched.model.pods_by_node import UsingPort
from gangsched.model.snapshot import RefusedNodes

REFUSED = "node(s) didn't have free ports for the requested pod ports"


class NodePorts(StatefulFilter):
    """Nodes with the pod's host ports free. A pod's own ports do not conflict with each other."""

    lasting = True

    def applies(self, pod: Pod, occupancy: Occupancy) -> bool:
        return bool(pod.shape.constraints.ports)

    def refusals(self, pod: Pod, occupancy: Occupancy) -> Iterator[RefusedNodes]:
        for port in pod.shape.constraints.ports:
            occupancy.work.charge(10 + len(occupancy.table) // 300)
            # "" as the topology key: each node is its own domain.
            yield RefusedNodes(REFUSED, occupancy.pods.by_domain(UsingPort(port), "").by_node() > 0)
